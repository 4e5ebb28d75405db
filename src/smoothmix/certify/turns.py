"""Images that share the worker threads of one sampler by turns, each until its own deadline.

New images come first, one after the other, until each has had a batch; then all have one in turn.

A batch that was started is always finished and counted. Whether a further one starts depends on the
clock, on how long batches took, and on votes that are counted already; never on draws in flight.
The votes of an image are those of its first so many draws, in their fixed order, whatever happens.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Literal, final

import numpy as np
import torch
from numpy.typing import NDArray

from smoothmix.certificates import Certificate, Certification
from smoothmix.certify.active import ActiveImage
from smoothmix.certify.schedule import have_enough, next_check, rows_of
from smoothmix.inference.sampler import ImageDraws, Sampler
from smoothmix.noise.streams import Domain

Ended = Literal["", "enough", "deadline", "cancelled"]
"""Why drawing for an image has ended; empty while it has not."""

REMEMBERED_BATCHES = 40
"""How many batches the estimate of the next one rests on."""

WARM_UP_ROUNDS = 4
"""Batches of each thread before the first image; the fastest round counts."""

LEAST_SECONDS = 1e-9
"""No draw is faster."""

SLOW_BATCH = 0.9
"""The estimate is the time that this share of them stayed below."""


@final
@dataclass(kw_only=True, eq=False)
class TimedImage:
    """An image that is certified until a deadline, with what is counted so far."""

    image: ActiveImage
    certification: Certification
    """With a guarantee that holds at any time, in whole batches."""
    seed: int = field(repr=False)
    """Key of the noise."""
    deadline: float = math.inf
    """When drawing must have ended, by `time.monotonic`."""
    done: Future[TimedImage] = field(default_factory=Future, repr=False)
    """Gets the image itself once drawing has ended."""
    ended: Ended = ""
    cancelled: bool = False
    in_flight: int = 0
    """Batches that are being drawn."""
    started: dict[Domain, int] = field(default_factory=dict)
    """Draws that were started, by their domain."""
    early: dict[tuple[Domain, int], NDArray[np.int64]] = field(default_factory=dict, repr=False)
    """Votes of batches that ended before one that started earlier: they are counted after it."""

    @property
    def selected(self) -> bool:
        """Whether all selection draws are counted."""
        return bool(self.image.selection.sum() >= self.certification.guarantee.n0)

    def votes(self, domain: Domain) -> NDArray[np.int64]:
        """The votes that are counted, by class."""
        if domain is Domain.SELECTION:
            return self.image.selection
        return self.image.votes


@final
class Turns:
    """Gives every image a batch in turn, on as many threads as its sampler has."""

    def __init__(self, sampler: Sampler, shape: tuple[int, ...]) -> None:
        self._sampler = sampler
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)
        self._waiting: deque[TimedImage] = deque()
        """All images whose drawing has not ended, in the order of their turns."""
        self._in_flight = 0
        self._pace = Pace()
        self._warm_up(shape)

    @property
    def active(self) -> int:
        """Images that are being drawn for."""
        return len(self._waiting)

    def seconds(self, draws: int) -> float:
        """How long a batch of so many draws takes here, by the latest batches."""
        with self._lock:
            return self._pace.seconds(draws)

    def start(self, timed: TimedImage) -> None:
        """Begin to draw for an image; `timed.done` tells when it has ended."""
        self._sampler.require_own_process()
        with self._lock:
            self._waiting.append(timed)
        self._go_on()

    def end_at(self, deadline: float) -> None:
        """Move the deadlines of all images that end later to this one."""
        with self._lock:
            for timed in self._waiting:
                timed.deadline = min(timed.deadline, deadline)
        self._go_on()

    def cancel(self, timed: TimedImage) -> None:
        """Start no further batch for an image: nobody waits for it."""
        with self._lock:
            timed.cancelled = True
        self._go_on()

    def wait(self) -> None:
        """Wait until no image is left."""
        with self._lock:
            self._idle.wait_for(lambda: not self._waiting)

    def _warm_up(self, shape: tuple[int, ...]) -> None:
        """Run every thread once, and learn how long a batch takes while all of them are busy."""
        size = self._sampler.batch
        draws = ImageDraws(
            image=torch.zeros(shape), index=0, domain=Domain.SELECTION, start=0, stop=size
        )

        def seconds_of_one(_: int) -> float:
            began = time.monotonic()
            self._sampler.votes_of_batch(draws)
            return time.monotonic() - began

        # The first pass of each thread copies the network and makes tables of the noise.
        rounds = []
        for _ in range(WARM_UP_ROUNDS):
            taken = list(self._sampler.workers.map(seconds_of_one, range(self._sampler.threads)))
            rounds.append(max(taken))
        self._pace.warm = min(rounds) / size

    def _go_on(self) -> None:
        """Start batches on all free threads, and end the images that get no more."""
        ended = []
        with self._lock:
            while True:
                while self._in_flight < self._sampler.threads and self._start_one():
                    pass
                removed = self._remove_ended()
                ended += removed
                # The end of one may lower the estimate, so that there is time for another: nothing
                # else would wake it.
                if not removed:
                    break
            if not self._waiting:
                self._idle.notify_all()
        # Outside of the lock: whoever waits may start the next image at once.
        for timed in ended:
            timed.done.set_result(timed)

    def _start_one(self) -> bool:
        """Start the batch of the next image that may have one; False if there is none."""
        for timed in self._in_order():
            draws = self._next_draws(timed)
            if draws is None or not self._is_time_for(timed, draws):
                continue
            # A new image keeps its place until it has had a batch that can certify it.
            if draws.domain is Domain.ESTIMATION:
                self._waiting.remove(timed)
                self._waiting.append(timed)
            timed.started[draws.domain] = draws.stop
            timed.in_flight += 1
            self._in_flight += 1
            self._sampler.workers.submit(self._draw, timed, draws)
            return True
        return False

    def _in_order(self) -> list[TimedImage]:
        """Images by who is next: first new ones in the order in which they came, then in turn.

        Where there is too little time for all, the first ones then get certificates, and not all
        of them a selection that leads to none.
        """
        new = []
        others = []
        for timed in self._waiting:
            if Domain.ESTIMATION in timed.started:
                others.append(timed)
            else:
                new.append(timed)
        return new + others

    def _next_draws(self, timed: TimedImage) -> ImageDraws | None:
        """The draws that an image needs next; None if it has enough, or must wait for a batch."""
        if timed.cancelled or timed.ended:
            return None
        guarantee = timed.certification.guarantee
        domain = Domain.SELECTION
        most = guarantee.n0
        if timed.selected:
            domain = Domain.ESTIMATION
            most = guarantee.max_draws
        start = timed.started.get(domain, 0)
        if start >= most:
            return None
        return ImageDraws(
            image=timed.image.pixels,
            index=timed.image.index,
            domain=domain,
            start=start,
            stop=min(start + self._sampler.batch, most),
        )

    def _is_time_for(self, timed: TimedImage, draws: ImageDraws) -> bool:
        """Whether a batch can end in time; of a selection, together with the batch after it."""
        needed = draws.stop - draws.start
        if draws.domain is Domain.SELECTION:
            # A selection alone certifies nothing, and takes time from images that can have more.
            needed = timed.certification.guarantee.n0 - draws.start + self._sampler.batch
        return time.monotonic() + self._pace.seconds(needed) <= timed.deadline

    def _draw(self, timed: TimedImage, draws: ImageDraws) -> None:
        """Draw one batch and count it, in a worker thread."""
        began = time.monotonic()
        try:
            votes = replace(self._sampler, seed=timed.seed).votes_of_batch(draws)
        except BaseException as error:  # noqa: BLE001 - a network is anyone's code
            self._fail(timed, error)
            return
        with self._lock:
            taken = time.monotonic() - began
            self._pace.add(taken / (draws.stop - draws.start))
            timed.early[draws.domain, draws.start] = votes
            timed.in_flight -= 1
            timed.image.seconds += taken
            self._in_flight -= 1
            self._count(timed, draws.domain)
        self._go_on()

    def _count(self, timed: TimedImage, domain: Domain) -> None:
        """Count the votes of batches in the order of their draws, and see whether they do."""
        total = timed.votes(domain)
        # In order: which batch ends first might depend on its draws.
        while (domain, int(total.sum())) in timed.early:
            total += timed.early.pop((domain, int(total.sum())))
        image = timed.image
        if domain is Domain.SELECTION or image.drawn < image.next_check:
            return
        image.next_check = next_check(image.drawn, timed.certification)
        (enough,) = have_enough([image], timed.certification)
        if enough:
            timed.ended = "enough"

    def _fail(self, timed: TimedImage, error: BaseException) -> None:
        with self._lock:
            self._in_flight -= 1
            # Two of its batches may fail at once.
            is_first = timed in self._waiting
            if is_first:
                self._waiting.remove(timed)
        if is_first:
            timed.done.set_exception(error)
        self._go_on()

    def _remove_ended(self) -> list[TimedImage]:
        """The images that have nothing in flight and get no further batch."""
        ended = []
        for timed in list(self._waiting):
            if timed.in_flight > 0:
                continue
            if timed.cancelled:
                timed.ended = "cancelled"
            draws = self._next_draws(timed)
            if draws is not None and self._is_time_for(timed, draws):
                continue
            if draws is not None:
                timed.ended = "deadline"
                # Nothing was in the way but an estimate, which one slow batch may have spoilt.
                if not timed.started and time.monotonic() < timed.deadline:
                    self._pace.forget_one()
            elif not timed.ended:
                timed.ended = "enough"
            self._waiting.remove(timed)
            ended.append(timed)
        return ended

    def row(self, timed: TimedImage) -> Certificate:
        """What is certified by the votes that are counted now."""
        with self._lock:
            image = replace(
                timed.image, selection=timed.image.selection.copy(), votes=timed.image.votes.copy()
            )
        (row,) = rows_of([image], timed.certification)
        if not timed.selected:
            # Without all selection draws no class is selected.
            return replace(row, selected=None)
        return row


@final
@dataclass(kw_only=True)
class Pace:
    """How long a draw takes: the time that most of the latest batches stayed below."""

    warm: float = 0.0
    """Seconds per draw after warming up: what is left when all else is forgotten."""
    latest: deque[float] = field(default_factory=lambda: deque(maxlen=REMEMBERED_BATCHES))

    def add(self, seconds_per_draw: float) -> None:
        """Take a batch into account."""
        self.latest.append(seconds_per_draw)

    def forget_one(self) -> None:
        """Forget the slowest batch, or a load that is gone would keep every batch from starting."""
        if self.latest:
            self.latest.remove(max(self.latest))
        else:
            self.warm = max(LEAST_SECONDS, self.warm / 2)

    def seconds(self, draws: int) -> float:
        """How long a batch of so many draws takes.

        >>> pace = Pace(warm=0.001)
        >>> pace.seconds(100)
        0.1
        >>> pace.add(0.002)
        >>> pace.seconds(100)
        0.2
        """
        if not self.latest:
            return self.warm * draws
        ordered = sorted(self.latest)
        position = min(len(ordered) - 1, int(SLOW_BATCH * len(ordered)))
        return ordered[position] * draws
