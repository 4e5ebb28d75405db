"""The text of a certificate file or a Cohen-style log, as rows. No torch.

Our own files have tabs between their columns. Logs pass through many tools on their way, so their
separator is found out from the header, and blank lines are skipped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from smoothmix.certificates.row import COHEN_COLUMNS, COLUMNS, DIGEST, Certificate, from_cells
from smoothmix.certificates.settings import MOST_IMAGES, FileSettings, settings_path
from smoothmix.errors import CertificateError, shown

TAB = "\t"
SEPARATORS = {",": "commas", ";": "semicolons", "|": "vertical bars", None: "spaces"}
"""What may stand between columns instead of tabs; None stands for any white space."""

TIME = "time"
"""The one column that a log may lack, since no certificate depends on it."""


@dataclass(frozen=True)
class Header:
    """The names of the columns, and what separates them."""

    names: tuple[str, ...]
    separator: str | None
    levels: int | None = None
    """Levels of the grid of the noise, from which the column `squared` follows."""
    labelled: bool = True
    """Whether the images have labels."""

    @property
    def has_votes(self) -> bool:
        """Whether the file is one of ours rather than a log."""
        return "counts" in self.names

    def cells(self, line: str) -> list[str]:
        """The cells of a line, which may be more or fewer than there are columns."""
        text = line.removesuffix("\r")
        cells = text.split(self.separator)
        last = len(self.names) - 1
        # A duration of a day holds separators itself: `1 day, 2:03:04`.
        if self.separator != TAB and self.names[last] == TIME and len(cells) > last:
            return text.split(self.separator, last)
        return cells

    @property
    def notes(self) -> list[str]:
        """What a reader must know about the layout."""
        if self.separator == TAB:
            return []
        found = SEPARATORS[self.separator]
        return [f"its columns are separated by {found}, not by tabs"]


def parse(
    text: str, path: Path, settings: FileSettings | None = None
) -> tuple[list[Certificate], list[str]]:
    """The rows in the text of a file, and notes such as on a line that was left out."""
    lines = _lines(text)
    header = _read_header(lines, path)
    if settings is not None and header.has_votes:
        levels = settings.certification.levels
        _require_squared(header, path, on_grid=levels is not None)
        _require_digests(header, path, has_digests=settings.has_digests)
        header = replace(header, levels=levels, labelled=settings.labelled)
    rows: list[Certificate] = []
    notes = header.notes
    line_of: dict[int, int] = {}
    for number, line, whole in lines:
        where = f"{path}, line {number}"
        if whole:
            row: Certificate | None = _parse_line(line, header, where)
        else:
            row = _parse_last_line(line, header, where)
        if row is None:
            notes.append(f"line {number} is cut off and was left out")
            continue
        if row.idx in line_of:
            raise CertificateError(
                f"{where}: image {row.idx} has a row already, in line {line_of[row.idx]}"
            )
        line_of[row.idx] = number
        rows.append(row)
        # A small packed file may hold rows without end.
        if len(rows) > MOST_IMAGES:
            raise CertificateError(
                f"{path}: holds more than {MOST_IMAGES:,} rows, which no data set needs"
            )
    return rows, notes


def _lines(text: str) -> Iterator[tuple[int, str, bool]]:
    """The lines that are not blank: their number, and whether each ends with a newline."""
    # One by one: a hostile file may have more lines than fit into memory as a list.
    start = 0
    number = 1
    while (end := text.find("\n", start)) >= 0:
        line = text[start:end]
        if line.strip():
            yield number, line, True
        start = end + 1
        number += 1
    if text[start:].strip():
        yield number, text[start:], False


def _read_header(lines: Iterator[tuple[int, str, bool]], path: Path) -> Header:
    first = next(lines, None)
    if first is None:
        raise CertificateError(
            f"{path}: is empty; certification writes the first line together with the first "
            "image, so it may have been stopped before that"
        )
    number, line, _ = first
    header = _split_header(line)
    where = f"{path}, line {number}"
    _require_columns(header, where)
    return header


def _split_header(line: str) -> Header:
    """The header with the separator that gives it most columns that we know, tabs first."""
    best = Header(_names(line, TAB), TAB)
    for separator in SEPARATORS:
        other = Header(_names(line, separator), separator)
        if _known(other.names) > _known(best.names):
            best = other
    return best


def _names(line: str, separator: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in line.split(separator))


def _known(names: Sequence[str]) -> int:
    return len(set(COLUMNS).intersection(names))


def _require_columns(header: Header, where: str) -> None:
    # Votes tell our files from logs of other tools. Columns may stand in any order.
    expected = [name for name in COHEN_COLUMNS if name != TIME]
    if header.has_votes:
        expected = list(COLUMNS)
    lacking = [name for name in expected if name not in header.names]
    if lacking:
        raise CertificateError(
            f"{where}: not a certificate file (no column {', '.join(lacking)}); the first line "
            f"must name the columns {', '.join(COHEN_COLUMNS)}"
        )
    if header.has_votes and header.separator != TAB:
        raise CertificateError(f"{where}: columns of a file with votes must be separated by tabs")
    for name, count in Counter(header.names).items():
        if name and count > 1:
            raise CertificateError(
                f"{where}: the column {shown(name)} is there {count} times; "
                "remove all but the right one"
            )


def _require_squared(header: Header, path: Path, *, on_grid: bool) -> None:
    """Refuse a file whose settings do not go with its having a column `squared`, or none."""
    has_column = "squared" in header.names
    if has_column == on_grid:
        return
    if on_grid:
        raise CertificateError(
            f"{path}: has no column squared, though {settings_path(path).name} names grid noise"
        )
    raise CertificateError(
        f"{path}: has a column squared, which goes with grid noise, and "
        f"{settings_path(path).name} names another"
    )


def _require_digests(header: Header, path: Path, *, has_digests: bool) -> None:
    """Refuse a file that has digests in its rows alone, or in its settings alone."""
    has_column = DIGEST in header.names
    if has_column == has_digests:
        return
    name = settings_path(path).name
    if has_digests:
        raise CertificateError(f"{path}: has no column digest, though {name} says that it has one")
    raise CertificateError(f"{path}: has a column digest, but {name} has no table digests")


def _parse_last_line(line: str, header: Header, where: str) -> Certificate | None:
    """The row in a last line without a newline; None where the line was cut off."""
    # Our own writer always ends a row with a newline, so this one was being written when the run
    # died, and its votes may be cut off too. Logs of other tools often lack the last newline.
    if header.has_votes:
        return None
    try:
        return _parse_line(line, header, where)
    except CertificateError:
        is_complete = len(header.cells(line)) >= len(header.names)
        if is_complete:
            raise
        return None


def _parse_line(line: str, header: Header, where: str) -> Certificate:
    cells = header.cells(line)
    try:
        if len(cells) != len(header.names):
            raise ValueError(f"{len(cells)} columns, where the header has {len(header.names)}")
        named = dict(zip(header.names, cells, strict=True))
        return from_cells(named, levels=header.levels, labelled=header.labelled)
    except ValueError as error:
        problem = str(error)
    if _known(_names(line, header.separator)) > 1:
        problem = "a second header; two logs seem to be in one file: split it at this line"
    raise CertificateError(f"{where}: {problem}")
