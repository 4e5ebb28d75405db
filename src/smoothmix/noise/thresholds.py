"""Exact thresholds that turn uniform random integers into rounded normal numbers.

Let Z be a standard normal number. The integer J = round(levels * sigma * Z) exceeds j where
Phi(Z) exceeds Phi(z_j), with z_j = (2 j + 1) / (2 levels sigma). A uniform number with the first
64 bits u therefore gives J by comparing u with T_j = floor(2**64 Phi(z_j)): J is the number of the
first threshold above u. Only for u = T_j do later bits decide, and u is called ambiguous.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothmix._process.forks import ForkSafeLock

Words = NDArray[np.uint64]
Floats = NDArray[np.float64]

BITS = 64
LARGEST: int = 2**BITS - 1
"""The largest u, and the threshold of all j in the far upper tail."""

FAR = Fraction(93, 10)
"""Phi(-9.3) is below 2**-66: beyond, every threshold is 0 or LARGEST."""

GUARD_BITS = 64
"""Bits of Phi that are computed below the last one of a threshold."""

MAX_EXACT = 4096
"""So many thresholds below zero are computed by mpmath; between them, a series is used."""

TERMS = 6
"""Terms of the Taylor series of Phi from one exact threshold to its neighbours."""

SERIES_MARGIN = 256
"""Largest error of a threshold by the series.

Neighbours of an exact threshold are at most 0.0012 away from it, on the axis of z. The remainder of
the series is below 0.001 units. Its sum is below 2**53.2 units and has a relative error below
30 * 2**-53, or 35 units, from the rounding of its terms, of z, and of the exponential function.
"""

ONE_AT_A_TIME = ForkSafeLock()
"""For exact arithmetic, and for the tables made by it: mpmath has state that threads would mix."""


@dataclass(frozen=True)
class Thresholds:
    """The thresholds of one sigma (the exact value of the double) and one number of levels."""

    sigma: float
    levels: int

    @cached_property
    def highest(self) -> int:
        """The first j with z_j >= FAR: its threshold, and all after it, are LARGEST."""
        spread = self.levels * Fraction(self.sigma)
        return max(0, math.ceil(FAR * spread - Fraction(1, 2)))

    @property
    def lowest(self) -> int:
        """The last j with z_j <= -FAR: its threshold, and all before it, are 0."""
        # The grid is symmetric: z_(-j-1) = -z_j.
        return -self.highest - 1

    def exact(self, j: int) -> int:
        """T_j, by arithmetic of as many digits as that takes."""
        if j <= self.lowest:
            return 0
        if j >= self.highest:
            return LARGEST
        guard_bits = GUARD_BITS
        while True:
            one = 1 << guard_bits
            threshold, rest = divmod(self._scaled_phi(j, guard_bits), one)
            # The error is far below 2**8 units: away from both ends, it does not change the floor.
            if 2**8 < rest < one - 2**8:
                return threshold
            guard_bits *= 2

    def _scaled_phi(self, j: int, guard_bits: int) -> int:
        """Phi(z_j) in units of 2**-(64 + guard_bits), wrong by a few units at most."""
        # mpmath keeps the precision in its context, and changes it while it computes.
        with ONE_AT_A_TIME:
            context = _context()
            context.prec = BITS + 2 * guard_bits
            z = context.mpf(2 * j + 1) / (2 * self.levels * context.mpf(self.sigma))
            return int(context.floor(context.ldexp(context.ncdf(z), BITS + guard_bits)))

    @cached_property
    def step(self) -> int:
        """Every so many thresholds, one is computed exactly."""
        return math.ceil((self.highest + 1) / MAX_EXACT)

    @property
    def margin(self) -> int:
        """Largest error of `values`: none, unless there are very many of them."""
        if self.step == 1:
            return 0
        return SERIES_MARGIN

    @cached_property
    def values(self) -> Words:
        """T_j for j = lowest to highest in order, each with an error of at most `margin`."""
        # First those of negative j, in blocks with an exact threshold in the middle of each.
        half = self.highest + 1
        blocks = math.ceil(half / self.step)
        offsets = np.arange(self.step) - self.step // 2
        centres = self.step * np.arange(-blocks, 0) + self.step // 2
        exact = np.array([self.exact(j) for j in centres.tolist()], dtype=np.int64)
        lower = exact
        if self.step > 1:
            lower = (exact[:, None] + self._increments(centres, offsets)).ravel()[-half:]
            lower[0] = 0
        # Errors may disturb the order where thresholds are dense; this keeps them in the margin.
        lower = np.maximum.accumulate(lower).astype(np.uint64)
        # T_(-j-1) = LARGEST - T_j, since 2**64 Phi(z_j) is no integer.
        return np.concatenate([lower, np.uint64(LARGEST) - lower[::-1]])

    def _increments(
        self, centres: NDArray[np.int64], offsets: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """T_(centre + offset) - T_centre by Taylor's series, as an array of integers."""
        spread = self.levels * self.sigma
        z = ((2 * centres + 1) / (2 * spread))[:, None]
        delta = offsets / spread
        # The derivatives of the density are Hermite polynomials times the density.
        before = np.zeros_like(z)
        hermite = np.ones_like(z)
        power = delta
        total = np.zeros((centres.size, offsets.size))
        for term in range(1, TERMS + 1):
            total += hermite * power
            before, hermite = hermite, z * hermite - (term - 1) * before
            power = power * (-delta / (term + 1))
        density = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
        increments: NDArray[np.int64] = np.rint(total * density * 2.0**BITS).astype(np.int64)
        return increments

    def exact_count(self, u: int) -> tuple[int, bool]:
        """How many of `values` are at most u if all are exact, and whether u is ambiguous."""
        least = np.uint64(max(0, u - self.margin))
        most = np.uint64(min(LARGEST, u + self.margin))
        # All thresholds before `start` are below u, and all from `stop` on are above it.
        start = int(np.searchsorted(self.values, least, side="left"))
        stop = int(np.searchsorted(self.values, most, side="right"))
        candidates = range(self.lowest + start, self.lowest + stop)
        count = start + bisect_right(candidates, u, key=self.exact)
        return count, self.exact(self.lowest + count - 1) == u


@cache
def _context() -> Any:
    """A context of our own: the precision of mpmath's global one belongs to the caller."""
    # Imported late: most commands never draw noise.
    import mpmath

    return mpmath.MPContext()
