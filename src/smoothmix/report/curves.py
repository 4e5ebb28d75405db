"""The curves of a run: certified accuracy, p_A, radii, and the metrics of its training."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from smoothmix.analysis import Measured
from smoothmix.report.views import Curve, Training

BINS = 40
PROBABILITIES = 300
"""Points of the curve of p_A: about one for each pixel of a phone."""

USUAL_DRAWS = 100_000
"""Noise samples behind a log that does not record their number: the field's usual choice."""


def radius_curve(
    measured: Measured, every: Sequence[Measured], radii: Sequence[float] = ()
) -> Curve:
    """Certified accuracy at every radius that the page's slider can be set to, and at `radii`."""
    # Small sigmas beside a large one need finer steps, for the panel of their own.
    grid = [*_steps(_longest(every)), *_steps(_longest([measured]))]
    # The radii of the table as well, so that table and chart cannot disagree.
    table = [round(radius, 9) for radius in radii]
    x = sorted({*grid, *table})
    return Curve(x=x, y=measured.accuracy_at(x).tolist())


def _steps(longest: float) -> list[float]:
    """The slider's steps on an axis of this length, and one beyond, where every curve is 0."""
    step = slider_step(longest)
    return multiples(step, up_to=step * (math.ceil(longest / step) + 1))


def multiples(step: float, *, up_to: float) -> list[float]:
    """0, step, 2 step, ... without the noise of floating point.

    >>> multiples(0.1, up_to=0.35)
    [0.0, 0.1, 0.2, 0.3]
    """
    # A hair more, so that rounding does not lose the last one.
    count = math.floor(up_to / step * (1 + 1e-12))
    return [round(step * k, 9) for k in range(count + 1)]


def slider_step(longest: float) -> float:
    """The power of ten that divides an axis of this length into a hundred to a thousand steps."""
    return 10.0 ** (math.floor(math.log10(longest)) - 2)


def _longest(every: Sequence[Measured]) -> float:
    """Where the axis of radii ends: beyond what any run certified or could have certified."""
    longest = 0.0
    for measured in every:
        longest = max(longest, measured.largest_radius or 0.0, float(measured.counted.max()))
    return longest or 1.0


def probability_curve(measured: Measured) -> Curve | None:
    """Share of images classified correctly with p_A of at least x; None where p_A is not known."""
    if not np.isfinite(measured.probability[measured.correct]).any():
        return None
    draws = max((row.n or 0 for row in measured.file.rows), default=0)
    most = 1 - 1 / (draws or USUAL_DRAWS)
    # Evenly spaced in the number of nines, since large radii come from p_A close to 1.
    lacking = np.logspace(math.log10(0.5), math.log10(1 - most), PROBABILITIES)
    x = [*(1 - lacking[:-1]).tolist(), most]
    return Curve(x=x, y=measured.probabilities_at(x).tolist())


def histogram(measured: Measured, every: Sequence[Measured]) -> Curve:
    """Shares of all images by radius; misclassified ones are in no bin."""
    # All runs share their bins; rounding must leave no radius beyond the last edge.
    edges = np.linspace(0, _longest(every) * (1 + 1e-9), BINS + 1)
    counts, _ = np.histogram(measured.radius[measured.correct], bins=edges)
    return Curve(x=edges[:-1].tolist(), y=(counts / len(measured)).tolist())


def training_curves(measured: Measured) -> Training | None:
    """The metrics of the training by epoch, if the file lies in a run folder that has them."""
    lines = measured.training
    if not lines:
        return None
    epochs = []
    parts_by_epoch = []
    for number, line in enumerate(lines, start=1):
        epochs.append(int(line.get("epoch", number)))
        parts_by_epoch.append(line.get("parts", {}))
    # A method may add a part of its loss in a later epoch.
    part_names = sorted(set().union(*parts_by_epoch))
    return Training(
        epochs=epochs,
        loss=_numbers(lines, "loss"),
        accuracy=_numbers(lines, "accuracy"),
        learning_rate=_numbers(lines, "learning_rate"),
        parts={name: _numbers(parts_by_epoch, name) for name in part_names},
    )


def _numbers(lines: Sequence[Mapping[str, Any]], name: str) -> list[float]:
    """One number per epoch, NaN where it was not recorded."""
    found = []
    for line in lines:
        value = line.get(name)
        if not isinstance(value, (int, float)):
            value = math.nan
        found.append(float(value))
    return found
