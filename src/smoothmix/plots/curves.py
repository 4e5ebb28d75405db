"""Shares of images against what they reach: certified accuracy by radius, and the distribution of p_A."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from smoothmix.analysis import Measured
from smoothmix.plots import style
from smoothmix.tables.numbers import limit as at_most

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]

BAND_POINTS = 200
"""Steps of a curve at which its interval is computed."""

ROOM = 1.09
"""The axis of radii ends so much farther right than anything certified: the remark at the limit stands there."""


@style.figure
def certified_accuracy(
    every: Sequence[Measured], *, bands: bool = False, width: float | None = None
) -> Figure:
    """Share of images classified right with a radius of at least r, against r; a panel for each noise level.

    `bands` adds 95 % Clopper-Pearson intervals over images. The dotted line is what the draws can certify at most.
    """
    groups = {style.panel_title(sigma, runs): runs for sigma, runs in style.by_sigma(every).items()}
    return _accuracy_panels(groups, style.looks(every), bands=bands, width=width)


def certified_accuracy_by(
    groups: Mapping[str, Sequence[Measured]], *, width: float | None = None
) -> Figure:
    """The same with a panel for each group, under its name; a run may be in several."""
    looks = style.looks([m for runs in groups.values() for m in runs])
    with style.our_style():
        return _accuracy_panels(groups, looks, bands=False, width=width)


def _accuracy_panels(
    groups: Mapping[str, Sequence[Measured]],
    looks: Mapping[str, style.Look],
    *,
    bands: bool,
    width: float | None,
) -> Figure:
    made, axes = style.panels(len(groups), runs=len(looks), width=width)
    entries: dict[str, Artist] = {}
    for ax, (title, runs) in zip(axes, groups.items(), strict=True):
        for m in runs:
            look = looks[m.name]
            x, y = radius_steps(m)
            (line,) = ax.plot(
                x, y, drawstyle="steps-pre", color=look.colour, linestyle=look.dash, label=m.name
            )
            entries.setdefault(m.name, line)
            if bands:
                _band(ax, m, x[:-1], look)
        ax.set_title(title)
        radius_axis(ax, runs)
        style.percent_axis(ax)
        ax.set_ylabel("Certified accuracy (%)" if style.leftmost(ax) else "")
    style.legend_below(made, entries, looks)
    return style.settle(made)


def radius_steps(m: Measured) -> tuple[Floats, Floats]:
    """Corners of the curve of certified accuracy, in percent: each value holds from the corner before up to its own."""
    corners = np.unique(np.append(m.radius[m.correct], 0.0))
    return np.append(corners, corners[-1]), np.append(100 * m.accuracy_at(corners.tolist()), 0.0)


def _band(ax: Axes, m: Measured, corners: Floats, look: style.Look) -> None:
    picked = np.unique(np.linspace(0, len(corners) - 1, BAND_POINTS).astype(int))
    found = m.accuracy(corners[picked].tolist())
    low, high = (100 * np.array([getattr(e, end) for e in found]) for end in ("low", "high"))
    ax.fill_between(
        corners[picked], low, high, step="pre", color=look.colour, alpha=0.13, linewidth=0
    )


def radius_axis(ax: Axes, runs: Sequence[Measured]) -> None:
    """Radii from 0 to the largest that any of the runs could have certified, which is marked."""
    limits: dict[float, int] = {}
    for m in runs:
        if m.settings and m.largest_radius:
            limits[m.largest_radius] = m.settings.certification.n
    top = max([*limits, *(float(m.counted.max()) for m in runs)]) or 1.0
    ax.set_xlim(0, (ROOM if limits else 1.03) * top)
    rounded = any(m.paper_rounding for m in runs)
    ax.set_xlabel("ℓ₂ radius (rounded as in the paper)" if rounded else "ℓ₂ radius")
    for limit, n in limits.items():
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


@style.figure
def probabilities(every: Sequence[Measured], *, width: float | None = None) -> Figure:
    """Share of images classified right with a p_A of at least p, against p; a panel for each noise level.

    The axis spreads what lies close to 1. Of a log without votes p_A is what its radii prove, which the legend says;
    a file that says nothing about p_A is named there as not measured.
    """
    measured = [m for m in every if np.isfinite(m.probability).any()]
    groups, looks = style.by_sigma(measured), style.looks(every)
    made, axes = style.panels(max(1, len(groups)), runs=len(looks), width=width)
    edge = _edge(measured)
    entries: dict[str, Artist] = {}
    remarks = {m.name: " (at least)" for m in measured if not _has_votes(m)}
    for ax, (sigma, runs) in zip(axes, groups.items(), strict=False):
        for m in runs:
            look = looks[m.name]
            x, y = probability_steps(m)
            (line,) = ax.plot(
                x, y, drawstyle="steps-pre", color=look.colour, linestyle=look.dash, label=m.name
            )
            if _has_votes(m):
                ax.plot(
                    x[-1:],
                    y[-1:],
                    look.marker,
                    color=look.colour,
                    markersize=2.5,
                    clip_on=False,
                    zorder=3,
                )
            entries.setdefault(m.name, line)
        ax.set_title(style.panel_title(sigma, runs))
    for ax in axes:
        _probability_axis(ax, edge)
    if not measured:
        axes[0].text(
            0.5, 0.5, "not measured", transform=axes[0].transAxes, ha="center", color=style.FAINT
        )
    for name in dict.fromkeys(m.name for m in every if m not in measured):
        remarks[name] = " (not all measured)" if name in entries else " (not measured)"
        entries.setdefault(name, axes[0].plot([], [], linestyle="none")[0])
    style.legend_below(made, entries, looks, remarks)
    return style.settle(made)


def _has_votes(m: Measured) -> bool:
    """Whether p_A is a share of draws; in a log of the field it is only what the radius says it is at least."""
    return any(row.has_votes for row in m.file.rows)


def position(p: Floats) -> Floats:
    """Where p stands on the axis: evenly for each further nine."""
    with np.errstate(divide="ignore"):
        return np.asarray(-np.log10(1 - p))


def probability_steps(m: Measured) -> tuple[Floats, Floats]:
    """Corners of the curve, by their positions on the axis, and shares in percent.

    A curve of votes ends at 1 - 1/n, with the images on which all n draws agree; one of bounds where the last bound is.
    """
    right = m.probability_told[m.correct & (m.probability > TICKS[0])]
    corners = np.unique(np.concatenate([right, [TICKS[0]], _most_told(m)]))
    x, y = position(corners), 100 * m.probabilities_at(corners.tolist())
    return (x, y) if _has_votes(m) else (np.append(x, x[-1]), np.append(y, 0.0))


def _most_told(m: Measured) -> list[float]:
    """What p_A is at most as far as its draws can tell; nothing for a log of the field, whose draws are not known."""
    draws = max((row.n for row in m.file.rows if row.n), default=0)
    return [1 - 1 / draws] if draws > 1 / (1 - TICKS[0]) else []


def _edge(measured: Sequence[Measured]) -> float:
    """Where the axis ends: with the last that any file can tell."""
    lasts = [
        np.append(m.probability_told[m.correct & (m.probability_told < 1)], _most_told(m))
        for m in measured
    ]
    last = max((float(each.max(initial=0.0)) for each in lasts), default=0.0)
    return max(float(position(np.array(TICKS[3]))), float(position(np.array(last))))


def _probability_axis(ax: Axes, edge: float) -> None:
    ticks = [p for p in TICKS if position(np.array(p)) <= edge + 1e-9]
    ax.set_xlim(float(position(np.array(TICKS[0]))), edge)
    ax.set_xticks(position(np.array(ticks)), [f"{p:.6g}".removeprefix("0") for p in ticks])
    ax.set_xlabel("$p$", parse_math=True)
    ax.set_ylabel("Right with $p_A \\geq p$ (%)" if style.leftmost(ax) else "", parse_math=True)
    style.percent_axis(ax)
