"""The tail of the binomial distribution in slow high precision, as a reference for bounds."""

from __future__ import annotations

import itertools

import mpmath as mp

from tests.helpers.anytime_reference import slow_log_beta


def slow_log_tail(k: int, n: int, p: float) -> tuple[mp.mpf, mp.mpf]:
    """Log of the chance of k or more of n votes, and its derivative in the log-odds of p."""
    a = mp.mpf(k)
    b = mp.mpf(n - k + 1)
    x = mp.mpf(p)
    log_power = a * mp.log(x) + b * mp.log1p(-x) - slow_log_beta(a, b)
    # The series of DLMF 8.17.22 converges on one side of the mean: the other tail is its mirror.
    other = x > (a + 1) / (a + b + 2)
    if other:
        log_tail = mp.log1p(-mp.exp(log_power - mp.log(_fraction(b, a, 1 - x))))
    else:
        log_tail = log_power - mp.log(_fraction(a, b, x))
    return log_tail, mp.exp(log_power - log_tail)


def _fraction(a: mp.mpf, b: mp.mpf, x: mp.mpf) -> mp.mpf:
    """x^a * (1 - x)^b / (B(a, b) * I_x(a, b)), by DLMF 8.17.22 and Lentz's method."""
    value = mp.mpf(1)
    c = mp.mpf(1)
    d = mp.mpf(0)
    for j in itertools.count(0):
        m = j // 2
        if j % 2 == 0:
            term = -(a + m) * (a + b + m) * x / ((a + j) * (a + j + 1))
        else:
            term = (m + 1) * (b - m - 1) * x / ((a + j) * (a + j + 1))
        d = 1 / (1 + term * d)
        c = 1 + term / c
        value *= c * d
        if abs(c * d - 1) < mp.mpf(10) ** -25:
            return a * value
    raise AssertionError("unreachable")
