"""The comparison in the layout of the paper's tables: a block per sigma, ACR, then accuracies."""

from __future__ import annotations

from collections.abc import Sequence

from smoothmix.analysis import Estimate
from smoothmix.report.comparison import Comparison
from smoothmix.report.summary_grid import summary_grid
from smoothmix.report.views import RunView
from smoothmix.tables import (
    Cell,
    Column,
    Grid,
    Row,
    mark_best,
    mark_improvements,
    radius_text,
    rounded,
)
from smoothmix.tables.numbers import DASH


def paper_grid(comparison: Comparison) -> Grid:
    """The table for a paper: without intervals, and blank where a sigma cannot reach a radius."""
    columns = [
        Column(name="σ", key="sigma"),
        Column(name="Method", key="model"),
        Column(name="ACR", key="acr", judged=True),
    ]
    for radius in comparison.radii:
        text = radius_text(radius)
        columns.append(Column(name=text, key=f"accuracy_{text}", judged=True))
    rows = []
    for sigma, runs in sorted(comparison.by_sigma.items(), key=_by_number):
        reached = _reached(runs, comparison.radii)
        for position, run in enumerate(runs):
            # The sigma of a block stands once, as in the paper.
            shown = "" if sigma is None or position else f"{sigma:.2f}"
            rows.append(_row(run, shown, comparison, reached))
    grid = Grid(
        title=comparison.title,
        columns=tuple(columns),
        rows=tuple(rows),
        # What a reader must know about the numbers is the same as beside the wide table.
        notes=summary_grid(comparison).notes,
    )
    return mark_best(mark_improvements(grid))


def _by_number(level: tuple[float | None, Sequence[RunView]]) -> float:
    """Sigmas from small to large, an unknown one last."""
    sigma, _ = level
    return float("inf") if sigma is None else sigma


def _reached(runs: Sequence[RunView], radii: Sequence[float]) -> list[bool]:
    """Which radii some run of a block has certified any image at."""
    return [any(run.accuracy[at].value > 0 for run in runs) for at in range(len(radii))]


def _row(run: RunView, sigma: str, comparison: Comparison, reached: Sequence[bool]) -> Row:
    cells = [Cell(sigma), Cell(run.base_name), Cell(rounded(run.acr.value, 3))]
    shares = run.accuracy_within_reach(comparison.radii)
    for share, certified in zip(shares, reached, strict=True):
        cells.append(_accuracy(share, certified=certified))
    return Row(cells=tuple(cells), method=run.method, sigma=run.sigma, group=run.group)


def _accuracy(share: Estimate | None, *, certified: bool) -> Cell:
    """A share in percent; blank if no run of the block has it, a dash if n cannot reach it."""
    if not certified:
        return Cell()
    if share is None:
        return Cell(text=DASH)
    return Cell(rounded(100 * share.value, 1))
