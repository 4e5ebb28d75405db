"""Which sigma, number of draws and alpha certify a wanted radius. Pure functions of settings.

Three facts decide it. The radius and sigma give the probability that the true class must have under
noise. The guarantee gives the share of votes that proves this probability, which n draws must
exceed. The network gives the share of images that have so many votes: that is measured.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self, final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincc

from smoothmix.certificates import Certificate, Certificates
from smoothmix.config import require, require_alpha, require_sigma, require_whole
from smoothmix.errors import UsageError
from smoothmix.noise import Noise, make_noise
from smoothmix.stats.guarantees import (
    GUARANTEES,
    Anytime,
    Guarantee,
    GuaranteeOptions,
    SelectedVotes,
)

SIGMAS = (0.12, 0.25, 0.5, 1.0)
"""The noise levels of the literature."""

DRAWS = (1_000, 10_000, 100_000, 1_000_000)

ALPHAS = (0.001,)
"""The alpha of the literature."""

LARGEST_PROBABILITY = 0.999
"""The smallest sigma is advised at which the radius takes no more than this.

More noise costs accuracy, and less noise asks for votes that nearly all agree. Of 0.9, 0.95, 0.98,
0.99, 0.995 and 0.999 this one is best on the published tables; a test compares the advice with
them.
"""

LARGEST_LOSS = 0.05
"""The smallest number of draws is advised that loses no more than this share of the radius."""


@final
@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A noise level and a guarantee, and what they take to certify a radius.

    >>> from smoothmix.noise import GRID
    >>> from smoothmix.stats import FixedDraws
    >>> candidate = Candidate(sigma=0.5, guarantee=FixedDraws(10_000), noise=GRID)
    >>> round(candidate.largest_radius, 4), candidate.needed_votes(0.5)
    (1.5993, 8526)
    """

    sigma: float
    guarantee: Guarantee
    noise: Noise

    @property
    def n(self) -> int:
        """The most estimation draws that an image gets."""
        return self.guarantee.max_draws

    @property
    def alpha(self) -> float:
        """Chance that one certificate is wrong."""
        return self.guarantee.alpha

    @property
    def largest_radius(self) -> float:
        """The radius that is certified if every vote agrees."""
        return self.guarantee.largest_radius(self.noise, sigma=self.sigma)

    def needed_votes(self, radius: float) -> int | None:
        """The fewest votes of n that certify the radius; None where even n do not.

        A guarantee that uses selection votes gets them in the share that the radius needs.
        """
        if not self._certify(self.n, radius):
            return None
        # More votes never certify less.
        fails, works = 0, self.n
        while works - fails > 1:
            middle = (fails + works) // 2
            if self._certify(middle, radius):
                works = middle
            else:
                fails = middle
        return works

    def _certify(self, votes: int, radius: float) -> bool:
        n0 = self.guarantee.n0
        probability = float(self.noise.probability(radius, sigma=self.sigma))
        selection_votes = math.floor(n0 * probability)
        if votes == self.n:
            selection_votes = n0
        bound = self.guarantee.lower_bound(
            SelectedVotes(
                np.array([votes]), np.array([self.n]), np.array([selection_votes]), np.array([n0])
            )
        )
        certified = float(self.noise.radius(bound, sigma=self.sigma)[0])
        return certified > 0 and certified >= radius

    def needed_share(self, radius: float) -> float:
        """The share of votes that certifies the radius; infinite where none does."""
        votes = self.needed_votes(radius)
        if votes is None:
            return math.inf
        return votes / self.n

    def lost_radius(self, radius: float) -> float:
        """How much farther the class must truly hold for its votes to certify the radius."""
        share = self.needed_share(radius)
        if share >= 1:
            return math.inf
        return float(self.noise.signed_radius(share, sigma=self.sigma)) - radius


@final
@dataclass(frozen=True, eq=False)
class ObservedVotes:
    """Votes for the true class of some images at one sigma: what a network can do."""

    sigma: float
    votes: NDArray[np.int64]
    draws: NDArray[np.int64]

    def __post_init__(self) -> None:
        require_sigma(self.sigma)
        possible = len(self.votes) == len(self.draws) and len(self.votes) > 0
        require(possible, "votes and draws are one number per image each, for one image or more")

    @classmethod
    def in_file(cls, file: Certificates) -> Self:
        """The votes of a certificate file; without labels, those for the selected class."""
        require(bool(file.rows), f"{file.path}: holds no rows yet")
        if file.settings is None:
            raise UsageError(f"{file.path}: is a log without votes")
        pairs = [_votes_of(row) for row in file.rows]
        votes, draws = np.array(pairs, dtype=np.int64).T
        return cls(file.settings.certification.sigma, votes, draws)

    def share_that_reaches(self, candidate: Candidate, radius: float) -> float:
        """The expected share of such images that the candidate certifies at the radius.

        The probability of an image's class has the Beta distribution that its votes imply, from
        Jeffreys' prior. The image counts with the chance that this probability is at least the
        share of votes that the candidate needs.
        """
        needed = candidate.needed_share(radius)
        # Votes at one sigma say nothing about another.
        if candidate.sigma != self.sigma:
            return math.nan
        if needed > 1:
            return 0.0
        # With all votes needed, the share itself has chance 0: half a vote less.
        share = min(needed, 1 - 0.5 / candidate.n)
        chances = betaincc(self.votes + 0.5, self.draws - self.votes + 0.5, share)
        return float(np.mean(chances))


def _votes_of(row: Certificate) -> tuple[int, int]:
    """Votes for the true class and draws; those of the selection where it ended the draws."""
    counts = row.counts or row.selection_counts
    if counts is None:
        raise UsageError("the rows hold no votes")
    label = row.label
    if label < 0:
        assert row.selected is not None
        label = row.selected
    return counts.get(label, 0), sum(counts.values())


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class Choice:
    """The advised settings for a radius, among all that were considered."""

    radius: float
    candidates: tuple[Candidate, ...]
    chosen: Candidate
    observed: tuple[ObservedVotes, ...] = ()

    @property
    def sigma(self) -> float:
        """The noise level to certify with, and to train with."""
        return self.chosen.sigma

    @property
    def guarantee(self) -> Guarantee:
        """The draws and alpha, as `Smoothed.certify(images, guarantee=...)` takes them."""
        return self.chosen.guarantee

    def share_that_reaches(self, candidate: Candidate) -> float:
        """The expected share of images certified at the radius; not a number if not measured."""
        for votes in self.observed:
            if votes.sigma == candidate.sigma:
                return votes.share_that_reaches(candidate, self.radius)
        return math.nan


def candidates(
    *,
    sigmas: Sequence[float] = SIGMAS,
    draws: Sequence[int] = DRAWS,
    alphas: Sequence[float] = ALPHAS,
    mode: str = "exact",
    noise: Noise | str = "grid",
    n0: int = 100,
    radius: float = 0.0,
) -> tuple[Candidate, ...]:
    """All combinations of these settings, by sigma, alpha and number of draws.

    In mode anytime, `draws` are the most that an image gets, and `radius` is what is decided.
    """
    require(bool(sigmas and draws and alphas), "give at least one sigma, number of draws and alpha")
    for sigma in sigmas:
        require_sigma(sigma)
    for alpha in alphas:
        require_alpha(alpha)
    for number in draws:
        require_whole("draws", number)
        require(number >= 1, f"draws must be at least 1, got {number}")
    if isinstance(noise, str):
        noise = make_noise(noise)
    kind = GUARANTEES[mode]
    radii = (radius,) if issubclass(kind, Anytime) else ()
    found = []
    for sigma in sorted(set(sigmas)):
        for alpha in sorted(set(alphas), reverse=True):
            for number in sorted(set(draws)):
                options = GuaranteeOptions(n0=n0, n=number, alpha=alpha, radii=radii)
                guarantee = kind.from_options(options)
                found.append(Candidate(sigma=sigma, guarantee=guarantee, noise=noise))
    return tuple(found)


def choose(
    radius: float,
    *,
    sigmas: Sequence[float] = SIGMAS,
    draws: Sequence[int] = DRAWS,
    alphas: Sequence[float] = ALPHAS,
    mode: str = "exact",
    noise: Noise | str = "grid",
    n0: int = 100,
    observed: Sequence[ObservedVotes] = (),
) -> Choice:
    """The sigma, number of draws and alpha to certify a radius with.

    Without `observed` votes, sigma is the smallest at which the class needs a probability of at
    most 0.999 under noise. With them, it is the one whose images reach the radius most often. The
    draws are the fewest that lose at most 5 % of the radius. The smallest alpha is taken.

    >>> choice = choose(0.5)
    >>> choice.sigma, choice.guarantee.max_draws
    (0.25, 10000)
    """
    sensible = math.isfinite(radius) and radius > 0
    require(sensible, f"the wanted radius must be positive, got {radius:g}")
    every = candidates(
        sigmas=sigmas, draws=draws, alphas=alphas, mode=mode, noise=noise, n0=n0, radius=radius
    )
    able = [each for each in every if each.largest_radius >= radius]
    if not able:
        best = max(every, key=_largest_radius)
        raise UsageError(
            f"no setting reaches radius {radius:g}: sigma {best.sigma:g} with {best.n:,} draws "
            f"certifies {best.largest_radius:.3f} at most; allow a larger sigma or more draws"
        )
    strictest = min(each.alpha for each in able)
    able = [each for each in able if each.alpha == strictest]
    sufficient = [_fewest_draws(of_sigma, radius) for of_sigma in _by_sigma(able)]
    choice = Choice(
        radius=radius,
        candidates=every,
        chosen=_least_noise(sufficient, radius),
        observed=tuple(observed),
    )
    measured = [each for each in sufficient if not math.isnan(choice.share_that_reaches(each))]
    if not measured:
        return choice
    # Of equals the first: less noise.
    best = max(measured, key=choice.share_that_reaches)
    return Choice(radius=radius, candidates=every, chosen=best, observed=tuple(observed))


def _largest_radius(candidate: Candidate) -> float:
    return candidate.largest_radius


def _by_sigma(able: Sequence[Candidate]) -> list[list[Candidate]]:
    groups: dict[float, list[Candidate]] = {}
    for candidate in able:
        groups.setdefault(candidate.sigma, []).append(candidate)
    return list(groups.values())


def _fewest_draws(of_sigma: Sequence[Candidate], radius: float) -> Candidate:
    """The one with the fewest draws that loses little of the radius, or the one with most."""
    for candidate in of_sigma:
        if candidate.lost_radius(radius) <= LARGEST_LOSS * radius:
            return candidate
    return of_sigma[-1]


def _least_noise(sufficient: Sequence[Candidate], radius: float) -> Candidate:
    """The one with the smallest sigma that asks for no extreme probability."""
    for candidate in sufficient:
        probability: ArrayLike = candidate.noise.probability(radius, sigma=candidate.sigma)
        if float(np.asarray(probability)) <= LARGEST_PROBABILITY:
            return candidate
    return sufficient[-1]
