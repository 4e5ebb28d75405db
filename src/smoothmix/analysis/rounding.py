"""Printed radii: what a rounded radius proves, and how logs round.

Most Cohen-style logs print radii with three significant digits, rounded to nearest: 1.4951 is
printed as 1.5 and counted at 1.5. Others print four decimals. Nothing here rounds up unless the
paper's way of counting is requested.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

PAPER_DIGITS = 3

EXACT_DIGITS = 15
"""A number that is printed with so many significant digits was not rounded."""

FEW_RADII = 10
"""Among fewer different radii, by chance none may show the last digit that is printed."""

REMEMBERED = 2**16
"""Radii whose digits are kept in memory."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, order=True)
class Printing:
    """With how many digits a log prints radii, rounded to nearest."""

    digits: int
    """Most significant digits of a radius."""

    decimals: int
    """Most digits after the point."""

    def nearest(self, radius: ArrayLike) -> Floats:
        """The radii as such a log prints them.

        >>> Printing(3, 15).nearest([1.4951, 0.05124]).tolist()
        [1.5, 0.0512]
        >>> Printing(5, 4).nearest([1.49512, 0.051236]).tolist()
        [1.4951, 0.0512]
        """
        printed = []
        for value in np.asarray(radius, dtype=np.float64).tolist():
            # Decimal holds the exact value of a float: the tie of a half is a true one.
            exact = Decimal(value)
            place = self._place(exact.adjusted())
            printed.append(float(exact.quantize(Decimal(1).scaleb(place))))
        return np.array(printed)

    def least(self, text: Decimal) -> float:
        """The lower end of the interval that is printed as `text`, never below 0."""
        if not text:
            return 0.0
        # Below a power of ten the significant digits begin one place later: rounding reaches less
        # far.
        place = self._place(text.adjusted() - (text.normalize().as_tuple().digits == (1,)))
        # The nearest float is no more than any float that was rounded up to `text`, since none
        # lies between it and the decimal.
        return float(max(text - Decimal(5).scaleb(place - 1), Decimal(0)))

    def unit(self, value: float) -> float:
        """One unit of the last digit that is printed of a number of this size."""
        return float(Decimal(1).scaleb(self._place(Decimal(repr(value)).adjusted())))

    def _place(self, magnitude: int) -> int:
        """The power of ten of the last digit of a number that begins at `magnitude`."""
        # The log may print significant digits or decimals: take the coarser of the two.
        return max(magnitude - self.digits + 1, -self.decimals)


PAPER = Printing(PAPER_DIGITS, EXACT_DIGITS)
"""The paper's logs: three significant digits."""


def paper_rounded(radius: ArrayLike) -> Floats:
    """The radii as the paper's logs print them: three significant digits, to nearest.

    >>> paper_rounded([1.4951, 0.05124]).tolist()
    [1.5, 0.0512]
    """
    return PAPER.nearest(radius)


def printing_of(printed: ArrayLike) -> Printing:
    """With how many digits a log prints, which follows from the radii themselves.

    >>> printing_of([3.8115, 0.5, 0.0512])
    Printing(digits=5, decimals=4)
    """
    values = set(np.asarray(printed, dtype=np.float64).tolist())
    digits = 0
    decimals = 0
    for value in values:
        own_digits, own_decimals = _digits_of(value)
        digits = max(digits, own_digits)
        decimals = max(decimals, own_decimals)
    if digits <= PAPER_DIGITS and len(values) < FEW_RADII:
        # They may all happen to end in zeros: assume the usual three digits.
        return PAPER
    return Printing(digits, decimals)


def lower_end(radius: ArrayLike) -> Floats:
    """The least that each printed radius may have been before it was rounded to nearest.

    >>> lower_end([1.5, 0.953, 1.0, 0.0]).tolist()
    [1.495, 0.9525, 0.9995, 0.0]
    """
    printed = np.asarray(radius, dtype=np.float64)
    printing = printing_of(printed)
    if printing.digits >= EXACT_DIGITS:
        return printed
    values, positions = np.unique(printed, return_inverse=True)
    least = [_least(printing, value) for value in values.tolist()]
    return np.array(least)[positions]


def coarsest(every: Iterable[Printing]) -> Printing:
    """The one with the fewest digits; that of the paper's logs where there is none."""
    return min(every, default=PAPER)


def _as_printed(value: float) -> Decimal:
    # repr gives the shortest decimal that reads as this float: what the log printed.
    return Decimal(repr(value))


# Logs with few digits share their radii, and there may be hundreds of logs.
@lru_cache(maxsize=REMEMBERED)
def _digits_of(value: float) -> tuple[int, int]:
    """How many significant digits are printed of a radius, and how many after the point."""
    number = _as_printed(value).normalize().as_tuple()
    return len(number.digits), -int(number.exponent)


@lru_cache(maxsize=REMEMBERED)
def _least(printing: Printing, value: float) -> float:
    return printing.least(_as_printed(value))
