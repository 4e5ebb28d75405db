"""Bounds and tests for a fixed number of draws: pure functions of counts."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv

from smoothmix.config import require, require_alpha
from smoothmix.stats.beta import Floats, log_tail_and_slope, tail_error
from smoothmix.stats.search import CLOSE, TINY, largest_refuted

ABSTAIN = -1
"""The prediction for an image that the smoothed classifier refuses to classify."""

NOBODY = -1
"""The class of a draw whose vote is not determined: it stays in n, and counts for no class."""

BELOW_ONE = 1 - 2.0**-53
"""The largest floating-point number below 1."""

ROUNDING = 1e-14
"""A bound on the relative error of a few operations on floating-point numbers."""

EXACT_UP_TO = 2_000
"""Votes up to which a p-value that is close to alpha is compared with it in whole numbers."""

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


def lower_bound(successes: ArrayLike, trials: ArrayLike, *, alpha: float) -> Floats:
    """One-sided Clopper-Pearson bound: exceeds the true probability with chance at most alpha.

    Rounding never makes it larger: it is a p at which the votes were seen to have a chance of at
    most alpha, rounding errors of that chance included.

    >>> round(float(lower_bound(990, 1000, alpha=0.001)), 6)
    0.976036
    """
    require_alpha(alpha)
    k = np.asarray(successes, dtype=np.float64)
    n = np.asarray(trials, dtype=np.float64)
    require_counts(k, n)
    k, n = np.broadcast_arrays(k, n)
    bound = np.zeros(k.shape)
    # No success bounds nothing.
    some = k > 0
    bound[some] = _refuted(k[some], n[some], alpha)
    return bound


def _refuted(k: Floats, n: Floats, alpha: float) -> Floats:
    """The largest p at which k or more of n votes have a chance of alpha at most."""
    # scipy's inverse errs to either side. It is only where the search starts.
    with np.errstate(all="ignore"):
        near = np.nan_to_num(betaincinv(k, n - k + 1, alpha))
    guess = np.clip(near - CLOSE * near * (1 - near), TINY, BELOW_ONE)
    threshold = np.full_like(k, -np.log(alpha))
    return largest_refuted(_surprise, (k, n), threshold=threshold, guess=guess, top=np.ones_like(k))


def _surprise(p: Floats, k: Floats, n: Floats) -> tuple[Floats, Floats]:
    """Minus the log of the chance of k or more of n votes, less what rounding may have added."""
    log_tail, slope = log_tail_and_slope(p, k, n)
    return -log_tail - tail_error(p, k, n, log_tail), -slope


def upper_bound(successes: ArrayLike, trials: ArrayLike, *, alpha: float) -> Floats:
    """One-sided Clopper-Pearson bound: falls below the truth with chance at most alpha."""
    failures = np.asarray(trials) - np.asarray(successes)
    return rest_rounded_up(lower_bound(failures, trials, alpha=alpha))


def rest_rounded_up(p: Floats) -> Floats:
    """1 - p, rounded up where a floating-point number cannot hold it."""
    rest = 1.0 - p
    # What rounding took off; this difference is exact.
    lost = (1.0 - rest) - p
    return np.where(lost > 0, np.nextafter(rest, 2.0), rest)


def abstention_is_certain(
    successes: ArrayLike, drawn: ArrayLike, *, planned: int, alpha: float
) -> Bools:
    """Whether no outcome of the draws to come, of `planned` in all, lifts the bound above 1/2.

    >>> abstention_is_certain([400, 480], 900, planned=1000, alpha=0.001).tolist()
    [True, False]
    """
    best = np.asarray(successes) + (planned - np.asarray(drawn))
    return np.asarray(lower_bound(best, planned, alpha=alpha) <= 0.5)


def smallest_remainder(n: int, *, alpha: float) -> float:
    """The least that n draws can leave to all other classes: 1 less the bound of n equal votes.

    Rounding never makes it larger, so that no votes certify more than what follows from it.

    >>> round(smallest_remainder(1000, alpha=0.001), 6)
    0.006884
    """
    require(n >= 1, f"n must be at least 1, got {n}")
    require_alpha(alpha)
    # The bound is alpha^(1/n). What it lacks to 1 keeps its digits where the bound loses them.
    return -math.expm1(math.log(alpha) / n) * (1 - ROUNDING)


def draws_for(remainder: float, *, alpha: float) -> float:
    """The least n whose equal votes leave at most `remainder` to the other classes, and below 1/2.

    It is infinite where no number of draws does so in floating point. Rounding never makes it
    larger: an n that suffices is not refused.

    >>> draws_for(0.5, alpha=0.001), draws_for(0.01, alpha=0.001)
    (10, 688)
    """
    require_alpha(alpha)
    # n equal votes give the bound alpha^(1/n). It is above 1/2 where 2^-n < alpha: the binary
    # exponent gives that n exactly, where a logarithm would round.
    mantissa, exponent = math.frexp(alpha)
    above_half = 1 - exponent
    if mantissa == 0.5:
        above_half += 1
    if remainder >= 0.5:
        return above_half
    if remainder <= 0:
        return math.inf
    draws = math.log(alpha) / math.log1p(-remainder) * (1 - ROUNDING)
    if not math.isfinite(draws):
        return math.inf
    return max(above_half, math.ceil(draws))


def prediction_p_value(first: ArrayLike, second: ArrayLike) -> Floats:
    """Two-sided p-value that the two top classes are equally likely, from their votes.

    Rounding never makes it smaller.

    >>> round(float(prediction_p_value(60, 40)), 6)
    0.056888
    """
    a = np.asarray(first, dtype=np.float64)
    b = np.asarray(second, dtype=np.float64)
    more = np.maximum(a, b)
    voted = more > 0
    log_tail = np.zeros(more.shape)
    log_tail[voted] = _log_tail_of_fair_coin(more[voted], (a + b)[voted])
    # At probability 1/2 the tails are mirror images: the test is twice the upper tail.
    p_value = np.minimum(1.0, 2.0 * np.exp(log_tail))
    # A positive number that is too small for a float must not become 0.
    return np.maximum(p_value, np.finfo(np.float64).tiny)


def _log_tail_of_fair_coin(k: Floats, n: Floats) -> Floats:
    """Log of the chance that k or more of n fair votes agree, not below its exact value."""
    half = np.full_like(k, 0.5)
    log_tail, _ = log_tail_and_slope(half, k, n)
    # The last term is for the exponential that follows.
    return log_tail + tail_error(half, k, n, log_tail) + ROUNDING


def top_two(counts: ArrayLike, *, nobody: ArrayLike = 0) -> tuple[Ints, Ints]:
    """The votes of the two leading classes in each row of counts.

    Votes for nobody count for the second, up to a tie: they can only make a prediction less sure.

    >>> top_two([[7, 90, 3]], nobody=2)
    (array([90]), array([9]))
    """
    votes = np.atleast_2d(np.asarray(counts, dtype=np.int64))
    require(votes.shape[1] >= 2, "a prediction needs the votes of at least two classes")
    ranked = np.sort(votes, axis=1)
    first = ranked[:, -1]
    second = ranked[:, -2] + np.asarray(nobody, dtype=np.int64)
    # Beyond a tie the second would win, although no class is known to have more votes.
    return first, np.minimum(first, second)


def predicted(counts: ArrayLike, *, alpha: float, nobody: ArrayLike = 0) -> Ints:
    """The class with most votes in each row of counts; ABSTAIN where the second may be as likely.

    A prediction differs from the smoothed classifier's class with chance at most alpha. Votes for
    nobody, one number per row, count for the second.
    """
    require_alpha(alpha)
    votes = np.atleast_2d(np.asarray(counts, dtype=np.int64))
    first, second = top_two(votes, nobody=nobody)
    p_value = prediction_p_value(first, second)
    sure = p_value <= alpha
    # Few votes often have a p-value of exactly alpha, such as 2 / 2^n.
    close = ~sure & (p_value <= alpha * (1 + 1e-9)) & (first + second <= EXACT_UP_TO)
    for row in np.flatnonzero(close):
        sure[row] = _exact_p_value(int(first[row]), int(second[row])) <= Fraction(alpha)
    return np.where(sure, votes.argmax(axis=1), ABSTAIN)


def _exact_p_value(first: int, second: int) -> Fraction:
    """The p-value of `prediction_p_value` in whole numbers, where the first has more votes."""
    n = first + second
    outcomes = sum(math.comb(n, successes) for successes in range(first, n + 1))
    return min(Fraction(1), Fraction(2 * outcomes, 2**n))


def draws_to_predict(alpha: float) -> int:
    """The least n that can predict a class: all votes agree, and 2 / 2^n <= alpha.

    >>> draws_to_predict(0.001)
    11
    """
    require_alpha(alpha)
    # The binary exponent is exact, where a logarithm would round.
    _, exponent = math.frexp(alpha)
    return 2 - exponent


def require_enough_to_predict(n: int, *, alpha: float) -> None:
    """Refuse an n with which every prediction would be an abstention."""
    least = draws_to_predict(alpha)
    require(
        n >= least,
        f"n={n} draws at alpha={alpha:g} can never predict a class: it takes n={least} or more",
    )


def require_counts(successes: Floats, trials: Floats) -> None:
    """Refuse more votes than draws."""
    possible = bool(np.all((successes >= 0) & (successes <= trials)))
    require(possible, "votes must lie between 0 and the number of draws")
