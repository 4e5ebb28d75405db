"""The distribution of certified radii, and clean accuracy against the average certified radius."""

from __future__ import annotations

from smoothmix.analysis import Estimate
from smoothmix.report.comparison import Comparison
from smoothmix.report.section import Chart, Section, Trace
from smoothmix.report.sections.charts import ROOM, legend_of
from smoothmix.report.sections.curves import make_slider
from smoothmix.report.views import Curve, RunView


def radii(comparison: Comparison) -> Section | None:
    """The histogram of radii, and a point per run for accuracy and robustness."""
    if not comparison.runs:
        return None
    return Section(
        id="distribution",
        title="Radii, and accuracy against robustness",
        short_title="Radii",
        legend=legend_of(range(len(comparison.runs))),
        charts=[_distribution(comparison), _scatter(comparison)],
        needs_scripts=True,
    )


MANY_RUNS = 6
"""With more, outlines of histograms would only cover one another."""

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def _distribution(comparison: Comparison) -> Chart:
    if len(comparison.runs) > MANY_RUNS:
        return _quantiles(comparison)
    return _histogram(comparison)


def _quantiles(comparison: Comparison) -> Chart:
    """A line per run from the 5 % to the 95 % quantile of its radii, a marker at the median."""
    rows = _rows_by_sigma(comparison)
    count = max(rows.values())
    traces = []
    for position, run in enumerate(comparison.runs):
        radii = [_quantile(run.curve, share) for share in QUANTILES]
        options = {
            "mode": "lines+markers",
            "marker": {"size": [0, 0, 9, 0, 0]},
            "hovertemplate": "radius %{x:.3f}",
        }
        # From top to bottom, as in the tables.
        height = count - rows[position] + 1
        places = [height] * len(QUANTILES)
        traces.append(Trace(run=position, x=radii, y=places, options=options))
    return Chart(
        id="quantiles",
        label="Quantiles of certified radii of every model",
        caption="Radii: median, and from the 5 % to the 95 % quantile (0 where misclassified)",
        traces=traces,
        rows=count,
        layout={
            "xaxis": {
                "title": f"certified radius ({comparison.norm})",
                "range": [0, make_slider(comparison).end * ROOM],
                "zeroline": False,
                "showgrid": True,
            },
            "yaxis": {"showticklabels": False, "range": [0, count + 1], "showgrid": False},
            "hovermode": "closest",
        },
    )


def _rows_by_sigma(comparison: Comparison) -> dict[int, int]:
    """The row of each run, counted from the top: sigma by sigma, with an empty row between them."""
    levels = list(comparison.by_sigma)
    ordered = sorted(enumerate(comparison.runs), key=lambda pair: levels.index(pair[1].sigma))
    rows = {}
    for place, (position, run) in enumerate(ordered):
        rows[position] = 1 + place + levels.index(run.sigma)
    return rows


def _quantile(curve: Curve, share: float) -> float:
    """The radius that all but this share of the images have, read off the falling curve."""
    found = 0.0
    for x, y in zip(curve.x, curve.y, strict=True):
        if y >= 1 - share:
            found = x
    return found


def _histogram(comparison: Comparison) -> Chart:
    end = make_slider(comparison).end
    traces = []
    for position, run in enumerate(comparison.runs):
        # A run without bins has nothing to draw.
        if not run.histogram.x:
            continue
        traces.append(_bins(position, run.histogram, end))
    axis = {
        "title": f"certified radius ({comparison.norm})",
        "range": [0, end * ROOM],
        "zeroline": False,
        "unifiedhovertitle": {"text": "radius about %{x:.3~g}"},
    }
    return Chart(
        id="histogram",
        label="Histogram of certified radii",
        caption="Radii of the correctly classified images",
        traces=traces,
        layout={
            "xaxis": axis,
            "yaxis": {"title": "share of images", "tickformat": "~%", "rangemode": "tozero"},
        },
    )


def _bins(run: int, bins: Curve, end: float) -> Trace:
    """The outline of a histogram, through the middles of its bins and down to 0 on either side."""
    lefts = list(bins.x)
    # A single bin has no neighbour to take its width from.
    width = lefts[1] - lefts[0] if len(lefts) > 1 else end / 20
    lefts = [lefts[0] - width, *lefts, lefts[-1] + width]
    middles = [round(left + width / 2, 9) for left in lefts]
    options = {"line": {"shape": "hvh"}, "fill": "tozeroy", "hovertemplate": "%{y:.1%}"}
    return Trace(run=run, x=middles, y=[0, *bins.y, 0], options=options)


def _scatter(comparison: Comparison) -> Chart:
    traces = []
    for position, run in enumerate(comparison.runs):
        accuracy = _accuracy_at_zero(comparison, run)
        options = {
            "mode": "markers",
            "marker": {"size": 12},
            "error_x": _error_bar(accuracy),
            "error_y": _error_bar(run.acr),
            "hovertemplate": "accuracy %{x:.1%}<br>ACR %{y:.3f}",
        }
        traces.append(Trace(run=position, x=[accuracy.value], y=[run.acr.value], options=options))
    return Chart(
        id="scatter",
        label="Average certified radius against accuracy",
        caption="Average certified radius against certified accuracy at radius 0",
        traces=traces,
        layout={
            # The same axes as in the figure of plots/tradeoff.py.
            "xaxis": {
                "title": "certified accuracy at radius 0",
                "tickformat": "~%",
                "zeroline": False,
                "showgrid": True,
            },
            "yaxis": {
                "title": f"average certified radius ({comparison.norm})",
                "zeroline": False,
            },
            "hovermode": "closest",
        },
    )


def _accuracy_at_zero(comparison: Comparison, run: RunView) -> Estimate:
    """Certified accuracy at radius 0, with its interval where the table has that column."""
    for radius, share in zip(comparison.radii, run.accuracy, strict=True):
        if radius == 0:
            return share
    # An interval of no width draws no bar.
    value = run.curve.y[0]
    return Estimate(value, value, value)


def _error_bar(estimate: Estimate) -> dict[str, object]:
    return {
        "type": "data",
        "symmetric": False,
        "array": [estimate.high - estimate.value],
        "arrayminus": [estimate.value - estimate.low],
        "thickness": 1.5,
        "width": 0,
    }
