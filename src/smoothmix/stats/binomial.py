"""Bounds and tests for a fixed number of draws: pure functions of counts."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainc, betaincinv

from smoothmix.config import require, require_alpha

ABSTAIN = -1
"""The prediction for an image that the smoothed classifier refuses to classify."""

NOBODY = -1
"""The class of a draw whose vote is not determined: it stays in n, and counts for no class."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


def lower_bound(successes: ArrayLike, trials: ArrayLike, *, alpha: float) -> Floats:
    """One-sided Clopper-Pearson bound: exceeds the true probability with chance at most alpha.

    >>> round(float(lower_bound(990, 1000, alpha=0.001)), 6)
    0.976036
    """
    require_alpha(alpha)
    k = np.asarray(successes, dtype=np.float64)
    n = np.asarray(trials, dtype=np.float64)
    require_counts(k, n)
    # No success bounds nothing, and the beta distribution has no parameter 0.
    with np.errstate(invalid="ignore"):
        return np.where(k > 0, betaincinv(k, n - k + 1, alpha), 0.0)


def upper_bound(successes: ArrayLike, trials: ArrayLike, *, alpha: float) -> Floats:
    """One-sided Clopper-Pearson bound: falls below the truth with chance at most alpha."""
    failures = np.asarray(trials) - np.asarray(successes)
    return 1.0 - lower_bound(failures, trials, alpha=alpha)


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

    >>> round(smallest_remainder(1000, alpha=0.001), 6)
    0.006884
    """
    require(n >= 1, f"n must be at least 1, got {n}")
    require_alpha(alpha)
    # The bound is alpha^(1/n). What it lacks to 1 keeps its digits where the bound loses them.
    return -math.expm1(math.log(alpha) / n)


def draws_for(remainder: float, *, alpha: float) -> float:
    """The least n whose equal votes leave at most `remainder` to the other classes, and below 1/2.

    It is infinite where no number of draws does so in floating point.

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
    draws = math.log(alpha) / math.log1p(-remainder)
    if not math.isfinite(draws):
        return math.inf
    return max(above_half, math.ceil(draws))


def prediction_p_value(first: ArrayLike, second: ArrayLike) -> Floats:
    """Two-sided p-value that the two top classes are equally likely, from their votes.

    >>> round(float(prediction_p_value(60, 40)), 6)
    0.056888
    """
    a = np.asarray(first, dtype=np.float64)
    b = np.asarray(second, dtype=np.float64)
    more = np.maximum(a, b)
    n = a + b
    # At probability 1/2 the tails are mirror images: the test is twice the upper tail.
    tail = np.where(more > 0, betainc(np.maximum(more, 1), n - more + 1, 0.5), 1.0)
    return np.minimum(1.0, 2.0 * tail)


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
    sure = prediction_p_value(first, second) <= alpha
    return np.where(sure, votes.argmax(axis=1), ABSTAIN)


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
