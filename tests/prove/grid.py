"""Proof that grid noise has its distribution (`make prove`): a billion draws against mpmath.

Every line shows what was compared and the chance of a deviation as large as the one found. The
random numbers are the same in every run, so that a run which succeeds once always does.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import mpmath
import numpy as np
from numpy.typing import NDArray
from scipy import stats

from smoothmix.noise import Domain, DrawRange, GridNoise

Integers = NDArray[np.int64]

BILLION = 1_000_000_000
LEAST_P = 1e-5
"""Some hundred p-values are computed: below this, something is wrong."""

SHAPE = (1, 28, 28)
DRAWS = 1000
"""Draws of each image; the images are numbered from 0."""

CELLS = 2000
"""About so many cells for chi-square; neighbours are joined where there are more integers."""

LEAST_EXPECTED = 50
PAIRS_EVERY = 10
"""Of every so many images, one is used for pairs of pixels: these take longer than the noise."""

CODES = 8
PIXEL_LAGS = (1, 2, 3, 4, 16, 28)
DRAW_LAGS = (1, 2, 32)
TAILS = (4.0, 4.5, 5.0, 5.5, 6.0)

FULL = ((0.5, 255, BILLION), (0.25, 255, BILLION // 10), (1.0, 255, BILLION // 10))
FULL += ((0.12, 255, BILLION // 10), (0.5, 65535, BILLION // 20), (10.0, 255, BILLION // 20))


@dataclass(frozen=True)
class Finding:
    """One comparison."""

    what: str
    p_value: float


@dataclass
class Sample:
    """What is kept of many draws: how often each integer and each pair of codes occurred."""

    sigma: float
    levels: int
    counts: Integers
    """By J + reach."""
    pairs: dict[str, Integers] = field(default_factory=dict)
    """Tables [CODES, CODES] by the name of the relation."""

    @property
    def reach(self) -> int:
        return self.counts.size // 2

    @property
    def size(self) -> int:
        return int(self.counts.sum())

    def add_pairs(self, name: str, left: Integers, right: Integers) -> None:
        joint = np.bincount((CODES * left + right).ravel(), minlength=CODES**2)
        table = self.pairs.setdefault(name, np.zeros((CODES, CODES), dtype=np.int64))
        table += joint.reshape(CODES, CODES)


def collect(sigma: float, levels: int, pixels: int) -> Sample:
    """A sample of at least so many pixels, in images of DRAWS draws each."""
    reach = math.ceil(10 * sigma * levels)
    sample = Sample(sigma, levels, np.zeros(2 * reach + 1, dtype=np.int64))
    per_image = DRAWS * math.prod(SHAPE)
    for image in range(math.ceil(pixels / per_image)):
        integers = drawn(sigma, levels, image, Domain.ESTIMATION)
        sample.counts += np.bincount(integers.ravel() + reach, minlength=sample.counts.size)
        if image % PAIRS_EVERY == 0:
            add_all_pairs(sample, image, integers)
    return sample


def drawn(sigma: float, levels: int, image: int, domain: Domain) -> Integers:
    """J as an array [draws, pixels]."""
    draws = DrawRange(2026, domain, image, 0, DRAWS)
    floats = GridNoise(levels=levels).sample(draws, SHAPE, sigma=sigma)
    return np.rint(floats.reshape(DRAWS, -1) * np.float64(levels)).astype(np.int64)


def add_all_pairs(sample: Sample, image: int, integers: Integers) -> None:
    """Count pairs of pixels, draws, images and domains, by their size and by their last bits."""
    next_image = drawn(sample.sigma, sample.levels, image + 1, Domain.ESTIMATION)
    selection = drawn(sample.sigma, sample.levels, image, Domain.SELECTION)
    edges = stats.norm.ppf(np.arange(1, CODES) / CODES) * sample.sigma * sample.levels
    for kind in ("size", "last bits"):

        def code(numbers: Integers, kind: str = kind) -> Integers:
            if kind == "size":
                return np.searchsorted(edges, numbers)
            return numbers % CODES

        codes = code(integers)
        for lag in PIXEL_LAGS:
            sample.add_pairs(f"pixels {lag} apart, {kind}", codes[:, :-lag], codes[:, lag:])
        for lag in DRAW_LAGS:
            sample.add_pairs(f"draws {lag} apart, {kind}", codes[:-lag], codes[lag:])
        sample.add_pairs(f"neighbouring images, {kind}", codes, code(next_image))
        sample.add_pairs(f"selection and estimation, {kind}", codes, code(selection))


def exact_cumulative(j: int, sigma: float, levels: int) -> mpmath.mpf:
    """The probability of an integer up to j."""
    return mpmath.ncdf(mpmath.mpf(2 * j + 1) / (2 * levels * mpmath.mpf(sigma)))


def probabilities(sample: Sample) -> Iterator[Finding]:
    """Chi-square of all integers against their exact probabilities."""
    sigma, levels = sample.sigma, sample.levels
    width = max(1, math.ceil(8 * sigma * levels / CELLS))
    last = math.floor(6 * sigma * levels)
    # Cells are the integers in (edge, next edge]; the outer ones reach to infinity.
    edges = np.arange(-last, last + 1, width)
    cumulative = [exact_cumulative(int(edge), sigma, levels) for edge in edges]
    shares = np.array(
        [float(b - a) for a, b in zip([0, *cumulative], [*cumulative, 1], strict=True)]
    )
    starts = np.concatenate([[0], edges + 1 + sample.reach])
    counts = np.add.reduceat(sample.counts, starts)
    # Cells that are hardly ever hit are joined with the outer ones.
    expected = shares * sample.size
    likely = np.flatnonzero(expected >= LEAST_EXPECTED)
    bounds = np.concatenate([[0], np.arange(likely[0] + 1, likely[-1] + 1)])
    found = np.add.reduceat(counts, bounds)
    wanted = np.add.reduceat(expected, bounds)
    statistic = float(((found - wanted) ** 2 / wanted).sum())
    p_value = float(stats.chi2.sf(statistic, found.size - 1))
    # As telling as too large a deviation is one too small for chance.
    yield Finding(f"chi-square of {found.size} cells: {statistic:.1f}", p_value)
    yield Finding(f"chi-square of {found.size} cells, not too small", 1 - p_value)


def moments(sample: Sample) -> Iterator[Finding]:
    """The first four moments against those of a rounded normal number (Sheppard's formulas)."""
    variance = (sample.sigma * sample.levels) ** 2
    exact = {
        1: 0.0,
        2: variance + 1 / 12,
        3: 0.0,
        4: 3 * variance**2 + variance / 2 + 1 / 80,
    }
    integers = np.arange(sample.counts.size) - float(sample.reach)
    for order, expected in exact.items():
        powers = integers**order
        mean = float((powers * sample.counts).sum()) / sample.size
        spread = float((powers**2 * sample.counts).sum()) / sample.size - mean**2
        z = (mean - expected) / math.sqrt(spread / sample.size)
        yield Finding(f"moment {order}: {z:+.2f} standard errors", 2 * float(stats.norm.sf(abs(z))))


def tails(sample: Sample) -> Iterator[Finding]:
    """How many integers lie far out, on either side."""
    for far in TAILS:
        j = math.floor(far * sample.sigma * sample.levels)
        share = float(exact_cumulative(-j - 1, sample.sigma, sample.levels))
        for side, outside in (
            ("below", sample.counts[: sample.reach - j]),
            ("above", sample.counts[sample.reach + j + 1 :]),
        ):
            count = int(outside.sum())
            p_value = float(stats.binomtest(count, sample.size, share).pvalue)
            what = f"{count:,} of {sample.size * share:,.1f} more than {far} sigma {side}"
            yield Finding(what, p_value)


def independence(sample: Sample) -> Iterator[Finding]:
    """Chi-square of every table of pairs."""
    for name, table in sample.pairs.items():
        result = stats.chi2_contingency(table, correction=False)
        yield Finding(f"independence of {name}", float(result.pvalue))


Check = Callable[[Sample], Iterator[Finding]]
CHECKS: tuple[Check, ...] = (probabilities, moments, tails, independence)


def main() -> None:
    """Print every finding; the exit code is 1 if one is too unlikely."""
    parser = argparse.ArgumentParser(prog="python -m tests.prove.grid", description=__doc__)
    parser.add_argument(
        "--share", type=float, default=1.0, help="use this share of the billion draws (1)"
    )
    options = parser.parse_args()
    unlikely = 0
    smallest = 1.0
    for sigma, levels, pixels in FULL:
        started = time.process_time()
        sample = collect(sigma, levels, math.ceil(options.share * pixels))
        seconds = time.process_time() - started
        print(
            f"sigma {sigma}, {levels} levels: {sample.size:,} draws ({seconds:.0f} s)", flush=True
        )
        for check in CHECKS:
            for finding in check(sample):
                print(f"  p = {finding.p_value:.4f}  {finding.what}", flush=True)
                unlikely += finding.p_value < LEAST_P
                smallest = min(smallest, finding.p_value)
    print(f"smallest p-value: {smallest:.2g}; {unlikely} below {LEAST_P:g}")
    sys.exit(unlikely > 0)


if __name__ == "__main__":
    main()
