"""Names beside points, placed so that they cover neither each other nor the points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from smoothmix.analysis import Estimate
from smoothmix.plots import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]

MARK = 5.0
"""Side of a marker. All lengths here are in points (1/72 inch)."""

BAR = 1.0
"""Width of an error bar."""

RINGS = (3.0, 6.0, 10.0, 15.0, 21.0, 28.0, 36.0)
"""How far a name may stand from its point."""

FAR = 8.0
"""From here on, a thin line leads from the name to its point."""

CORNERS = ((1, 1), (1, -1), (-1, 1), (-1, -1))
BESIDE = ((1, 0.4), (1, -0.4), (-1, 0.4), (-1, -0.4))
ABOVE_AND_BELOW = ((0, 1), (0.5, 1), (-0.5, 1), (0, -1), (0.5, -1), (-0.5, -1))

SIDES = np.array(CORNERS + BESIDE + ABOVE_AND_BELOW)
"""Directions in which a name may stand: corners first, because intervals lie along the axes."""

SWEEPS = 5
"""How often every name is placed again, given where the others are."""

COVERING_COST = 10.0
"""Cost of covering another name, a point or the frame, per unit of area; distance costs 1."""

BAR_COST = 2.0
"""Cost of covering an interval, per unit of area."""


@dataclass(frozen=True)
class Labelled:
    """A panel, its points with both intervals, and what they are called."""

    ax: Axes
    crosses: Sequence[tuple[Estimate, Estimate]]
    names: Sequence[str]
    colours: Sequence[str]


def write(panels: Sequence[Labelled]) -> bool:
    """Write each name near its point if there is room for all, and return whether there was.

    The layout of the figure must be settled.
    """
    placements = [_place(panel) for panel in panels]
    if not all(placement.fits for placement in placements):
        return False
    for panel, placement in zip(panels, placements, strict=True):
        for i, (x, y) in enumerate(panel.crosses):
            offset = placement.offsets[i]
            leader = None
            if np.any(np.abs(offset) > placement.sizes[i] / 2 + FAR):
                leader = LEADER
            panel.ax.annotate(
                _text(panel.names[i]),
                (x.value, y.value),
                xytext=(float(offset[0]), float(offset[1])),
                textcoords="offset points",
                ha="center",
                va="center",
                fontsize=style.SMALL,
                color=style.darker(panel.colours[i]),
                arrowprops=leader,
            )
    return True


LEADER = {"arrowstyle": "-", "color": style.FAINT, "linewidth": 0.4, "shrinkA": 0, "shrinkB": 2}
"""The thin line from a name to its point."""


def _text(name: str) -> str:
    return style.fitted(name, width=22, lines=2)


@dataclass(frozen=True)
class _Placement:
    """Where the names of a panel go."""

    offsets: Floats
    sizes: Floats
    fits: bool


def _place(panel: Labelled) -> _Placement:
    ax = panel.ax
    scale = 72 / ax.figure.dpi
    sizes = np.array([_size(ax, _text(name)) for name in panel.names]) * scale

    def in_points(corner: Sequence[tuple[float, float]]) -> Floats:
        return np.asarray(ax.transData.transform(corner) * scale)

    low = in_points([(x.low, y.low) for x, y in panel.crosses])
    anchors = in_points([(x.value, y.value) for x, y in panel.crosses])
    high = in_points([(x.high, y.high) for x, y in panel.crosses])
    half = BAR / 2
    horizontal = [low[:, 0], anchors[:, 1] - half, high[:, 0], anchors[:, 1] + half]
    vertical = [anchors[:, 0] - half, low[:, 1], anchors[:, 0] + half, high[:, 1]]
    bars = np.vstack([np.stack(horizontal, axis=1), np.stack(vertical, axis=1)])
    frame = np.array(ax.get_window_extent().extents) * scale
    offsets, fits = spread(anchors, sizes, bars=bars, frame=frame)
    return _Placement(offsets, sizes, fits)


def _size(ax: Axes, name: str) -> tuple[float, float]:
    # matplotlib knows the size of text only once it is part of a figure.
    text = ax.text(0, 0, name, fontsize=style.SMALL)
    box = text.get_window_extent()
    text.remove()
    return box.width, box.height


def spread(anchors: Floats, sizes: Floats, *, bars: Floats, frame: Floats) -> tuple[Floats, bool]:
    """Offsets of the centres of boxes from their anchors, and whether they are readable.

    Bars and frame are boxes (left, bottom, right, top). Each box in turn takes its best position
    given the others, several times over: it must not cover other boxes, anchors or the frame,
    should not cover bars, and should be near. Readable means that nothing is covered and most are
    near.
    """
    rings = np.repeat(RINGS, len(SIDES))
    directions = np.tile(SIDES, (len(RINGS), 1))
    chosen = np.zeros_like(anchors)
    covered_share = np.zeros(len(anchors))
    distance = np.zeros(len(anchors))
    points = _boxes(anchors, np.full(2, MARK))
    # The widest boxes have the least choice: they go first.
    order = np.argsort(-sizes[:, 0], kind="stable").tolist()
    for sweep in range(SWEEPS):
        for turn, i in enumerate(order):
            # In the first sweep only the boxes before this one have a position yet.
            placed = order[:turn]
            if sweep > 0:
                placed = [j for j in order if j != i]
            area = sizes[i].prod()
            options = directions * (sizes[i] / 2 + rings[:, None])
            boxes = _boxes(anchors[i] + options, sizes[i])
            names = _boxes(anchors[placed] + chosen[placed], sizes[placed])
            outside = area - _overlap(boxes, frame[None])
            covered = _overlap(boxes, np.vstack([points, names])) + outside
            cost = COVERING_COST * covered + BAR_COST * _overlap(boxes, bars) + rings
            best = int(np.argmin(cost))
            chosen[i] = options[best]
            covered_share[i] = covered[best] / area
            distance[i] = rings[best]
    readable = covered_share.max() < 0.05 and distance.mean() < FAR
    return chosen, bool(readable)


def _boxes(centres: Floats, sizes: Floats) -> Floats:
    return np.hstack([centres - sizes / 2, centres + sizes / 2])


def _overlap(one: Floats, other: Floats) -> Floats:
    """Area that each box of `one` shares with all boxes of `other`."""
    low = np.maximum(one[:, None, :2], other[None, :, :2])
    high = np.minimum(one[:, None, 2:], other[None, :, 2:])
    return np.asarray(np.clip(high - low, 0, None).prod(axis=2).sum(axis=1))
