"""Anytime-valid bounds on the top class's probability: they hold however long one draws.

k of n votes went to the selected class, whose true probability is p_A. Its k0 of n0 selection
votes, drawn before and independently, give the prior Beta(a, b) with a = k0 + 1/2 and
b = n0 - k0 + 1/2. The evidence against p is

    M_n(p) = mean over the prior, cut to q > p, of (q / p)^k * ((1 - q) / (1 - p))^(n - k).

- It is fair at p_A = p and loses where p_A < p: one more vote multiplies each term by a factor of
  mean p_A * q / p + (1 - p_A) * (1 - q) / (1 - p), which is 1 at p_A = p and grows with p_A if
  q > p. By Ville's inequality it ever reaches 1 / alpha with chance at most alpha, at any
  p_A <= p: drawing may stop at any time.
- It falls in p up to k / n and is at most 1 beyond, so that M_n(p) >= 1 / alpha holds exactly up to
  one root. Proof, with derivatives in the log-odds: (log M)' = h * (1 - 1 / M) - l', where the
  prior's hazard rate h rises and the slope l' of the log likelihood falls, both being log-concave;
  so M - 1, by parts, is less than l' * M / h.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from numbers import Real
from typing import final

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaincinv

from smoothmix.config import plain_numbers, require, require_alpha, require_sigma, require_whole
from smoothmix.noise import GAUSSIAN, Noise
from smoothmix.stats.beta import Floats
from smoothmix.stats.binomial import Bools, require_counts, rest_rounded_up
from smoothmix.stats.evidence import evidence_and_slope, evidence_error
from smoothmix.stats.search import TINY, largest_refuted

FORESIGHT = 0.02
"""The usual level of foresight: `benchmarks/anytime_draws.py` shows what it saves and costs."""

LOOK_AHEAD = (0.25, 1.0, 4.0, 16.0, 64.0, 256.0)
"""Further draws that `min_gain` looks ahead by, as multiples of the draws so far."""

MIDDLES = (1 / 6, 1 / 2, 5 / 6)
"""Quantiles of the posterior that stand for a third of it each."""


@final
@dataclass(frozen=True, kw_only=True)
class Stopping:
    """When an image has had enough draws.

    That is once all of `radii`, `tolerance` and `min_gain` that are given are met, or `max_draws`
    are spent. With none, every image gets `max_draws`. No rule affects the guarantee.

    >>> Stopping(radii=(0.25, 0.5), tolerance=0.05).max_draws
    100000
    """

    radii: tuple[float, ...] = ()
    """Each must be certified or out of reach; 0 asks for any class instead of abstention."""

    tolerance: float | None = None
    """The radius must be this close to what it can become, or abstention be certain."""

    min_gain: float | None = None
    """1,000 further draws must be expected to raise the radius by less than this on average, over
    any number of draws ahead: the rule for the average certified radius."""

    max_draws: int = 100_000
    """Estimation draws after which drawing for an image stops."""

    futility: float = 1e-3
    """Chance that a radius is wrongly found out of reach: it costs power, never validity."""

    foresight: float = 0.0
    """Give up what the draws left reach with less than this chance, given the votes so far.

    It costs power, never validity. 0 gives up nothing that is possible, as in files that do not
    record it; `smoothmix certify` uses `FORESIGHT`.
    """

    seconds: float | None = None
    """Time for a whole call of `Smoothed.certify`, which then returns what holds. Guarantees and
    files hold no time: the command line has --seconds for it."""

    def __post_init__(self) -> None:
        plain_numbers(self)
        several = isinstance(self.radii, Iterable) and not isinstance(self.radii, str)
        require(several, f"radii must be several, such as ({self.radii},), got {self.radii!r}")
        radii = tuple(self.radii)
        for radius in radii:
            _require_number("radii", radius)
        if self.tolerance is not None:
            _require_number("tolerance", self.tolerance)
            positive = 0 < self.tolerance < math.inf
            require(positive, f"tolerance must be positive, got {self.tolerance}")
        if self.min_gain is not None:
            _require_number("min_gain", self.min_gain)
            positive = 0 < self.min_gain < math.inf
            require(positive, f"min_gain must be positive, got {self.min_gain}")
        possible = all(math.isfinite(radius) and radius >= 0 for radius in radii)
        require(possible, f"radii must be zero or more, got {list(radii)}")
        # Equal rules compare equal in whatever order they were given, and as a file returns them.
        object.__setattr__(self, "radii", tuple(sorted(set(map(float, radii)))))
        require_whole("max_draws", self.max_draws)
        require(self.max_draws >= 1, f"max_draws must be at least 1, got {self.max_draws}")
        _require_futility(self.futility)
        _require_number("foresight", self.foresight)
        sensible = 0 <= self.foresight < 1
        require(sensible, f"foresight must be 0 or more, and less than 1, got {self.foresight}")

    @property
    def has_rules(self) -> bool:
        """Whether anything but `max_draws` can end the draws of an image."""
        return self.can_foresee or self.min_gain is not None

    @property
    def can_foresee(self) -> bool:
        """Whether there is anything that foresight could give up."""
        return bool(self.radii) or self.tolerance is not None


def log_evidence(
    p: ArrayLike, k: ArrayLike, n: ArrayLike, *, k0: ArrayLike, n0: ArrayLike
) -> Floats:
    """Log of M_n(p), the evidence of k votes in n that the true probability is above p.

    At every p not below the truth, it ever reaches log(1 / alpha) with chance at most alpha.

    >>> round(float(log_evidence(0.5, 15, 20, k0=8, n0=10)), 6)
    2.068011
    """
    where, *votes = np.broadcast_arrays(np.asarray(p, dtype=np.float64), *_counts(k, n, k0, n0))
    inside = bool(np.all((where > 0) & (where < 1)))
    require(inside, "p must lie strictly between 0 and 1")
    log_value, _ = evidence_and_slope(where, *votes)
    return np.asarray(log_value)


def lower_bound(
    k: ArrayLike, n: ArrayLike, *, k0: ArrayLike, n0: ArrayLike, alpha: float
) -> Floats:
    """A bound that ever exceeds the true probability, over all n, with chance at most alpha.

    It is the largest p with M_n(q) >= 1 / alpha for all q <= p, approached from below; 0 where
    there is none.

    >>> round(float(lower_bound(990, 1000, k0=99, n0=100, alpha=0.001)), 6)
    0.971904
    """
    require_alpha(alpha)
    return _bounds(*_counts(k, n, k0, n0), alpha=alpha)


def upper_bound(
    k: ArrayLike, n: ArrayLike, *, k0: ArrayLike, n0: ArrayLike, alpha: float
) -> Floats:
    """A bound that ever falls below the true probability, over all n, with chance at most alpha.

    >>> round(float(upper_bound(990, 1000, k0=99, n0=100, alpha=0.001)), 6)
    0.99797
    """
    return rest_rounded_up(_remainder_bound(k, n, k0, n0, alpha=alpha))


def radius_interval(
    k: ArrayLike,
    n: ArrayLike,
    *,
    k0: ArrayLike,
    n0: ArrayLike,
    alpha: float,
    futility: float,
    sigma: float,
    noise: Noise = GAUSSIAN,
) -> tuple[Floats, Floats]:
    """The certified radius, and a bound on what more draws can make of it.

    The first is too large with chance at most alpha, the second too small with chance at most
    `futility`. Both are 0 where not above that; the second may be infinite.

    >>> low, high = radius_interval(
    ...     990, 1000, k0=99, n0=100, alpha=0.001, futility=0.001, sigma=0.5
    ... )
    >>> round(float(low), 4), round(float(high), 4)
    (0.9548, 1.4367)
    """
    _require_futility(futility)
    low = noise.radius(lower_bound(k, n, k0=k0, n0=n0, alpha=alpha), sigma=sigma)
    remainder = _remainder_bound(k, n, k0, n0, alpha=futility)
    high = np.maximum(0.0, -noise.signed_radius(remainder, sigma=sigma))
    return low, np.asarray(high)


def decided(
    k: ArrayLike,
    n: ArrayLike,
    *,
    k0: ArrayLike,
    n0: ArrayLike,
    alpha: float,
    sigma: float,
    stopping: Stopping,
    noise: Noise = GAUSSIAN,
) -> Bools:
    """Whether each image has had enough draws by the rules of `stopping`.

    Let L be the lower bound at alpha. Let U be the upper bound at `stopping.futility`, or what L
    would be at `max_draws` with `hopeful_votes`, whichever is less, so that nothing is drawn for
    radii that `max_draws` cannot reach, or hardly can. The rules are:

    - radii: for each, L suffices, or U does not;
    - tolerance: the radii of U and L differ by no more, or U <= 1/2: abstention is certain;
    - min_gain: the `expected_growth` of the radius per 1,000 draws is less, whether one looks ahead
      by a quarter of the draws so far or by all that are left.

    >>> rules = Stopping(radii=(0.5,))
    >>> votes, before = [780, 840, 900], [78, 84, 90]
    >>> decided(votes, 1000, k0=before, n0=100, alpha=0.001, sigma=0.5, stopping=rules).tolist()
    [True, False, True]
    """
    require_alpha(alpha)
    require_sigma(sigma)
    votes, draws, before, drawn = np.broadcast_arrays(*_counts(k, n, k0, n0))
    spent = np.asarray(draws >= stopping.max_draws)
    if not stopping.has_rules:
        return spent
    left = np.maximum(stopping.max_draws - draws, 0.0)
    hopeful = hopeful_votes(
        votes, draws, k0=before, n0=drawn, left=left, foresight=stopping.foresight
    )
    # One search finds three bounds: for the class now, for the class if the draws left go well, and
    # for all other classes.
    low, reach, others = _bounds(
        np.stack([votes, votes + hopeful, draws - votes]),
        np.stack([draws, draws + left, draws]),
        np.stack([before, before, drawn - before]),
        drawn,
        alpha=np.reshape([alpha, alpha, stopping.futility], (3,) + (1,) * votes.ndim),
    )
    # 1 - U, which has more digits than U where U is near 1.
    remainder = np.maximum(1.0 - reach, others)
    met = np.ones_like(spent)
    for wanted in stopping.radii:
        met &= _radius_decided(wanted, low, remainder, sigma=sigma, noise=noise)
    if stopping.tolerance is not None:
        highest = -noise.signed_radius(np.minimum(remainder, 0.5), sigma=sigma)
        gain = highest - noise.signed_radius(low, sigma=sigma)
        met &= (gain <= stopping.tolerance) | (remainder >= 0.5)
    if stopping.min_gain is not None:
        ahead = np.minimum(np.multiply.outer(LOOK_AHEAD, np.maximum(draws, 1)), np.maximum(left, 1))
        growth = expected_growth(
            votes, draws, k0=before, n0=drawn, ahead=ahead, alpha=alpha, sigma=sigma, noise=noise
        )
        met &= (1000 * growth / ahead).max(axis=0) < stopping.min_gain
    return np.asarray(spent | met)


def hopeful_votes(
    k: ArrayLike,
    n: ArrayLike,
    *,
    k0: ArrayLike,
    n0: ArrayLike,
    left: ArrayLike,
    foresight: float,
) -> Floats:
    """The most votes that the class gets from the draws left, but for a chance of `foresight`.

    All draws left for a foresight of 0. Otherwise p_A is taken to have the posterior distribution
    Beta(a, b) of all votes so far, a = k + k0 + 1/2 for the class and b for the others, so that the
    votes to come are beta-binomial. Their share of the draws left is approximated by a beta
    distribution with the same mean and variance, and its quantile is rounded up to whole votes.

    >>> votes = hopeful_votes(900, 1000, k0=90, n0=100, left=[0, 1000, 99_000], foresight=0.02)
    >>> votes.tolist()
    [0.0, 925.0, 90836.0]
    """
    votes, draws, before, drawn = _counts(k, n, k0, n0)
    remaining = np.asarray(left, dtype=np.float64)
    a = votes + before + 0.5
    b = draws - votes + drawn - before + 0.5
    size = a + b
    a, size, remaining = np.broadcast_arrays(a, size, remaining)
    if foresight == 0:
        return remaining.copy()
    # With one draw left the share is 0 or 1, which no beta distribution is: that draw may well go
    # to the class. Nothing depends on it.
    several = remaining > 1
    draws_left = np.where(several, remaining, 2.0)
    # Var(share) = mean * (1 - mean) * (size + left) / (left * (size + 1)), and a beta distribution
    # of this size has the variance mean * (1 - mean) / (size + 1).
    share_size = size * (draws_left - 1) / (size + draws_left)
    mean = a / size
    share = betaincinv(mean * share_size, (1 - mean) * share_size, 1 - foresight)
    likely = np.minimum(np.ceil(share * draws_left), draws_left)
    return np.where(several, likely, remaining)


def expected_growth(
    k: ArrayLike,
    n: ArrayLike,
    *,
    k0: ArrayLike,
    n0: ArrayLike,
    ahead: ArrayLike,
    alpha: float,
    sigma: float,
    noise: Noise = GAUSSIAN,
) -> Floats:
    """How much the certified radius is expected to grow by the draws `ahead`.

    It is the mean over equally likely values of p_A, the middles of thirds of the posterior
    distribution of `hopeful_votes`, with votes in proportion.

    >>> growth = expected_growth(990, 1000, k0=99, n0=100, ahead=[1000, 9000], alpha=0.001, sigma=1)
    >>> growth.round(3).tolist()
    [0.105, 0.264]
    """
    votes, draws, before, drawn = np.broadcast_arrays(*_counts(k, n, k0, n0))
    further = np.asarray(ahead, dtype=np.float64)
    a = votes + before + 0.5
    b = draws - votes + drawn - before + 0.5
    now = noise.radius(_bounds(votes, draws, before, drawn, alpha=alpha), sigma=sigma)
    # One search for all outcomes, along a new first axis.
    middles = np.reshape(MIDDLES, (len(MIDDLES),) + (1,) * np.broadcast(votes, further).ndim)
    p = betaincinv(a, b, middles)
    outcomes = np.broadcast_arrays(votes + p * further, draws + further, before, drawn)
    later = noise.radius(_bounds(*outcomes, alpha=alpha), sigma=sigma)
    return np.asarray(later.mean(axis=0) - now)


def next_total(n: int, *, batch: int, max_draws: int, growth: float = 1.05) -> int:
    """The number of draws after which an undecided image that has n is checked next.

    Rounds grow, so that there are few checks. They are whole batches, except where `max_draws`
    cuts the last.

    >>> next_total(0, batch=256, max_draws=100_000)
    256
    >>> next_total(25_856, batch=256, max_draws=100_000)
    27392
    """
    require(n >= 0, f"n must be zero or more, got {n}")
    require(batch >= 1, f"batch must be at least 1, got {batch}")
    require(max_draws >= 1, f"max_draws must be at least 1, got {max_draws}")
    require(1 <= growth < math.inf, f"growth must be at least 1, got {growth}")
    batches = max(n // batch + 1, math.ceil(n * growth / batch))
    return max(n, min(max_draws, batches * batch))


def _bounds(k: Floats, n: Floats, k0: Floats, n0: Floats, *, alpha: ArrayLike) -> Floats:
    """The largest p with M_n(q) >= 1 / alpha for all q <= p, each with its own alpha."""
    votes = np.broadcast_arrays(k, n, k0, n0, np.asarray(alpha, dtype=np.float64))
    bound = np.zeros(votes[0].shape)
    # Without a vote for the class, nothing speaks against p = 0.
    voted = votes[0] > 0
    k, n, k0, n0, alphas = (part[voted] for part in votes)
    bound[voted] = largest_refuted(
        _evidence,
        (k, n, k0, n0),
        threshold=-np.log(alphas),
        guess=_first_guess(k, n, n0, alphas),
        top=k / n,
    )
    return bound


def _evidence(p: Floats, k: Floats, n: Floats, k0: Floats, n0: Floats) -> tuple[Floats, Floats]:
    """Log M_n(p), less what rounding may have added to it, and its derivative in the log-odds."""
    value, slope = evidence_and_slope(p, k, n, k0, n0)
    return value - evidence_error(n, n0), slope


def _first_guess(k: Floats, n: Floats, n0: Floats, alpha: Floats) -> Floats:
    """Where the search for a bound starts: below k / n."""
    # Validity at all times costs about a factor sqrt(n / n0) of alpha: Clopper and Pearson's bound
    # for that smaller alpha is close.
    smaller = alpha * np.sqrt((n0 + 1) / (n + n0 + 1)) / 4
    guess = np.nan_to_num(betaincinv(k, n - k + 1, smaller))
    return np.asarray(np.clip(guess, TINY, k / n * (1 - 1e-15)))


def _radius_decided(
    wanted: float, low: Floats, remainder: Floats, *, sigma: float, noise: Noise
) -> Bools:
    """Whether a radius is certified by the bound `low`, or out of reach.

    It is out of reach if the other classes have at least the probability `remainder`.
    """
    certified = (noise.radius(low, sigma=sigma) >= wanted) & (low > 0.5)
    # The probability for -r is 1 less that for r, with all its digits.
    too_much = remainder > noise.probability(-wanted, sigma=sigma)
    out_of_reach = too_much | (remainder >= 0.5)
    return np.asarray(certified | out_of_reach)


def _remainder_bound(
    k: ArrayLike, n: ArrayLike, k0: ArrayLike, n0: ArrayLike, *, alpha: float
) -> Floats:
    """A lower bound on the probability of all other classes together, by the same construction."""
    return lower_bound(np.subtract(n, k), n, k0=np.subtract(n0, k0), n0=n0, alpha=alpha)


def _counts(
    k: ArrayLike, n: ArrayLike, k0: ArrayLike, n0: ArrayLike
) -> tuple[Floats, Floats, Floats, Floats]:
    votes = np.asarray(k, dtype=np.float64)
    draws = np.asarray(n, dtype=np.float64)
    before = np.asarray(k0, dtype=np.float64)
    drawn = np.asarray(n0, dtype=np.float64)
    finite = bool(np.all(np.isfinite(draws)) and np.all(np.isfinite(drawn)))
    require(finite, "votes must lie between 0 and the number of draws")
    require_counts(votes, draws)
    require_counts(before, drawn)
    return votes, draws, before, drawn


def _require_number(name: str, value: object) -> None:
    number = isinstance(value, Real) and not isinstance(value, bool)
    require(number, f"{name} must be numbers, got {value!r}")


def _require_futility(chance: float) -> None:
    require(0 < chance < 1, f"futility must lie strictly between 0 and 1, got {chance}")
