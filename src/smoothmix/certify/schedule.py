"""How many draws an image gets, and what its votes then say: by a fixed number, or by rules that hold at any time."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from smoothmix.certificates import Certificate, from_votes, sparse
from smoothmix.certify.active import ActiveImage
from smoothmix.config import Certification, Mode
from smoothmix.stats.anytime import Stopping, decided, lower_bound, next_total
from smoothmix.stats.binomial import abstention_is_certain

MOST_TOGETHER = 64
"""Images in work at once: enough to keep every core busy while most of them are decided already."""

ROUNDS = 16
"""Blocks of draws for each thread between two looks, at least: at a look all of them wait for the last block."""

CHECKS = 20
"""How often an image that may be stopped is looked at in mode exact."""


class Rule(ABC):
    """When images are looked at, whether they have had enough, and their certificates."""

    @abstractmethod
    def together(self, threads: int) -> int:
        """How many images to have in work at once."""

    @abstractmethod
    def next_check(self, drawn: int) -> int:
        """After how many draws an image is looked at next."""

    @abstractmethod
    def enough(self, images: Sequence[ActiveImage]) -> Sequence[bool]:
        """Which of the images have had enough draws."""

    @abstractmethod
    def rows(self, images: Sequence[ActiveImage]) -> Iterator[Certificate]:
        """What their votes say as they stand."""


def rule_of(how: Certification, stopping: Stopping | None) -> Rule:
    """The rule of mode anytime where there are rules for stopping, else that of mode exact."""
    return Anytime(how, stopping) if stopping else Exact(how)


@final
@dataclass(frozen=True)
class Exact(Rule):
    """Every image gets all its draws, unless its abstention is certain before and draws may be spared."""

    how: Certification

    @property
    def _check_interval(self) -> int:
        """Draws from one look to the next: all, or whole blocks where an image may stop early."""
        blocks = math.ceil(self.how.n / (CHECKS * self.how.batch))
        return self.how.batch * max(1, blocks) if self.how.stop_abstaining else self.how.n

    def together(self, threads: int) -> int:
        # As few as keep the threads busy: rows come out in time, and one process does what many do with one each.
        blocks = math.ceil(self._check_interval / self.how.batch)
        return min(MOST_TOGETHER, math.ceil(ROUNDS * threads / blocks))

    def next_check(self, drawn: int) -> int:
        return min(self.how.n, self._check_interval * (drawn // self._check_interval + 1))

    def enough(self, images: Sequence[ActiveImage]) -> Sequence[bool]:
        return [image.drawn >= self.how.n or self._abstains(image) for image in images]

    def _abstains(self, image: ActiveImage) -> bool:
        votes, how = image.votes[image.selected], self.how
        return how.stop_abstaining and bool(
            abstention_is_certain(votes, image.drawn, planned=how.n, alpha=how.alpha)
        )

    def rows(self, images: Sequence[ActiveImage]) -> Iterator[Certificate]:
        return (_row(image, self.how, planned=self.how.n) for image in images)


@final
@dataclass(frozen=True)
class Anytime(Rule):
    """An image gets draws in rounds, until the rules for stopping are met."""

    how: Certification
    stopping: Stopping

    def together(self, threads: int) -> int:
        return MOST_TOGETHER

    def next_check(self, drawn: int) -> int:
        return next_total(drawn, block=self.how.batch, max_draws=self.stopping.max_draws)

    def enough(self, images: Sequence[ActiveImage]) -> Sequence[bool]:
        votes, drawn, before = _counts(images)
        how = self.how
        met = decided(
            votes,
            drawn,
            k0=before,
            n0=how.n0,
            alpha=how.alpha,
            sigma=how.sigma,
            stopping=self.stopping,
        )
        return [bool(each) for each in met]

    def rows(self, images: Sequence[ActiveImage]) -> Iterator[Certificate]:
        if not images:
            return
        votes, drawn, before = _counts(images)
        bounds = lower_bound(votes, drawn, k0=before, n0=self.how.n0, alpha=self.how.alpha)
        for image, bound in zip(images, bounds, strict=True):
            yield _row(image, self.how, mode="anytime", bound=float(bound))


def _row(
    image: ActiveImage,
    how: Certification,
    *,
    mode: Mode = "exact",
    planned: int | None = None,
    bound: float | None = None,
) -> Certificate:
    return from_votes(
        image.index,
        image.label,
        sparse(image.selection),
        sparse(image.votes),
        sigma=how.sigma,
        alpha=how.alpha,
        seconds=image.seconds,
        mode=mode,
        planned=planned,
        bound=bound,
    )


def _counts(images: Sequence[ActiveImage]) -> NDArray[np.int64]:
    """Estimation votes for the selected class, all of them, and its selection votes: a row each."""
    every = [
        (image.votes[image.selected], image.drawn, image.selection[image.selected])
        for image in images
    ]
    return np.array(every, dtype=np.int64).T
