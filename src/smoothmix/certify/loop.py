"""The one loop that certifies: draws for some images at once, until each has had enough; rows in their order."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, takewhile

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from smoothmix._process.signals import STOP_EXCEPTIONS
from smoothmix.certificates import Certificate, dense
from smoothmix.certificates.partial import SECONDS_BETWEEN_KEEPING, keep_at_the_end
from smoothmix.certify.active import ActiveImage
from smoothmix.certify.schedule import Rule, rule_of
from smoothmix.config import Certification, require
from smoothmix.inference.sampler import SECONDS_BETWEEN_TELLING, Images, Request, Sampler
from smoothmix.noise.addresses import Domain
from smoothmix.stats.anytime import Stopping

WAITING = 4
"""Times as many images are held as may be in work: rows are written in order, so that one that has had enough may have
to wait for one that has not."""


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Time that may be spent; it decides how far a run gets, never whether what it says holds."""

    seconds: float = math.inf
    """In all. Images not decided by then are left for another run, with the votes they have."""
    seconds_per_image: float = math.inf
    """An image that took longer is given up as it stands."""

    def __post_init__(self) -> None:
        require(self.seconds > 0, f"seconds must be positive, got {self.seconds}")
        require(
            self.seconds_per_image > 0,
            f"seconds-per-image must be positive, got {self.seconds_per_image}",
        )


def certified_rows(
    sampler: Sampler,
    images: Images,
    how: Certification,
    stopping: Stopping | None = None,
    *,
    budget: Budget | None = None,
    earlier: Mapping[int, Certificate] | None = None,
    begun: Mapping[int, Certificate] | None = None,
    keep: Callable[[Sequence[Certificate]], None] = lambda rows: None,
    on_draws: Callable[[InWork], None] = lambda state: None,
) -> Generator[Certificate, None, None]:
    """The certificates of these images, in order; fewer if the time is up.

    With `stopping` the guarantee is the anytime one. Images in work make room for the next as soon as they have had
    enough. `earlier` holds certificates of the same images that are to be drawn further: what they spent is not spent
    again. `keep` gets those in work as they stand, now and then, when the time is up, and when one is told to stop;
    handed in as `begun`, they go on from there. `on_draws` hears how far they are.
    """
    limit, before, rule = budget or Budget(), earlier or {}, rule_of(how, stopping)
    work: deque[ActiveImage] = deque()
    waiting = dict(begun or {})
    most = rule.together(sampler.threads)

    def keep_all() -> None:
        selected = [case for case in work if case.selection.sum() == how.n0]
        keep(list(({row.idx: row for row in rule.rows(selected)} | waiting).values()))

    def tell(draws: int) -> None:
        on_draws(InWork(sum(case.active for case in work), sum(case.drawn for case in work), draws))

    clock, more = _Clock(end=time.monotonic() + limit.seconds, keep=keep_all, tell=tell), True
    try:
        while (more or work) and not clock.is_up(keeping=bool(work)):
            room = max(0, min(most - sum(case.active for case in work), WAITING * most - len(work)))
            new: list[ActiveImage] = []
            for index, label, image in islice(images, room):
                case = _begin(
                    index, label, image, sampler, before.get(index), waiting.get(index), rule
                )
                work.append(case)
                new.append(case)
                waiting.pop(index, None)
            more = len(new) == room
            _select(sampler, new, how, clock)
            if clock.stopped:
                return
            _settle([case for case in work if case.active], rule, limit)
            for row in list(rule.rows(list(takewhile(lambda case: not case.active, work)))):
                yield row
                work.popleft()  # not before it is written
            _draw(sampler, [case for case in work if case.active], rule, clock)
            if clock.stopped:
                return
    except STOP_EXCEPTIONS:
        if work:
            keep_at_the_end(keep_all)
        raise


@dataclass(frozen=True)
class InWork:
    """How far the images in work are."""

    images: int
    """That are being drawn for."""
    drawn: int
    """Draws that all have had which are not written yet."""
    draws: int
    """That were made in this run, for these and for earlier ones."""


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
    rule: Rule,
) -> ActiveImage:
    """The image with all the votes it had, if any."""
    before = begun or earlier
    selection, votes = (
        dense(part, sampler.num_classes)
        for part in ((before.selection_counts, before.counts) if before else ({}, {}))
    )
    return ActiveImage(
        index=index,
        label=label,
        pixels=image,
        selection=selection,
        votes=votes,
        seconds=before.seconds if before else 0.0,
        earlier_seconds=earlier.seconds if earlier else 0.0,
        next_check=_goal_of(int(votes.sum()), earlier, rule),
    )


def _goal_of(drawn: int, earlier: Certificate | None, rule: Rule) -> int:
    """The end of the round that an image was in: it is looked at after as many draws as if it had never stopped."""
    goal = (earlier.n or 0) if earlier else 0
    while goal < drawn:
        goal = rule.next_check(goal)
    return goal


def _select(
    sampler: Sampler, new: Sequence[ActiveImage], how: Certification, clock: _Clock
) -> None:
    """Selection draws for images that have none, and no more than those where the class is wrong and may be skipped."""
    fresh = [case for case in new if not case.selection.any()]
    _count(sampler, fresh, [(Domain.SELECTION, 0, how.n0)] * len(fresh), clock)
    for case in new:
        case.active = not (how.skip_wrong and case.selected != case.label)


def _settle(active: Sequence[ActiveImage], rule: Rule, limit: Budget) -> None:
    """Take out the images that have had enough: none before its first draw, since no draw says nothing."""
    begun = [case for case in active if case.drawn and case.drawn == case.next_check]
    for case, enough in zip(begun, rule.enough(begun) if begun else (), strict=True):
        case.active = not (enough or case.seconds - case.earlier_seconds >= limit.seconds_per_image)


def _draw(sampler: Sampler, active: Sequence[ActiveImage], rule: Rule, clock: _Clock) -> None:
    """Draw for all of these until the next look at them."""
    for case in active:
        if case.drawn == case.next_check:
            case.next_check = rule.next_check(case.drawn)
    _count(
        sampler,
        active,
        [(Domain.ESTIMATION, case.drawn, case.next_check) for case in active],
        clock,
    )


def _count(
    sampler: Sampler,
    chosen: Sequence[ActiveImage],
    ranges: Sequence[tuple[Domain, int, int]],
    clock: _Clock,
) -> None:
    """Add the votes of these draws to the images, and share out the time they took."""
    if not chosen:
        return
    last, counted = (
        time.perf_counter(),
        np.zeros((len(chosen), sampler.num_classes), dtype=np.int64),
    )
    requests = [
        Request(case.pixels, case.index, domain, first, stop)
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
