"""Votes of every kind, and the anytime evidence in slow high precision as a reference."""

from __future__ import annotations

import itertools

import mpmath as mp
import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Counts = tuple[int, int, int, int]
SIZES = st.sampled_from([1, 10, 300, 10_000, 1_000_000])
ALPHAS = st.sampled_from([0.5, 0.01, 1e-3, 1e-10])


@st.composite
def counts(draw: st.DrawFn, least: int = 0) -> Counts:
    """k, n, k0 and n0, alike or at odds with each other; k at least `least`."""
    n = draw(st.integers(1, draw(SIZES)))
    n0 = draw(st.integers(0, draw(st.sampled_from([1, 100, 10_000]))))
    k = draw(st.one_of(st.integers(least, n), st.sampled_from([least, n])))
    k0 = draw(st.one_of(st.integers(0, n0), st.sampled_from([0, n0, round(n0 * k / n)])))
    return k, n, k0, n0


def slow_log_survival(x: mp.mpf, y: mp.mpf, p: mp.mpf) -> mp.mpf:
    """Log of 1 - I_p(x, y), by the continued fraction (DLMF 8.17.22) where it converges."""
    other = p > (x + 1) / (x + y + 2)
    a, b, z = (y, x, 1 - p) if other else (x, y, p)
    value, c, d = mp.mpf(1), mp.mpf(1), mp.mpf(0)
    for j in itertools.count(0):
        m = j // 2
        top = -(a + m) * (a + b + m) if j % 2 == 0 else (m + 1) * (b - m - 1)
        top *= z / ((a + j) * (a + j + 1))
        d, c = 1 / (1 + top * d), 1 + top / c
        value *= c * d
        if abs(c * d - 1) < mp.mpf(10) ** -35:
            break
    log_tail = a * mp.log(z) + b * mp.log1p(-z) - mp.log(a) - slow_log_beta(a, b) - mp.log(value)
    return log_tail if other else mp.log1p(-mp.exp(log_tail))


def slow_log_beta(x: mp.mpf, y: mp.mpf) -> mp.mpf:
    return mp.loggamma(x) + mp.loggamma(y) - mp.loggamma(x + y)


def slow_log_evidence(p: float | mp.mpf, k: int, n: int, k0: int, n0: int) -> mp.mpf:
    """Log of M_n(p), factor by factor as the design states it."""
    p, a, b = mp.mpf(p), mp.mpf(k0) + 0.5, mp.mpf(n0 - k0) + 0.5
    betas = slow_log_beta(k + a, n - k + b) - slow_log_beta(a, b)
    survivals = slow_log_survival(k + a, n - k + b, p) - slow_log_survival(a, b, p)
    return betas + survivals - k * mp.log(p) - (n - k) * mp.log1p(-p)
