"""Tables as data, and the same table as Markdown, LaTeX (booktabs), CSV or JSON."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

GAUSSIAN = "gaussian"
OURS = "smoothmix"
"""The method that is compared with the others, which are its baselines."""


@dataclass(frozen=True)
class Cell:
    """What stands in one place of a table."""

    text: str
    """As people read it."""
    value: float | str | None = None
    """As programs read it; None where there is nothing."""
    bold: bool = False
    """Beats Gaussian training at the same sigma."""
    underlined: bool = False
    """Beats the best baseline at the same sigma."""


@dataclass(frozen=True, kw_only=True)
class Column:
    """What a column holds."""

    name: str
    """Its heading."""
    key: str
    """Its name in CSV."""
    judged: bool = False
    """Whether more is better, so that its cells are marked where they beat others."""


class Digits(str):
    """A number as it is to be written: CSV keeps zeros at its end, and a model that is called 1 is none."""

    __slots__ = ()


def number_or_text(text: str) -> str:
    """The text of a cell that may hold a number, marked as one if it does.

    >>> isinstance(number_or_text("0.50"), Digits), isinstance(number_or_text("anytime"), Digits)
    (True, False)
    """
    try:
        float(text)
    except ValueError:
        return text
    return Digits(text)


@dataclass(frozen=True, kw_only=True)
class Line:
    """One row of a table."""

    cells: tuple[Cell, ...]
    method: str = ""
    sigma: float | None = None
    """Rows of one sigma are compared with one another, and stand together."""
    data: str = ""
    """What the numbers are of: rows of different data are not compared."""


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A table: the same numbers whatever it is written as."""

    title: str
    columns: tuple[Column, ...]
    lines: tuple[Line, ...]
    notes: tuple[str, ...] = ()

    marks: str = ""
    """What bold and underlined stand for, in the formats that have them."""

    @property
    def notes_and_marks(self) -> tuple[str, ...]:
        """The notes of those formats."""
        return (*self.notes, self.marks) if self.marks else self.notes


def marked(grid: Grid) -> Grid:
    """The table with bold where a row beats Gaussian and underlines where it beats the best baseline, as in the paper.

    Numbers are compared as they are printed: what reads the same is not better.
    """
    return replace(grid, lines=tuple(_marked(line, grid) for line in grid.lines))


def _marked(line: Line, grid: Grid) -> Line:
    rivals = [
        other
        for other in grid.lines
        if (other.sigma, other.data) == (line.sigma, line.data) and other is not line
    ]
    cells = []
    for position, (column, cell) in enumerate(zip(grid.columns, line.cells, strict=True)):
        mine = _shown(cell)
        if column.judged and mine is not None:
            gaussian = [
                _shown(other.cells[position]) for other in rivals if other.method == GAUSSIAN
            ]
            baselines = [
                _shown(other.cells[position])
                for other in rivals
                if not other.method.startswith(OURS)
            ]
            bold = line.method != GAUSSIAN and _beats(mine, gaussian)
            cell = replace(
                cell, bold=bold, underlined=line.method.startswith(OURS) and _beats(mine, baselines)
            )
        cells.append(cell)
    return replace(line, cells=tuple(cells))


def _shown(cell: Cell) -> float | None:
    """The number that a cell's text begins with."""
    try:
        return float(cell.text.split()[0]) if cell.text.strip() else None
    except ValueError:
        return None


def _beats(mine: float, others: Sequence[float | None]) -> bool:
    known = [other for other in others if other is not None]
    return bool(known) and mine > max(known)


def radius_text(value: float) -> str:
    """A radius as the heading of a column: two digits unless it has more.

    >>> radius_text(0.5), radius_text(0.125)
    ('0.50', '0.125')
    """
    return f"{value:.2f}" if round(value, 2) == value else f"{value:g}"


def to_markdown(grid: Grid) -> str:
    """The table for a README or a pull request."""
    head = [column.name for column in grid.columns]
    rows = [[_markdown_cell(cell) for cell in line.cells] for line in grid.lines]
    ruler = ["---" if index == 0 else "---:" for index in range(len(head))]
    lines = [
        "| " + " | ".join(row) + " |"
        for row in ([_markdown_text(name) for name in head], ruler, *rows)
    ]
    notes = (
        ["", *(f"- {_markdown_text(note)}" for note in grid.notes_and_marks)]
        if grid.notes_and_marks
        else []
    )
    return "\n".join([f"**{_markdown_text(grid.title)}**", "", *lines, *notes]) + "\n"


def _markdown_cell(cell: Cell) -> str:
    text = _markdown_text(cell.text)
    text = f"<u>{text}</u>" if cell.underlined and text else text
    return f"**{text}**" if cell.bold and text else text


def _markdown_text(text: str) -> str:
    """The text with what Markdown would take for marks escaped."""
    for mark in "|*`":
        text = text.replace(mark, f"\\{mark}")
    return text.replace("\n", " ").replace("<", "&lt;")


def to_latex(grid: Grid) -> str:
    """The table in the paper's layout: booktabs, a rule between noise levels, bold and underlined as there."""
    align = "l" * _leading_words(grid) + "r" * (len(grid.columns) - _leading_words(grid))
    body: list[str] = []
    for position, line in enumerate(grid.lines):
        if position and line.sigma != grid.lines[position - 1].sigma:
            body.append(r"\midrule")
        body.append(" & ".join(_latex_cell(cell) for cell in line.cells) + r" \\")
    head = " & ".join(latex_text(column.name) for column in grid.columns) + r" \\"
    notes = [f"% {note}" for note in grid.notes_and_marks]
    rows = [
        rf"\begin{{tabular}}{{{align}}}",
        r"\toprule",
        head,
        r"\midrule",
        *body,
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join([f"% {grid.title}; needs booktabs", *notes, *rows]) + "\n"


def _leading_words(grid: Grid) -> int:
    """How many columns from the left hold words rather than numbers."""
    columns = zip(*(line.cells for line in grid.lines), strict=True)
    words = [all(_shown(cell) is None for cell in column) and _says(column) for column in columns]
    return max(1, next((i for i, is_word in enumerate(words) if not is_word), len(words)))


def _says(column: Sequence[Cell]) -> bool:
    """Whether more than dashes stand in a column."""
    return any(len(cell.text) > 1 for cell in column)


def _latex_cell(cell: Cell) -> str:
    text = latex_text(cell.text)
    text = (
        "{}" + text if text.startswith("[") else text
    )  # after the end of a row, it would be how much room to leave
    text = rf"\underline{{{text}}}" if cell.underlined and text else text
    return rf"\textbf{{{text}}}" if cell.bold and text else text


LATEX = {
    "\\": r"\textbackslash{}",
    "±": r"$\pm$",
    "σ": r"$\sigma$",
    "−": r"$-$",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{c: rf"\{c}" for c in "&%$#_{}"},
}


def latex_text(text: str) -> str:
    r"""The text with what TeX would take for commands escaped.

    >>> print(latex_text("eta_5 & 99.2 ± 0.1 %"))
    eta\_5 \& 99.2 $\pm$ 0.1 \%
    """
    return "".join(LATEX.get(c, c) for c in text)


def to_csv(grid: Grid) -> str:
    """The table for programs: plain numbers, one header line."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([column.key for column in grid.columns])
    writer.writerows(
        [["" if cell.value is None else cell.value for cell in line.cells] for line in grid.lines]
    )
    return stream.getvalue()


def to_json(grid: Grid) -> str:
    """The table with its notes for programs."""
    rows = [
        {c.key: _plain(cell) for c, cell in zip(grid.columns, line.cells, strict=True)}
        for line in grid.lines
    ]
    return (
        json.dumps(
            {"title": grid.title, "rows": rows, "notes": list(grid.notes)},
            indent=1,
            allow_nan=False,
        )
        + "\n"
    )


def _plain(cell: Cell) -> float | str | None:
    """The value, as a number if it is one that JSON has."""
    value = _number(cell.value) if isinstance(cell.value, Digits) else cell.value
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _number(text: str) -> float:
    return int(text) if text.isdecimal() else float(text)


FORMATS: Mapping[str, Callable[[Grid], str]] = {
    "md": to_markdown,
    "latex": to_latex,
    "csv": to_csv,
    "json": to_json,
}
"""How a table is written; the terminal's own way is the command line's."""
