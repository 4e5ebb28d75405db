"""Loss, accuracy on noisy test images and learning rate by epoch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from smoothmix.report.comparison import Comparison
from smoothmix.report.section import Chart, Section, Trace
from smoothmix.report.sections.charts import Layout, legend_of
from smoothmix.report.views import Training

FEW_EPOCHS = 8
"""Up to so many, every epoch has a tick."""


def training(comparison: Comparison) -> Section | None:
    """The metrics of the trainings that recorded them."""
    recorded: dict[int, Training] = {}
    for position, run in enumerate(comparison.runs):
        if run.training is not None:
            recorded[position] = run.training
    if not recorded:
        return None
    axis = _epoch_axis(recorded.values())
    return Section(
        id="training",
        title="Training",
        legend=legend_of(recorded),
        charts=[
            _loss_chart(recorded, axis),
            _accuracy_chart(recorded, axis),
            _learning_rate_chart(recorded, axis),
        ],
        needs_scripts=True,
    )


def _epoch_axis(recorded: Iterable[Training]) -> Layout:
    longest = 0
    for each in recorded:
        longest = max(longest, len(each.epochs))
    axis: Layout = {
        "title": "epoch",
        "zeroline": False,
        "unifiedhovertitle": {"text": "epoch %{x}"},
    }
    # Plotly would put ticks at half epochs.
    if longest <= FEW_EPOCHS:
        axis["dtick"] = 1
    return axis


def _trace(
    run: int,
    epochs: Sequence[int],
    y: Sequence[float],
    hover: str,
    *,
    shape: str = "linear",
    choice: str = "",
) -> Trace:
    # A line through one point is invisible.
    mode = "lines" if len(y) > 1 else "markers"
    options = {"mode": mode, "line": {"shape": shape}, "hovertemplate": hover}
    return Trace(run=run, x=epochs, y=y, choice=choice, options=options)


def _loss_chart(recorded: dict[int, Training], axis: Layout) -> Chart:
    """The total loss and its parts, one at a time."""
    traces = []
    for position, run in recorded.items():
        # The total comes first: the menu starts with it.
        losses = {"total": run.loss, **run.parts}
        for name, values in losses.items():
            traces.append(_trace(position, run.epochs, values, "%{y:.4g}", choice=name))
    return Chart(
        id="loss",
        label="Training loss by epoch",
        caption="Loss",
        traces=traces,
        layout={"xaxis": axis, "yaxis": {"rangemode": "tozero"}},
    )


def _accuracy_chart(recorded: dict[int, Training], axis: Layout) -> Chart:
    traces = []
    shares: list[float] = []
    for position, run in recorded.items():
        traces.append(_trace(position, run.epochs, run.accuracy, "%{y:.1%}"))
        shares += filter(math.isfinite, run.accuracy)
    return Chart(
        id="accuracy",
        label="Accuracy on noisy test images by epoch",
        caption="Accuracy on noisy test images",
        traces=traces,
        layout={"xaxis": axis, "yaxis": {"tickformat": "~%", "range": _share_range(shares)}},
    )


def _share_range(shares: Sequence[float]) -> list[float]:
    """The shares with some room, within 0 and 100 %: left alone, plotly goes beyond either."""
    low = min([1.0, *shares])
    high = max([0.0, *shares])
    room = max(0.05, 0.1 * (high - low))
    return [max(0.0, low - room), min(1.0, high + room) + 0.002]


def _learning_rate_chart(recorded: dict[int, Training], axis: Layout) -> Chart:
    traces = []
    for position, run in recorded.items():
        # The rate of an epoch holds until the next one: steps, no slopes.
        traces.append(_trace(position, run.epochs, run.learning_rate, "%{y:.3g}", shape="hv"))
    return Chart(
        id="rate",
        label="Learning rate by epoch",
        caption="Learning rate",
        traces=traces,
        layout={"xaxis": axis, "yaxis": {"rangemode": "tozero", "tickformat": "~g"}},
    )
