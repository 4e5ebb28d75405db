"""Certification that draws no more than it must: rounds for many images at once, until each is decided."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from smoothmix.anytime import Stopping, decided, next_total
from smoothmix.certificates import Certificate, from_votes, sparse
from smoothmix.config import Certification, require
from smoothmix.data import Dataset
from smoothmix.randomness import Domain
from smoothmix.smoothing import Request, Sampler, check_images

TOGETHER = 64
"""Images in work at once: enough to keep every core busy while most of them are decided already."""


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Time that may be spent; it decides how far a run gets, never whether what it says holds."""

    seconds: float = math.inf
    """In all. Images not begun by then are left for another run."""
    seconds_per_image: float = math.inf
    """An image that took longer is given up as it stands."""

    def __post_init__(self) -> None:
        require(self.seconds > 0, f"seconds must be positive, got {self.seconds}")
        require(self.seconds_per_image > 0, f"seconds-per-image must be positive, got {self.seconds_per_image}")


@dataclass(kw_only=True)
class _Work:
    """Images in work, with their votes so far; arrays have a row an image."""

    indices: list[int]
    labels: list[int]
    images: list[object]
    selection: NDArray[np.int64]
    votes: NDArray[np.int64]
    seconds: NDArray[np.float64]
    active: NDArray[np.bool_] = field(init=False)

    def __post_init__(self) -> None:
        self.active = np.ones(len(self.indices), dtype=bool)

    @property
    def selected(self) -> NDArray[np.int64]:
        return np.asarray(self.selection.argmax(axis=1))

    @property
    def drawn(self) -> NDArray[np.int64]:
        return np.asarray(self.votes.sum(axis=1))


def anytime_rows(
    sampler: Sampler,
    dataset: Dataset,
    indices: Sequence[int],
    how: Certification,
    stopping: Stopping,
    *,
    budget: Budget | None = None,
    earlier: Mapping[int, Certificate] | None = None,
) -> Iterator[Certificate]:
    """The certificates of these images, in order; fewer if the time is up.

    `earlier` holds certificates of the same images that are to be drawn further: what they spent is not spent again.
    """
    limit = budget or Budget()
    end = time.monotonic() + limit.seconds
    for first in range(0, len(indices), TOGETHER):
        if time.monotonic() >= end:
            return
        work = _begin(sampler, dataset, indices[first : first + TOGETHER], how, earlier or {})
        while work.active.any() and time.monotonic() < end:
            _round(sampler, work, how, stopping)
            work.active &= work.seconds < limit.seconds_per_image
        yield from _rows(work, how)


def _begin(
    sampler: Sampler, dataset: Dataset, indices: Sequence[int], how: Certification, earlier: Mapping[int, Certificate]
) -> _Work:
    """The next images with their selection votes, or with all the votes they had."""
    started = time.perf_counter()
    images = dataset.images(list(indices))
    check_images(images)
    before = [earlier.get(index) for index in indices]
    new = [i for i, row in enumerate(before) if row is None]
    selection = np.zeros((len(images), sampler.num_classes), dtype=np.int64)
    if new:
        requests = [Request(images[i], indices[i], Domain.SELECTION, 0, how.n0) for i in new]
        selection[new] = sampler.tally(requests)
    votes, seconds = np.zeros_like(selection), np.full(len(images), (time.perf_counter() - started) / len(images))
    for i, row in enumerate(before):
        if row is not None:
            selection[i] = _dense(row.selection_counts, sampler.num_classes)
            votes[i] = _dense(row.counts, sampler.num_classes)
            seconds[i] = row.seconds
    labels = [int(label) for label in dataset.labels[list(indices)]]
    work = _Work(
        indices=list(indices), labels=labels, images=list(images), selection=selection, votes=votes, seconds=seconds
    )
    if how.skip_wrong:
        work.active &= work.selected == np.array(labels)
    return work


def _round(sampler: Sampler, work: _Work, how: Certification, stopping: Stopping) -> None:
    """Drop the images that are decided, and draw some more for the others."""
    rows = np.flatnonzero(work.active)
    drawn = work.drawn[rows]
    begun = drawn > 0
    done = np.zeros(len(rows), dtype=bool)
    if begun.any():
        some = rows[begun]
        chosen = work.selected[some]
        done[begun] = decided(
            work.votes[some, chosen],
            drawn[begun],
            k0=work.selection[some, chosen],
            n0=how.n0,
            alpha=how.alpha,
            sigma=how.sigma,
            stopping=stopping,
        )
    work.active[rows[done]] = False
    rows, drawn = rows[~done], drawn[~done]
    if not len(rows):
        return
    started = time.perf_counter()
    totals = [next_total(int(n), block=how.block, max_draws=stopping.max_draws) for n in drawn]
    requests = [
        Request(work.images[row], work.indices[row], Domain.ESTIMATION, int(n), total)  # type: ignore[arg-type]
        for row, n, total in zip(rows, drawn, totals, strict=True)
    ]
    work.votes[rows] += sampler.tally(requests)
    new = np.array(totals) - drawn
    work.seconds[rows] += (time.perf_counter() - started) * new / new.sum()


def _rows(work: _Work, how: Certification) -> Iterator[Certificate]:
    for i, index in enumerate(work.indices):
        yield from_votes(
            index,
            work.labels[i],
            sparse(work.selection[i]),
            sparse(work.votes[i]),
            sigma=how.sigma,
            alpha=how.alpha,
            seconds=float(work.seconds[i]),
            mode="anytime",
        )


def _dense(votes: Mapping[int, int] | None, num_classes: int) -> NDArray[np.int64]:
    counts = np.zeros(num_classes, dtype=np.int64)
    for c, count in (votes or {}).items():
        counts[c] = count
    return counts
