"""The ACR against the number of noise samples, from the votes on record."""

from __future__ import annotations

import math

from smoothmix.analysis.acr_by_draws import acr_by_draws
from smoothmix.report.comparison import Comparison
from smoothmix.report.section import Chart, LegendEntry, Section, Trace

TEXT = (
    "More noise samples n certify larger radii, above all on images of which a model is very "
    "sure. So the ACR grows with n, and lines that cross are models whose order depends on n. "
    "The points below each file's own n count that many of its votes, chosen at random."
)
REMARK = "not measured: no votes, or as many per image as were needed"


def draws(comparison: Comparison) -> Section | None:
    """A line per run with votes of a fixed n; None if there is no such run."""
    traces = []
    legend = []
    for position, measured in enumerate(comparison.measured):
        points = acr_by_draws(measured)
        # A single point shows no dependence.
        if len(points) < 2:
            legend.append(LegendEntry(run=position, remark=REMARK))
            continue
        legend.append(LegendEntry(run=position))
        traces.append(_trace(position, points))
    if not traces:
        return None
    chart = Chart(
        id="draws",
        label="ACR of every model against the number of noise samples",
        traces=traces,
        layout={
            "xaxis": {
                "title": "noise samples n per image",
                "type": "log",
                "dtick": 1,
                "zeroline": False,
                "unifiedhovertitle": {"text": "n %{x:,}"},
            },
            "yaxis": {
                "title": f"average certified radius ({comparison.norm})",
                "rangemode": "tozero",
                "zeroline": False,
            },
        },
    )
    return Section(
        id="draws",
        title="ACR by number of noise samples",
        short_title="Noise samples",
        text=TEXT,
        legend=legend,
        charts=[chart],
        needs_scripts=True,
    )


def _trace(run: int, points: list[tuple[int, float]]) -> Trace:
    x = []
    y = []
    for n, acr in points:
        x.append(float(n))
        # As for every radius on the page: never rounded up.
        y.append(math.floor(acr * 1e6) / 1e6)
    options = {"mode": "lines+markers", "hovertemplate": "%{y:.3f}"}
    return Trace(run=run, x=x, y=y, options=options)
