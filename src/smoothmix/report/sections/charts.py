"""Traces and axes that several sections of the page draw."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from smoothmix.report.section import LegendEntry, Trace
from smoothmix.report.views import Curve

Layout = dict[str, Any]

SHARE_AXIS: Layout = {"tickformat": "~%", "range": [0, 1.02], "zeroline": False}
"""An axis of shares from 0 to 100 %."""

ROOM = 1.02
"""How much longer an axis of radii is than its longest curve."""


def shares_at(curve: Curve, at: Sequence[float]) -> list[float]:
    """The share of images at each place: that of the curve's next point, or 0 beyond the last one.

    The point before it would claim more than the certificates do.
    """
    positions = np.searchsorted(curve.x, at, side="left")
    return list(map(float, np.append(curve.y, 0.0)[positions]))


def legend_of(runs: Iterable[int]) -> list[LegendEntry]:
    """A legend of these runs."""
    return [LegendEntry(run=run) for run in runs]


def survival_trace(run: int, x: Sequence[float], y: Sequence[float]) -> Trace:
    """The share of images at x or beyond, as a falling staircase that holds up to each corner."""
    options = {
        # Markers distinguish runs for people who do not see their colours.
        "mode": "lines+markers",
        "line": {"shape": "vh"},
        "hovertemplate": "%{y:.1%}",
    }
    return Trace(run=run, x=x, y=y, options=options)
