"""The evidence M_n(p) of `anytime`, without overflow or cancellation.

All of it is computed from one integral over the log-odds t of q,

    T(x, y; p) = log of the integral over q > p of (q / p)^x * ((1 - q) / (1 - p))^y dt,
    log M_n(p) = T(k + a, n - k + b; p) - T(a, b; p).
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import betaincc, gammaln

from smoothmix.stats.binomial import Floats

DEEP = 1e-200
"""A tail of a beta distribution below this is computed in logs: soon after it would underflow."""


def evidence_and_slope(
    p: Floats, k: Floats, n: Floats, k0: Floats, n0: Floats
) -> tuple[Floats, Floats]:
    """Log M_n(p) and its derivative in the log-odds of p; all of one shape."""
    # First row: the prior; second row: the posterior.
    x = k0 + 0.5 + np.stack([np.zeros_like(k), k])
    y = n0 - k0 + 0.5 + np.stack([np.zeros_like(k), n - k])
    # Both T grow without limit as p goes to 0, by terms that they mostly share. Counting from
    # `anchor` on leaves those out.
    anchor = np.maximum(p, 1e-3)
    up = np.log(anchor) - np.log(p)
    down = np.log1p(-anchor) - np.log1p(-p)
    climb = x * up + y * down
    tail = _log_tail(x, y, p, anchor, climb)
    # T' = -exp(-T) - (x - (x + y) * p), by differentiating under the integral.
    with np.errstate(over="ignore"):
        rate = np.exp(-tail - climb)
    log_evidence = tail[1] - tail[0] + k * up + (n - k) * down
    slope = rate[0] - rate[1] - (k - n * p)
    return log_evidence, slope


def _log_tail(x: Floats, y: Floats, p: Floats, anchor: Floats, climb: Floats) -> Floats:
    """T(x, y; p) - climb: log of B(x, y) * anchor^-x * (1 - anchor)^-y * P(Beta(x, y) > p)."""
    survival = betaincc(x, y, p)
    deep = survival < DEEP
    tail = _log_beta_over_powers(x, y, anchor) + np.log(np.where(deep, 1.0, survival))
    if deep.any():
        # The survival underflows, but it contains the powers that T divides by: the quotient does
        # not.
        lacking = np.broadcast_to(1.0 - p, deep.shape)[deep]
        tail[deep] = np.log(_fraction(y[deep], x[deep], lacking) / y[deep]) - climb[deep]
    return tail


def _fraction(a: Floats, b: Floats, z: Floats) -> Floats:
    """Gauss's continued fraction of a * B(a, b) * I_z(a, b) / (z^a * (1 - z)^b), for deep tails.

    DLMF 8.17.22.
    """
    value = np.ones_like(a)
    # Six terms suffice where the tail is below DEEP; twelve are cheap.
    for m in range(12, 0, -1):
        even = m * (b - m) * z / ((a + 2 * m - 1) * (a + 2 * m))
        odd = (a + m - 1) * (a + b + m - 1) * z / ((a + 2 * m - 2) * (a + 2 * m - 1))
        value = 1 + even / value
        value = 1 - odd / value
    return 1 / value


def _log_beta_over_powers(x: Floats, y: Floats, p: Floats) -> Floats:
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
    log_ratio = np.where(near, np.log1p(np.where(near, excess, 0.0)), np.log(p) - np.log(x / n))
    return x * (excess - log_ratio)


def _stirling(x: Floats) -> Floats:
    """Log of Gamma(x) without sqrt(2 * pi / x) * (x / e)^x."""
    # From 10 on the difference would lose digits, and the series has all of them.
    direct = gammaln(x) - (x - 0.5) * np.log(x) + x - 0.5 * math.log(2 * math.pi)
    v = 1 / np.maximum(x, 10.0) ** 2
    high_order = 1 / 1680 - v * (1 / 1188 - v * 691 / 360360)
    series = (1 / 12 - v * (1 / 360 - v * (1 / 1260 - v * high_order))) / x
    return np.where(x < 10, direct, series)
