"""Tables as values, and how they are written: Markdown, LaTeX, CSV, JSON. No torch."""

from smoothmix.tables.formats import FORMATS, to_csv, to_json, to_latex, to_markdown
from smoothmix.tables.grid import Cell, Column, Grid, Row, radius_text, rounded
from smoothmix.tables.marks import mark_best, mark_improvements

__all__ = [
    "FORMATS",
    "Cell",
    "Column",
    "Grid",
    "Row",
    "mark_best",
    "mark_improvements",
    "radius_text",
    "rounded",
    "to_csv",
    "to_json",
    "to_latex",
    "to_markdown",
]
