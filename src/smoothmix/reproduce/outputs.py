"""Where the tables and the page of a command go: those of other commands are kept. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, final

import tomli_w

from smoothmix._io.files import atomic_write
from smoothmix._io.toml import read_toml
from smoothmix.errors import SmoothmixError


@final
@dataclass(frozen=True)
class Outputs:
    """The files with the results of one command: `table.md` and others, or `table-2.md`."""

    folder: Path
    number: int = 1

    def table(self, suffix: str) -> Path:
        """The table in the format of this suffix."""
        return self._named("table", suffix)

    @property
    def page(self) -> Path:
        """The report."""
        return self._named("report", "html")

    @property
    def record(self) -> Path:
        """What was asked for, by which the same command finds its files again."""
        return self._named("table", "toml")

    def save_record(self, request: Mapping[str, Any]) -> None:
        """Write down what was asked for."""
        atomic_write(self.record, tomli_w.dumps(request).encode())

    def _named(self, stem: str, suffix: str) -> Path:
        if self.number > 1:
            stem += f"-{self.number}"
        return self.folder / f"{stem}.{suffix}"


def outputs_for(folder: Path, request: Mapping[str, Any]) -> Outputs:
    """The files of the same request, if the folder has them, or else names that are free there."""
    for number in count(1):
        outputs = Outputs(folder, number)
        if _is_free(outputs) or _is_of(outputs, request):
            return outputs
    raise AssertionError("there is always a next number")


def _is_free(outputs: Outputs) -> bool:
    files = (outputs.record, outputs.table("md"), outputs.page)
    return not any(path.exists() for path in files)


def _is_of(outputs: Outputs, request: Mapping[str, Any]) -> bool:
    try:
        return read_toml(outputs.record) == request
    except SmoothmixError:
        # An earlier version left none, or somebody edited it: nothing of theirs is replaced.
        return False
