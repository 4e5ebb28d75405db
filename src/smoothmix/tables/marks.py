"""Bold and underlined cells as in the paper: rows that beat Gaussian, or every baseline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from smoothmix.tables.grid import Cell, Grid, Row

GAUSSIAN = "gaussian"
OURS = "smoothmix"
"""The method under study. All others are its baselines."""

UNDERLINED = "underlined: above every method that is not SmoothMix"
LEGEND = f"bold: above Gaussian training at the same sigma; {UNDERLINED}"
BEST = "bold: the best at the same sigma among rows that were certified alike"


def mark_improvements(grid: Grid) -> Grid:
    """The table with cells bold if they beat Gaussian, underlined if they beat all baselines.

    Numbers are compared with the digits that are printed: what reads the same is not better.
    """
    rows = tuple(_mark_row(row, grid) for row in grid.rows)
    # A legend of marks that nothing has would only puzzle.
    if rows == grid.rows:
        return grid
    return replace(grid, rows=rows, legend=LEGEND)


def mark_best(grid: Grid) -> Grid:
    """The table with the highest numbers of each sigma bold instead; underlined cells stay."""
    rows = tuple(_mark_best_row(row, grid) for row in grid.rows)
    marked = [cell for row in rows for cell in row.cells]
    legend = []
    if any(cell.bold for cell in marked):
        legend.append(BEST)
    if any(cell.underlined for cell in marked):
        legend.append(UNDERLINED)
    return replace(grid, rows=rows, legend="; ".join(legend))


def _mark_best_row(row: Row, grid: Grid) -> Row:
    rivals = _same_kind(row, grid)
    cells = list(row.cells)
    for position, column in enumerate(grid.columns):
        cell = cells[position]
        known = _numbers(rivals, position)
        best = False
        # As printed: rows that read the same share the mark. All zeros are no success.
        if column.judged and cell.number and known:
            best = float(cell.number) >= max(known)
        cells[position] = replace(cell, bold=best)
    return replace(row, cells=tuple(cells))


def _mark_row(row: Row, grid: Grid) -> Row:
    is_ours = row.method.startswith(OURS)
    gaussian, baselines = _rivals(row, grid)
    cells = list(row.cells)
    for position, column in enumerate(grid.columns):
        if not column.judged:
            continue
        cell = cells[position]
        cells[position] = replace(
            cell,
            bold=row.method != GAUSSIAN and _beats(cell, gaussian, position),
            underlined=is_ours and _beats(cell, baselines, position),
        )
    return replace(row, cells=tuple(cells))


def _rivals(row: Row, grid: Grid) -> tuple[list[Row], list[Row]]:
    """The rows of Gaussian training, and of all baselines, at the same sigma on the same data."""
    gaussian, baselines = [], []
    for other in _same_kind(row, grid):
        if other.method == GAUSSIAN:
            gaussian.append(other)
        if not other.method.startswith(OURS):
            baselines.append(other)
    return gaussian, baselines


def _same_kind(row: Row, grid: Grid) -> list[Row]:
    """The other rows that a row competes with."""
    rivals = []
    for other in grid.rows:
        same_kind = (other.sigma, other.data, other.group) == (row.sigma, row.data, row.group)
        if same_kind and other is not row:
            rivals.append(other)
    return rivals


def _numbers(rows: Sequence[Row], position: int) -> list[float]:
    """The numbers of one column."""
    known = []
    for row in rows:
        number = row.cells[position].number
        if number is not None:
            known.append(float(number))
    return known


def _beats(cell: Cell, rivals: Sequence[Row], position: int) -> bool:
    """Whether a number is above those of all rivals that have one in the same column."""
    if cell.number is None:
        return False
    known = _numbers(rivals, position)
    # Without a rival there is nothing to beat.
    return bool(known) and float(cell.number) > max(known)
