"""Radii as histograms, training by epoch, and accuracy against the average certified radius."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from smoothmix import analysis
from smoothmix.analysis import Estimate, Measured
from smoothmix.config import require
from smoothmix.plots import labels, style
from smoothmix.plots.curves import radius_axis
from smoothmix.stats.binomial import ABSTAIN

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BINS = 24


@style.figure
def radius_histogram(every: Sequence[Measured], *, width: float | None = None) -> Figure:
    """How the radii of images that are right are distributed; a panel for each noise level, in equal bins.

    The legend says how many images are in no bin: of a name that is in several panels, in the order of the panels.
    """
    groups, looks = style.by_sigma(every), style.looks(every)
    made, axes = style.panels(len(groups), runs=len(looks), width=width, share_y=False)
    entries: dict[str, Artist] = {}
    for ax, (sigma, runs) in zip(axes, groups.items(), strict=True):
        edges = np.linspace(0, max(float(m.counted.max()) for m in runs) or 1.0, BINS + 1)
        for m in runs:
            look = looks[m.name]
            shares = 100 * np.histogram(m.radius[m.correct], edges)[0] / len(m)
            drawn = ax.stairs(
                shares, edges, color=look.colour, linestyle=look.dash, linewidth=1.0, label=m.name
            )
            entries.setdefault(m.name, drawn)
        ax.set_title(style.panel_title(sigma, runs))
        radius_axis(ax, runs)
        ax.set_ylim(bottom=0)
        ax.set_ylabel("Images (%)" if style.leftmost(ax) else "")
    ordered = [m for runs in groups.values() for m in runs]
    left_out = {name: _left_out([m for m in ordered if m.name == name]) for name in looks}
    style.legend_below(made, entries, looks, left_out)
    return style.settle(made)


def _left_out(runs: Sequence[Measured]) -> str:
    """The shares of images that are in no bin, in words."""
    abstained = [float(np.mean(m.predict == ABSTAIN)) for m in runs]
    missed = [float(np.mean(~m.correct)) for m in runs]
    if any(m.skips_wrong for m in runs):
        return f": {_percents(missed)} wrong or abstained"
    return f": {_percents(np.subtract(missed, abstained).tolist())} wrong, {_percents(abstained)} abstained"


def _percents(shares: Sequence[float]) -> str:
    return " / ".join(f"{100 * share:.1f}" for share in shares) + " %"


TRAINING = {
    "loss": "Loss\n(each method's own)",
    "accuracy": "Accuracy on noisy\ntest images (%)",
    "learning_rate": "Learning rate",
}
"""What is drawn of metrics.jsonl."""


@style.figure
def training(every: Sequence[Measured], *, width: float | None = None) -> Figure:
    """Loss, accuracy on noisy test images and learning rate by epoch, of the runs that recorded them."""
    recorded = [m for m in every if m.training]
    require(bool(recorded), "none of these runs has a record of its training (metrics.jsonl)")
    groups, looks = style.by_sigma(recorded), style.looks(every)
    made, axes = style.panels(
        len(TRAINING) * len(groups),
        runs=len(looks),
        width=width or style.FULL_WIDTH,
        height=1.75,
        share_y=False,
    )
    entries: dict[str, Artist] = {}
    places = iter(axes)
    for sigma, runs in groups.items():
        for key, label in TRAINING.items():
            ax = next(places)
            for m in runs:
                entries.setdefault(m.name, _by_epoch(ax, m, key, looks[m.name]))
            ax.set_title(style.sigma_text(sigma))
            ax.set_ylabel(label)
            _epoch_axes(ax, key)
    style.legend_below(made, entries, looks)
    return style.settle(made)


def _by_epoch(ax: Axes, m: Measured, key: str, look: style.Look) -> Artist:
    values = np.array([line.get(key, math.nan) for line in m.training], dtype=np.float64)
    (line,) = ax.plot(
        [line.get("epoch", number) for number, line in enumerate(m.training, start=1)],
        100 * values if key == "accuracy" else values,
        drawstyle="steps-mid" if key == "learning_rate" else "default",
        color=look.colour,
        linestyle=look.dash,
        marker=look.marker if len(values) == 1 else "",
        label=m.name,
    )
    return line


def _epoch_axes(ax: Axes, key: str) -> None:
    ax.set_xlabel("Epoch")
    ax.locator_params(axis="x", integer=True)
    values = np.concatenate(
        [np.asarray(line.get_ydata(), dtype=np.float64) for line in ax.get_lines()]
    )
    if key == "accuracy":
        style.percent_axis(ax)
    elif key == "learning_rate" and np.all(values > 0):
        ax.set_yscale("log")
        ax.set_ylim(values.min() / 2, values.max() * 2)
        ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        ax.yaxis.set_minor_formatter(lambda value, _: "")
    elif not np.any(values < 0):
        ax.set_ylim(bottom=0)


@style.figure
def accuracy_against_acr(every: Sequence[Measured], *, width: float | None = None) -> Figure:
    """Average certified radius against clean accuracy, with 95 % intervals over images; a panel for each noise level.

    Names stand beside the points, or in a legend where there is no room. These axes alone need not begin at 0: they
    do unless that would push all runs into half of the panel.
    """
    groups, looks = style.by_sigma(every), style.looks(every)
    radii = dict(zip(map(id, every), analysis.means_of([m.counted for m in every]), strict=True))
    made, axes = style.panels(len(groups), runs=len(looks), width=width, height=2.3, share_y=False)
    entries: dict[str, Artist] = {}
    named = []
    for ax, (sigma, runs) in zip(axes, groups.items(), strict=True):
        crosses = [(_percent(m.accuracy([0.0])[0]), radii[id(m)]) for m in runs]
        for m, (x, y) in zip(runs, crosses, strict=True):
            entries.setdefault(m.name, _cross(ax, x, y, looks[m.name], m.name))
        _span(ax)
        ax.set_title(style.panel_title(sigma, runs))
        ax.set_xlabel("Certified accuracy at radius 0 (%)")
        ax.set_ylabel("Average certified radius" if style.leftmost(ax) else "")
        named.append(
            labels.Labelled(
                ax, crosses, [m.name for m in runs], [looks[m.name].colour for m in runs]
            )
        )
    style.settle(made)
    if labels.write(named):
        return made
    made.set_layout_engine("constrained")
    style.legend_below(made, entries, looks)
    return style.settle(made)


def _span(ax: Axes) -> None:
    ax.margins(0.1)
    (left, right), (bottom, top) = ax.get_xlim(), ax.get_ylim()
    ax.set_xlim(0 if left < right / 2 else left, min(100.0, right))
    ax.set_ylim(0 if bottom < top / 2 else bottom, top)


def _percent(e: Estimate) -> Estimate:
    return Estimate(100 * e.value, 100 * e.low, 100 * e.high)


def _cross(ax: Axes, x: Estimate, y: Estimate, look: style.Look, name: str) -> Artist:
    """A point with both of its intervals."""
    drawn = ax.errorbar(
        x.value,
        y.value,
        xerr=_reach(x),
        yerr=_reach(y),
        fmt=look.marker,
        color=look.colour,
        elinewidth=0.5,
        clip_on=False,
        label=name,
    )
    return drawn.lines[0]


def _reach(e: Estimate) -> list[list[float]]:
    """How far an interval reaches down and up; a bootstrap of equal values may end a rounding error past them."""
    return [[max(0.0, e.value - e.low)], [max(0.0, e.high - e.value)]]
