"""Tails of the binomial distribution in logarithms, with a bound on their rounding error.

k or more of n votes, each with probability p, have the chance I_p(k, n - k + 1). With a = k and
b = n - k + 1 that is

    I_p(a, b) = p^a * (1 - p)^b / B(a, b) / F

where F is a continued fraction with positive terms only (Didonato and Morris, 1992). So nothing
cancels in it, its convergents lie in turn below and above F, and the smaller of two neighbours
gives a tail that is not too small. F is also the derivative of log I_p in the log-odds of p.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

Floats = NDArray[np.float64]

CONVERGED = 1e-15
"""Relative change at which the continued fraction ends: what is left out is less than that."""

MAX_TERMS = 100_000
"""Terms of the continued fraction. A tail cut short is too large, which is safe."""


def log_tail_and_slope(p: Floats, k: Floats, n: Floats) -> tuple[Floats, Floats]:
    """Log of the chance of k or more of n votes, and its derivative in the log-odds of p.

    All are one-dimensional, with 0 < p < 1 and 0 < k <= n. The error of the logarithm is at most
    `tail_error`.
    """
    a = k
    b = n - k + 1
    # 1 - p is exact from 1/2 on. Below, its rounding does not matter, since p is used directly.
    lacking = 1.0 - p
    log_power = -log_beta_over_powers(a, b, p)
    # Above the mean of the beta distribution, terms would be negative: the other tail is computed.
    other = p * (n + 1) > k
    below, above = _fraction(
        np.where(other, b, a),
        np.where(other, a, b),
        np.where(other, lacking, p),
        np.where(other, p, lacking),
    )
    # Either choice makes the tail too large rather than too small.
    log_tail = log_power - np.log(np.where(other, above, below))
    if other.any():
        log_tail = np.where(other, _log_of_rest(log_tail), log_tail)
    return log_tail, np.exp(log_power - log_tail)


def tail_error(p: Floats, k: Floats, n: Floats, log_tail: Floats) -> Floats:
    """A bound on the error of `log_tail_and_slope`: four times what was ever measured."""
    return np.asarray(2e-15 * (40 + np.abs(k - n * p) + np.abs(log_tail)))


def _log_of_rest(log_tail: Floats) -> Floats:
    """log(1 - tail)."""
    return np.log1p(-np.exp(np.minimum(log_tail, -1e-300)))


def _fraction(a: Floats, b: Floats, x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Two neighbouring convergents of F, below and above it except for rounding.

    It takes x <= a / (a + b), so that all terms are positive.
    """
    # By the method of Lentz: each step computes the quotient of two neighbouring convergents.
    # a - (a + b) * x + 1, by the smaller of x and y = 1 - x for its digits.
    margin = np.where(x < y, a - (a + b) * x, (a + b) * y - b) + 1
    value = a * margin / (a + 1)
    below = value.copy()
    above = value.copy()
    c = value
    d = np.zeros_like(c)
    todo = np.arange(a.size)
    for m in range(1, MAX_TERMS):
        if not todo.size:
            break
        step = a + 2 * m
        # From m = b on nothing is left: the fraction is finite.
        share = m * np.maximum(b - m, 0.0) * x / (step - 1)
        top = (a + m - 1) * (a + b + m - 1) / (step - 1) * x * share
        bottom = m + share + (a + m) * (margin + m * (2 - x)) / (step + 1)
        d = 1 / (bottom + top * d)
        c = bottom + top / c
        factor = c * d
        below[todo] = np.minimum(value, value * factor)
        above[todo] = np.maximum(value, value * factor)
        value = value * factor
        going = np.abs(factor - 1) > CONVERGED
        if going.all():
            continue
        todo = todo[going]
        a, b, x, margin, c, d, value = (part[going] for part in (a, b, x, margin, c, d, value))
    return below, above


def log_beta_over_powers(x: Floats, y: Floats, p: Floats) -> Floats:
    """Log of B(x, y) * p^-x * (1 - p)^-y by Stirling.

    The leading terms form a divergence, which is computed without cancellation.
    """
    n = x + y
    divergence = _deviance(x, n, p) + _deviance(y, n, 1.0 - p)
    of_x, of_y, of_n = _stirling(np.stack([x, y, n]))
    return np.asarray(divergence + 0.5 * np.log(2 * np.pi / x * (n / y)) + of_x + of_y - of_n)


def _deviance(x: Floats, n: Floats, p: Floats) -> Floats:
    """x * log(x / (n * p)) - x + n * p, near its zero as well as far from it."""
    excess = (n * p - x) / x
    near = np.abs(excess) < 0.5
    log_ratio = np.where(near, np.log1p(np.where(near, excess, 0.0)), np.log(p / (x / n)))
    return x * (excess - log_ratio)


def _stirling(x: Floats) -> Floats:
    """Log of Gamma(x) without sqrt(2 * pi / x) * (x / e)^x."""
    # From 10 on the difference would lose digits, and the series has all of them.
    direct = gammaln(x) - (x - 0.5) * np.log(x) + x - 0.5 * math.log(2 * math.pi)
    v = 1 / np.maximum(x, 10.0) ** 2
    high_order = 1 / 1680 - v * (1 / 1188 - v * 691 / 360360)
    series = (1 / 12 - v * (1 / 360 - v * (1 / 1260 - v * high_order))) / x
    return np.where(x < 10, direct, series)
