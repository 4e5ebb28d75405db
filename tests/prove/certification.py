"""How often certificates are false, by simulation of the whole procedure with known probabilities.

    python -m tests.prove.certification --share 0.01

Every simulated image is certified as `smoothmix certify` does it: selection draws, estimation
draws with their checks, the bound, the radius, its six decimals. Some draws vote for nobody. A
certificate is false if its class does not have a probability above 1/2, or if its radius is above
the true one.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from smoothmix.certificates import Certification
from smoothmix.certificates.row import ImageVotes, certificates_of
from smoothmix.noise import GAUSSIAN
from smoothmix.stats import Anytime, FixedDraws, Guarantee, Stopping
from smoothmix.stats.binomial import ABSTAIN, NOBODY, lower_bound, upper_bound
from smoothmix.stats.guarantees import SelectedVotes

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

IMAGES = 200_000
SIGMA = 0.5
BATCH = 100
REFUTED_AT = 1e-6
"""A true rate of at most alpha fails a check with this chance."""


@dataclass(frozen=True)
class Case:
    """Probabilities of classes 0, 1, ... at an image; what they lack to 1 is a vote for nobody."""

    name: str
    shares: tuple[float, ...]

    @property
    def true_radii(self) -> NDArray[np.float64]:
        """The radius of each class, negative up to 1/2: then its certificate is false."""
        signed = GAUSSIAN.signed_radius(self.shares, sigma=SIGMA)
        return np.where(np.array(self.shares) > 0.5, signed, -1.0)


@dataclass(frozen=True)
class Rate:
    """How many certificates of a case were false."""

    case: Case
    guarantee: Guarantee
    adversary: bool
    images: int
    false: int

    @property
    def refutes(self) -> bool:
        """Whether so many are all but impossible at a rate of alpha."""
        least = float(lower_bound(self.false, self.images, alpha=REFUTED_AT))
        return least > self.guarantee.alpha

    def __str__(self) -> str:
        least = float(lower_bound(self.false, self.images, alpha=0.025))
        most = float(upper_bound(self.false, self.images, alpha=0.025))
        rule = ", stopped by an adversary" if self.adversary else ""
        return (
            f"alpha {self.guarantee.alpha:g}, {self.guarantee.description}{rule}, "
            f"{self.case.name}: {self.false} of {self.images} false, "
            f"95 % interval {least:.6f} to {most:.6f}"
        )


def guarantees(alpha: float) -> list[Guarantee]:
    """Fixed draws with and without an early end; draws until radii or a tolerance are met."""
    return [
        FixedDraws(1_000, n0=10, alpha=alpha),
        FixedDraws(1_000, n0=10, alpha=alpha, stop_abstaining=True),
        Anytime(Stopping(radii=(0.0, 0.25, 0.5), max_draws=2_000), n0=10, alpha=alpha),
        Anytime(Stopping(tolerance=0.2, max_draws=2_000), n0=10, alpha=alpha),
    ]


def cases(alpha: float) -> list[Case]:
    """Worst cases and usual ones."""
    return [
        Case("just below the radius of 900 of 1,000 votes", _edge(900, alpha)),
        Case("just below the radius of 999 of 1,000 votes", _edge(999, alpha)),
        Case("just below 1/2", (0.4999, 0.5001 - 0.01)),
        Case("two equal classes", (0.5, 0.5)),
        Case("two equal classes and nobody", (0.48, 0.48)),
        Case("a likely class", (0.95, 0.04)),
    ]


def _edge(votes: int, alpha: float) -> tuple[float, float]:
    """The worst probability for fixed draws: any less, and fewer votes would be too many."""
    bound = lower_bound(votes, 1_000, alpha=alpha)
    radius = float(GAUSSIAN.radius(bound, sigma=SIGMA))
    recorded = math.floor(radius * 10**6) / 10**6
    p = float(GAUSSIAN.probability(recorded, sigma=SIGMA)) * (1 - 1e-13)
    return p, (1 - p) / 2


def simulate(
    case: Case, guarantee: Guarantee, images: int, rng: Generator, *, adversary: bool = False
) -> Rate:
    """Certify so many images; an adversary draws on, and stops where a certificate is false."""
    shares = np.append(case.shares, max(0.0, 1 - sum(case.shares)))
    selection = rng.multinomial(guarantee.n0, shares / shares.sum(), size=images)
    # The last column is nobody's: it is never selected.
    selected = selection[:, :-1].argmax(axis=1)
    before = selection[np.arange(images), selected]
    p = shares[selected]
    votes = np.zeros(images, dtype=np.int64)
    draws = np.zeros(images, dtype=np.int64)
    active = np.ones(images, dtype=bool)
    false = np.zeros(images, dtype=bool)
    checked = 0
    while active.any():
        goal = guarantee.next_check(checked, batch=BATCH)
        votes[active] += rng.binomial(goal - checked, p[active])
        draws[active] = goal
        if adversary:
            false |= _false(case, guarantee, selected, votes, draws, before)
            active &= (draws < guarantee.max_draws) & ~false
        else:
            active[active] = ~_enough(guarantee, votes[active], draws[active], before[active])
        checked = goal
    if not adversary:
        false = _false(case, guarantee, selected, votes, draws, before)
    return Rate(case, guarantee, adversary, images, int(false.sum()))


def _enough(guarantee: Guarantee, votes: Ints, draws: Ints, before: Ints) -> Bools:
    # Many images have the same votes: each kind is judged once.
    kinds, kind = np.unique(np.stack([votes, draws, before]), axis=1, return_inverse=True)
    judged = SelectedVotes(*kinds, np.full(kinds.shape[1], guarantee.n0))
    return guarantee.enough(judged, GAUSSIAN, sigma=SIGMA)[kind]


def _false(
    case: Case, guarantee: Guarantee, selected: Ints, votes: Ints, draws: Ints, before: Ints
) -> Bools:
    """Which certificates claim a class without a majority, or a radius above the true one."""
    state = np.stack([selected, votes, draws, before])
    kinds, kind = np.unique(state, axis=1, return_inverse=True)
    certification = Certification(sigma=SIGMA, guarantee=guarantee)
    images = [_image(guarantee, *map(int, column)) for column in kinds.T]
    true_radii = case.true_radii
    false = []
    for row in certificates_of(images, certification):
        false.append(row.predict != ABSTAIN and row.radius > true_radii[row.predict])
    return np.array(false)[kind]


def _image(guarantee: Guarantee, c: int, votes: int, draws: int, before: int) -> ImageVotes:
    """Votes for class c; all others are for nobody, which changes neither selection nor bound."""
    return ImageVotes(
        idx=0,
        label=c,
        selection_counts={c: before, NOBODY: guarantee.n0 - before},
        counts={c: votes, NOBODY: draws - votes},
    )


def all_rates(alpha: float, images: int, rng: Generator) -> list[Rate]:
    """Every guarantee in every case; the adversary where the guarantee holds at any time."""
    found = []
    for case in cases(alpha):
        for guarantee in guarantees(alpha):
            found.append(simulate(case, guarantee, images, rng))
        anytime = guarantees(alpha)[-1]
        found.append(simulate(case, anytime, images, rng, adversary=True))
    return found


def main() -> int:
    """Simulate all cases, print the rates, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--share", type=float, default=1.0, help="of 200,000 images per case")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    failed = False
    for alpha in (0.01, 0.001):
        start = time.monotonic()
        for rate in all_rates(alpha, math.ceil(IMAGES * options.share), rng):
            print(rate, flush=True)
            failed |= rate.refutes
        print(f"alpha {alpha:g}: {time.monotonic() - start:.0f} s", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
