"""A table as Markdown, LaTeX (booktabs), CSV or JSON."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal

from smoothmix.tables.grid import Cell, Grid


def to_markdown(grid: Grid) -> str:
    """The table for a README or a pull request."""
    head = list(map(_markdown_text, grid.names))
    # Names to the left, numbers to the right.
    ruler = ["---"] + ["---:"] * (len(head) - 1)
    lines = [f"**{_markdown_text(grid.title)}**", "", _markdown_row(head), _markdown_row(ruler)]
    for row in grid.rows:
        cells = map(_markdown_cell, row.cells)
        lines.append(_markdown_row(cells))
    if grid.notes_and_legend:
        lines.append("")
    for note in grid.notes_and_legend:
        text = _markdown_text(note)
        lines.append(f"- {text}")
    return "\n".join(lines) + "\n"


def _markdown_row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _markdown_cell(cell: Cell) -> str:
    text = _markdown_text(cell.shown)
    if not text:
        return text
    if cell.underlined:
        text = f"<u>{text}</u>"
    if cell.bold:
        text = f"**{text}**"
    return text


def _markdown_text(text: str) -> str:
    """The text with Markdown's special characters escaped."""
    # Underscores within words and most other marks are harmless.
    for mark in "|*`":
        text = text.replace(mark, f"\\{mark}")
    return text.replace("\n", " ").replace("<", "&lt;")


def to_latex(grid: Grid) -> str:
    """The table in the paper's layout: booktabs, and a rule between noise levels."""
    words = _leading_word_columns(grid)
    align = "l" * words + "r" * (len(grid.columns) - words)
    lines = [f"% {grid.title}; needs booktabs"]
    for note in grid.notes_and_legend:
        # As comments: a caption is the author's own.
        lines.append(f"% {note}")
    lines += [rf"\begin{{tabular}}{{{align}}}", r"\toprule"]
    lines += [_latex_row(map(latex_text, grid.names)), r"\midrule"]
    for position, row in enumerate(grid.rows):
        if position > 0 and row.sigma != grid.rows[position - 1].sigma:
            lines.append(r"\midrule")
        lines.append(_latex_row(map(_latex_cell, row.cells)))
    lines += [r"\bottomrule", r"\end{tabular}"]
    return "\n".join(lines) + "\n"


def _leading_word_columns(grid: Grid) -> int:
    """How many columns from the left hold words rather than numbers; the first always counts."""
    count = 1
    while count < len(grid.columns) and grid.holds_words(count):
        count += 1
    return count


def _latex_row(cells: Iterable[str]) -> str:
    return " & ".join(cells) + r" \\"


def _latex_cell(cell: Cell) -> str:
    text = latex_text(cell.shown)
    if not text:
        return text
    if text.startswith("["):
        # TeX would read a bracket after the end of a row as the space to leave there.
        text = "{}" + text
    if cell.underlined:
        text = rf"\underline{{{text}}}"
    if cell.bold:
        text = rf"\textbf{{{text}}}"
    return text


LATEX = {
    "\\": r"\textbackslash{}",
    "±": r"$\pm$",
    "σ": r"$\sigma$",
    "−": r"$-$",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
}
"""What TeX's special characters, and those it has no glyph for, are written as."""

LATEX_TABLE = str.maketrans(LATEX)


def latex_text(text: str) -> str:
    r"""The text with TeX's special characters escaped.

    >>> print(latex_text("eta_5 & 99.2 ± 0.1 %"))
    eta\_5 \& 99.2 $\pm$ 0.1 \%
    """
    # In one pass, so that the backslashes of a replacement are not replaced again.
    return text.translate(LATEX_TABLE)


def to_csv(grid: Grid) -> str:
    """The table for programs: plain numbers under one line of column keys."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(grid.keys)
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
