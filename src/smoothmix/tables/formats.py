"""A table as Markdown, LaTeX (booktabs), CSV or JSON."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal

from smoothmix._io.text import for_csv, for_latex, for_latex_comment, for_markdown
from smoothmix.tables.grid import Cell, Grid


def to_markdown(grid: Grid) -> str:
    """The table for a README or a pull request."""
    head = list(map(for_markdown, grid.names))
    # Names to the left, numbers to the right.
    ruler = ["---"] + ["---:"] * (len(head) - 1)
    lines = [f"**{for_markdown(grid.title)}**", "", _markdown_row(head), _markdown_row(ruler)]
    for row in grid.rows:
        cells = map(_markdown_cell, row.cells)
        lines.append(_markdown_row(cells))
    if grid.notes_and_legend:
        lines.append("")
    for note in grid.notes_and_legend:
        text = for_markdown(note)
        lines.append(f"- {text}")
    return "\n".join(lines) + "\n"


def _markdown_row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _markdown_cell(cell: Cell) -> str:
    text = for_markdown(cell.shown)
    if not text:
        return text
    if cell.underlined:
        text = f"<u>{text}</u>"
    if cell.bold:
        text = f"**{text}**"
    return text


def to_latex(grid: Grid) -> str:
    """The table in the paper's layout: booktabs, and a rule between noise levels."""
    words = _leading_word_columns(grid)
    align = "l" * words + "r" * (len(grid.columns) - words)
    lines = [f"% {for_latex_comment(grid.title)}; needs booktabs"]
    for note in grid.notes_and_legend:
        # As comments: a caption is the author's own.
        lines.append(f"% {for_latex_comment(note)}")
    size = _latex_size(grid)
    if size:
        lines.append(size)
    lines += [rf"\begin{{tabular}}{{{align}}}", r"\toprule"]
    lines += [_latex_row(map(for_latex, grid.names)), r"\midrule"]
    for position, row in enumerate(grid.rows):
        if position > 0 and row.sigma != grid.rows[position - 1].sigma:
            lines.append(r"\midrule")
        lines.append(_latex_row(map(_latex_cell, row.cells)))
    lines += [r"\bottomrule", r"\end{tabular}"]
    return "\n".join(lines) + "\n"


TEXT_WIDTH = 345
"""Points: the width of a text in LaTeX's article class, which is narrower than most."""

USUAL_GAP = 12
NARROW_GAP = 4
"""Points between columns: twice LaTeX's \\tabcolsep of 6pt, or of 2pt."""

BOLD = 1.15
"""How much wider a bold digit is."""

LETTERS = 0.9
"""How wide letters are on average, in digits."""

NARROW = r"\setlength{\tabcolsep}{2pt}"


@dataclass(frozen=True)
class LatexSize:
    """A way to set a table, with what it takes in points."""

    command: str
    character: float
    """Width of a digit."""
    gap: float


LATEX_SIZES = (
    LatexSize("", 5.0, USUAL_GAP),
    LatexSize(r"\small", 4.63, USUAL_GAP),
    LatexSize(r"\footnotesize", 4.25, USUAL_GAP),
    # Columns that stand closer are easier to read than the smallest type.
    LatexSize(r"\footnotesize" + NARROW, 4.25, NARROW_GAP),
    LatexSize(r"\scriptsize" + NARROW, 3.98, NARROW_GAP),
)
"""From the largest type to the smallest."""


def _latex_size(grid: Grid) -> str:
    """The command for smaller type, if the table needs it to fit the width of a text.

    It ends with the environment around the table.
    """
    characters = 0.0
    for position, name in enumerate(grid.names):
        widths = [_latex_width(row.cells[position]) for row in grid.rows]
        characters += max([len(name), *widths])
    for size in LATEX_SIZES:
        if size.character * characters + size.gap * len(grid.columns) <= TEXT_WIDTH:
            return size.command
    # It may be too wide all the same; nothing smaller can be read.
    return LATEX_SIZES[-1].command


def _latex_width(cell: Cell) -> float:
    """About how many digits wide a cell is."""
    width = float(len(cell.shown))
    if cell.bold:
        width *= BOLD
    if cell.number is None:
        width *= LETTERS
    return width


def _leading_word_columns(grid: Grid) -> int:
    """How many columns from the left hold words rather than numbers; the first always counts."""
    count = 1
    while count < len(grid.columns) and grid.holds_words(count):
        count += 1
    return count


def _latex_row(cells: Iterable[str]) -> str:
    return " & ".join(cells) + r" \\"


def _latex_cell(cell: Cell) -> str:
    text = for_latex(cell.shown)
    if not text:
        return text
    if cell.number is not None:
        # A hyphen is no minus sign.
        text = text.replace("-", "$-$")
    if text.startswith("["):
        # TeX would read a bracket after the end of a row as the space to leave there.
        text = "{}" + text
    if cell.underlined:
        text = rf"\underline{{{text}}}"
    if cell.bold:
        text = rf"\textbf{{{text}}}"
    return text


def to_csv(grid: Grid) -> str:
    """The table for programs: plain numbers under one line of column keys."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(map(for_csv, grid.keys))
    for row in grid.rows:
        writer.writerow(map(_csv_value, row.cells))
    return stream.getvalue()


def _csv_value(cell: Cell) -> float | str:
    if cell.value is None:
        return ""
    if isinstance(cell.value, Decimal):
        # All of its digits, and the sign of a difference; str() may use exponents.
        sign = "+" if cell.format.startswith("+") else ""
        return f"{cell.value:{sign}f}"
    if isinstance(cell.value, str):
        return for_csv(cell.value)
    return cell.value


def to_json(grid: Grid) -> str:
    """The table with its notes for programs."""
    rows = []
    for row in grid.rows:
        values = map(_json_value, row.cells)
        rows.append(dict(zip(grid.keys, values, strict=True)))
    content = {"title": grid.title, "rows": rows, "notes": list(grid.notes)}
    return json.dumps(content, indent=1, allow_nan=False) + "\n"


def _json_value(cell: Cell) -> float | str | None:
    """The value as JSON has it, which knows neither decimals nor infinity."""
    value = cell.value
    if isinstance(value, Decimal):
        is_whole = value.as_tuple().exponent == 0
        return int(value) if is_whole else float(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


FORMATS: Mapping[str, Callable[[Grid], str]] = {
    "md": to_markdown,
    "latex": to_latex,
    "csv": to_csv,
    "json": to_json,
}
"""Every format of a table but the terminal's, which belongs to the command line."""
