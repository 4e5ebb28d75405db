"""How many noise samples are behind a file, and with which alpha: recorded, stated or inferred.

A log does not record n and alpha. Where all n draws agree, an image gets the largest radius that
they can certify, which tells the two among the usual pairs: 3.81 sigma is n = 100,000 with alpha =
0.001. Unusual pairs may give the same (n = 150,000 with 0.001 is n = 100,000 with 0.01), so this is
called inferred.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from smoothmix.analysis.rounding import Printing
from smoothmix.noise import GAUSSIAN
from smoothmix.stats.guarantees import FixedDraws, Guarantee

USUAL_DRAWS = (1_000, 10_000, 100_000, 1_000_000)
USUAL_ALPHAS = (0.001, 0.01, 0.05)
"""Pairs of these are what a log is taken to be made with."""

SEVERAL = 3
"""Rows that must share the largest radius before it is taken for the limit of the draws."""


class Origin(StrEnum):
    """How n and alpha are known."""

    RECORDED = "recorded"
    STATED = "stated"
    INFERRED = "inferred"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class Draws:
    """The guarantee behind a file, and how it is known."""

    guarantee: Guarantee | None
    """None where it is not known."""

    origin: Origin

    limit: tuple[float, float] | None = None
    """The largest radius that the rows show, in sigmas, as the ends of what its print may stand
    for; None where it is not shared by several rows."""

    @property
    def n(self) -> int | None:
        """The most draws per image."""
        if self.guarantee is None:
            return None
        return self.guarantee.max_draws

    @property
    def alpha(self) -> float | None:
        """The probability that one certificate is wrong."""
        if self.guarantee is None:
            return None
        return self.guarantee.alpha


UNKNOWN = Draws(guarantee=None, origin=Origin.UNKNOWN)


def find_draws(
    printed: NDArray[np.float64],
    printing: Printing,
    sigma: float | None,
    *,
    n: int | None = None,
    alpha: float | None = None,
) -> Draws:
    """The draws behind the radii that a log prints, given what is stated about them."""
    if sigma is None:
        limit = None
    else:
        limit = _shown_limit(printed, printing, sigma)
    if n is not None and alpha is not None:
        return Draws(guarantee=FixedDraws(n, alpha=alpha), origin=Origin.STATED, limit=limit)
    if limit is None:
        return UNKNOWN
    fitting = []
    for pair in _usual_pairs(n, alpha):
        reach = pair.largest_radius(GAUSSIAN, sigma=1.0)
        if limit[0] <= reach <= limit[1]:
            fitting.append(pair)
    # Two pairs that fit tell no more than none.
    if len(fitting) != 1:
        return Draws(guarantee=None, origin=Origin.UNKNOWN, limit=limit)
    return Draws(guarantee=fitting[0], origin=Origin.INFERRED, limit=limit)


def _shown_limit(
    printed: NDArray[np.float64], printing: Printing, sigma: float
) -> tuple[float, float] | None:
    """The largest radius in sigmas, if several rows have it, as an interval."""
    largest = float(printed.max(initial=0.0))
    if largest == 0 or (printed == largest).sum() < SEVERAL:
        return None
    # A whole unit to either side: a log may round down as well as to nearest.
    unit = printing.unit(largest)
    return (largest - unit) / sigma, (largest + unit) / sigma


def _usual_pairs(n: int | None, alpha: float | None) -> Iterator[FixedDraws]:
    draws = USUAL_DRAWS if n is None else (n,)
    alphas = USUAL_ALPHAS if alpha is None else (alpha,)
    for each in draws:
        for chance in alphas:
            yield FixedDraws(each, alpha=chance)
