"""Where a gain in ACR comes from: hard, middle or easy images, and how many of them.

Critics of the ACR point out that a method can raise it on images that are easy already. How hard an
image is, the baseline tells: its p_A, the share of noisy copies that it gives the right class.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from smoothmix.analysis.compare import paired_by_image, shared_images
from smoothmix.analysis.measured import Measured

THIRDS = ("hard", "middle", "easy")

NOT_RIGHT = -1.0
"""Stands for the p_A of an image that the baseline gets wrong: it is harder than all others."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Gain:
    """A run beside its baseline, on the images of both."""

    acr: tuple[float, ...]
    """ACR on the hard, the middle and the easy third of the images."""

    gained: tuple[float, ...]
    """What each third adds to the difference of the ACRs; the three add up to it."""

    better: float
    """Share of images with a larger radius than the baseline's."""

    worse: float
    """Share of images with a smaller one."""


def gain_over(measured: Measured, baseline: Measured) -> Gain | None:
    """Where the difference from the baseline comes from; None where the two cannot be paired."""
    if paired_by_image(measured, baseline) is None:
        return None
    both = shared_images(measured, baseline)
    # Thirds of fewer images would be empty.
    if len(both) < len(THIRDS):
        return None
    theirs = baseline.only(both)
    ours = measured.only(both).counted
    difference = ours - theirs.counted
    acr = []
    gained = []
    for third in _thirds(theirs):
        acr.append(float(ours[third].mean()))
        gained.append(float(difference[third].sum()) / len(both))
    return Gain(
        acr=tuple(acr),
        gained=tuple(gained),
        better=float((difference > 0).mean()),
        worse=float((difference < 0).mean()),
    )


def _thirds(baseline: Measured) -> list[NDArray[np.int64]]:
    """The rows of the hard, the middle and the easy third of the images."""
    # p_A is not known where nothing was drawn or, in a log, where the model abstained.
    known = np.nan_to_num(baseline.probability, nan=NOT_RIGHT)
    confidence = np.where(baseline.correct, known, NOT_RIGHT)
    # A stable sort: images of equal p_A stay in the order of their numbers.
    order = np.argsort(confidence, kind="stable")
    return np.array_split(order, len(THIRDS))
