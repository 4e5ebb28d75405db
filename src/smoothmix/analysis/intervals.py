"""How sure a number over images is: exact intervals for shares, the bootstrap for means and their differences."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, stdtrit

from smoothmix.config import require
from smoothmix.stats.binomial import lower_bound, upper_bound

CONFIDENCE = 0.95
RESAMPLES = 2000
IN_A_TAIL = 10
"""Resamples beyond either end of an interval: with fewer it would end at whatever the outermost happen to be."""
SEED = 20_211_115
"""Of the resampling: the same files give the same report."""

MOST_CONFIDENT = 0.9999

CHUNK = 100
"""Resamples held in memory at once."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Estimate:
    """A number with the interval that covers what it estimates, with the confidence asked for."""

    value: float
    low: float
    high: float


def share(count: int, images: int, *, confidence: float = CONFIDENCE) -> Estimate:
    """A share of images with its two-sided Clopper-Pearson interval.

    >>> round(share(50, 50).low, 6)
    0.928878
    """
    require_confidence(confidence)
    require(0 <= count <= images and images > 0, f"a share needs 0 <= {count} <= {images} images")
    tail = (1 - confidence) / 2
    low, high = lower_bound(count, images, alpha=tail), upper_bound(count, images, alpha=tail)
    return Estimate(count / images, float(low), float(high))


def mean(values: ArrayLike, *, confidence: float = CONFIDENCE) -> Estimate:
    """The mean of one value an image with its bootstrap interval."""
    return means(np.asarray(values, dtype=np.float64)[None], confidence=confidence)[0]


def means(values: ArrayLike, *, confidence: float = CONFIDENCE) -> list[Estimate]:
    """The mean of each row of `values` (rows by images) with its bootstrap interval.

    All rows are resampled together, which for a row of differences between two models on the same images is the paired
    bootstrap. Percentiles of the resampled means, so an interval may be lopsided where the values are; with few images
    percentiles further out (`_tail`).
    """
    require_confidence(confidence)
    rows = np.atleast_2d(np.asarray(values, dtype=np.float64))
    require(rows.shape[1] > 0, "an interval needs at least one image")
    resampled = np.concatenate(
        [weights @ rows.T for weights in _resamples(rows.shape[1], confidence)]
    )
    tail = _tail((1 - confidence) / 2, rows.shape[1])
    low, high = np.quantile(resampled, [tail, 1 - tail], axis=0)
    value = rows.mean(axis=1)
    # Rounding may put the ends of an interval of no width a hair beside its value.
    ends = zip(value, np.minimum(low, value), np.maximum(high, value), strict=True)
    return [Estimate(float(v), float(a), float(b)) for v, a, b in ends]


def _tail(tail: float, images: int) -> float:
    """The share of resamples beyond an end that stands for `tail`: as many as make up for few images.

    Resampled means spread by the deviation with n for n - 1, and as if it were known: for normal values that makes
    intervals too narrow by this much (expanded percentiles; Hesterberg, The American Statistician, 2015).

    >>> round(_tail(0.025, 20), 4), round(_tail(0.025, 500), 4)
    (0.0159, 0.0246)
    """
    if images == 1:
        return tail  # there is nothing to spread
    return float(ndtr(math.sqrt(images / (images - 1)) * stdtrit(images - 1, tail)))


def means_of(every: Sequence[ArrayLike], *, confidence: float = CONFIDENCE) -> list[Estimate]:
    """The mean of each of several arrays with its interval; those of one length share resamples, which is fast."""
    arrays = [np.asarray(values, dtype=np.float64) for values in every]
    found: dict[int, Estimate] = {}
    for length in {len(values) for values in arrays}:
        alike = [i for i, values in enumerate(arrays) if len(values) == length]
        found |= dict(
            zip(
                alike,
                means(np.stack([arrays[i] for i in alike]), confidence=confidence),
                strict=True,
            )
        )
    return [found[i] for i in range(len(arrays))]


def _resamples(images: int, confidence: float) -> Iterator[Floats]:
    """Weights of the images in each resample, a chunk of resamples at a time."""
    generator = np.random.Generator(np.random.Philox(SEED))
    total = max(RESAMPLES, math.ceil(2 * IN_A_TAIL / (1 - confidence)))
    for first in range(0, total, CHUNK):
        count = min(CHUNK, total - first)
        drawn = generator.integers(images, size=(count, images), dtype=np.int32)
        drawn += (images * np.arange(count, dtype=np.int32))[:, None]
        yield np.bincount(drawn.ravel(), minlength=count * images).reshape(count, images) / images


def require_confidence(confidence: float) -> None:
    """Refuse a confidence that is none, or that resampling could not give in an hour."""
    require(0 < confidence < 1, f"confidence must lie strictly between 0 and 1, got {confidence}")
    require(
        confidence <= MOST_CONFIDENT,
        f"confidence can be {MOST_CONFIDENT} at most, got {confidence}",
    )
