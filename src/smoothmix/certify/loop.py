"""The loop that certifies: it draws for several images at once, and yields their rows in order."""

from __future__ import annotations

import math
import time
import warnings
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, takewhile
from typing import final

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from smoothmix._process.signals import STOP_EXCEPTIONS
from smoothmix.certificates import Certificate, Certification, dense
from smoothmix.certificates.partial import PartialVotes
from smoothmix.certify import schedule
from smoothmix.certify.active import ActiveImage
from smoothmix.config import require
from smoothmix.errors import SmoothmixError
from smoothmix.inference.sampler import ImageDraws, Sampler
from smoothmix.noise.streams import Domain

IMAGES_PER_ACTIVE_IMAGE = 4
"""How many images may wait for their row per active one: rows are written in order, so a finished
image waits for those before it."""

SECONDS_BETWEEN_SAVES = 60.0
"""How much work on unfinished images a kill may cost."""

SECONDS_BETWEEN_REPORTS = 1.0
"""Between two reports of progress on images that take long."""

SaveVotes = Callable[[Mapping[int, PartialVotes]], None]
"""Saves the votes of unfinished images, by their numbers."""


@final
@dataclass(frozen=True, kw_only=True)
class TimeLimit:
    """Time that a run may take; it decides how far the run gets, never whether its rows hold."""

    seconds: float = math.inf
    """For the whole run. Images that are unfinished then keep their votes for the next run."""
    seconds_per_image: float = math.inf
    """An image that took longer is stopped early, with the draws that it has."""

    def __post_init__(self) -> None:
        require(self.seconds > 0, f"seconds must be positive, got {self.seconds}")
        require(
            self.seconds_per_image > 0,
            f"seconds-per-image must be positive, got {self.seconds_per_image}",
        )


@final
@dataclass(frozen=True, kw_only=True)
class ImageToCertify:
    """An image, with its number in the data set and its true class."""

    index: int
    label: int
    pixels: Tensor


@final
@dataclass(frozen=True, kw_only=True)
class DrawProgress:
    """How far the images are that have no row yet."""

    active: int
    """Images that are being drawn for."""
    unwritten: int
    """Draws of all images that have no row yet."""
    in_this_run: int
    """Draws that this run has made, for these images and for finished ones."""


def ignore(anything: object) -> None:
    """The callback for callers that do not want to know."""


def nothing() -> None:
    """The callback without arguments that does nothing."""


def certified_rows(
    sampler: Sampler,
    images: Iterable[ImageToCertify],
    certification: Certification,
    *,
    time_limit: TimeLimit | None = None,
    earlier: Mapping[int, Certificate] | None = None,
    partial: Mapping[int, PartialVotes] | None = None,
    save: SaveVotes = ignore,
    on_draws: Callable[[DrawProgress], None] = ignore,
) -> Generator[Certificate, None, None]:
    """The certificates of these images, in order; fewer if the time runs out.

    `earlier` holds certificates of the same images that are to be drawn further, and `partial` the
    votes of unfinished images: what these have spent is not spent again. `save` gets the votes of
    unfinished images about once per minute, when the time runs out, and when the run is asked to
    stop.
    """
    unwritten: deque[ActiveImage] = deque()
    limit = time_limit or TimeLimit()
    loop = _Loop(
        on_draws=on_draws,
        certification=certification,
        limit=limit,
        earlier=earlier or {},
        partial=partial or {},
        unwritten=unwritten,
        drawing=Drawing(
            sampler=sampler,
            n0=certification.guarantee.n0,
            unwritten=unwritten,
            save=save,
            end=time.monotonic() + limit.seconds,
        ),
    )
    return loop.rows(iter(images))


@final
@dataclass(kw_only=True)
class _Loop:
    """The images that have no row yet, and when they have enough draws."""

    certification: Certification
    limit: TimeLimit
    earlier: Mapping[int, Certificate]
    partial: Mapping[int, PartialVotes]
    unwritten: deque[ActiveImage]
    """Images whose rows are not written yet, in order; those that have enough draws wait here."""
    drawing: Drawing
    on_draws: Callable[[DrawProgress], None]

    def __post_init__(self) -> None:
        self.drawing.on_draws = self._report

    def rows(self, images: Iterator[ImageToCertify]) -> Generator[Certificate, None, None]:
        """Certify image after image, until all have a row or the time runs out."""
        limited = math.isfinite(self.limit.seconds)
        most_active = schedule.active_images(
            self.certification, self.drawing.sampler.threads, limited=limited
        )
        images_left = True
        try:
            while images_left or self.unwritten:
                self.drawing.save_if_due()
                if self.drawing.out_of_time:
                    return
                # An image that has enough draws makes room for the next one at once.
                room = self._room(most_active)
                new = [self._activate(image) for image in islice(images, room)]
                images_left = len(new) == room
                self._select(new)
                if self.drawing.out_of_time:
                    return
                # Before drawing: resumed images may have enough already.
                self._check()
                for row in self._finished_rows():
                    yield row
                    # Not before the caller has written it: a stop until then must save its votes.
                    self.unwritten.popleft()
                self._draw()
                if self.drawing.out_of_time:
                    return
        except STOP_EXCEPTIONS:
            # The next run resumes these draws, which may have taken hours for a large network.
            self.drawing.save_before_exit()
            raise

    @property
    def _active(self) -> list[ActiveImage]:
        return [image for image in self.unwritten if image.active]

    def _report(self) -> None:
        """Report the draws of images without a row."""
        state = DrawProgress(
            active=len(self._active),
            unwritten=sum(image.drawn for image in self.unwritten),
            in_this_run=self.drawing.draws,
        )
        self.on_draws(state)

    def _room(self, most_active: int) -> int:
        """How many further images may be activated."""
        for_draws = most_active - len(self._active)
        # One image that never ends must not let those behind it fill the memory.
        for_memory = IMAGES_PER_ACTIVE_IMAGE * most_active - len(self.unwritten)
        return max(0, min(for_draws, for_memory))

    def _activate(self, image: ImageToCertify) -> ActiveImage:
        """Start an image, with all the votes that it has."""
        num_classes = self.drawing.sampler.num_classes
        earlier = self.earlier.get(image.index)
        active = ActiveImage(
            index=image.index,
            label=image.label,
            pixels=image.pixels,
            selection=dense({}, num_classes),
            votes=dense({}, num_classes),
        )
        partial = self.partial.get(image.index)
        if earlier is not None:
            of_row = PartialVotes.of_row(earlier)
            active.earlier_seconds = of_row.seconds
            active.next_check = of_row.drawn
            # A journal may hold what the image had before it got its row, or what it got since.
            if partial is None or partial.drawn < of_row.drawn:
                partial = of_row
        if partial is not None:
            active.set_votes(partial)
        # It is checked after as many draws as if it had never stopped.
        while active.next_check < active.drawn:
            active.next_check = self._next_check(active.next_check)
        self.unwritten.append(active)
        return active

    def _select(self, new: Sequence[ActiveImage]) -> None:
        """Make the selection draws of images that have none."""
        fresh = [image for image in new if not image.selection.any()]
        self.drawing.count(fresh, Domain.SELECTION, [self.certification.guarantee.n0] * len(fresh))
        if self.certification.skip_wrong:
            for image in new:
                image.active = image.selected == image.label

    def _check(self) -> None:
        """Deactivate the images that have enough draws."""
        # Never before the first draw: without draws nothing is known.
        due = [image for image in self._active if 0 < image.drawn == image.next_check]
        if not due:
            return
        for image, enough in zip(due, schedule.have_enough(due, self.certification), strict=True):
            seconds = image.seconds - image.earlier_seconds
            image.active = not enough and seconds < self.limit.seconds_per_image

    def _finished_rows(self) -> list[Certificate]:
        """The certificates of the first images, up to the first one that is active."""
        finished = list(takewhile(lambda image: not image.active, self.unwritten))
        return schedule.rows_of(finished, self.certification)

    def _next_check(self, drawn: int) -> int:
        return schedule.next_check(drawn, self.certification)

    def _draw(self) -> None:
        """Draw for all active images until their next check."""
        active = self._active
        for image in active:
            if image.drawn == image.next_check:
                image.next_check = self._next_check(image.drawn)
        self.drawing.count(active, Domain.ESTIMATION, [image.next_check for image in active])


@final
@dataclass(kw_only=True)
class Drawing:
    """Makes draws, and keeps the votes of images without a row safe while it does."""

    sampler: Sampler
    n0: int
    unwritten: Collection[ActiveImage]
    """Images whose rows are not written yet: their votes are saved."""
    save: SaveVotes
    on_draws: Callable[[], None] = nothing
    """Called about once per second, and after every call of `count`."""
    end: float = math.inf
    """When to stop, by the monotonic clock."""
    draws: int = 0
    """Draws made in this run."""
    out_of_time: bool = False
    _saved_at: float = field(default_factory=time.monotonic)
    _reported_at: float = field(default_factory=time.monotonic)

    def count(self, images: Sequence[ActiveImage], domain: Domain, stops: Sequence[int]) -> None:
        """Add the votes of the draws up to these stops, and divide the time among the images."""
        if not images:
            return
        totals = [_votes_of(image, domain) for image in images]
        ranges = []
        for image, total, stop in zip(images, totals, stops, strict=True):
            ranges.append(
                ImageDraws(
                    image=image.pixels,
                    index=image.index,
                    domain=domain,
                    start=int(total.sum()),
                    stop=stop,
                )
            )
        # One column per class, and the last one for nobody: sums over a row count its draws.
        counted = np.zeros((len(images), self.sampler.num_classes + 1), dtype=np.int64)
        last = time.perf_counter()

        def add(counts: NDArray[np.int64]) -> None:
            nonlocal last
            now = time.perf_counter()
            new = counts - counted
            draws = int(new.sum())
            seconds_per_draw = (now - last) / max(1, draws)
            for image, total, votes in zip(images, totals, new, strict=True):
                # In place and at once: a signal in between leaves every image with whole batches.
                total += votes
                image.seconds += seconds_per_draw * int(votes.sum())
            last = now
            counted[:] = counts
            self._report(draws)

        def on_batch(counts: NDArray[np.int64]) -> bool:
            # Not after every batch: a small network makes thousands per second.
            if self._is_report_due():
                add(counts)
            return self.out_of_time

        add(self.sampler.tally(ranges, on_batch=on_batch))

    def _is_report_due(self) -> bool:
        now = time.monotonic()
        return now >= self.end or now - self._reported_at > SECONDS_BETWEEN_REPORTS

    def _report(self, draws: int) -> None:
        """Report new draws, and save votes if that is due."""
        self.draws += draws
        self.on_draws()
        self._reported_at = time.monotonic()
        self.save_if_due()

    def save_if_due(self) -> None:
        """Notice that the time has run out; save the votes then, and about once per minute."""
        now = time.monotonic()
        self.out_of_time = now >= self.end
        if self.out_of_time or now - self._saved_at > SECONDS_BETWEEN_SAVES:
            self.save_votes()
            self._saved_at = now

    def save_before_exit(self) -> None:
        """Save the votes; a failure is a warning, since the reason of the exit matters more."""
        try:
            self.save_votes()
        except SmoothmixError as error:
            warnings.warn(str(error), stacklevel=2)

    def save_votes(self) -> None:
        votes = {}
        for image in self.unwritten:
            # A selection that was cut off by the end of the time is made again.
            if image.selection.sum() == self.n0:
                votes[image.index] = image.partial
        if votes:
            self.save(votes)


def _votes_of(image: ActiveImage, domain: Domain) -> NDArray[np.int64]:
    if domain is Domain.SELECTION:
        return image.selection
    return image.votes
