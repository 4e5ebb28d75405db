"""A budget of draws for many images: which of them are drawn for next, and how far.

The allocation is a function of votes alone. It goes in rounds. In each round the images with the
largest expected gain per draw get one more block of draws, by the votes counted at the end of the
round before. Neither the blocks nor the size of a round depends on threads or on time, so the same
votes give the same allocation.

The expected gain takes p_A to have the posterior distribution of all votes so far, as foresight
does, and looks ahead by several numbers of further draws: the best gain per draw counts. It is an
approximation, and need not be more: the evidence of `anytime` holds after any number of draws, so
that a bad allocation costs power, never validity.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Literal, NamedTuple, final, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincc, betaln, psi

from smoothmix.config import plain_numbers, require, require_whole
from smoothmix.noise import Noise
from smoothmix.stats import anytime
from smoothmix.stats.beta import Floats
from smoothmix.stats.binomial import Ints
from smoothmix.stats.guarantees import Anytime, SelectedVotes
from smoothmix.stats.search import TINY

Goal = Literal["accuracy", "acr"]
"""What draws are to gain: certified accuracy at the requested radii, or the average radius."""

GROWTH = 1.15
"""How much the draws of an image grow by one block, unless a batch is more."""

LEAST_ROUND = 16
"""Batches in a round: enough to keep many threads busy."""

ROUND_SHARE = 1 / 128
"""Draws of a round, as a share of all draws so far: later decisions change less."""

AHEAD = (1.0, 4.0, 16.0, 64.0, 256.0)
"""Further draws that the expected gain looks ahead by, as multiples of the next block."""

NEGLIGIBLE = 6.0
"""Standard deviations beyond which a chance counts as 0 or 1."""


@final
@dataclass(frozen=True, kw_only=True)
class Budget:
    """What a whole run may spend, and on what: images take turns by expected gain.

    Every image gets its selection draws and a certificate, of radius 0 if it got no further draws.

    >>> Budget(draws=20_000_000, goal="accuracy").description
    'budget 20,000,000 draws for certified accuracy'
    """

    draws: int | None = None
    """Draws of all images together, selection draws included."""

    hours: float | None = None
    """Time for the draws of all images together. How far it goes is not reproducible."""

    goal: Goal = "accuracy"
    """`accuracy`: certified accuracy at the radii of the stopping rules; `acr`: the average radius.
    """

    def __post_init__(self) -> None:
        plain_numbers(self)
        require(
            self.draws is not None or self.hours is not None,
            "a budget has draws or hours: give one of them",
        )
        if self.draws is not None:
            require_whole("draws", self.draws)
            require(self.draws >= 1, f"a budget has at least 1 draw, got {self.draws}")
        if self.hours is not None:
            number = isinstance(self.hours, Real) and not isinstance(self.hours, bool)
            possible = number and 0 < self.hours < math.inf
            require(possible, f"hours must be a positive number, got {self.hours!r}")
        goals = get_args(Goal)
        require(
            self.goal in goals, f"goal must be one of {', '.join(goals)}, got {self.goal!r:.40}"
        )

    @property
    def description(self) -> str:
        """What reports call it."""
        limits = []
        if self.draws is not None:
            limits.append(f"{self.draws:,} draws")
        if self.hours is not None:
            limits.append(f"{self.hours:g} hours")
        goal = {"accuracy": "certified accuracy", "acr": "ACR"}[self.goal]
        return f"budget {' and '.join(limits)} for {goal}"

    def options(self) -> dict[str, object]:
        """The options of `smoothmix certify` that ask for this budget."""
        found: dict[str, object] = {}
        if self.draws is not None:
            found["budget"] = self.draws
        if self.hours is not None:
            found["hours"] = self.hours
        return found | {"goal": self.goal}

    @property
    def reproducible(self) -> bool:
        """Whether the same run again gets the same votes."""
        return self.hours is None

    def share(self, images: int, of: int) -> int | None:
        """The draws of a shard with so many of all images; None without a limit on draws.

        >>> Budget(draws=1_000).share(1, 3)
        333
        """
        if self.draws is None:
            return None
        return self.draws * images // of


class Block(NamedTuple):
    """The next draws of one image."""

    position: int
    """Position of the image among all images."""
    stop: int
    """The number of its draws after them."""


@final
class Allocator:
    """Chooses the next draws of images, from the votes that were counted so far."""

    def __init__(
        self,
        guarantee: Anytime,
        noise: Noise,
        *,
        sigma: float,
        batch: int,
        goal: Goal,
        selection_votes: Sequence[int] | Ints,
        eligible: Sequence[bool] | NDArray[np.bool_] | None = None,
    ) -> None:
        """Start with the selection votes of all images; those not `eligible` get no draws."""
        self.guarantee = guarantee
        self.noise = noise
        self.sigma = sigma
        self.batch = batch
        self.goal = goal
        self.selection_votes = np.asarray(selection_votes, dtype=np.int64)
        images = len(self.selection_votes)
        self.votes = np.zeros(images, dtype=np.int64)
        self.draws = np.zeros(images, dtype=np.int64)
        self.open = np.ones(images, dtype=bool)
        """Images that further draws may be made for."""
        if eligible is not None:
            self.open = np.array(eligible, dtype=bool)
        self.gains = np.full(images, -np.inf)
        """Expected gain per draw."""
        self._judge(np.flatnonzero(self.open))

    @property
    def decided(self) -> int:
        """Images that are not to be drawn for any more: their question is answered, or hopeless."""
        return int((~self.open).sum())

    @property
    def spent(self) -> int:
        """All draws so far, selection draws included."""
        return int(self.draws.sum()) + self.guarantee.n0 * len(self.draws)

    def add(
        self,
        positions: Sequence[int],
        votes: Sequence[int] | Ints,
        draws: Sequence[int] | Ints,
    ) -> None:
        """Set the votes of these images after further draws, and judge them again."""
        changed = np.asarray(positions, dtype=np.int64)
        self.votes[changed] = votes
        self.draws[changed] = draws
        self._judge(changed[self.open[changed]])

    def plan(self, left: int | None = None) -> list[Block]:
        """The blocks of the next round, at most `left` draws; none if nothing is to be gained."""
        waiting = np.flatnonzero(self.open)
        # Largest gain first, and of equal ones the first image: a stable order.
        waiting = waiting[np.argsort(-self.gains[waiting], kind="stable")]
        size = max(LEAST_ROUND * self.batch, int(self.spent * ROUND_SHARE))
        if left is not None:
            size = min(size, left)
        blocks = []
        for position in waiting.tolist():
            if size <= 0:
                break
            drawn = int(self.draws[position])
            stop = self._next_stop(drawn)
            if left is not None and stop - drawn > left:
                # The end of the budget, in whole batches: the image may be drawn further later.
                stop = drawn + left // self.batch * self.batch
            if stop == drawn:
                break
            blocks.append(Block(position, stop))
            size -= stop - drawn
            if left is not None:
                left -= stop - drawn
        return blocks

    def _next_stop(self, drawn: int) -> int:
        return anytime.next_total(
            drawn, batch=self.batch, max_draws=self.guarantee.max_draws, growth=GROWTH
        )

    def _judge(self, changed: Ints) -> None:
        """Find out which of these images have enough draws, and what more would gain the others."""
        if not len(changed):
            return
        # Many images have the same votes: each kind is judged once.
        kinds = np.stack(
            [array[changed] for array in (self.votes, self.draws, self.selection_votes)]
        )
        kinds, kind = np.unique(kinds, axis=1, return_inverse=True)
        votes, draws, before = kinds
        selected = SelectedVotes(votes, draws, before, np.full_like(votes, self.guarantee.n0))
        # Before the first draw nothing is known, as in a run without a budget.
        enough = (draws > 0) & self.guarantee.enough(selected, self.noise, sigma=self.sigma)
        gains = np.full(len(votes), -np.inf)
        remaining = ~enough
        if remaining.any():
            gains[remaining] = self._gains(votes[remaining], draws[remaining], before[remaining])
        self.gains[changed] = gains[kind.ravel()]
        self.open[changed] = (gains > 0)[kind.ravel()]

    def _gains(self, votes: Ints, draws: Ints, before: Ints) -> Floats:
        """The largest expected gain per draw, over several numbers of further draws."""
        max_draws = self.guarantee.max_draws
        block = np.array([self._next_stop(int(drawn)) for drawn in draws]) - draws
        ahead = np.minimum(block[:, None] * np.array(AHEAD), (max_draws - draws)[:, None])
        if self.goal == "acr":
            gain = anytime.expected_growth(
                votes[:, None],
                draws[:, None],
                k0=before[:, None],
                n0=self.guarantee.n0,
                ahead=ahead,
                alpha=self.guarantee.alpha,
                sigma=self.sigma,
                noise=self.noise,
            )
        else:
            levels = self.noise.probability(np.array(self.guarantee.radii), sigma=self.sigma)
            gain = expected_certified(
                votes,
                draws,
                k0=before,
                n0=self.guarantee.n0,
                ahead=ahead,
                levels=levels,
                alpha=self.guarantee.alpha,
            )
        return np.asarray((gain / ahead).max(axis=1))


def expected_certified(
    k: Ints,
    n: Ints,
    *,
    k0: Ints,
    n0: int,
    ahead: Floats,
    levels: Floats,
    alpha: float,
) -> Floats:
    """How many more of the probabilities `levels` further draws are expected to certify.

    One row per image, and one column per number of further draws in `ahead`.
    """
    # Axes: images, numbers of draws, levels.
    votes, draws, before = (each.astype(np.float64)[:, None, None] for each in (k, n, k0))
    further = ahead[:, :, None]
    total = draws + further
    prior = (before + 0.5, n0 - before + 0.5)
    # At 1/2 the radius 0 is certified, and a bound must be above it.
    p = np.clip(levels, 0.5, 1 - 1e-16)[None, None, :]
    needed = _votes_needed(total, *prior, p, alpha=alpha)
    posterior = (votes + prior[0], draws - votes + prior[1])
    chances = _chance_of_votes(needed - votes, *posterior, left=further)
    chances = np.where(needed <= total, chances, 0.0)
    now = _votes_needed(np.maximum(draws, 1.0), *prior, p, alpha=alpha)
    certified = (now <= votes) & (draws > 0)
    return np.asarray((chances - certified).sum(axis=2))


def _votes_needed(total: Floats, a: Floats, b: Floats, p: Floats, *, alpha: float) -> Floats:
    """About the least votes of `total` whose evidence against p reaches 1 / alpha.

    Found by Newton's method in the votes, where the posterior's chance to be below p, which is at
    most about alpha there, is neglected.
    """
    prior_tail = np.log(np.maximum(betaincc(a, b, p), TINY))
    offset = -betaln(a, b) - prior_tail + math.log(alpha)
    up, down = np.log(p), np.log1p(-p)
    # From above, where the evidence is convex and rises.
    votes = np.minimum(p * total + np.sqrt(40 * p * (1 - p) * total) + 1, total)
    for _ in range(8):
        x = votes + a
        y = np.maximum(total - votes, 0.0) + b
        value = betaln(x, y) - votes * up - (total - votes) * down + offset
        slope = psi(x) - psi(y) - up + down
        votes = votes - value / np.maximum(slope, 1e-12)
        votes = np.clip(votes, p * total, 2 * total)
    return np.asarray(votes)


def _chance_of_votes(wanted: Floats, x: Floats, y: Floats, *, left: Floats) -> Floats:
    """The predictive probability of at least `wanted` votes in the draws `left`, about.

    p_A has the posterior Beta(x, y). The share of votes is approximated by a beta distribution, as
    in `anytime.hopeful_votes`.
    """
    size = x + y
    # With one draw left the share is 0 or 1, which no beta distribution is.
    left = np.maximum(left, 2.0)
    share_size = size * (left - 1) / (size + left)
    mean = x / size
    std = np.sqrt(mean * (1 - mean) / (share_size + 1))
    share = np.clip((wanted - 0.5) / left, 0.0, 1.0)
    distance, mean, share_size, share = np.broadcast_arrays(
        (share - mean) / std, mean, share_size, share
    )
    chance = np.where(distance < 0, 1.0, 0.0)
    # The incomplete beta function takes most of the time.
    unclear = np.abs(distance) < NEGLIGIBLE
    chance[unclear] = betaincc(
        (mean * share_size)[unclear], ((1 - mean) * share_size)[unclear], share[unclear]
    )
    return chance
