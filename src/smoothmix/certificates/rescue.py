"""Rows of a certificate file that was deleted while it was being written. No torch."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from smoothmix._io.files import atomic_write
from smoothmix._io.text import counted
from smoothmix.certificates.settings import FileSettings, settings_path
from smoothmix.errors import SmoothmixError

TRIES = 1000
"""Names that are tried in one folder: rescued files are never overwritten."""


def rescue(path: Path, content: bytes, settings: FileSettings) -> Path | None:
    """Save rows beside a file that is gone, or in the working folder; None if nowhere."""
    for folder in _folders(path):
        target = _free_name(folder, path.stem)
        if target is None:
            continue
        try:
            settings.save(settings_path(target))
            atomic_write(target, content)
        except (OSError, SmoothmixError):
            # No room, or no right to write here.
            continue
        return target
    return None


def _folders(path: Path) -> Iterator[Path]:
    # A folder that was deleted is not made again: whoever deleted it does not expect it.
    if path.parent.is_dir():
        yield path.parent
    # The working folder may have been deleted as well.
    with suppress(OSError):
        yield Path.cwd()
    yield Path(tempfile.gettempdir())


def _free_name(folder: Path, stem: str) -> Path | None:
    for number in range(1, TRIES):
        target = folder / f"{stem}-rescued-{number}.tsv"
        if not os.path.lexists(target) and not os.path.lexists(settings_path(target)):
            return target
    return None


def lost_file(path: Path, rows: int, rescued: Path | None) -> SmoothmixError:
    """The error for a file that was deleted or replaced: what is left, and what to do."""
    what = f"{path}: was deleted or replaced while it was being written"
    if rescued is None:
        return SmoothmixError(
            f"{what}; what it held, {counted(rows, 'row')}, could not be saved and is lost"
        )
    return SmoothmixError(
        f"{what}; what it held, {counted(rows, 'row')}, is saved as {rescued}: rename it and "
        f"{settings_path(rescued).name} to {path.name} and {settings_path(path).name} in "
        f"{path.parent}, and run the same command again to resume"
    )
