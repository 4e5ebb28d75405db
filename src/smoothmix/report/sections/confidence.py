"""How the probability p_A of the predicted class is distributed over images."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import ROUND_CEILING, Context

import numpy as np
from markupsafe import Markup

from smoothmix.report.comparison import Comparison
from smoothmix.report.section import Chart, LegendEntry, Section
from smoothmix.report.sections.charts import SHARE_AXIS, Layout, shares_at, survival_trace
from smoothmix.report.views import Curve

POINTS = 300
TEXT = Markup(
    "Share of images that are classified correctly with a probability p<sub>A</sub> under noise of "
    "at least the value on the axis, which is stretched towards 1: large radii come from that end."
)


def confidence(comparison: Comparison) -> Section | None:
    """The distribution of p_A, and which runs have none."""
    if not comparison.runs:
        return None
    known: dict[int, Curve] = {}
    legend = []
    for position, run in enumerate(comparison.runs):
        if run.probabilities is None:
            legend.append(LegendEntry(run=position, remark="not measured"))
        else:
            known[position] = run.probabilities
            legend.append(LegendEntry(run=position))
    return Section(
        id="confidence",
        title="How confident the models are",
        short_title="Confidence",
        text=TEXT,
        legend=legend,
        charts=[_chart(known)] if known else (),
        needs_scripts=True,
    )


def _chart(curves: dict[int, Curve]) -> Chart:
    # The axis is the logarithm of 1 - p_A, from right to left: each nine takes the same room.
    first = math.inf
    last = 1.0
    for curve in curves.values():
        first = min(first, _nines(curve.x[0]))
        last = max(last, _nines(curve.x[-1]))
    lacking = [_round_up(10.0**-nines) for nines in np.linspace(first, last, POINTS + 1)]
    probabilities = [1 - value for value in lacking]
    traces = []
    for position, curve in curves.items():
        traces.append(survival_trace(position, lacking, shares_at(curve, probabilities)))
    axis = {
        "title": "probability p<sub>A</sub> of the class under noise",
        "type": "log",
        "range": [0.02 * last - first, -last * 1.03],
        "tickangle": 0,
        "showgrid": True,
        "zeroline": False,
        "unifiedhovertitle": {"text": "p<sub>A</sub> at least 1 − %{x:.2~g}"},
    }
    whole_nines = range(1, math.floor(last) + 1)
    with_zero = first < 0.2
    return Chart(
        id="tails",
        label="Distribution of the probability of the predicted class",
        traces=traces,
        layout={
            "xaxis": {**axis, **_ticks(whole_nines, with_zero=with_zero)},
            "yaxis": {"title": "share of images", **SHARE_AXIS},
            "hoverdistance": -1,
        },
        # On a phone the longer labels would touch.
        narrow_layout={"xaxis": {**axis, **_ticks(whole_nines[::2], with_zero=with_zero)}},
    )


def _nines(p: float) -> float:
    """How many nines a probability begins with: 1 for 0.9, 2 for 0.99."""
    return -math.log10(1 - p)


def _round_up(value: float) -> float:
    """A few digits are enough, and p_A must not be rounded up: so what it lacks of 1 is."""
    return float(Context(prec=4, rounding=ROUND_CEILING).create_decimal_from_float(value))


def _ticks(whole_nines: Sequence[int], *, with_zero: bool) -> Layout:
    places = [0.5]
    texts = [".5"]
    # 0 has a place on the axis only where some curve begins near it.
    if with_zero:
        places.insert(0, 1.0)
        texts.insert(0, "0")
    for nines in whole_nines:
        places.append(10.0**-nines)
        texts.append("." + "9" * nines)
    return {"tickvals": places, "ticktext": texts}
