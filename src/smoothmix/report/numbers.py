"""Numbers as the page prints them: true minus signs, and lower bounds that still hold as printed. No torch."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

NOTHING = "–"


def number(value: float | None, decimals: int = 3) -> str:
    """A number for people, with a true minus sign.

    >>> number(-0.0004), number(1.35), number(float("nan"))
    ('0.000', '1.350', '–')
    """
    if value is None or not math.isfinite(value):
        return NOTHING
    return f"{round(value, decimals) + 0.0:.{decimals}f}".replace("-", "\N{MINUS SIGN}")


def signed(value: float | None, decimals: int = 3) -> str:
    """A difference, with its sign in front.

    >>> signed(0.1421), signed(-0.5), signed(0.0001)
    ('+0.142', '−0.500', '0.000')
    """
    return ("+" if value is not None and round(value, decimals) > 0 else "") + number(
        value, decimals
    )


def percent(value: float | None, decimals: int = 1) -> str:
    """A share of 1 in percent, without the sign.

    >>> percent(0.924), percent(None)
    ('92.4', '–')
    """
    return number(None if value is None else 100 * value, decimals)


def radius(value: float | None, decimals: int = 3) -> str:
    """A certified radius or another lower bound, cut and never rounded up: what is printed must still hold.

    >>> radius(0.29996), radius(0.3), radius(0.25, 2)
    ('0.299', '0.300', '0.25')
    """
    if value is None or not math.isfinite(value):
        return NOTHING
    return number(
        float(meant(value).quantize(Decimal(1).scaleb(-decimals), rounding=ROUND_FLOOR)), decimals
    )


def limit(value: float, decimals: int = 3) -> str:
    """What nothing can be above, never rounded down: a mean of radii that reach it must not seem to pass it.

    >>> limit(1.23171), limit(0.3)
    ('1.232', '0.300')
    """
    return number(
        float(meant(value).quantize(Decimal(1).scaleb(-decimals), rounding=ROUND_CEILING)), decimals
    )


def meant(value: float) -> Decimal:
    """The decimal number that was meant: 0.3 whether it came as 0.1 * 3 or as 0.9 / 3."""
    return Decimal(f"{value:.12g}")
