"""How many draws an image gets, and what its votes then say: by a fixed number, or by rules that hold at any time."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from smoothmix.certificates import Certificate, from_votes, sparse
from smoothmix.config import Certification, Mode
from smoothmix.stats.anytime import Stopping, decided, lower_bound, next_total
from smoothmix.stats.binomial import abstention_is_certain

MOST_TOGETHER = 64
"""Images in work at once: enough to keep every core busy while most of them are decided already."""

ROUNDS = 16
"""Blocks of draws for each thread between two looks, at least: at a look all of them wait for the last block."""

LOOKS = 20
"""How often an image that may be stopped is looked at in mode exact."""


@dataclass(kw_only=True, eq=False)
class Case:
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
        """The class that the selection draws chose."""
        return int(self.selection.argmax())

    @property
    def drawn(self) -> int:
        """Estimation draws so far."""
        return int(self.votes.sum())


class Rule(ABC):
    """When images are looked at, whether they have had enough, and their certificates."""

    @abstractmethod
    def together(self, threads: int) -> int:
        """How many images to have in work at once."""

    @abstractmethod
    def next_look(self, drawn: int) -> int:
        """After how many draws an image is looked at next."""

    @abstractmethod
    def enough(self, cases: Sequence[Case]) -> Sequence[bool]:
        """Which of the images have had enough draws."""

    @abstractmethod
    def rows(self, cases: Sequence[Case]) -> Iterator[Certificate]:
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
    def _look(self) -> int:
        """Draws from one look to the next: all, or whole blocks where an image may stop early."""
        blocks = math.ceil(self.how.n / (LOOKS * self.how.batch))
        return self.how.batch * max(1, blocks) if self.how.stop_abstaining else self.how.n

    def together(self, threads: int) -> int:
        # As few as keep the threads busy: rows come out in time, and one process does what many do with one each.
        blocks = math.ceil(self._look / self.how.batch)
        return min(MOST_TOGETHER, math.ceil(ROUNDS * threads / blocks))

    def next_look(self, drawn: int) -> int:
        return min(self.how.n, self._look * (drawn // self._look + 1))

    def enough(self, cases: Sequence[Case]) -> Sequence[bool]:
        return [case.drawn >= self.how.n or self._abstains(case) for case in cases]

    def _abstains(self, case: Case) -> bool:
        votes, how = case.votes[case.selected], self.how
        return how.stop_abstaining and bool(
            abstention_is_certain(votes, case.drawn, planned=how.n, alpha=how.alpha)
        )

    def rows(self, cases: Sequence[Case]) -> Iterator[Certificate]:
        return (_row(case, self.how, planned=self.how.n) for case in cases)


@final
@dataclass(frozen=True)
class Anytime(Rule):
    """An image gets draws in rounds, until the rules for stopping are met."""

    how: Certification
    stopping: Stopping

    def together(self, threads: int) -> int:
        return MOST_TOGETHER

    def next_look(self, drawn: int) -> int:
        return next_total(drawn, block=self.how.batch, max_draws=self.stopping.max_draws)

    def enough(self, cases: Sequence[Case]) -> Sequence[bool]:
        votes, drawn, before = _counts(cases)
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

    def rows(self, cases: Sequence[Case]) -> Iterator[Certificate]:
        if not cases:
            return
        votes, drawn, before = _counts(cases)
        bounds = lower_bound(votes, drawn, k0=before, n0=self.how.n0, alpha=self.how.alpha)
        for case, bound in zip(cases, bounds, strict=True):
            yield _row(case, self.how, mode="anytime", bound=float(bound))


def _row(
    case: Case,
    how: Certification,
    *,
    mode: Mode = "exact",
    planned: int | None = None,
    bound: float | None = None,
) -> Certificate:
    return from_votes(
        case.index,
        case.label,
        sparse(case.selection),
        sparse(case.votes),
        sigma=how.sigma,
        alpha=how.alpha,
        seconds=case.seconds,
        mode=mode,
        planned=planned,
        bound=bound,
    )


def _counts(cases: Sequence[Case]) -> NDArray[np.int64]:
    """Estimation votes for the selected class, all of them, and its selection votes: a row each."""
    every = [
        (case.votes[case.selected], case.drawn, case.selection[case.selected]) for case in cases
    ]
    return np.array(every, dtype=np.int64).T
