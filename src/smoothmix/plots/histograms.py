"""Histograms of certified radii."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from smoothmix.analysis import Measured
from smoothmix.plots import style
from smoothmix.plots.curves import radius_axis
from smoothmix.stats.binomial import ABSTAIN

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.figure import Figure

BINS = 24


@style.figure
def radius_histogram(every: Sequence[Measured], *, width: float | None = None) -> Figure:
    """The distribution of the radii of correctly classified images, one panel per noise level.

    The bins of a panel are the same for all runs. The legend says how many images are in no bin;
    for a name that occurs in several panels, in the order of the panels.
    """
    groups = style.by_sigma(every)
    looks = style.looks(every)
    figure, axes = style.panels(len(groups), runs=len(looks), width=width, share_y=False)
    entries: dict[str, Artist] = {}
    for ax, (sigma, runs) in zip(axes, groups.items(), strict=True):
        # Where nothing is certified, any width will do: bins must not be empty.
        largest = max(float(m.counted.max()) for m in runs) or 1.0
        edges = np.linspace(0, largest, BINS + 1)
        for m in runs:
            look = looks[m.name]
            in_bins, _ = np.histogram(m.radius[m.correct], edges)
            stairs = ax.stairs(
                100 * in_bins / len(m),
                edges,
                color=look.colour,
                linestyle=look.dash,
                linewidth=1.0,
                label=m.name,
            )
            entries.setdefault(m.name, stairs)
        ax.set_title(style.panel_title(sigma, runs))
        radius_axis(ax, runs)
        ax.set_ylim(bottom=0)
        style.label_leftmost(ax, "Images (%)")
    style.legend_below(figure, entries, looks, _shares_left_out(groups.values()))
    return style.settle(figure)


def _shares_left_out(panels: Iterable[Sequence[Measured]]) -> dict[str, str]:
    """For each name, the shares of images that are in no bin, in words."""
    runs_of: dict[str, list[Measured]] = {}
    for runs in panels:
        for m in runs:
            runs_of.setdefault(m.name, []).append(m)
    return {name: _left_out(runs) for name, runs in runs_of.items()}


def _left_out(runs: Sequence[Measured]) -> str:
    abstained = [float(np.mean(m.predict == ABSTAIN)) for m in runs]
    missed = [float(np.mean(~m.correct)) for m in runs]
    # A run that skips wrong images did not measure which of them would have abstained.
    if any(m.skips_wrong for m in runs):
        return f": {_percents(missed)} wrong or abstained"
    wrong = np.subtract(missed, abstained).tolist()
    return f": {_percents(wrong)} wrong, {_percents(abstained)} abstained"


def _percents(shares: Sequence[float]) -> str:
    return " / ".join(f"{100 * share:.1f}" for share in shares) + " %"
