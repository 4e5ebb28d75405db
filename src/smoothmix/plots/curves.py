"""Curves over images: certified accuracy by radius, and the distribution of p_A."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from smoothmix.analysis import Measured
from smoothmix.noise import GAUSSIAN
from smoothmix.plots import style
from smoothmix.tables.numbers import limit as at_most

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

Floats = NDArray[np.float64]

BAND_POINTS = 200
"""Steps of a curve at which its interval is computed."""

MARGIN = 1.03
"""The axis of radii ends this much to the right of the largest radius."""

MARGIN_WITH_LIMIT = 1.09
"""The same where a limit is marked: its label stands to the right of it."""


@style.figure
def certified_accuracy(
    every: Sequence[Measured], *, bands: bool = False, width: float | None = None
) -> Figure:
    """Share of images classified correctly with a radius of at least r, against r.

    There is one panel per noise level. `bands` adds 95 % Clopper-Pearson intervals over images.
    The dotted line marks the largest radius that the draws can certify.
    """
    groups = {}
    for sigma, runs in style.by_sigma(every).items():
        groups[style.panel_title(sigma, runs)] = runs
    return _accuracy_panels(groups, style.looks(every), bands=bands, width=width)


def certified_accuracy_by(
    groups: Mapping[str, Sequence[Measured]], *, width: float | None = None
) -> Figure:
    """The same with one panel per group, under the group's name; a run may be in several."""
    every: list[Measured] = []
    for runs in groups.values():
        every.extend(runs)
    with style.our_style():
        return _accuracy_panels(groups, style.looks(every), bands=False, width=width)


def _accuracy_panels(
    groups: Mapping[str, Sequence[Measured]],
    looks: Mapping[str, style.Look],
    *,
    bands: bool,
    width: float | None,
) -> Figure:
    figure, axes = style.panels(len(groups), runs=len(looks), width=width)
    entries: dict[str, Artist] = {}
    for ax, (title, runs) in zip(axes, groups.items(), strict=True):
        for m in runs:
            look = looks[m.name]
            x, y = radius_steps(m)
            line = _step_curve(ax, x, y, look, m.name)
            entries.setdefault(m.name, line)
            if bands:
                # The last corner only closes the curve at 0: there is no interval there.
                _band(ax, m, x[:-1], look)
        ax.set_title(title)
        radius_axis(ax, runs)
        style.percent_axis(ax)
        style.label_leftmost(ax, "Certified accuracy (%)")
    style.legend_below(figure, entries, looks)
    return style.settle(figure)


def _step_curve(ax: Axes, x: Floats, y: Floats, look: style.Look, name: str) -> Line2D:
    (line,) = ax.plot(
        x, y, drawstyle="steps-pre", color=look.colour, linestyle=look.dash, label=name
    )
    return line


def radius_steps(m: Measured) -> tuple[Floats, Floats]:
    """Corners of the curve of certified accuracy, in percent.

    Each value holds from the corner before it up to its own.
    """
    corners = np.unique(np.append(m.radius[m.correct], 0.0))
    accuracy = 100 * m.accuracy_at(corners.tolist())
    return np.append(corners, corners[-1]), np.append(accuracy, 0.0)


def _band(ax: Axes, m: Measured, corners: Floats, look: style.Look) -> None:
    # Thousands of exact intervals would take seconds and change nothing that one could see.
    picked = np.unique(np.linspace(0, len(corners) - 1, BAND_POINTS).astype(int))
    estimates = m.accuracy(corners[picked].tolist())
    low = 100 * np.array([estimate.low for estimate in estimates])
    high = 100 * np.array([estimate.high for estimate in estimates])
    ax.fill_between(
        corners[picked], low, high, step="pre", color=look.colour, alpha=0.13, linewidth=0
    )


def radius_axis(ax: Axes, runs: Sequence[Measured]) -> None:
    """Set the axis from 0 to the largest radius that any run could certify, and mark that limit."""
    # Runs with the same limit share one line; runs of different n have one each.
    limits: dict[float, int] = {}
    largest = 0.0
    for m in runs:
        largest = max(largest, float(m.counted.max()))
        if m.settings and m.largest_radius:
            limits[m.largest_radius] = m.settings.guarantee.max_draws
    top = max([largest, *limits]) or 1.0
    margin = MARGIN_WITH_LIMIT if limits else MARGIN
    ax.set_xlim(0, margin * top)
    label = f"{_norms(runs)} radius"
    if any(m.paper_rounding for m in runs):
        label += " (rounded as in the paper)"
    ax.set_xlabel(label)
    for limit, n in limits.items():
        _mark_limit(ax, limit, n)


SYMBOLS = {"L1": "ℓ₁", "L2": "ℓ₂"}
"""Norms as axes show them."""


def _norms(runs: Sequence[Measured]) -> str:
    """The norms in which the radii of these runs are measured."""
    norms: dict[str, None] = {}
    for m in runs:
        # A log without settings is of the usual kind.
        noise = m.settings.certification.noise if m.settings else GAUSSIAN
        norms[SYMBOLS.get(noise.norm, noise.norm)] = None
    return " or ".join(norms)


def _mark_limit(ax: Axes, limit: float, n: int) -> None:
    ax.axvline(limit, color=style.FAINT, linestyle=":", linewidth=0.8, zorder=1)
    ax.annotate(
        f"≤ {at_most(limit)} (n = {n:,})",
        (limit, 1),
        xycoords=("data", "axes fraction"),
        xytext=(2, -1),
        textcoords="offset points",
        rotation=90,
        va="top",
        fontsize=style.SMALL,
        color=style.FAINT,
    )


TICKS = (0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999, 0.999999)
"""Probabilities that the axis of p_A labels, as far as it reaches."""


@style.figure
def probabilities(every: Sequence[Measured], *, width: float | None = None) -> Figure:
    """Share of images classified correctly with a p_A of at least p, against p.

    There is one panel per noise level. The axis spreads what lies close to 1. For a log without
    votes p_A is the value that its radii imply, which the legend says; a file that does not record
    p_A is listed in the legend as not measured.
    """
    measured = [m for m in every if np.isfinite(m.probability).any()]
    groups = style.by_sigma(measured)
    looks = style.looks(every)
    figure, axes = style.panels(max(1, len(groups)), runs=len(looks), width=width)
    entries: dict[str, Artist] = {}
    # Not strict: where nothing is measured, one empty panel says so.
    for ax, (sigma, runs) in zip(axes, groups.items(), strict=False):
        for m in runs:
            line = _probability_curve(ax, m, looks[m.name])
            entries.setdefault(m.name, line)
        ax.set_title(style.panel_title(sigma, runs))
    edge = _edge(measured)
    for ax in axes:
        _probability_axis(ax, edge)
    if not measured:
        _write_not_measured(axes[0])
    remarks = _probability_remarks(every, measured)
    for name in remarks:
        # A run without a curve still gets its line in the legend.
        entries.setdefault(name, axes[0].plot([], [], linestyle="none")[0])
    style.legend_below(figure, entries, looks, remarks)
    return style.settle(figure)


def _probability_curve(ax: Axes, m: Measured, look: style.Look) -> Line2D:
    x, y = probability_steps(m)
    line = _step_curve(ax, x, y, look, m.name)
    if _has_votes(m):
        # The end of a curve of votes is a value of its own: images on which all draws agree.
        ax.plot(
            x[-1:],
            y[-1:],
            look.marker,
            color=look.colour,
            markersize=2.5,
            clip_on=False,
            zorder=3,
        )
    return line


def _write_not_measured(ax: Axes) -> None:
    ax.text(0.5, 0.5, "not measured", transform=ax.transAxes, ha="center", color=style.FAINT)


def _probability_remarks(every: Sequence[Measured], measured: Sequence[Measured]) -> dict[str, str]:
    """What the legend adds to the names of runs whose p_A is implied, or not recorded."""
    remarks = {}
    for m in measured:
        if not _has_votes(m):
            remarks[m.name] = " (at least)"
    drawn = {m.name for m in measured}
    for m in every:
        if m in measured:
            continue
        if m.name in drawn:
            remarks[m.name] = " (not all measured)"
        else:
            remarks[m.name] = " (not measured)"
    return remarks


def _has_votes(m: Measured) -> bool:
    """Whether p_A is a share of draws; in a Cohen-style log it is only implied by the radius."""
    return any(row.has_votes for row in m.file.rows)


def position(p: Floats) -> Floats:
    """Where p stands on the axis: each further nine takes the same space."""
    with np.errstate(divide="ignore"):
        return np.asarray(-np.log10(1 - p))


def _position(p: float) -> float:
    return float(position(np.array(p)))


def probability_steps(m: Measured) -> tuple[Floats, Floats]:
    """Corners of the curve, by their positions on the axis, and shares in percent.

    A curve of votes ends at 1 - 1/n, with the images on which all n draws agree. A curve of implied
    values ends at the last of them.
    """
    correct = m.capped_probability[m.correct & (m.probability > TICKS[0])]
    corners = np.unique(np.concatenate([correct, [TICKS[0]], _resolution(m)]))
    x = position(corners)
    y = 100 * m.probabilities_at(corners.tolist())
    if _has_votes(m):
        return x, y
    return np.append(x, x[-1]), np.append(y, 0.0)


def _resolution(m: Measured) -> list[float]:
    """The largest p_A that the draws can show; empty for a Cohen-style log without draws."""
    draws = max((row.n for row in m.file.rows if row.n), default=0)
    if draws > 1 / (1 - TICKS[0]):
        return [1 - 1 / draws]
    return []


def _edge(measured: Sequence[Measured]) -> float:
    """Where the axis ends: at the largest p_A that any file can show, or at the fourth tick."""
    largest = TICKS[3]
    for m in measured:
        below_one = m.capped_probability[m.correct & (m.capped_probability < 1)]
        largest = max(largest, *_resolution(m), float(below_one.max(initial=0.0)))
    return _position(largest)


def _probability_axis(ax: Axes, edge: float) -> None:
    # A tick at the very edge may lie a rounding error beyond it.
    ticks = [p for p in TICKS if _position(p) <= edge + 1e-9]
    names = [f"{p:.6g}".removeprefix("0") for p in ticks]
    ax.set_xlim(_position(TICKS[0]), edge)
    ax.set_xticks(position(np.array(ticks)), names)
    ax.set_xlabel("$p$", parse_math=True)
    style.label_leftmost(ax, "Correct with $p_A \\geq p$ (%)", parse_math=True)
    style.percent_axis(ax)
