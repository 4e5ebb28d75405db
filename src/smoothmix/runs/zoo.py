"""Networks that come with the project's own results: `zoo:mnist-0.50-gaussian` instead of a run folder. No torch."""

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
    """Where the zoo is: what SMOOTHMIX_ZOO says, else `results` in the clone that this package runs from."""
    if chosen := os.environ.get(VARIABLE):
        if not Path(chosen).is_dir():
            raise UsageError(f"{VARIABLE} is {chosen}, and there is no such folder")
        return Path(chosen)
    clone = Path(__file__).parents[3] / "results"
    if not clone.is_dir():
        raise UsageError(
            f"the zoo is in the folder results of the project's repository, from which this smoothmix does not run: "
            f"clone it and set {VARIABLE} to that folder"
        )
    return clone


def resolved(path: Path) -> Path:
    """The path, or the run folder in the zoo where it names one."""
    return find(path) if is_zoo(path) else path


def names() -> list[str]:
    """Networks in the zoo."""
    return sorted(path.name for path in folder().iterdir() if RunFolder(path).weights.exists())


def find(run: Path) -> Path:
    """The run folder of `zoo:name`."""
    name = str(run).removeprefix(PREFIX)
    if not names():
        raise UsageError(f"{folder()}: holds no trained network yet")
    if name not in names():
        raise unknown_name("network of the zoo", name, names())
    return folder() / name
