"""Sections of the page from files: what a study left for it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from smoothmix._io.files import read_limited
from smoothmix.errors import SmoothmixError, UsageError, shown
from smoothmix.report.data import Section

LARGEST_SECTION = 2**26
"""Bytes of the file of one study; its figure is the most of it."""


def read_sections(paths: Sequence[Path]) -> list[Section]:
    """The sections in these files, or in all .json files of these folders."""
    files = [
        file
        for path in paths
        for file in (sorted(path.glob("*.json")) if path.is_dir() else [path])
    ]
    if paths and not files:
        raise UsageError(
            f"{', '.join(map(str, paths))}: there is no study here (`smoothmix study` makes them)"
        )
    return [read_section(file) for file in files]


def read_section(path: Path) -> Section:
    """The section in one file."""
    try:
        made = json.loads(read_limited(path, LARGEST_SECTION))
        table = made["table"]
        return Section(
            title=_text(made["title"]),
            text=_text(made["text"]),
            columns=tuple(map(_text, table["columns"])),
            rows=tuple(tuple(map(_text, row)) for row in table["rows"]),
            notes=tuple(map(_text, table["notes"])),
            figure=_text(made["figure"] or ""),
        )
    except FileNotFoundError:
        raise UsageError(f"{path}: there is no such file") from None
    except UsageError as error:
        raise SmoothmixError(f"{path}: {error}") from None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        reason = f"{type(error).__name__}: {shown(error, 200)}"
        raise SmoothmixError(f"{path}: is no section of a page ({reason})") from error


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"text expected, not {value!r}")
    return value
