"""Names beside points: placed so that they cover neither each other nor the points, nor much of their intervals."""

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
"""Side of a point, in points (1/72 inch) as all lengths here."""

BAR = 1.0
"""Width that an interval takes."""

RINGS = (3.0, 6.0, 10.0, 15.0, 21.0, 28.0, 36.0)
"""How far a name may stand from its point."""

FAR = 8.0
"""From here on, a thin line leads from the name to its point."""

SIDES = np.array(
    [(x, y) for x in (1, -1) for y in (1, -1)]
    + [(x, y) for x in (1, -1) for y in (0.4, -0.4)]
    + [(x, y) for y in (1, -1) for x in (0, 0.5, -0.5)]
)
"""In which direction: the corners first, as intervals lie along the axes."""

SWEEPS = 5


@dataclass(frozen=True)
class Labelled:
    """A panel, its points with both intervals, and what they are called."""

    ax: Axes
    crosses: Sequence[tuple[Estimate, Estimate]]
    names: Sequence[str]
    colours: Sequence[str]


def write(panels: Sequence[Labelled]) -> bool:
    """Write each name near its point, if there is room for all; whether there was. The layout must be settled."""
    placed = [_placed(panel) for panel in panels]
    if not all(fits for _, _, fits in placed):
        return False
    for panel, (offsets, sizes, _) in zip(panels, placed, strict=True):
        for i, (x, y) in enumerate(panel.crosses):
            far = bool(np.any(np.abs(offsets[i]) > sizes[i] / 2 + FAR))
            panel.ax.annotate(
                _text(panel.names[i]),
                (x.value, y.value),
                xytext=(float(offsets[i, 0]), float(offsets[i, 1])),
                textcoords="offset points",
                ha="center",
                va="center",
                fontsize=style.SMALL,
                color=style.darker(panel.colours[i]),
                arrowprops=LEADER if far else None,
            )
    return True


LEADER = {"arrowstyle": "-", "color": style.FAINT, "linewidth": 0.4, "shrinkA": 0, "shrinkB": 2}


def _text(name: str) -> str:
    return style.fitted(name, width=22, lines=2)


def _placed(panel: Labelled) -> tuple[Floats, Floats, bool]:
    """Offsets and sizes of the names of a panel, and whether they fit."""
    ax = panel.ax
    scale = 72 / ax.figure.dpi
    sizes = np.array([_size(ax, _text(name)) for name in panel.names]) * scale
    low, anchors, high = (
        ax.transData.transform([(getattr(x, end), getattr(y, end)) for x, y in panel.crosses])
        * scale
        for end in ("low", "value", "high")
    )
    across = np.stack(
        [low[:, 0], anchors[:, 1] - BAR / 2, high[:, 0], anchors[:, 1] + BAR / 2], axis=1
    )
    upright = np.stack(
        [anchors[:, 0] - BAR / 2, low[:, 1], anchors[:, 0] + BAR / 2, high[:, 1]], axis=1
    )
    frame = np.array(ax.get_window_extent().extents) * scale
    offsets, fits = spread(anchors, sizes, bars=np.vstack([across, upright]), frame=frame)
    return offsets, sizes, fits


def _size(ax: Axes, name: str) -> tuple[float, float]:
    text = ax.text(0, 0, name, fontsize=style.SMALL)
    box = text.get_window_extent()
    text.remove()
    return box.width, box.height


def spread(anchors: Floats, sizes: Floats, *, bars: Floats, frame: Floats) -> tuple[Floats, bool]:
    """Offsets of the middles of boxes of these sizes from their anchors, and whether that is readable.

    Bars and frame are boxes (left, bottom, right, top). Each box in turn takes the best of its places given where the
    others are, a few times over: it must not cover others, anchors or the frame, should not cover bars, and be near.
    Readable means that it does not, and that most are near.
    """
    rings = np.repeat(RINGS, len(SIDES))
    directions = np.tile(SIDES, (len(RINGS), 1))
    chosen = np.zeros_like(anchors)
    lost, away = np.zeros((2, len(anchors)))
    points = _boxes(anchors, np.full(2, MARK))
    order = np.argsort(-sizes[:, 0], kind="stable").tolist()  # the widest have the least choice
    for sweep in range(SWEEPS):
        for turn, i in enumerate(order):
            size = sizes[i]
            options = directions * (size / 2 + rings[:, None])
            others = [j for j in (order if sweep else order[:turn]) if j != i]
            boxes = _boxes(anchors[i] + options, size)
            taken = np.vstack([points, _boxes(anchors[others] + chosen[others], sizes[others])])
            covered = _overlap(boxes, taken) + size.prod() - _overlap(boxes, frame[None])
            best = int(np.argmin(10 * covered + 2 * _overlap(boxes, bars) + rings))
            chosen[i], lost[i], away[i] = options[best], covered[best] / size.prod(), rings[best]
    return chosen, bool(lost.max() < 0.05 and away.mean() < FAR)


def _boxes(middles: Floats, sizes: Floats) -> Floats:
    return np.hstack([middles - sizes / 2, middles + sizes / 2])


def _overlap(one: Floats, other: Floats) -> Floats:
    """Area that each box of the one has in common with all of the other."""
    low = np.maximum(one[:, None, :2], other[None, :, :2])
    high = np.minimum(one[:, None, 2:], other[None, :, 2:])
    return np.asarray(np.clip(high - low, 0, None).prod(axis=2).sum(axis=1))
