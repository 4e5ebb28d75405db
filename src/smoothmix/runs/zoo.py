"""Trained networks that come with the project: `zoo:NAME` instead of a run folder. No torch."""

from __future__ import annotations

import os
from pathlib import Path

from smoothmix.errors import UsageError, unknown_name
from smoothmix.runs.folder import RunFolder

PREFIX = "zoo:"
VARIABLE = "SMOOTHMIX_ZOO"


def is_zoo(run: Path) -> bool:
    """Whether a run is named as one of the zoo's."""
    return str(run).startswith(PREFIX)


def folder() -> Path:
    """The folder of the zoo: $SMOOTHMIX_ZOO, or `results` in the clone that this code runs from."""
    chosen = os.environ.get(VARIABLE)
    if chosen:
        if not Path(chosen).is_dir():
            raise UsageError(f"{VARIABLE} is {chosen}, and there is no such folder")
        return Path(chosen)
    # The networks are in the repository and not in the package, which would grow tenfold.
    clone = Path(__file__).parents[3] / "results"
    if not clone.is_dir():
        raise UsageError(
            "the zoo is the folder results of the project's repository, and this smoothmix runs "
            f"without the repository: clone it and set {VARIABLE} to that folder"
        )
    return clone


def resolved(path: Path) -> Path:
    """The path, or the run folder in the zoo that it names."""
    if is_zoo(path):
        return find(path)
    return path


def names() -> list[str]:
    """The networks in the zoo."""
    return sorted(path.name for path in folder().iterdir() if RunFolder(path).weights.exists())


def find(run: Path) -> Path:
    """The run folder of `zoo:NAME`."""
    name = str(run).removeprefix(PREFIX)
    known = names()
    if not known:
        raise UsageError(f"{folder()}: holds no trained network yet")
    if name not in known:
        raise unknown_name("network of the zoo", name, known)
    return folder() / name
