"""The statistics of certification: bounds, radii and tests as pure functions of counts. No torch here.

Cohen et al. (2019): if the smoothed classifier returns class A with probability at least p > 1/2 under Gaussian
noise of deviation sigma, then it returns A everywhere within L2 distance sigma * Phi^-1(p).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainc, betaincinv, ndtr, ndtri

from smoothmix.config import require, require_alpha, require_sigma

ABSTAIN = -1
"""The label of an image that the smoothed classifier refuses to classify."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def lower_bound(successes: ArrayLike, trials: ArrayLike, *, alpha: float) -> Floats:
    """One-sided Clopper-Pearson bound: exceeds the true probability with chance at most alpha.

    >>> round(float(lower_bound(990, 1000, alpha=0.001)), 6)
    0.976036
    """
    require_alpha(alpha)
    k, n = np.broadcast_arrays(
        np.asarray(successes, dtype=np.float64), np.asarray(trials, dtype=np.float64)
    )
    _require_counts(k, n)
    with np.errstate(invalid="ignore"):
        return np.where(k > 0, betaincinv(k, n - k + 1, alpha), 0.0)


def upper_bound(successes: ArrayLike, trials: ArrayLike, *, alpha: float) -> Floats:
    """One-sided Clopper-Pearson bound: falls below the true probability with chance at most alpha."""
    return 1.0 - lower_bound(np.asarray(trials) - np.asarray(successes), trials, alpha=alpha)


def abstention_is_certain(
    successes: ArrayLike, drawn: ArrayLike, *, planned: int, alpha: float
) -> NDArray[np.bool_]:
    """Whether no outcome of the draws still to come, of `planned` in all, could lift the bound above 1/2.

    >>> abstention_is_certain([400, 480], 900, planned=1000, alpha=0.001).tolist()
    [True, False]
    """
    best = np.asarray(successes) + (planned - np.asarray(drawn))
    return np.asarray(lower_bound(best, planned, alpha=alpha) <= 0.5)


def radius(probability: ArrayLike, *, sigma: float) -> Floats:
    """The L2 radius certified by a lower bound on the top class's probability; 0 where it is not above 1/2.

    >>> round(float(radius(0.99, sigma=0.5)), 4)
    1.1632
    """
    require_sigma(sigma)
    p = np.asarray(probability, dtype=np.float64)
    return np.where(p > 0.5, sigma * ndtri(np.maximum(p, 0.5)), 0.0)


def probability_for(radius: ArrayLike, *, sigma: float) -> Floats:
    """The probability that the top class needs for a radius: the inverse of `radius`."""
    require_sigma(sigma)
    return np.asarray(ndtr(np.asarray(radius, dtype=np.float64) / sigma))


def largest_radius(n: int, *, alpha: float, sigma: float) -> float:
    """The largest radius that n draws can ever certify: what all n votes for one class give.

    >>> round(largest_radius(100_000, alpha=0.001, sigma=1.0), 4)
    3.8115
    """
    require(n >= 1, f"n must be at least 1, got {n}")
    require_alpha(alpha)
    require_sigma(sigma)
    # All n votes give the bound alpha^(1/n); what it lacks to 1 keeps its digits where the bound itself would not.
    return max(0.0, float(-sigma * ndtri(-math.expm1(math.log(alpha) / n))))


def draws_for(wanted: float, *, alpha: float, sigma: float) -> int:
    """The smallest n that can certify the radius `wanted`; for 0, the smallest that can certify anything.

    >>> draws_for(0.0, alpha=0.001, sigma=0.5)
    10
    """
    require(math.isfinite(wanted) and wanted >= 0, f"a radius must be zero or more, got {wanted}")
    require_alpha(alpha)
    # All n votes give the bound alpha^(1/n), which reaches 1 - q from n = log(alpha) / log(1 - q) on.
    lacking = float(ndtr(-wanted / sigma))
    reachable = lacking > 0 and math.isfinite(math.log(alpha) / math.log1p(-lacking))
    require(
        reachable,
        f"no number of draws certifies radius {wanted:g} at sigma {sigma:g} in floating point",
    )
    # Any certificate needs more than 1/2: the smallest n with 2^-n < alpha, read off the binary exponent exactly.
    mantissa, exponent = math.frexp(alpha)
    anything = 2 - exponent if mantissa == 0.5 else 1 - exponent
    return (
        anything
        if wanted == 0
        else max(anything, math.ceil(math.log(alpha) / math.log1p(-lacking)))
    )


def prediction_p_value(first: ArrayLike, second: ArrayLike) -> Floats:
    """Two-sided p-value that the two top classes are equally likely, from their votes.

    >>> round(float(prediction_p_value(60, 40)), 6)
    0.056888
    """
    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    more, n = np.maximum(a, b), a + b
    # At probability 1/2 the two tails are mirror images, so the two-sided test is twice the upper tail.
    tail = np.where(more > 0, betainc(np.maximum(more, 1), n - more + 1, 0.5), 1.0)
    return np.minimum(1.0, 2.0 * tail)


def predicted(counts: ArrayLike, *, alpha: float) -> Ints:
    """The class with most votes in each row of counts, or ABSTAIN where the runner-up may be as likely.

    A label is wrong, in the sense of not being the smoothed classifier's, with chance at most alpha.
    """
    require_alpha(alpha)
    votes = np.atleast_2d(np.asarray(counts, dtype=np.int64))
    require(votes.shape[1] >= 2, "a prediction needs the votes of at least two classes")
    second, first = np.moveaxis(np.sort(votes, axis=1)[:, -2:], 1, 0)
    sure = prediction_p_value(first, second) <= alpha
    return np.where(sure, votes.argmax(axis=1), ABSTAIN)


def draws_to_predict(alpha: float) -> int:
    """The smallest n with which a prediction can be other than abstention: all votes agree, and 2 / 2^n <= alpha.

    >>> draws_to_predict(0.001)
    11
    """
    require_alpha(alpha)
    return (
        2 - math.frexp(alpha)[1]
    )  # the binary exponent says it exactly, where a logarithm would round


def require_enough_to_predict(n: int, *, alpha: float) -> None:
    """Refuse an n with which every prediction would be an abstention."""
    least = draws_to_predict(alpha)
    require(
        n >= least,
        f"n={n} draws at alpha={alpha:g} can never tell two classes apart: it takes n={least} or more",
    )


def require_enough_draws(n: int, *, alpha: float, sigma: float, wanted: float = 0.0) -> None:
    """Refuse an n that could never certify the radius `wanted` (or, for 0, anything), and say which n could."""
    least = draws_for(wanted, alpha=alpha, sigma=sigma)
    goal = f"the radius {wanted:g} at sigma {sigma:g}" if wanted > 0 else "anything"
    require(
        n >= least,
        f"n={n} draws at alpha={alpha:g} can never certify {goal}: it takes n={_readable(least)} or more, "
        "even if every vote agrees",
    )


def _readable(number: int) -> str:
    """A whole number, about so large where nobody would read all its digits.

    >>> _readable(123456), _readable(10**72)
    ('123456', '1e+72')
    """
    return str(number) if number < 10**12 else f"{number:.1g}"


def _require_counts(successes: Floats, trials: Floats) -> None:
    fits = bool(np.all((successes >= 0) & (successes <= trials)))
    require(fits, "votes must lie between 0 and the number of draws")
