"""The loop of a run with a budget: all images take turns, and get their rows at the end.

What is drawn next is decided by `stats.allocation`, from the votes counted at the end of each
round. A run that is resumed takes the same decisions again, with the votes that its journal holds
after the same numbers of draws, so that an interruption changes no vote.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import final

import torch
from torch import Tensor

from smoothmix._process.signals import STOP_EXCEPTIONS
from smoothmix.certificates import Certificate, Certification, dense
from smoothmix.certificates.partial import PartialVotes
from smoothmix.certify import schedule
from smoothmix.certify.active import ActiveImage
from smoothmix.certify.loop import Drawing, SaveVotes, TimeLimit, ignore
from smoothmix.config import require
from smoothmix.inference.sampler import Sampler
from smoothmix.noise.streams import Domain
from smoothmix.stats.allocation import Allocator, Block, Budget
from smoothmix.stats.guarantees import Anytime

IMAGES_IN_MEMORY = 256
"""Images whose pixels are kept between rounds; others are read again."""

IMAGES_AT_ONCE = 64
"""Images whose selection draws are made, or whose rows are computed, together."""

NO_PIXELS = torch.empty(0)
"""Stands for the pixels of an image that is not being drawn for."""

SECONDS_PER_HOUR = 3600.0


@final
@dataclass(frozen=True, kw_only=True)
class UnreadImage:
    """An image, with its number in the data set, its true class, and where its pixels come from."""

    index: int
    label: int
    read: Callable[[], Tensor]


@final
@dataclass(frozen=True, kw_only=True)
class BudgetProgress:
    """How far a run with a budget is."""

    budget: Budget
    images: int
    limit: int | None
    """Draws that these images may get; None without such a limit."""
    spent: int
    """Draws so far, selection draws included."""
    hours: float
    """Time of the draws so far, by all runs."""
    decided: int
    """Images that need no further draws by the stopping rules."""

    @property
    def share(self) -> float:
        """How much of the budget is spent, from 0 to 1."""
        shares = [0.0]
        if self.limit:
            shares.append(self.spent / self.limit)
        if self.budget.hours is not None:
            shares.append(self.hours / self.budget.hours)
        return min(1.0, max(shares))

    @property
    def note(self) -> str:
        """What was spent, what is decided, and what is left."""
        spent = [f"{self.spent:,} draws"]
        left = []
        if self.limit is not None:
            left.append(f"{max(0, self.limit - self.spent):,} draws")
        if self.budget.hours is not None:
            spent.append(f"{self.hours:.3g} hours")
            left.append(f"{max(0.0, self.budget.hours - self.hours):.3g} hours")
        return (
            f"spent {' and '.join(spent)}, {self.decided:,} of {self.images:,} images decided, "
            f"left {' and '.join(left)}"
        )


def ignore_budget(progress: BudgetProgress) -> None:
    """The callback for callers that do not want to know."""


@final
@dataclass(frozen=True, kw_only=True)
class EarlierVotes:
    """The votes that a run with a budget starts from."""

    rows: Mapping[int, Certificate] = field(default_factory=dict)
    """Rows of a file that is extended."""
    positions: Mapping[int, Sequence[PartialVotes]] = field(default_factory=dict)
    """What the journal holds: the votes of an image after several numbers of draws, increasing."""
    spent: bool = False
    """Whether an earlier run spent the budget already, and has started to write rows."""


NOTHING_EARLIER = EarlierVotes()


def budget_rows(
    sampler: Sampler,
    images: Sequence[UnreadImage],
    certification: Certification,
    *,
    draws: int | None,
    time_limit: TimeLimit | None = None,
    earlier: EarlierVotes = NOTHING_EARLIER,
    skip_rows: int = 0,
    save: SaveVotes = ignore,
    on_progress: Callable[[BudgetProgress], None] = ignore_budget,
) -> Generator[Certificate, None, None]:
    """The certificates of these images in order, once the budget is spent; none if time runs out.

    `draws` is what the budget allows these images: less than its own number for a shard. The first
    `skip_rows` rows are left out. `save` gets all votes before the first row, and during the run as
    in `certified_rows`.
    """
    limit = time_limit or TimeLimit()
    require(
        math.isinf(limit.seconds_per_image),
        "a budget for all images takes no limit of time for each: leave out seconds-per-image",
    )
    active = []
    for image in images:
        active.append(_without_draws(image, sampler.num_classes))
    history = _History(save)
    run = _BudgetRun(
        certification=certification,
        images=active,
        unread=images,
        limit=draws,
        earlier=earlier,
        history=history,
        drawing=Drawing(
            sampler=sampler,
            n0=certification.guarantee.n0,
            unwritten=active,
            save=history.save_all,
        ),
        deadline=time.monotonic() + limit.seconds,
        on_progress=on_progress,
    )
    return run.rows(skip_rows)


def _without_draws(image: UnreadImage, num_classes: int) -> ActiveImage:
    return ActiveImage(
        index=image.index,
        label=image.label,
        pixels=NO_PIXELS,
        selection=dense({}, num_classes),
        votes=dense({}, num_classes),
    )


@final
@dataclass
class _History:
    """Votes at the ends of blocks, until they are saved: a resumed run decides by them."""

    save: SaveVotes
    _unsaved: list[dict[int, PartialVotes]] = field(default_factory=list)
    """The first votes of each image that are not saved yet, then the second ones, and so on."""
    _blocks: dict[int, int] = field(default_factory=dict)
    """How many of these each image has."""

    def add(self, image: ActiveImage) -> None:
        """Keep the votes of an image at the end of a block."""
        number = self._blocks.get(image.index, 0)
        if number == len(self._unsaved):
            self._unsaved.append({})
        self._unsaved[number][image.index] = image.partial
        self._blocks[image.index] = number + 1

    def save_all(self, votes: Mapping[int, PartialVotes]) -> None:
        """Save the ends of blocks in their order, and then the votes of this moment."""
        for ends in self._unsaved:
            self.save(ends)
        self._unsaved.clear()
        self._blocks.clear()
        self.save(votes)


@final
@dataclass(kw_only=True)
class _BudgetRun:
    """All images of a run, and what it may still spend."""

    certification: Certification
    images: Sequence[ActiveImage]
    unread: Sequence[UnreadImage]
    limit: int | None
    """Draws that all images may get together, selection draws included."""
    earlier: EarlierVotes
    history: _History
    drawing: Drawing
    deadline: float
    """When this command must stop, by the monotonic clock; the next one resumes."""
    on_progress: Callable[[BudgetProgress], None]
    _decided: int = 0
    _spent: int = 0
    """Draws of all images at the end of the last round."""
    _drawn_before: int = 0
    """Draws made in this run at that moment."""
    _pixels: Callable[[int], Tensor] = field(init=False)

    def __post_init__(self) -> None:
        self._pixels = lru_cache(IMAGES_IN_MEMORY)(lambda position: self.unread[position].read())
        self.drawing.end = self.deadline
        self.drawing.on_draws = self._report

    @property
    def budget(self) -> Budget:
        """The budget of the run."""
        assert self.certification.budget is not None
        return self.certification.budget

    def rows(self, skip_rows: int) -> Generator[Certificate, None, None]:
        """Spend the budget, and give every image its certificate."""
        try:
            self._load()
            self._select()
            if self.drawing.out_of_time:
                return
            if not (self.earlier.spent and not self.budget.reproducible):
                self._spend()
            if self.drawing.out_of_time and time.monotonic() >= self.deadline:
                return
            # From here on the rows follow from what is saved, whatever happens while they are
            # written.
            self.drawing.save_votes()
            yield from self._certificates(skip_rows)
        except STOP_EXCEPTIONS:
            self.drawing.save_before_exit()
            raise

    def _load(self) -> None:
        """Start with the votes of an extended file and of the journal."""
        for image in self.images:
            positions = self.earlier.positions.get(image.index, ())
            row = self.earlier.rows.get(image.index)
            if row is not None:
                image.set_votes(PartialVotes.of_row(row))
            elif positions:
                image.set_votes(positions[0])
            # A run that stops by the clock does not take the same decisions again.
            if not self.budget.reproducible and positions and positions[-1].drawn > image.drawn:
                image.set_votes(positions[-1])

    def _select(self) -> None:
        """Make the selection draws of images that have none."""
        missing = [p for p, image in enumerate(self.images) if not image.selection.any()]
        n0 = self.certification.guarantee.n0
        for start in range(0, len(missing), IMAGES_AT_ONCE):
            positions = missing[start : start + IMAGES_AT_ONCE]
            self._count(positions, Domain.SELECTION, [n0] * len(positions))
            if self.drawing.out_of_time:
                return

    def _spend(self) -> None:
        """Draw in rounds until the budget is spent, or no image is expected to gain anything."""
        allocator = self._allocator()
        self._end_round(allocator)
        # The selection alone may have taken all the time.
        while not self._is_time_spent():
            blocks = allocator.plan(self._left)
            if not blocks:
                return
            self._draw(blocks)
            positions = [block.position for block in blocks]
            drawn = [self.images[position] for position in positions]
            allocator.add(
                positions,
                [int(image.votes[image.selected]) for image in drawn],
                [image.drawn for image in drawn],
            )
            for image in drawn:
                self.history.add(image)
            self._end_round(allocator)
            self.drawing.save_if_due()
            if self.drawing.out_of_time:
                return

    def _allocator(self) -> Allocator:
        guarantee = self.certification.guarantee
        assert isinstance(guarantee, Anytime)
        eligible = []
        for image in self.images:
            eligible.append(not self.certification.skip_wrong or image.selected == image.label)
        allocator = Allocator(
            guarantee,
            self.certification.noise,
            sigma=self.certification.sigma,
            batch=self.certification.batch,
            goal=self.budget.goal,
            selection_votes=[int(image.selection[image.selected]) for image in self.images],
            eligible=eligible,
        )
        drawn = [position for position, image in enumerate(self.images) if image.drawn]
        allocator.add(
            drawn,
            [int(self.images[p].votes[self.images[p].selected]) for p in drawn],
            [self.images[p].drawn for p in drawn],
        )
        return allocator

    @property
    def _left(self) -> int | None:
        if self.limit is None:
            return None
        return self.limit - self._spent

    def _end_round(self, allocator: Allocator) -> None:
        """Note what is spent, and how much time the next round may take."""
        self._decided = allocator.decided
        self._spent = allocator.spent
        self._drawn_before = self.drawing.draws
        self._report()
        if self.budget.hours is not None:
            left = self.budget.hours * SECONDS_PER_HOUR - self._seconds
            self.drawing.end = min(self.deadline, time.monotonic() + left)

    @property
    def _seconds(self) -> float:
        """Time of all draws, by all runs."""
        return sum(image.seconds for image in self.images)

    def _is_time_spent(self) -> bool:
        hours = self.budget.hours
        return hours is not None and self._seconds >= hours * SECONDS_PER_HOUR

    def _draw(self, blocks: Sequence[Block]) -> None:
        """Draw the blocks of a round, as far as the journal does not hold their votes."""
        missing = []
        for block in blocks:
            image = self.images[block.position]
            known = self._latest_known(image, block.stop)
            if known is not None:
                image.set_votes(known)
            if image.drawn < block.stop:
                missing.append(block)
        positions = [block.position for block in missing]
        self._count(positions, Domain.ESTIMATION, [block.stop for block in missing])

    def _latest_known(self, image: ActiveImage, stop: int) -> PartialVotes | None:
        """The votes in the journal after most draws that do not exceed `stop`, beyond its own."""
        found = None
        for votes in self.earlier.positions.get(image.index, ()):
            if image.drawn < votes.drawn <= stop:
                found = votes
        return found

    def _count(self, positions: Sequence[int], domain: Domain, stops: Sequence[int]) -> None:
        images = [self.images[position] for position in positions]
        for position, image in zip(positions, images, strict=True):
            image.pixels = self._pixels(position)
        try:
            self.drawing.count(images, domain, stops)
        finally:
            for image in images:
                image.pixels = NO_PIXELS

    def _certificates(self, skip_rows: int) -> Iterator[Certificate]:
        for start in range(skip_rows, len(self.images), IMAGES_AT_ONCE):
            images = self.images[start : start + IMAGES_AT_ONCE]
            yield from schedule.rows_of(images, self.certification)

    def _report(self) -> None:
        self.on_progress(
            BudgetProgress(
                budget=self.budget,
                images=len(self.images),
                limit=self.limit,
                # Adding up the votes of all images would take long: this happens often.
                spent=self._spent + self.drawing.draws - self._drawn_before,
                hours=self._seconds / SECONDS_PER_HOUR,
                decided=self._decided,
            )
        )
