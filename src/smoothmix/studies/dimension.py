"""Why a model has one sigma: the worst case of input-dependent noise by dimension, as a study."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from smoothmix.stats.input_dependent import WorstCase
from smoothmix.studies.study import StudyReport, columns_of
from smoothmix.tables import Cell, Grid, Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FLOOR = 1e-12
"""Smaller probabilities are drawn at this one, where the axis ends."""


def dimension_report(
    cases: Sequence[WorstCase], *, p: float, sigma: float, distance: float
) -> StudyReport:
    """The table of worst cases with its meaning, and a figure if there are exact ones."""
    gaussian = [case for case in cases if case.noise == "gaussian"]
    # The figure shows exact values only: Monte Carlo has no small probabilities.
    draw = None
    if gaussian:
        draw = partial(_draw, gaussian)
    return StudyReport(
        name="dimension",
        title="Noise that depends on the input",
        text=(
            f"A classifier predicts a class with probability {p:g} under noise of standard "
            f"deviation {sigma:g} at x. At x', {distance:g} away, the noise may have another "
            "standard deviation tau, and the table has the smallest probability that the class may "
            f"have there. {_largest_dimension_text(gaussian)}The more dimensions, the closer "
            "tau / sigma must be to 1: hence one sigma per model. With equal noise the dimension "
            "does not matter."
        ),
        grid=_grid(cases, p=p, sigma=sigma, distance=distance),
        draw=draw,
    )


def _largest_dimension_text(gaussian: Sequence[WorstCase]) -> str:
    """Which ratios leave no guarantee in the largest dimension; empty if all noise is equal."""
    largest = max((case.dimension for case in gaussian), default=0)
    lost = []
    kept = []
    for case in gaussian:
        if case.dimension != largest or case.ratio == 1:
            continue
        # Below one half another class may win, and nothing is certified.
        if case.worst_case < 0.5:
            lost.append(f"{case.ratio:g}")
        else:
            kept.append(f"{case.ratio:g} ({case.worst_case:.2g})")
    parts = []
    if lost:
        where = ", ".join(lost)
        parts.append(f"less than one half at tau / sigma {where}, where the guarantee is lost")
    if kept:
        parts.append(f"more at {', '.join(kept)}")
    if not parts:
        return ""
    return f"In {largest:,} dimensions it is {', but '.join(parts)}. "


COLUMNS = {
    "noise": "noise",
    "ratio": "tau / sigma",
    "dimension": "dimension",
    "worst_case": "worst case",
    "standard_error": "standard error",
    "theorem_bound": "theorem's bound",
}
"""Names of the table's columns by their keys."""


def _grid(cases: Sequence[WorstCase], *, p: float, sigma: float, distance: float) -> Grid:
    rows = []
    for case in cases:
        bound = case.bound
        # A bound of 1 or more on a probability is void.
        if bound is not None and bound >= 1:
            bound = None
        cells = (
            Cell(case.noise),
            Cell(case.ratio, "g"),
            Cell(case.dimension),
            Cell(case.worst_case, ".3g"),
            Cell(case.standard_error, ".3g"),
            Cell(bound, ".3g"),
        )
        rows.append(Row(cells=cells))
    notes = (
        f"p {p:g} at x, sigma {sigma:g}, distance {distance:g}",
        "gaussian: exact (likelihood-ratio sets)",
        "others: the shell of the theorem's proof by Monte Carlo, an upper estimate",
        "no bound: the theorem gives 1 or more there, which is void, or does not apply",
    )
    return Grid(
        title="Worst-case probability at x'",
        columns=columns_of(COLUMNS),
        rows=tuple(rows),
        notes=notes,
    )


def _draw(gaussian: Sequence[WorstCase]) -> Figure:
    """The exact worst cases against the dimension, a line per ratio."""
    # matplotlib is optional and slow to import.
    from smoothmix.plots import style

    with style.our_style():
        figure, (ax, *_) = style.panels(1, runs=8, height=2.3)
        by_ratio: dict[float, list[WorstCase]] = {}
        for case in gaussian:
            by_ratio.setdefault(case.ratio, []).append(case)
        entries = {}
        for number, (ratio, own) in enumerate(sorted(by_ratio.items())):
            # The dimensions may be requested in any order, but a line runs from left to right.
            own.sort(key=lambda case: case.dimension)
            (line,) = ax.plot(
                [case.dimension for case in own],
                [max(case.worst_case, FLOOR) for case in own],
                color=style.COLOURS[number % len(style.COLOURS)],
                linestyle=style.DASHES[number // len(style.COLOURS) % len(style.DASHES)],
                marker=".",
            )
            entries[f"τ/σ = {ratio:g}"] = line
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_ylim(FLOOR, 2)
        # Plain text: log axes write mathematics by default, which our style turns off.
        dimensions = sorted({case.dimension for case in gaussian})
        ax.set_xticks(dimensions, [f"{d:,}" for d in dimensions], rotation=35, ha="right")
        ax.set_yticks([1, 1e-3, 1e-6, 1e-9, FLOOR], ["1", "10⁻³", "10⁻⁶", "10⁻⁹", "≤ 10⁻¹²"])
        ax.minorticks_off()
        ax.set_xlabel("Dimension")
        ax.set_ylabel("Worst-case probability at x'")
        style.legend_below(figure, entries, entries)
        return style.settle(figure)
