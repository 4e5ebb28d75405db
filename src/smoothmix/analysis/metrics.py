"""What certificates add up to, as pure functions of arrays with one entry per image."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothmix.config import require, require_alpha

Floats = NDArray[np.float64]


def certified_accuracy(radius: ArrayLike, correct: ArrayLike, *, at: Iterable[float]) -> Floats:
    """Share of images classified correctly with a radius of at least r, for each r in `at`.

    >>> radius, correct = [0.0, 0.5, 0.7], [True, True, False]
    >>> certified_accuracy(radius, correct, at=[0.0, 0.5, 0.6]).round(3).tolist()
    [0.667, 0.333, 0.0]
    """
    # A misclassified image is below every radius, 0 included.
    counted = np.where(np.asarray(correct, dtype=bool), np.asarray(radius, dtype=np.float64), -1.0)
    return share_at_least(counted, at=at)


def average_certified_radius(radius: ArrayLike, correct: ArrayLike) -> float:
    """Mean radius, with 0 for a misclassified or undecided image (ACR; Zhai et al., 2020).

    >>> average_certified_radius([0.5, 0.5], [True, False])
    0.25
    """
    return float(np.mean(np.asarray(radius, dtype=np.float64) * np.asarray(correct, dtype=bool)))


def accuracy_bound(accuracy: ArrayLike, images: int, *, alpha: float, rho: float) -> Floats:
    """Lower bounds of certified accuracy on these images, with confidence 1 - rho.

    Each certificate is wrong with probability at most alpha, so a few of those counted may be.
    Bernstein's inequality for their number gives the bound of Cohen et al. (2019), appendix on the
    certified test set accuracy.

    >>> accuracy_bound([0.9], 10_000, alpha=0.001, rho=0.001).round(4).tolist()
    [0.8976]
    """
    require_alpha(alpha)
    require(0 < rho < 1, f"rho must lie strictly between 0 and 1, got {rho}")
    doubt = math.log(1 / rho) / images
    wrong = alpha + math.sqrt(2 * alpha * (1 - alpha) * doubt) + doubt / 3
    return np.maximum(0.0, np.asarray(accuracy, dtype=np.float64) - wrong)


def share_at_least(values: ArrayLike, *, at: Iterable[float]) -> Floats:
    """Share of the values that are at least x, for each x in `at`.

    >>> share_at_least([0.2, 0.9, 1.0], at=[0.5, 0.95]).round(3).tolist()
    [0.667, 0.333]
    """
    every = np.sort(np.asarray(values, dtype=np.float64))
    require(len(every) > 0, "a share needs at least one image")
    below = np.searchsorted(every, np.fromiter(at, dtype=np.float64), side="left")
    return np.asarray((len(every) - below) / len(every))


def standard_deviation(values: ArrayLike) -> float | None:
    """Standard deviation over seeds, with n - 1 in the denominator; None for a single one.

    >>> standard_deviation([1.0, 2.0, 3.0]), standard_deviation([1.0])
    (1.0, None)
    """
    every = np.asarray(values, dtype=np.float64)
    if len(every) < 2:
        return None
    return float(every.std(ddof=1))
