"""Certification that draws no more than it must: rounds for many images at once, until each is decided."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, takewhile

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from smoothmix.anytime import Stopping, decided, lower_bound, next_total
from smoothmix.certificates import Certificate, dense, from_votes, sparse
from smoothmix.certificates.begun import SECONDS_BETWEEN_KEEPING, keep_at_the_end
from smoothmix.config import Certification, require
from smoothmix.interruption import TOLD_TO_STOP
from smoothmix.randomness import Domain
from smoothmix.smoothing import SECONDS_BETWEEN_TELLING, Images, Request, Sampler

TOGETHER = 64
"""Images in work at once: enough to keep every core busy while most of them are decided already."""

WAITING = 4 * TOGETHER
"""Images held at most: rows are written in order, so that decided ones may have to wait for one that is not."""


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Time that may be spent; it decides how far a run gets, never whether what it says holds."""

    seconds: float = math.inf
    """In all. Images not decided by then are left for another run, with the votes they have."""
    seconds_per_image: float = math.inf
    """An image that took longer is given up as it stands."""

    def __post_init__(self) -> None:
        require(self.seconds > 0, f"seconds must be positive, got {self.seconds}")
        require(self.seconds_per_image > 0, f"seconds-per-image must be positive, got {self.seconds_per_image}")


@dataclass(kw_only=True, eq=False)
class _Case:
    """An image in work, with its votes so far."""

    index: int
    label: int
    image: Tensor
    selection: NDArray[np.int64]
    votes: NDArray[np.int64]
    seconds: float = 0.0
    earlier: float = 0.0
    """Seconds spent by other rules for stopping, which no limit of today counts."""
    active: bool = True
    goal: int = 0
    """Draws after which it is looked at next, or was looked at last."""

    @property
    def selected(self) -> int:
        return int(self.selection.argmax())

    @property
    def drawn(self) -> int:
        return int(self.votes.sum())

    @property
    def counts(self) -> tuple[int, int, int]:
        """Estimation votes for the selected class, all of them, and its selection votes."""
        return int(self.votes[self.selected]), self.drawn, int(self.selection[self.selected])


def anytime_rows(
    sampler: Sampler,
    images: Images,
    how: Certification,
    stopping: Stopping,
    *,
    budget: Budget | None = None,
    earlier: Mapping[int, Certificate] | None = None,
    begun: Mapping[int, Certificate] | None = None,
    keep: Callable[[Sequence[Certificate]], None] = lambda rows: None,
    on_round: Callable[[int, int], None] = lambda in_work, draws: None,
) -> Generator[Certificate, None, None]:
    """The certificates of these images, in order; fewer if the time is up.

    Images in work make room for the next as soon as they are decided. `earlier` holds certificates of the same images
    that are to be drawn further: what they spent is not spent again. `keep` gets those in work as they stand, now and
    then, when the time is up, and when one is told to stop; handed in as `begun`, they go on from there. `on_round`
    hears how many are in work, and how many draws there were so far.
    """
    limit, before = budget or Budget(), earlier or {}
    work: deque[_Case] = deque()
    waiting = dict(begun or {})

    def keep_all() -> None:
        selected = [case for case in work if case.selection.sum() == how.n0]
        keep(list(({row.idx: row for row in _rows(selected, how)} | waiting).values()))

    def tell(draws: int) -> None:
        on_round(sum(case.active for case in work), draws)

    clock, more = _Clock(end=time.monotonic() + limit.seconds, keep=keep_all, tell=tell), True
    try:
        while (more or work) and not clock.is_up(keeping=bool(work)):
            room = max(0, min(TOGETHER - sum(case.active for case in work), WAITING - len(work)))
            new: list[_Case] = []
            for index, label, image in islice(images, room):
                case = _begin(index, label, image, sampler, before.get(index), waiting.get(index), how, stopping)
                work.append(case)
                new.append(case)
                waiting.pop(index, None)
            more = len(new) == room
            _select(sampler, new, how, clock)
            if clock.stopped:
                return
            _settle([case for case in work if case.active], how, stopping, limit)
            for row in list(_rows(list(takewhile(lambda case: not case.active, work)), how)):
                yield row
                work.popleft()  # not before it is written
            _draw(sampler, [case for case in work if case.active], how, stopping, clock)
            if clock.stopped:
                return
    except TOLD_TO_STOP:
        if work:
            keep_at_the_end(keep_all)
        raise


@dataclass(kw_only=True)
class _Clock:
    """What is to be done now and then while draws are made, which may take long."""

    end: float
    keep: Callable[[], None]
    tell: Callable[[int], None]
    draws: int = 0
    """Made so far."""
    stopped: bool = False
    """Whether the time was up while some were made."""
    _kept: float = field(default_factory=time.monotonic)
    _told: float = field(default_factory=time.monotonic)

    def is_up(self, *, keeping: bool) -> bool:
        """Whether the time is; keeps what is in work if it is, or if that is due."""
        now = time.monotonic()
        if keeping and (now >= self.end or now - self._kept > SECONDS_BETWEEN_KEEPING):
            self.keep()
            self._kept = now
        return now >= self.end

    def is_due(self) -> bool:
        """Whether there is something to do."""
        now = time.monotonic()
        return now >= self.end or now - self._told > SECONDS_BETWEEN_TELLING

    def tick(self, draws: int) -> None:
        """Say that so many more were made, and do what is due."""
        self.draws += draws
        self.tell(self.draws)
        self._told = time.monotonic()
        self.stopped = self.is_up(keeping=True)


def _begin(
    index: int,
    label: int,
    image: Tensor,
    sampler: Sampler,
    earlier: Certificate | None,
    begun: Certificate | None,
    how: Certification,
    stopping: Stopping,
) -> _Case:
    """The image with all the votes it had, if any."""
    before = begun or earlier
    selection, votes = (
        dense(part, sampler.num_classes) for part in ((before.selection_counts, before.counts) if before else ({}, {}))
    )
    return _Case(
        index=index,
        label=label,
        image=image,
        selection=selection,
        votes=votes,
        seconds=before.seconds if before else 0.0,
        earlier=earlier.seconds if earlier else 0.0,
        goal=_goal_of(int(votes.sum()), earlier, how, stopping),
    )


def _goal_of(drawn: int, earlier: Certificate | None, how: Certification, stopping: Stopping) -> int:
    """The end of the round that an image was in: it is looked at after as many draws as if it had never stopped."""
    goal = (earlier.n or 0) if earlier else 0
    while goal < drawn:
        goal = next_total(goal, block=how.block, max_draws=stopping.max_draws)
    return goal


def _select(sampler: Sampler, new: Sequence[_Case], how: Certification, clock: _Clock) -> None:
    """Selection draws for images that have none, and no more than those where the class is wrong and may be skipped."""
    fresh = [case for case in new if not case.selection.any()]
    _count(sampler, fresh, [(Domain.SELECTION, 0, how.n0)] * len(fresh), clock)
    for case in new:
        case.active = not (how.skip_wrong and case.selected != case.label)


def _settle(active: Sequence[_Case], how: Certification, stopping: Stopping, limit: Budget) -> None:
    """Take out the images that have had enough: none before its first draw, since no draw says nothing."""
    begun = [case for case in active if case.drawn and case.drawn == case.goal]
    if not begun:
        return
    votes, drawn, before = np.array([case.counts for case in begun]).T
    done = decided(votes, drawn, k0=before, n0=how.n0, alpha=how.alpha, sigma=how.sigma, stopping=stopping)
    for case, enough in zip(begun, done, strict=True):
        case.active = not (enough or case.seconds - case.earlier >= limit.seconds_per_image)


def _draw(sampler: Sampler, active: Sequence[_Case], how: Certification, stopping: Stopping, clock: _Clock) -> None:
    """Another round for all of these."""
    for case in active:
        if case.drawn == case.goal:
            case.goal = next_total(case.drawn, block=how.block, max_draws=stopping.max_draws)
    _count(sampler, active, [(Domain.ESTIMATION, case.drawn, case.goal) for case in active], clock)


def _count(sampler: Sampler, chosen: Sequence[_Case], ranges: Sequence[tuple[Domain, int, int]], clock: _Clock) -> None:
    """Add the votes of these draws to the images, and share out the time they took."""
    if not chosen:
        return
    last, counted = time.perf_counter(), np.zeros((len(chosen), sampler.num_classes), dtype=np.int64)
    requests = [
        Request(case.image, case.index, domain, first, stop)
        for case, (domain, first, stop) in zip(chosen, ranges, strict=True)
    ]

    def add(counts: NDArray[np.int64]) -> None:
        nonlocal last
        now, new = time.perf_counter(), counts - counted
        each = (now - last) / max(1, int(new.sum()))
        for case, votes, (domain, _, _) in zip(chosen, new, ranges, strict=True):
            total = case.selection if domain is Domain.SELECTION else case.votes
            total += votes
            case.seconds += each * int(votes.sum())
        last = now
        counted[:] = counts
        clock.tick(int(new.sum()))

    def on_block(counts: NDArray[np.int64]) -> bool:
        if clock.is_due():
            add(counts)
        return clock.stopped

    add(sampler.tally(requests, on_block=on_block))


def _rows(cases: Collection[_Case], how: Certification) -> Iterator[Certificate]:
    if not cases:
        return
    votes, drawn, before = np.array([case.counts for case in cases]).T
    bounds = lower_bound(votes, drawn, k0=before, n0=how.n0, alpha=how.alpha)
    for case, bound in zip(cases, bounds, strict=True):
        yield from_votes(
            case.index,
            case.label,
            sparse(case.selection),
            sparse(case.votes),
            sigma=how.sigma,
            alpha=how.alpha,
            seconds=case.seconds,
            mode="anytime",
            bound=float(bound),
        )
