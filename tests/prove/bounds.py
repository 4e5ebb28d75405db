"""Bounds, radii and p-values against arithmetic of 30 digits: rounding lifts none of them.

    python -m tests.prove.bounds --share 0.01

Each check draws inputs near the places where floating-point numbers fail: probabilities near 0, 1/2
and 1, all votes and few votes, up to a thousand million draws, alpha down to 1e-100.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import mpmath as mp
import numpy as np
from numpy.random import Generator

from smoothmix.noise import GAUSSIAN, Noise, make_noise
from smoothmix.stats import anytime, binomial
from smoothmix.stats.beta import log_tail_and_slope, tail_error
from smoothmix.stats.evidence import evidence_and_slope, evidence_error
from tests.helpers.anytime_reference import slow_log_evidence
from tests.helpers.bounds_reference import slow_log_tail

INPUTS = 100_000

DIGITS = 30
"""Of the reference. Nothing of n = 1e9 cancels more than ten of them."""


@dataclass(frozen=True)
class Finding:
    """One number against its exact value."""

    too_high: bool
    """Whether rounding lifted it."""

    loss: float
    """How far it is on the safe side, relative to its exact value."""

    error: float = 0.0
    """The error of the function that it rests on, relative to the bound on that error."""

    inputs: tuple[float, ...] = ()


@dataclass(frozen=True)
class Summary:
    """All findings of one check."""

    name: str
    findings: list[Finding]

    @property
    def too_high(self) -> list[Finding]:
        """The findings that refute the claim."""
        return [found for found in self.findings if found.too_high or found.error > 1]

    def __str__(self) -> str:
        losses = [found.loss for found in self.findings]
        error = max(found.error for found in self.findings)
        text = f"{self.name}: {len(self.findings)} inputs, {len(self.too_high)} too high"
        text += f", losses from {min(losses):.1e} to {max(losses):.1e}"
        if error > 0:
            text += f", largest error {error:.2f} of its bound"
        return text


def clopper_pearson(count: int, rng: Generator) -> Iterator[Finding]:
    """The bound for a fixed number of draws; its loss in terms of 1 - p or p, the smaller."""
    for _ in range(count):
        k, n = _votes(rng)
        alpha = _alpha(rng)
        bound = float(binomial.lower_bound(k, n, alpha=alpha))
        exact, slope = slow_log_tail(k, n, bound)
        # Concave in the log-odds: one step of Newton's method bounds the distance from the root.
        gap = float((mp.log(mp.mpf(alpha)) - exact) / slope)
        votes = np.array([[bound], [k], [n]], dtype=np.float64)
        found, _ = log_tail_and_slope(*votes)
        error = abs(mp.mpf(float(found[0])) - exact) / mp.mpf(float(tail_error(*votes, found)[0]))
        yield Finding(gap < 0, gap, float(error), (k, n, alpha))


def anytime_bound(count: int, rng: Generator) -> Iterator[Finding]:
    """The bound that holds at any time; its loss in terms of 1 - p or p, the smaller."""
    for _ in range(count):
        k, n = _votes(rng)
        n0 = round(10 ** rng.uniform(0, 4))
        k0 = int(rng.choice([n0, 0, round(n0 * k / n), rng.integers(0, n0 + 1)]))
        alpha = _alpha(rng)
        bound = float(anytime.lower_bound(k, n, k0=k0, n0=n0, alpha=alpha))
        if bound == 0:
            continue
        with mp.workdps(DIGITS + 15):
            exact = slow_log_evidence(bound, k, n, k0, n0)
        votes = np.array([[k], [n], [k0], [n0]], dtype=np.float64)
        found, slope = evidence_and_slope(np.array([bound]), *votes)
        gap = float((exact + mp.log(mp.mpf(alpha))) / -float(slope[0]))
        limit = float(evidence_error(votes[1], votes[3])[0])
        error = float(abs(mp.mpf(float(found[0])) - exact)) / limit
        yield Finding(gap < 0, gap, error, (k, n, k0, n0, alpha))


def gaussian_radius(count: int, rng: Generator) -> Iterator[Finding]:
    """sigma * Phi^-1(p), by inserting the radius into Phi."""
    for _ in range(count):
        p = _above_half(rng)
        sigma = _sigma(rng)
        z = mp.mpf(float(GAUSSIAN.radius(p, sigma=sigma))) / mp.mpf(sigma)
        # The upper tail keeps the digits near 1; near 1/2 both have them.
        lacking = mp.erfc(z / mp.sqrt(2)) / 2
        missed = lacking - (1 - mp.mpf(p))
        density = mp.exp(-z * z / 2) / mp.sqrt(2 * mp.pi)
        yield Finding(missed < 0, float(missed / (density * z)), 0.0, (p, sigma))


def l1_radius(count: int, rng: Generator) -> Iterator[Finding]:
    """The radii of uniform and Laplace noise."""
    uniform = make_noise("uniform")
    laplace = make_noise("laplace")
    for _ in range(count // 2):
        p = _above_half(rng)
        sigma = _sigma(rng)
        exact = mp.mpf(sigma) * mp.sqrt(3) * (2 * mp.mpf(p) - 1)
        yield _compared(uniform, p, sigma, exact)
        exact = -mp.mpf(sigma) / mp.sqrt(2) * mp.log(2 - 2 * mp.mpf(p))
        yield _compared(laplace, p, sigma, exact)


def _compared(noise: Noise, p: float, sigma: float, exact: mp.mpf) -> Finding:
    found = mp.mpf(float(noise.radius(p, sigma=sigma)))
    return Finding(found > exact, float(1 - found / exact), 0.0, (p, sigma))


def prediction_p_value(count: int, rng: Generator) -> Iterator[Finding]:
    """The p-value of a prediction, which must not be too small."""
    for _ in range(count):
        n = round(10 ** rng.uniform(0, 7))
        deviation = abs(rng.normal()) * rng.choice([1, 5, 20])
        first = min(n, math.ceil(n / 2 + deviation * math.sqrt(n) / 2))
        found = mp.mpf(float(binomial.prediction_p_value(first, n - first)))
        log_tail, _ = slow_log_tail(first, n, 0.5)
        exact = min(mp.mpf(1), 2 * mp.exp(log_tail))
        # The smallest normal float stands for all p-values below it.
        exact = max(exact, mp.mpf(float(np.finfo(np.float64).tiny)))
        # A tie has the p-value 1, which the reference may miss in its last digit.
        too_low = found < exact and found < 1
        yield Finding(too_low, float(found / exact - 1), 0.0, (first, n))


Check = Callable[[int, Generator], Iterator[Finding]]

CHECKS: dict[Check, float] = {
    clopper_pearson: 0.3,
    anytime_bound: 0.15,
    gaussian_radius: 0.35,
    l1_radius: 0.15,
    prediction_p_value: 0.05,
}
"""Every check, and its share of the inputs."""


def run(check: Check, inputs: int, seed: int) -> Summary:
    """The findings of one check on its share of so many inputs."""
    rng = np.random.default_rng(seed)
    with mp.workdps(DIGITS):
        findings = list(check(math.ceil(inputs * CHECKS[check]), rng))
    return Summary(check.__name__, findings)


def _votes(rng: Generator) -> tuple[int, int]:
    """k and n: all votes, nearly all, about half, or any number."""
    # Few inputs are huge, since the reference takes long for them.
    n = round(10 ** rng.uniform(0, rng.choice([3, 5, 6, 9], p=[0.37, 0.45, 0.15, 0.03])))
    nearly_all = n - round(10 ** rng.uniform(0, math.log10(n) + 0.01))
    about_half = round(n / 2 + 4 * rng.normal() * math.sqrt(n))
    k = int(rng.choice([n, nearly_all, about_half, rng.integers(1, n + 1)]))
    return min(max(k, 1), n), n


def _alpha(rng: Generator) -> float:
    """A usual alpha, or anything from 1e-100 to 1/2."""
    smallest = rng.choice([3, 10, 100])
    return float(rng.choice([0.001, 0.01, 0.05, 10 ** -rng.uniform(0.30103, smallest)]))


def _above_half(rng: Generator) -> float:
    """A probability above 1/2: near 1/2, near 1, or anywhere between."""
    small = 10 ** -rng.uniform(0.31, 15.9)
    p = float(rng.choice([0.5 + small, 1 - small, rng.uniform(0.5, 1)]))
    return min(max(p, math.nextafter(0.5, 1)), math.nextafter(1, 0))


def _sigma(rng: Generator) -> float:
    return float(rng.choice([0.25, 0.5, 1.0, rng.uniform(0.01, 3)]))


def main() -> int:
    """Run all checks, print what they found, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--share", type=float, default=1.0, help="of 100,000 inputs")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    failed = False
    for check in CHECKS:
        start = time.monotonic()
        summary = run(check, math.ceil(INPUTS * options.share), options.seed)
        print(f"{summary}; {time.monotonic() - start:.0f} s", flush=True)
        for found in summary.too_high[:5]:
            print(f"  refuted by {found}")
        failed |= bool(summary.too_high)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
