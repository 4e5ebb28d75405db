"""Printed radii: what a rounded radius proves, and how the paper's logs round.

Cohen-style logs print radii with three significant digits, rounded to nearest: 1.4951 is printed as
1.5 and counted at 1.5. Nothing here rounds up unless the paper's way of counting is requested.
"""

from __future__ import annotations

from decimal import Decimal

import numpy as np
from numpy.typing import ArrayLike, NDArray

PAPER_DIGITS = 3

EXACT_DIGITS = 15
"""A number that is printed with so many significant digits was not rounded."""

FEW_RADII = 10
"""Among fewer different radii, by chance none may show the last digit that is printed."""

Floats = NDArray[np.float64]


def paper_rounded(radius: ArrayLike) -> Floats:
    """The radii as the paper's logs print them: three significant digits, to nearest.

    >>> paper_rounded([1.4951, 0.05124]).tolist()
    [1.5, 0.0512]
    """
    radii = np.asarray(radius, dtype=np.float64).tolist()
    return np.array([float(f"{value:.{PAPER_DIGITS}}") for value in radii])


def lower_end(radius: ArrayLike) -> Floats:
    """The least that each printed radius may have been before it was rounded to nearest.

    The number of digits that the log prints follows from the radii themselves.

    >>> lower_end([1.5, 0.953, 1.0, 0.0]).tolist()
    [1.495, 0.9525, 0.9995, 0.0]
    """
    printed = np.asarray(radius, dtype=np.float64).tolist()
    texts = {}
    digits = 0
    decimals = 0
    for value in set(printed):
        # repr gives the shortest decimal that reads as this float: what the log printed.
        texts[value] = Decimal(repr(value))
        number = texts[value].normalize().as_tuple()
        digits = max(digits, len(number.digits))
        decimals = max(decimals, -int(number.exponent))
    if digits >= EXACT_DIGITS:
        return np.asarray(radius, dtype=np.float64)
    if digits <= PAPER_DIGITS and len(texts) < FEW_RADII:
        # They may all happen to end in zeros: assume the usual three digits.
        digits = PAPER_DIGITS
        decimals = EXACT_DIGITS
    least = {value: _least(text, digits, decimals) for value, text in texts.items()}
    return np.array([least[value] for value in printed])


def _least(text: Decimal, digits: int, decimals: int) -> float:
    """The lower end of the interval that is printed as `text`, never below 0."""
    if not text:
        return 0.0
    # Below a power of ten the significant digits begin one place later: rounding reaches less far.
    magnitude = text.adjusted() - (text.normalize().as_tuple().digits == (1,))
    # The log may instead print a fixed number of decimals: take the coarser of the two.
    place = max(magnitude - digits + 1, -decimals)
    # The nearest float is no more than any float that was rounded up to `text`, since none lies
    # between it and the decimal.
    return float(max(text - Decimal(5).scaleb(place - 1), Decimal(0)))
