"""The evidence M_n(p) of `anytime`, without overflow or cancellation.

All of it is computed from one integral over the log-odds t of q,

    T(x, y; p) = log of the integral over q > p of (q / p)^x * ((1 - q) / (1 - p))^y dt,
    log M_n(p) = T(k + a, n - k + b; p) - T(a, b; p).
"""

from __future__ import annotations

import numpy as np
from scipy.special import betaincc

from smoothmix.stats.beta import Floats, log_beta_over_powers

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


def evidence_error(n: Floats, n0: Floats) -> Floats:
    """A bound on the error of `evidence_and_slope` near the root, twice what was ever measured."""
    return np.asarray(1e-14 * (n + n0 + 100))


def _log_tail(x: Floats, y: Floats, p: Floats, anchor: Floats, climb: Floats) -> Floats:
    """T(x, y; p) - climb: log of B(x, y) * anchor^-x * (1 - anchor)^-y * P(Beta(x, y) > p)."""
    survival = betaincc(x, y, p)
    deep = survival < DEEP
    tail = log_beta_over_powers(x, y, anchor) + np.log(np.where(deep, 1.0, survival))
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
