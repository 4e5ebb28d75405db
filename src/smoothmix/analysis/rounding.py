"""Radii as they were printed: what a rounded radius proves, and how the paper's logs round.

The field prints radii with three significant digits, rounded to nearest: 1.4951 is printed as 1.5 and counted at 1.5.
Nothing here rounds up unless the paper's way of counting is asked for.
"""

from __future__ import annotations

from decimal import Decimal

import numpy as np
from numpy.typing import ArrayLike, NDArray

PAPER_DIGITS = 3
EXACT_DIGITS = 15
"""From so many significant digits on, a printed number is the number."""

FEW = 10
"""Of fewer different radii, chance may have it that none shows the last digit that is printed."""

Floats = NDArray[np.float64]


def paper_rounded(radius: ArrayLike) -> Floats:
    """The radii as the paper's logs print them: three significant digits, to nearest.

    >>> paper_rounded([1.4951, 0.05124]).tolist()
    [1.5, 0.0512]
    """
    return np.array(
        [float(f"{r:.{PAPER_DIGITS}}") for r in np.asarray(radius, dtype=np.float64).tolist()]
    )


def lower_end(radius: ArrayLike) -> Floats:
    """The least that each of a log's printed radii may have been before it was rounded to nearest.

    How many digits the log prints follows from the radii themselves.

    >>> lower_end([1.5, 0.953, 1.0, 0.0]).tolist()
    [1.495, 0.9525, 0.9995, 0.0]
    """
    printed = np.asarray(radius, dtype=np.float64).tolist()
    texts = {value: Decimal(repr(value)) for value in set(printed)}
    digits = max((len(text.normalize().as_tuple().digits) for text in texts.values()), default=0)
    if digits >= EXACT_DIGITS:
        return np.asarray(radius, dtype=np.float64)
    decimals = max(
        (-int(text.normalize().as_tuple().exponent) for text in texts.values()), default=0
    )
    if (
        digits <= PAPER_DIGITS and len(texts) < FEW
    ):  # they may all end in zeros: taken for the field's three digits
        digits, decimals = PAPER_DIGITS, EXACT_DIGITS
    least = {value: _least(text, digits, decimals) for value, text in texts.items()}
    return np.array([least[value] for value in printed])


def _least(text: Decimal, digits: int, decimals: int) -> float:
    """The lower end of the interval that is printed as `text`, never below 0."""
    if not text:
        return 0.0
    # Below a power of ten the significant digits begin one place later, so rounding reaches less far down.
    magnitude = text.adjusted() - (text.normalize().as_tuple().digits == (1,))
    # It may as well be a fixed number of decimals: the coarser of the two.
    place = max(magnitude - digits + 1, -decimals)
    # The nearest float is no more than any float that was rounded up to `text`: none lies between it and the decimal.
    return float(max(text - Decimal(5).scaleb(place - 1), Decimal(0)))
