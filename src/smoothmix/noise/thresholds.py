"""Exact thresholds that turn uniform random integers into rounded normal numbers.

Let Z be a standard normal number. The integer J = round(levels * sigma * Z) exceeds j where
Phi(Z) exceeds Phi(z_j), with z_j = (2 j + 1) / (2 levels sigma). A uniform number with the first
64 bits u therefore gives J by comparing u with T_j = floor(2**64 Phi(z_j)): J is the number of the
first threshold above u. Only for u = T_j do later bits decide, and u is called ambiguous.
"""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

BITS = 64
LARGEST = 2**BITS - 1
"""The largest u, and the threshold of all j in the far upper tail."""

FAR = Fraction(93, 10)
"""Phi(-9.3) is below 2**-66: beyond, every threshold is 0 or LARGEST."""

GUARD_BITS = 64
"""Bits of Phi that are computed below the last one of a threshold."""

_CONTEXT_LOCK = threading.Lock()


@dataclass(frozen=True, eq=False)
class Thresholds:
    """All distinct thresholds of one sigma and one number of levels, in order."""

    lowest: int
    """The j of the first threshold, which is 0; the last one is LARGEST."""

    values: NDArray[np.uint64]
    """T_j for j = lowest, lowest + 1, ..."""


def exact_thresholds(sigma: float, levels: int) -> Thresholds:
    """The thresholds for the exact value of the double sigma."""
    highest = _far_j(sigma, levels)
    # z_(-j-1) = -z_j: the thresholds begin as far below zero as they end above.
    lowest = -highest - 1
    values = np.empty(highest - lowest + 1, dtype=np.uint64)
    values[0] = 0
    values[-1] = LARGEST
    for j in range(lowest + 1, highest):
        values[j - lowest] = exact_threshold(j, sigma, levels)
    return Thresholds(lowest, values)


def exact_threshold(j: int, sigma: float, levels: int) -> int:
    """T_j = floor(2**64 Phi(z_j)), by arithmetic of as many digits as that takes."""
    guard_bits = GUARD_BITS
    while True:
        scaled = _scaled_phi(j, sigma, levels, guard_bits)
        one = 1 << guard_bits
        threshold, rest = divmod(scaled, one)
        # The error of `scaled` is far below 2**8: away from both ends, no floor depends on it.
        if 2**8 < rest < one - 2**8:
            return threshold
        guard_bits *= 2


def _scaled_phi(j: int, sigma: float, levels: int, guard_bits: int) -> int:
    """Phi(z_j) in units of 2**-(64 + guard_bits), wrong by a few units at most."""
    # mpmath keeps the precision in its context, and changes it while it computes.
    with _CONTEXT_LOCK:
        context = _context()
        context.prec = BITS + 2 * guard_bits
        z = context.mpf(2 * j + 1) / (2 * levels * context.mpf(sigma))
        return int(context.floor(context.ldexp(context.ncdf(z), BITS + guard_bits)))


@cache
def _context() -> Any:
    """A context of our own: the precision of mpmath's global one belongs to the caller."""
    # Imported late: most commands never draw noise.
    import mpmath

    return mpmath.MPContext()


def _far_j(sigma: float, levels: int) -> int:
    """The first j with z_j >= FAR; it is at least 0, and so has z_j > 0."""
    return max(0, math.ceil(FAR * levels * Fraction(sigma) - Fraction(1, 2)))
