"""What certificates add up to: certified accuracy and average certified radius. No torch here."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike, NDArray


def certified_accuracy(radius: ArrayLike, correct: ArrayLike, *, at: Iterable[float]) -> NDArray[np.float64]:
    """Share of images that are classified right with a radius of at least r, for each r in `at`.

    >>> certified_accuracy([0.0, 0.5, 0.7], [True, True, False], at=[0.0, 0.5, 0.6]).round(3).tolist()
    [0.667, 0.333, 0.0]
    """
    counted = np.where(np.asarray(correct, dtype=bool), np.asarray(radius, dtype=np.float64), -1.0)
    return np.array([(counted >= r).mean() for r in at])


def average_certified_radius(radius: ArrayLike, correct: ArrayLike) -> float:
    """Mean radius, where a wrong or undecided image counts as 0 (ACR; Zhai et al., 2020).

    >>> average_certified_radius([0.5, 0.5], [True, False])
    0.25
    """
    return float(np.mean(np.asarray(radius, dtype=np.float64) * np.asarray(correct, dtype=bool)))
