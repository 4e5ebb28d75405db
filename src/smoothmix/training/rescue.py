"""A run whose folder was deleted or replaced while it trains: its state is saved elsewhere."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from smoothmix.config import RunConfig
from smoothmix.errors import SmoothmixError
from smoothmix.runs.folder import RunFolder
from smoothmix.training.checkpoint import State, save_state

TRIES = 1000
"""Names that are tried in one place: a rescued run never replaces another."""


def folder_identity(folder: RunFolder) -> tuple[int, int] | None:
    """Device and number of a run's folder, which a new one of the same name does not share."""
    try:
        status = folder.path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def rescue_run(folder: RunFolder, config: RunConfig, state: State) -> SmoothmixError:
    """Save a run in another folder; the error that says what happened, and where it is."""
    what = f"{folder.path}: was deleted or replaced while the run was training"
    for place in _places(folder.path):
        rescued = RunFolder(place)
        with suppress(OSError, SmoothmixError):
            config.save(rescued.config)
            save_state(rescued, state)
            return SmoothmixError(
                f"{what}; its settings and a checkpoint are saved in {place}: run the same "
                f"command with --out {place} to resume it"
            )
    return SmoothmixError(f"{what}, and it could not be saved anywhere else: it is lost")


def _places(path: Path) -> Iterator[Path]:
    """New folders beside the one that is gone, in the working folder, and for temporary files."""
    parents = [path.parent]
    with suppress(OSError):
        parents.append(Path.cwd())
    parents.append(Path(tempfile.gettempdir()))
    for parent in parents:
        if not parent.is_dir():
            continue
        for number in range(1, TRIES):
            place = parent / f"{path.name}-rescued-{number}"
            if not os.path.lexists(place):
                yield place
                break
