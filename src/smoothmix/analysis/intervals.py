"""Intervals over images: exact ones for shares, the bootstrap for means and their differences."""

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

MAX_CONFIDENCE = 0.9999
"""Higher ones would need too many resamples."""

RESAMPLES = 2000

RESAMPLES_PER_TAIL = 10
"""Beyond each end of an interval: with fewer, chance alone would decide where it ends."""

SEED = 20_211_115
"""Of the resampling: the same files give the same report."""

CHUNK = 100
"""Resamples held in memory at once."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Estimate:
    """A number with its interval."""

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
    low = lower_bound(count, images, alpha=tail)
    high = upper_bound(count, images, alpha=tail)
    return Estimate(count / images, float(low), float(high))


def mean(values: ArrayLike, *, confidence: float = CONFIDENCE) -> Estimate:
    """The mean of one value per image with its bootstrap interval."""
    (estimate,) = means(np.asarray(values, dtype=np.float64)[None], confidence=confidence)
    return estimate


def means(values: ArrayLike, *, confidence: float = CONFIDENCE) -> list[Estimate]:
    """The mean of each row of `values` (rows by images) with its bootstrap interval.

    All rows are resampled together, which for a row of differences between two models on the same
    images is the paired bootstrap. An interval ends at percentiles of the resampled means, so it is
    asymmetric where the values are.
    """
    require_confidence(confidence)
    rows = np.atleast_2d(np.asarray(values, dtype=np.float64))
    images = rows.shape[1]
    require(images > 0, "an interval needs at least one image")

    chunks = [weights @ rows.T for weights in _resamples(images, confidence)]
    tail = _expanded_tail((1 - confidence) / 2, images)
    lows, highs = np.quantile(np.concatenate(chunks), [tail, 1 - tail], axis=0)

    estimates = []
    for value, low, high in zip(rows.mean(axis=1), lows, highs, strict=True):
        # Rounding may put the ends of an interval of no width a hair beside its value.
        estimates.append(Estimate(float(value), float(min(low, value)), float(max(high, value))))
    return estimates


def _expanded_tail(tail: float, images: int) -> float:
    """The share of resamples beyond an end that makes up for few images.

    Resampled means spread by the standard deviation with n for n - 1, and as if it were known. For
    normal values that makes percentile intervals too narrow by this much (expanded percentiles;
    Hesterberg, The American Statistician, 2015).

    >>> round(_expanded_tail(0.025, 20), 4), round(_expanded_tail(0.025, 500), 4)
    (0.0159, 0.0246)
    """
    if images == 1:
        # A single value has no spread to correct.
        return tail
    return float(ndtr(math.sqrt(images / (images - 1)) * stdtrit(images - 1, tail)))


def means_of(every: Sequence[ArrayLike], *, confidence: float = CONFIDENCE) -> list[Estimate]:
    """The mean of each of several arrays with its interval."""
    arrays = []
    positions_by_length: dict[int, list[int]] = {}
    for position, values in enumerate(every):
        array = np.asarray(values, dtype=np.float64)
        arrays.append(array)
        positions_by_length.setdefault(len(array), []).append(position)

    # Arrays of one length share their resamples, which is many times as fast.
    found: dict[int, Estimate] = {}
    for positions in positions_by_length.values():
        stacked = np.stack([arrays[position] for position in positions])
        estimates = means(stacked, confidence=confidence)
        found.update(zip(positions, estimates, strict=True))
    return [found[position] for position in range(len(arrays))]


def _resamples(images: int, confidence: float) -> Iterator[Floats]:
    """The weights of the images in each resample, a chunk of resamples at a time."""
    generator = np.random.Generator(np.random.Philox(SEED))
    total = max(RESAMPLES, math.ceil(2 * RESAMPLES_PER_TAIL / (1 - confidence)))
    for first in range(0, total, CHUNK):
        count = min(CHUNK, total - first)
        drawn = generator.integers(images, size=(count, images), dtype=np.int32)
        # One bincount for the whole chunk: each resample gets a range of numbers of its own.
        drawn += (images * np.arange(count, dtype=np.int32))[:, None]
        yield np.bincount(drawn.ravel(), minlength=count * images).reshape(count, images) / images


def require_confidence(confidence: float) -> None:
    """Refuse a value that is no confidence, or one that needs too many resamples."""
    require(0 < confidence < 1, f"confidence must lie strictly between 0 and 1, got {confidence}")
    require(
        confidence <= MAX_CONFIDENCE,
        f"confidence can be {MAX_CONFIDENCE} at most, got {confidence}",
    )
