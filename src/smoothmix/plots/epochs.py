"""Training by epoch: loss, accuracy and learning rate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from smoothmix.analysis import Measured
from smoothmix.config import require
from smoothmix.plots import style

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

METRICS = {
    "loss": "Loss\n(each method's own)",
    "accuracy": "Accuracy on noisy\ntest images (%)",
    "learning_rate": "Learning rate",
}
"""The keys of metrics.jsonl that are drawn, with the labels of their axes."""


@style.figure
def training(every: Sequence[Measured], *, width: float | None = None) -> Figure:
    """Loss, accuracy on noisy test images and learning rate by epoch, where recorded."""
    recorded = [m for m in every if m.training]
    require(bool(recorded), "none of these runs has a record of its training (metrics.jsonl)")
    groups = style.by_sigma(recorded)
    looks = style.looks(every)
    figure, axes = style.panels(
        len(METRICS) * len(groups),
        runs=len(looks),
        width=width or style.FULL_WIDTH,
        height=1.75,
        share_y=False,
    )
    entries: dict[str, Artist] = {}
    next_axes = iter(axes)
    for sigma, runs in groups.items():
        for key, label in METRICS.items():
            ax = next(next_axes)
            for m in runs:
                line = _curve(ax, m, key, looks[m.name])
                entries.setdefault(m.name, line)
            ax.set_title(style.sigma_text(sigma))
            ax.set_xlabel("Epoch")
            ax.set_ylabel(label)
            ax.locator_params(axis="x", integer=True)
            _scale_axis(ax, key)
    style.legend_below(figure, entries, looks)
    return style.settle(figure)


def _curve(ax: Axes, m: Measured, key: str, look: style.Look) -> Artist:
    scale = 100 if key == "accuracy" else 1
    epochs = []
    values = []
    for number, line in enumerate(m.training, start=1):
        epochs.append(line.get("epoch", number))
        values.append(scale * line.get(key, math.nan))
    options: dict[str, Any] = {"marker": ""}
    if key == "learning_rate":
        # The rate is constant within an epoch and jumps between two.
        options["drawstyle"] = "steps-mid"
    if len(values) == 1:
        # A line through one point is invisible.
        options["marker"] = look.marker
    (drawn,) = ax.plot(
        epochs, values, color=look.colour, linestyle=look.dash, label=m.name, **options
    )
    return drawn


def _scale_axis(ax: Axes, key: str) -> None:
    lines = [np.asarray(line.get_ydata(), dtype=np.float64) for line in ax.get_lines()]
    values = np.concatenate(lines)
    if key == "accuracy":
        style.percent_axis(ax)
    elif key == "learning_rate" and np.all(values > 0):
        ax.set_yscale("log")
        ax.set_ylim(values.min() / 2, values.max() * 2)
        ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        ax.yaxis.set_minor_formatter(lambda value, _: "")
    elif not np.any(values < 0):
        # An axis from 0 shows how much of the loss is left; losses below 0 have no such end.
        ax.set_ylim(bottom=0)
