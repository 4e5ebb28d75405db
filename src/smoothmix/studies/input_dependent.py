"""Why one sigma per model: the worst case of input-dependent noise against the dimension, as a study."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from smoothmix.stats.input_dependent import Row
from smoothmix.studies.base import Study
from smoothmix.tables import Cell, Column, Grid
from smoothmix.tables import Row as TableRow

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FLOOR = 1e-12
"""Smaller probabilities are drawn here: the axis must end somewhere."""


def study(
    rows: Sequence[Row], *, p: float, sigma: float, distance: float, figure: bool = True
) -> Study:
    """The table of worst cases, and what it says."""
    return Study(
        name="dimension",
        title="Noise that depends on the input",
        text=(
            f"A classifier that answers with probability {p:g} under noise of deviation {sigma:g} at x may answer with "
            f"as little as this at x', {distance:g} away, if the noise there has another deviation tau. {_found(rows)} "
            "The more dimensions, the nearer to 1 that ratio must be: hence one sigma for a model. With equal noise "
            "the dimension plays no part."
        ),
        grid=_grid(rows, p=p, sigma=sigma, distance=distance),
        figure=_figure(rows) if figure and any(row.noise == "gaussian" for row in rows) else None,
    )


def _found(rows: Sequence[Row]) -> str:
    """What is left of the answer in the largest dimension."""
    there = [
        row
        for row in rows
        if row.noise == "gaussian" and row.ratio != 1 and row.dimension == _largest(rows)
    ]
    gone = [f"{row.ratio:g}" for row in there if row.worst_case < 0.5]
    kept = [f"{row.ratio:g} ({row.worst_case:.2g})" for row in there if row.worst_case >= 0.5]
    parts = [
        f"less than one half at tau / sigma {', '.join(gone)}, where the guarantee is gone"
        if gone
        else ""
    ]
    parts += [f"more at {', '.join(kept)}" if kept else ""]
    return (
        f"In {_largest(rows):,} dimensions that is {', but '.join(filter(None, parts))}."
        if there
        else ""
    )


def _largest(rows: Sequence[Row]) -> int:
    return max(row.dimension for row in rows)


def _grid(rows: Sequence[Row], *, p: float, sigma: float, distance: float) -> Grid:
    keys = ("noise", "ratio", "dimension", "worst_case", "standard_error", "theorem_bound")
    names = ("noise", "tau / sigma", "dimension", "worst case", "standard error", "theorem's bound")
    lines = [
        TableRow(
            cells=(
                Cell(row.noise),
                Cell(row.ratio, "g"),
                Cell(row.dimension),
                *(_number(value) for value in (row.worst_case, row.standard_error)),
                # A theorem that bounds a probability by more than 1 says nothing.
                _number(row.bound if row.bound is None or row.bound < 1 else None),
            )
        )
        for row in rows
    ]
    notes = (
        f"p {p:g} at x, sigma {sigma:g}, distance {distance:g}",
        "gaussian: exact (likelihood-ratio sets); others: the shell of the theorem's proof by Monte Carlo, from above",
        "no bound: the theorem gives 1 or more there, which says nothing, or does not apply",
    )
    columns = tuple(Column(name=name, key=key) for name, key in zip(names, keys, strict=True))
    return Grid(
        title="Worst-case probability at x'", columns=columns, rows=tuple(lines), notes=notes
    )


def _number(value: float | None) -> Cell:
    return Cell(value, ".3g")


def _figure(rows: Sequence[Row]) -> Figure:
    from smoothmix.plots import style

    with style.our_style():
        made, (ax, *_) = style.panels(1, runs=8, height=2.3)
        gaussian = [row for row in rows if row.noise == "gaussian"]
        ratios = sorted({row.ratio for row in gaussian})
        entries = {}
        for number, ratio in enumerate(ratios):
            line = sorted((row.dimension, row.worst_case) for row in gaussian if row.ratio == ratio)
            entries[f"τ/σ = {ratio:g}"] = ax.plot(
                [d for d, _ in line],
                [max(value, FLOOR) for _, value in line],
                color=style.COLOURS[number % len(style.COLOURS)],
                linestyle=style.DASHES[number // len(style.COLOURS) % len(style.DASHES)],
                marker=".",
            )[0]
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_ylim(FLOOR, 2)
        # Labels in plain text: our style takes no mathematics in it, which log axes would write.
        dimensions = sorted({row.dimension for row in gaussian})
        ax.set_xticks(dimensions, [f"{d:,}" for d in dimensions], rotation=35, ha="right")
        ax.set_yticks([1, 1e-3, 1e-6, 1e-9, FLOOR], ["1", "10⁻³", "10⁻⁶", "10⁻⁹", "≤ 10⁻¹²"])
        ax.minorticks_off()
        ax.set_xlabel("Dimension")
        ax.set_ylabel("Worst-case probability at x'")
        style.legend_below(made, entries, entries)
        return style.settle(made)
