"""Anytime-valid certification: bounds on the top class's probability that hold however long one looks. No torch here.

k of n votes went to the selected class, whose true probability is p_A; its k0 of n0 selection votes, drawn before and
apart, give the prior Beta(a, b) with a = k0 + 1/2 and b = n0 - k0 + 1/2. Against p stands the evidence

    M_n(p) = mean over the prior, cut to q > p, of (q / p)^k * ((1 - q) / (1 - p))^(n - k).

- It is fair at p_A = p and loses where p_A < p, because one more vote multiplies each term by a factor of mean
  p_A * q / p + (1 - p_A) * (1 - q) / (1 - p), which is 1 at p_A = p and grows with p_A if q > p. By Ville's inequality
  it ever reaches 1 / alpha with chance at most alpha, at any p_A <= p: one may stop when one likes.
- It falls in p up to k / n and is at most 1 beyond, so that the p with M_n(p) >= 1 / alpha are all those up to one
  root. Proof, with derivatives in the log-odds: (log M)' = h * (1 - 1 / M) - l', where the prior's hazard rate h rises
  and the slope l' of the log likelihood falls, both being log-concave; so M - 1, by parts, is less than l' * M / h.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from numbers import Real
from typing import final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv, expit, logit, ndtri

from smoothmix.config import require, require_alpha, require_sigma, require_whole
from smoothmix.stats.binomial import Floats, probability_for, radius
from smoothmix.stats.evidence import evidence_and_slope

Bools = NDArray[np.bool_]

CLOSE = 1e-12
"""How far below the root, in log-odds, the search for a bound may end."""
TINY = 1e-300
"""A bound below this is returned as 0."""


@final
@dataclass(frozen=True, kw_only=True)
class Stopping:
    """When an image has had enough draws: `radii` and `tolerance`, if given, are both met; or `max_draws` are spent.

    With neither radii nor a tolerance, every image gets `max_draws`. No rule touches the guarantee.

    >>> Stopping(radii=(0.25, 0.5), tolerance=0.05).max_draws
    100000
    """

    radii: tuple[float, ...] = ()
    """Each of these must be certified or out of reach; 0 asks for a class other than abstention."""

    tolerance: float | None = None
    """The certified radius must lie within this of what it could become, or abstention be certain."""

    max_draws: int = 100_000
    """Estimation draws after which an image is given up."""

    futility: float = 1e-3
    """Chance that a radius is wrongly given up: it costs power, never validity."""

    def __post_init__(self) -> None:
        several = isinstance(self.radii, Iterable) and not isinstance(self.radii, str)
        require(several, f"radii must be several, such as ({self.radii},), got {self.radii!r}")
        radii = tuple(self.radii)
        limits = () if self.tolerance is None else (self.tolerance,)
        for name, number in (
            *(("radii", r) for r in radii),
            *(("tolerance", limit) for limit in limits),
        ):
            sound = isinstance(number, Real) and type(number) is not bool
            require(sound, f"{name} must be numbers, got {number!r}")
        sound = all(math.isfinite(r) and r >= 0 for r in radii)
        require(sound, f"radii must be zero or more, got {list(radii)}")
        # The same rules are equal however they were written, and as a file gives them back.
        object.__setattr__(self, "radii", tuple(sorted({float(r) for r in radii})))
        fits = self.tolerance is None or 0 < self.tolerance < math.inf
        require(fits, f"tolerance must be positive, got {self.tolerance}")
        require_whole("max_draws", self.max_draws)
        require(self.max_draws >= 1, f"max_draws must be at least 1, got {self.max_draws}")
        _require_futility(self.futility)


def log_evidence(
    p: ArrayLike, k: ArrayLike, n: ArrayLike, *, k0: ArrayLike, n0: ArrayLike
) -> Floats:
    """Log of M_n(p), the evidence of k votes in n that the true probability is above p.

    At every p not below the truth, it ever reaches log(1 / alpha) with chance at most alpha.

    >>> round(float(log_evidence(0.5, 15, 20, k0=8, n0=10)), 6)
    2.068011
    """
    where, *votes = np.broadcast_arrays(np.asarray(p, dtype=np.float64), *_counts(k, n, k0, n0))
    require(bool(np.all((where > 0) & (where < 1))), "p must lie strictly between 0 and 1")
    return np.asarray(evidence_and_slope(where, *votes)[0])


def largest_radius(n: int, *, n0: int, alpha: float, sigma: float) -> float:
    """What n draws could certify at most: all votes for one class, in selection too."""
    return float(radius(lower_bound(n, n, k0=n0, n0=n0, alpha=alpha), sigma=sigma))


def lower_bound(
    k: ArrayLike, n: ArrayLike, *, k0: ArrayLike, n0: ArrayLike, alpha: float
) -> Floats:
    """A bound that ever exceeds the true probability, over all n, with chance at most alpha.

    The largest p with M_n(q) >= 1 / alpha for all q <= p, approached from below; 0 where there is none.

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
    return 1.0 - _others_bound(k, n, k0, n0, alpha=alpha)


def radius_interval(
    k: ArrayLike,
    n: ArrayLike,
    *,
    k0: ArrayLike,
    n0: ArrayLike,
    alpha: float,
    futility: float,
    sigma: float,
) -> tuple[Floats, Floats]:
    """The certified radius, too large with chance at most alpha, and a bound on what more draws could make of it.

    That bound is too small with chance at most `futility`. Both are 0 where not above that; the second may be infinite.

    >>> low, high = radius_interval(990, 1000, k0=99, n0=100, alpha=0.001, futility=0.001, sigma=0.5)
    >>> round(float(low), 4), round(float(high), 4)
    (0.9548, 1.4367)
    """
    _require_futility(futility)
    low = radius(lower_bound(k, n, k0=k0, n0=n0, alpha=alpha), sigma=sigma)
    others = _others_bound(k, n, k0, n0, alpha=futility)
    return low, np.asarray(np.maximum(0.0, -sigma * ndtri(others)))


def decided(
    k: ArrayLike,
    n: ArrayLike,
    *,
    k0: ArrayLike,
    n0: ArrayLike,
    alpha: float,
    sigma: float,
    stopping: Stopping,
) -> Bools:
    """Whether each image has had enough draws by the rules of `stopping`.

    With L the lower bound at alpha, and U the upper bound at `stopping.futility` or what L would be at `max_draws` if
    all draws left voted for the class, whichever is less, so that nothing is drawn for radii beyond the budget:

    - radii: for each, L suffices, or U does not;
    - tolerance: sigma * (Phi^-1(U) - Phi^-1(L)) is within it, or U <= 1/2: abstention is certain.

    >>> rules = Stopping(radii=(0.5,))
    >>> decided([780, 840, 900], 1000, k0=[78, 84, 90], n0=100, alpha=0.001, sigma=0.5, stopping=rules).tolist()
    [True, False, True]
    """
    require_alpha(alpha)
    require_sigma(sigma)
    votes, draws, before, drawn = np.broadcast_arrays(*_counts(k, n, k0, n0))
    spent = np.asarray(draws >= stopping.max_draws)
    if not stopping.radii and stopping.tolerance is None:
        return spent
    left = np.maximum(stopping.max_draws - draws, 0.0)
    # Three bounds in one search: for the class now and with all draws left, and for the others.
    seen, of = (
        np.stack([votes, votes + left, draws - votes]),
        np.stack([draws, draws + left, draws]),
    )
    chances = np.reshape([alpha, alpha, stopping.futility], (3,) + (1,) * votes.ndim)
    low, reach, others = _bounds(
        seen, of, np.stack([before, before, drawn - before]), drawn, alpha=chances
    )
    rest = np.maximum(1.0 - reach, others)
    met = [_radius_settled(r, low, rest, sigma=sigma) for r in stopping.radii]
    if stopping.tolerance is not None:
        gain = -ndtri(np.minimum(rest, 0.5)) - ndtri(low)
        met.append((sigma * gain <= stopping.tolerance) | (rest >= 0.5))
    return np.asarray(spent | np.logical_and.reduce(met))


def next_total(n: int, *, block: int, max_draws: int, growth: float = 1.05) -> int:
    """How many draws in all an undecided image that has n should have next.

    Rounds grow, so that there are few of them; they are whole blocks, except where `max_draws` cuts the last.

    >>> next_total(0, block=256, max_draws=100_000), next_total(25_856, block=256, max_draws=100_000)
    (256, 27392)
    """
    require(n >= 0, f"n must be zero or more, got {n}")
    require(block >= 1, f"the block must hold at least 1 draw, got {block}")
    require(max_draws >= 1, f"max_draws must be at least 1, got {max_draws}")
    require(1 <= growth < math.inf, f"growth must be at least 1, got {growth}")
    blocks = max(n // block + 1, math.ceil(n * growth / block))
    return max(n, min(max_draws, blocks * block))


def _bounds(k: Floats, n: Floats, k0: Floats, n0: Floats, *, alpha: ArrayLike) -> Floats:
    """The largest p with M_n(q) >= 1 / alpha for all q <= p, each with its own alpha."""
    votes = np.broadcast_arrays(k, n, k0, n0, np.asarray(alpha, dtype=np.float64))
    bound = np.zeros(votes[0].shape)
    some = votes[0] > 0  # without a vote for the class nothing speaks against p = 0
    bound[some] = _search(*(part[some] for part in votes))
    return bound


def _search(k: Floats, n: Floats, k0: Floats, n0: Floats, alpha: Floats) -> Floats:
    """The root of M_n(p) = 1 / alpha, from below, where k > 0: Newton's method in the log-odds, between guards."""
    # Rounding must not lift the evidence over the threshold: its error is at most half of this, as measured.
    threshold = -np.log(alpha) + 1e-14 * (n + n0 + 100)
    low, high = np.zeros_like(k), k / n
    # Looking at all times costs about a factor sqrt(n / n0) of alpha: begin at Clopper and Pearson's bound for that.
    fair = alpha * np.sqrt((n0 + 1) / (n + n0 + 1)) / 4
    p: Floats = np.clip(np.nan_to_num(betaincinv(k, n - k + 1, fair)), TINY, high * (1 - 1e-15))
    todo = np.arange(k.size)
    for _ in range(200):
        here = p[todo]
        value, slope = evidence_and_slope(here, k[todo], n[todo], k0[todo], n0[todo])
        excess = value - threshold[todo]
        safe = excess >= 0
        low[todo], high[todo] = np.where(safe, here, low[todo]), np.where(safe, high[todo], here)
        close = CLOSE + 4e-16 / (1.0 - here)  # the second term is the spacing of numbers near 1
        with np.errstate(divide="ignore", invalid="ignore"):
            step = -excess / slope
            guess = np.maximum(expit(logit(here) + step - close), TINY)
        inside = (low[todo] < guess) & (guess < high[todo])
        p[todo] = np.where(inside, guess, (low[todo] + high[todo]) / 2)
        closed = high[todo] - low[todo] <= 2 * close * here * (1 - here)
        todo = todo[~(safe & (step <= 2 * close) | closed) & (high[todo] > TINY)]
        if not todo.size:
            break
    # Only points that were seen to pass are ever returned: a search cut short is still safe.
    return low


def _radius_settled(wanted: float, low: Floats, rest: Floats, *, sigma: float) -> Bools:
    """Whether a radius is certified by the bound `low`, or out of reach with at least `rest` going to other classes."""
    certified = (low >= probability_for(wanted, sigma=sigma)) & (low > 0.5)
    # The probability for -r is 1 less that for r, with all its digits.
    out_of_reach = (rest > probability_for(-wanted, sigma=sigma)) | (rest >= 0.5)
    return np.asarray(certified | out_of_reach)


def _others_bound(
    k: ArrayLike, n: ArrayLike, k0: ArrayLike, n0: ArrayLike, *, alpha: float
) -> Floats:
    """The mirrored construction: a lower bound on the probability of all other classes together."""
    return lower_bound(np.subtract(n, k), n, k0=np.subtract(n0, k0), n0=n0, alpha=alpha)


def _counts(
    k: ArrayLike, n: ArrayLike, k0: ArrayLike, n0: ArrayLike
) -> tuple[Floats, Floats, Floats, Floats]:
    votes, draws, before, drawn = (np.asarray(part, dtype=np.float64) for part in (k, n, k0, n0))
    for some, total in ((votes, draws), (before, drawn)):
        fits = np.all((some >= 0) & (some <= total) & np.isfinite(total))
        require(bool(fits), "votes must lie between 0 and the number of draws")
    return votes, draws, before, drawn


def _require_futility(chance: float) -> None:
    require(0 < chance < 1, f"futility must lie strictly between 0 and 1, got {chance}")
