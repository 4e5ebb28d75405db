"""Average certified radius against clean accuracy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from smoothmix import analysis
from smoothmix.analysis import Estimate, Measured
from smoothmix.plots import labels, style

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@style.figure
def accuracy_against_acr(every: Sequence[Measured], *, width: float | None = None) -> Figure:
    """Average certified radius against clean accuracy, with 95 % intervals over images.

    There is one panel per noise level. Names stand beside the points, or in a legend where there is
    no room. These axes alone need not begin at 0: they do unless that would push all runs into half
    of the panel.
    """
    groups = style.by_sigma(every)
    looks = style.looks(every)
    radii = analysis.means_of([m.counted for m in every])
    # By identity: runs of one name may occur at several noise levels.
    radius_of = dict(zip(map(id, every), radii, strict=True))
    figure, axes = style.panels(
        len(groups), runs=len(looks), width=width, height=2.3, share_y=False
    )
    entries: dict[str, Artist] = {}
    panels = []
    for ax, (sigma, runs) in zip(axes, groups.items(), strict=True):
        points = [(_percent(m.accuracy([0.0])[0]), radius_of[id(m)]) for m in runs]
        for m, (x, y) in zip(runs, points, strict=True):
            cross = _cross(ax, x, y, looks[m.name], m.name)
            entries.setdefault(m.name, cross)
        _set_limits(ax)
        ax.set_title(style.panel_title(sigma, runs))
        ax.set_xlabel("Certified accuracy at radius 0 (%)")
        style.label_leftmost(ax, "Average certified radius")
        names = [m.name for m in runs]
        colours = [looks[name].colour for name in names]
        panels.append(labels.Labelled(ax, points, names, colours))
    # Names can be placed only once the layout no longer moves.
    style.settle(figure)
    if labels.write(panels):
        return figure
    figure.set_layout_engine("constrained")
    style.legend_below(figure, entries, looks)
    return style.settle(figure)


def _set_limits(ax: Axes) -> None:
    ax.margins(0.1)
    left, right = ax.get_xlim()
    bottom, top = ax.get_ylim()
    if left < right / 2:
        left = 0
    if bottom < top / 2:
        bottom = 0
    ax.set_xlim(left, min(100.0, right))
    ax.set_ylim(bottom, top)


def _percent(e: Estimate) -> Estimate:
    return Estimate(100 * e.value, 100 * e.low, 100 * e.high)


def _cross(ax: Axes, x: Estimate, y: Estimate, look: style.Look, name: str) -> Artist:
    """A point with both of its intervals."""
    drawn = ax.errorbar(
        x.value,
        y.value,
        xerr=_error_bar(x),
        yerr=_error_bar(y),
        fmt=look.marker,
        color=look.colour,
        elinewidth=0.5,
        clip_on=False,
        label=name,
    )
    return drawn.lines[0]


def _error_bar(e: Estimate) -> list[list[float]]:
    """How far an interval reaches below and above its value."""
    # A bootstrap of equal values may end a rounding error on the wrong side of them.
    below = max(0.0, e.value - e.low)
    above = max(0.0, e.high - e.value)
    return [[below], [above]]
