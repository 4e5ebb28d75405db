"""What the scripts of the page draw, as JSON with no more digits than can be seen."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from decimal import ROUND_FLOOR, Context
from typing import Any

from markupsafe import Markup

from smoothmix.report.page import Page
from smoothmix.report.section import Chart, Trace
from smoothmix.tables.numbers import as_decimal

DIGITS = 5
"""Significant digits of what is drawn."""

Axes = dict[tuple[float | None, ...], int]
"""The x of traces, each with its position: many traces share one, which is written once."""


def payload(page: Page) -> dict[str, Any]:
    """Runs, charts and the data of sections with scripts of their own.

    Radii and shares are cut, never rounded up.
    """
    axes: Axes = {}
    charts = {}
    sections = {}
    for section in page.sections:
        for chart in section.charts:
            charts[chart.id] = _chart(chart, axes)
        if section.data is not None:
            sections[section.id] = _cut(section.data)
    return {
        "runs": [run.name for run in page.comparison.runs],
        "styles": list(map(list, page.comparison.styles)),
        # Layouts are not cut: ranges and ticks are places, not claims.
        "charts": charts,
        "axes": list(axes),
        "sections": sections,
    }


def _chart(chart: Chart, axes: Axes) -> dict[str, Any]:
    traces = []
    for trace in chart.traces:
        traces.append(_trace(trace, axes))
    return {
        "traces": traces,
        "layout": dict(chart.layout),
        "narrow": dict(chart.narrow_layout),
    }


def _trace(trace: Trace, axes: Axes) -> dict[str, Any]:
    x = tuple(map(cut_number, trace.x))
    return {
        "run": trace.run,
        "choice": trace.choice,
        "axis": axes.setdefault(x, len(axes)),
        "y": list(map(cut_number, trace.y)),
        "options": _cut(trace.options),
    }


def _cut(value: Any) -> Any:
    """The same with every number in it cut to a few digits."""
    if isinstance(value, float):
        return cut_number(value)
    if isinstance(value, Mapping):
        return {name: _cut(each) for name, each in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return list(map(_cut, value))
    return value


def cut_number(value: float | None) -> float | None:
    """The number cut to a few significant digits; None where it is no number."""
    if value is None or not math.isfinite(value):
        return None
    context = Context(prec=DIGITS, rounding=ROUND_FLOOR)
    cut = float(context.create_decimal(as_decimal(value)))
    # Whole numbers without ".0": there are many zeros and ones.
    if cut.is_integer():
        return int(cut)
    return cut


def as_json(value: Any) -> Markup:
    """JSON that no name in it can break out of."""
    # ASCII only, which also escapes U+2028 and U+2029.
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)
