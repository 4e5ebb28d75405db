"""Sections of the page from the files that `smoothmix study` writes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from smoothmix._io.files import read_limited
from smoothmix.errors import SmoothmixError, UsageError, shown
from smoothmix.report.section import Section, Table
from smoothmix.tables import Cell, Column, Grid, Row

LARGEST_SECTION = 2**26
"""Bytes of the file of one study; most of it is the figure."""


def read_sections(paths: Sequence[Path]) -> list[Section]:
    """The sections in these files, or in all .json files of these folders."""
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            files += sorted(path.glob("*.json"))
        else:
            files.append(path)
    if paths and not files:
        folders = ", ".join(map(str, paths))
        raise UsageError(f"{folders}: there is no study here (`smoothmix study` makes them)")
    sections = []
    for number, file in enumerate(files, start=1):
        sections.append(read_section(file, id=f"study-{number}"))
    return sections


def read_section(path: Path, *, id: str = "study") -> Section:  # noqa: A002 - the field's name
    """The section in one file."""
    try:
        content = json.loads(read_limited(path, LARGEST_SECTION))
        return _section(content, id)
    except FileNotFoundError:
        raise UsageError(f"{path}: there is no such file") from None
    # A file that breaks the rules of a section is no misuse of the command.
    except UsageError as error:
        raise SmoothmixError(f"{path}: {error}") from None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        reason = f"{type(error).__name__}: {shown(error, 200)}"
        raise SmoothmixError(f"{path}: is no section of a page ({reason})") from error


def _section(content: Any, section_id: str) -> Section:
    """The section; TypeError or KeyError for anything but the expected texts."""
    title = _text(content["title"])
    table = content["table"]
    columns = []
    for name in map(_text, table["columns"]):
        columns.append(Column(name=name, key=name))
    rows = []
    for texts in table["rows"]:
        # A file may come from anywhere: only text gets onto the page, never markup.
        cells = tuple(Cell(_text(text)) for text in texts)
        if len(cells) != len(columns):
            raise UsageError(f"{title}: rows need {len(columns)} cells")
        rows.append(Row(cells=cells))
    notes = tuple(map(_text, table["notes"]))
    grid = Grid(title=title, columns=tuple(columns), rows=tuple(rows), notes=notes)
    return Section(
        id=section_id,
        title=title,
        text=_text(content["text"]),
        image=_text(content["figure"] or ""),
        tables=[Table(grid=grid, heading="The numbers")] if rows else (),
    )


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"text expected, not {value!r}")
    return value
