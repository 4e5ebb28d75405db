"""Numbers as people read them: true minus signs, and lower bounds that still hold as printed."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

DASH = "–"
"""Shown where there is no number."""


def number(value: float | None, decimals: int = 3) -> str:
    """A number with a true minus sign.

    >>> number(-0.0004), number(1.35), number(float("nan"))
    ('0.000', '1.350', '–')
    """
    if value is None or not math.isfinite(value):
        return DASH
    return f"{value:z.{decimals}f}".replace("-", "\N{MINUS SIGN}")


def signed(value: float | None, decimals: int = 3) -> str:
    """A difference, with its sign in front.

    >>> signed(0.1421), signed(-0.5), signed(0.0001)
    ('+0.142', '−0.500', '0.000')
    """
    text = number(value, decimals)
    if value is not None and round(value, decimals) > 0:
        return f"+{text}"
    return text


def percent(value: float | None, decimals: int = 1) -> str:
    """A share of 1 in percent, without the percent sign.

    >>> percent(0.924), percent(None)
    ('92.4', '–')
    """
    if value is None:
        return DASH
    return number(100 * value, decimals)


def radius(value: float | None, decimals: int = 3) -> str:
    """A certified radius or another lower bound, never rounded up: what is printed must still hold.

    >>> radius(0.29996), radius(0.3), radius(0.25, 2)
    ('0.299', '0.300', '0.25')
    """
    if value is None or not math.isfinite(value):
        return DASH
    return number(_quantized(value, decimals, ROUND_FLOOR), decimals)


def limit(value: float, decimals: int = 3) -> str:
    """An upper limit, never rounded down: a mean of radii that reach it must not seem to exceed it.

    >>> limit(1.23171), limit(0.3)
    ('1.232', '0.300')
    """
    return number(_quantized(value, decimals, ROUND_CEILING), decimals)


def _quantized(value: float, decimals: int, rounding: str) -> float:
    return float(as_decimal(value).quantize(Decimal(1).scaleb(-decimals), rounding=rounding))


def as_decimal(value: float) -> Decimal:
    """The decimal number that a float stands for: 0.3 whether it came as 0.1 * 3 or as 0.9 / 3."""
    return Decimal(f"{value:.12g}")
