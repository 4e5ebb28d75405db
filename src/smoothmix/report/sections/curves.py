"""Certified accuracy against radius, with a slider that reads off all runs at one radius."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from smoothmix.report.comparison import Comparison
from smoothmix.report.curves import multiples, slider_step
from smoothmix.report.section import Chart, Section
from smoothmix.report.sections.charts import ROOM, SHARE_AXIS, shares_at, survival_trace
from smoothmix.report.views import RunView

TEXT = (
    "The share of test images that stay correctly classified under any perturbation with an "
    "{norm} norm up to the radius. Move the slider, or click into the chart, to read off all "
    "models at once."
)
PANEL_STEPS = 100
"""Points of a curve in the panel of one sigma, which is small."""

DOTTED = " Dotted: the largest radius that a model's number of noise samples can certify."


def curves(comparison: Comparison) -> Section | None:
    """The curves of certified accuracy and the slider."""
    if not comparison.runs:
        return None
    slider = make_slider(comparison)
    grid = slider.steps
    traces = []
    limits = []
    images = []
    groups = []
    for position, run in enumerate(comparison.runs):
        traces.append(survival_trace(position, grid, shares_at(run.curve, grid)))
        limits.append(run.largest_radius)
        images.append(run.images)
        groups.append(f"{run.sigma} {run.group}")
    text = TEXT.format(norm=comparison.norm)
    if any(limits):
        text += DOTTED
    axis = {
        "title": f"radius ({comparison.norm})",
        "range": [0, slider.end * ROOM],
        "zeroline": False,
        "unifiedhovertitle": {"text": "radius %{x}"},
    }
    chart = Chart(
        id="curve",
        label="Certified accuracy of every model against the radius; "
        "the table beside it has the numbers",
        traces=traces,
        layout={
            "xaxis": axis,
            "yaxis": {"title": "certified accuracy", **SHARE_AXIS},
            "hoverdistance": -1,
        },
    )
    return Section(
        id="curves",
        title="Certified accuracy by radius",
        short_title="Curves",
        text=text,
        charts=[chart, *_panels(comparison)],
        template="curves.html",
        values={"slider": slider},
        data={"limits": limits, "images": images, "groups": groups},
        needs_scripts=True,
    )


def _panels(comparison: Comparison) -> list[Chart]:
    """A chart for each sigma, each as far as its runs reach; none with a single sigma."""
    if len(comparison.by_sigma) < 2:
        return []
    panels = []
    for number, (sigma, runs) in enumerate(comparison.by_sigma.items()):
        end = _reach(runs)
        grid = multiples(end / PANEL_STEPS, up_to=end)
        traces = []
        for position, run in enumerate(comparison.runs):
            if run.sigma == sigma:
                traces.append(survival_trace(position, grid, shares_at(run.curve, grid)))
        name = "unknown σ" if sigma is None else f"σ {sigma:g}"
        axis = {
            "title": f"radius ({comparison.norm})",
            "range": [0, end * ROOM],
            "zeroline": False,
            "unifiedhovertitle": {"text": "radius %{x:.3~g}"},
        }
        panel = Chart(
            id=f"curve-{number}",
            label=f"Certified accuracy against the radius, {name}",
            caption=name,
            traces=traces,
            layout={"xaxis": axis, "yaxis": SHARE_AXIS},
        )
        panels.append(panel)
    return panels


def _reach(runs: Sequence[RunView]) -> float:
    """The radius beyond which all curves are 0."""
    furthest = 0.0
    for run in runs:
        reached = [x for x, y in zip(run.curve.x, run.curve.y, strict=True) if y > 0]
        furthest = max(furthest, *reached, run.largest_radius or 0.0)
    if not math.isfinite(furthest) or furthest <= 0:
        return 1.0
    return furthest


@dataclass(frozen=True)
class Slider:
    """How far the radius slider reaches, in which steps, and where it starts."""

    end: float
    step: float
    start: float

    @property
    def steps(self) -> list[float]:
        """Every radius that it can be set to."""
        return multiples(self.step, up_to=self.end)


def make_slider(comparison: Comparison) -> Slider:
    """A slider that reaches every radius that any run has a number for."""
    furthest = max(comparison.radii, default=0.0)
    for run in comparison.runs:
        reached = [*run.curve.x, run.largest_radius or 0.0]
        furthest = max(furthest, *filter(math.isfinite, reached))
    # Without any radius, an axis of length 1 is as good as any.
    furthest = furthest or 1.0
    step = slider_step(furthest)
    start = 0.0
    if comparison.radii:
        start = _most_different(comparison)
    # The end must be a whole number of steps, or the browser would not let the thumb reach it.
    end = round(math.ceil(furthest / step) * step, 6)
    return Slider(end=end, step=round(step, 9), start=start)


def _most_different(comparison: Comparison) -> float:
    """The radius of the table at which runs of one sigma differ most; a middle one if none do."""
    best = comparison.radii[len(comparison.radii) // 2]
    largest = 0.0
    for column, radius in enumerate(comparison.radii):
        for runs in comparison.by_sigma.values():
            shares = [run.accuracy[column].value for run in runs]
            gap = max(shares) - min(shares)
            if gap > largest:
                best, largest = radius, gap
    return best
