"""The anytime guarantee, exactly by dynamic programming and by simulation; the numbers, against slow high precision."""

from __future__ import annotations

import itertools
import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import expit
from scipy.stats import binom, norm

from smoothmix import stats
from smoothmix.anytime import (
    Stopping,
    decided,
    log_evidence,
    lower_bound,
    next_total,
    radius_interval,
    upper_bound,
)
from smoothmix.errors import UsageError

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


# ---------------------------------------------------------------- against high precision


def slow_log_survival(x: mp.mpf, y: mp.mpf, p: mp.mpf) -> mp.mpf:
    """Log of 1 - I_p(x, y), by the continued fraction (DLMF 8.17.22) of the tail in which it converges."""
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


@pytest.mark.parametrize("p", [1e-6, 0.3, 0.5, 0.9, 1 - 1e-6])
@pytest.mark.parametrize("votes", [(0, 3, 0, 0), (30, 40, 7, 10), (40, 40, 1, 100), (2, 40, 100, 100)])
def test_the_slow_evidence_is_a_mean_of_likelihood_ratios(p: float, votes: Counts) -> None:
    """The reference itself, against the integral that defines it: the mean over the prior, cut to q > p."""
    k, n, k0, n0 = votes
    with mp.workdps(30):
        lacking = 1 - mp.mpf(p)

        def integral(k: int, n: int) -> mp.mpf:
            """Of the prior times the likelihood ratio; with 1 - q = (1 - p) * u^2 the prior's pole at q = 1 is gone."""
            x, y = k + k0 - mp.mpf(1) / 2, n - k + n0 - k0
            return mp.quad(lambda u: ((1 - lacking * u**2) / p) ** x * u ** (2 * y), [0, 0.5, 0.8, 0.9, 0.99, 1])

        mean = integral(k, n) / integral(0, 0)
        assert float(mp.log(mean)) == pytest.approx(float(slow_log_evidence(p, *votes)), rel=1e-9, abs=1e-9)


def check_evidence(p: float, votes: Counts) -> None:
    k, n, k0, n0 = votes
    with mp.workdps(50):
        error = abs(float(log_evidence(p, k, n, k0=k0, n0=n0)) - (exact := slow_log_evidence(p, *votes)))
    assert error <= 1e-9 * max(1, abs(exact)), f"{p=} {votes=}"


@settings(max_examples=100)
@given(counts(), st.data())
def test_the_evidence_has_nine_digits(votes: Counts, data: st.DataObject) -> None:
    k, n, k0, n0 = votes
    anywhere = st.one_of(st.floats(1e-12, 1 - 1e-12), st.floats(-600, 36).map(lambda s: float(expit(s))))
    p = data.draw(anywhere)
    check_evidence(p, votes)
    # And where it matters: some deviations from the shares of the votes and of the selection votes.
    for share, size in (((k + 0.5) / (n + 1), n), ((k0 + 0.5) / (n0 + 1), n0)):
        near = share + data.draw(st.floats(-40, 40)) * math.sqrt(share * (1 - share) / (size + 1))
        if 0 < near < 1:
            check_evidence(near, votes)


@pytest.mark.parametrize("p", [1e-300, 1e-20, 1e-6, 0.01, 0.5, 0.9, 1 - 1e-6, 1 - 2**-53])
@pytest.mark.parametrize("k", [0, 1, 500_000, 900_000, 999_999, 1_000_000])
@pytest.mark.parametrize(("k0", "n0"), [(0, 0), (100, 100), (90, 100), (0, 1000)])
def test_the_evidence_has_nine_digits_at_the_extremes(p: float, k: int, k0: int, n0: int) -> None:
    """A million draws; with p beyond the prior, 1 - I_p(a, b) underflows, and near 0 the powers overflow."""
    check_evidence(p, (k, 1_000_000, k0, n0))


@settings(max_examples=60)
@given(counts(least=1), ALPHAS)
def test_the_bound_is_just_below_the_root(votes: Counts, alpha: float) -> None:
    """The exact evidence at the bound passes, by no more than rounding and the end of the search explain."""
    k, n, k0, n0 = votes
    bound = float(lower_bound(k, n, k0=k0, n0=n0, alpha=alpha))
    assume(bound > 0)
    with mp.workdps(50):
        excess = slow_log_evidence(bound, *votes) + mp.log(mp.mpf(alpha))
    # The evidence falls by at most k, or so, in a unit of the log-odds.
    assert 0 <= excess <= 2e-14 * (n + n0 + 100) + 4e-12 * (k + 1)


@pytest.mark.parametrize("votes", [(1, 1, 1, 1), (95, 100, 90, 100), (1000, 1000, 100, 100), (7, 900, 60, 100)])
def test_the_bound_is_the_root_found_by_bisection(votes: Counts) -> None:
    k, n, k0, n0 = votes
    with mp.workdps(40):
        low, high = mp.mpf("1e-40"), mp.mpf(k) / n * (1 - mp.mpf("1e-30"))
        for _ in range(150):
            middle = (low + high) / 2
            passes = slow_log_evidence(middle, *votes) >= mp.log(1000)
            low, high = (middle, high) if passes else (low, middle)
    assert lower_bound(k, n, k0=k0, n0=n0, alpha=0.001) == pytest.approx(float(low), rel=1e-11)


# ---------------------------------------------------------------- what the guarantee rests on


@given(counts(), st.floats(-15, 15), st.floats(0, 1))
def test_the_evidence_is_fair_at_p_and_loses_below(votes: Counts, log_odds: float, fraction: float) -> None:
    """A martingale where the true probability is p; a supermartingale where it is less."""
    k, n, k0, n0 = votes
    p = float(expit(log_odds))
    truth = fraction * p
    now = log_evidence(p, k, n, k0=k0, n0=n0)
    up, down = np.exp(log_evidence(p, [k + 1, k], n + 1, k0=k0, n0=n0) - now)
    assert p * up + (1 - p) * down == pytest.approx(1, rel=1e-7)
    assert truth * up + (1 - truth) * down <= 1 + 1e-7
    assert down <= 1 + 1e-9 <= up + 2e-9


@given(counts(least=1))
def test_the_evidence_falls_in_p_below_the_share_of_votes_and_is_nothing_above(votes: Counts) -> None:
    """So the p that it speaks against are all those up to one root, and a search finds it."""
    k, n, k0, n0 = votes
    share = k / n
    below = share * expit(np.linspace(-30, 20, 400))
    values = log_evidence(below, k, n, k0=k0, n0=n0)
    assert (np.diff(values) <= 1e-9 * np.maximum(1, np.abs(values[1:]))).all()
    above = share + (1 - share) * expit(np.linspace(-30, 20, 50))
    above = above[(above > share) & (above < 1)]
    assert (log_evidence(above, k, n, k0=k0, n0=n0) <= 1e-9).all()


def least_votes(p: float, draws: int, *, k0: int, n0: int, alpha: float) -> Ints:
    """The smallest k for n = 1 ... draws with which the evidence against p reaches 1 / alpha; n + 1 if none does."""
    n = np.arange(1, draws + 1)
    fails, passes = np.floor(n * p).astype(np.int64) - 1, n + 1  # votes of a share of p or less never suffice
    while (passes - fails > 1).any():
        k = (fails + passes) // 2
        enough = log_evidence(p, np.clip(k, 0, n), n, k0=k0, n0=n0) >= -math.log(alpha)
        fails, passes = np.where(enough, fails, k), np.where(enough & (k > fails), k, passes)
    return passes


def chance_to_reach(boundary: Ints, p: float) -> float:
    """The exact chance that votes of probability p ever number boundary[n - 1] after n draws."""
    alive = np.zeros(len(boundary) + 2)
    alive[0] = 1.0
    reached = 0.0
    for top in boundary:
        window = alive[: top + 1]
        window[1:] = window[1:] * (1 - p) + window[:-1] * p
        window[0] *= 1 - p
        reached += alive[top:].sum()
        alive[top:] = 0.0
    return float(reached)


@pytest.mark.parametrize("alpha", [1e-2, 1e-3])
@pytest.mark.parametrize("p", [0.5, 0.6, 0.8, 0.9, 0.98])
def test_the_bound_ever_exceeds_the_truth_with_chance_at_most_alpha(p: float, alpha: float) -> None:
    """Exactly, over all paths of 3000 looks, after typical, lucky and no selection draws."""
    typical, lucky = (int(binom.ppf(quantile, 100, p)) for quantile in (0.5, 0.99))
    rates = [
        chance_to_reach(least_votes(p, 3000, k0=k0, n0=n0, alpha=alpha), p) / alpha
        for k0, n0 in ((typical, 100), (lucky, 100), (0, 0))
    ]
    assert max(rates) <= 1
    assert min(rates) > 0.4, "the guarantee is not vacuous: with more looks it comes nearer still to alpha"
    assert max(rates) > 0.8


@pytest.mark.parametrize("k0", [0, 20, 100])
def test_no_selection_draws_however_misleading_break_the_guarantee(k0: int) -> None:
    assert chance_to_reach(least_votes(0.6, 3000, k0=k0, n0=100, alpha=0.01), 0.6) <= 0.01


def test_a_bound_for_one_look_fails_under_many() -> None:
    """Why there is an anytime bound: Clopper and Pearson's, looked at until it pleases, errs many times alpha."""
    n = np.arange(1, 3001)
    boundary = 1 + binom.isf(0.001, n, 0.8).astype(np.int64)
    assert (stats.lower_bound(boundary[99:], n[99:], alpha=0.001) >= 0.8).all()
    assert chance_to_reach(boundary, 0.8) > 0.005


@pytest.mark.parametrize("p", [0.5, 0.9])
def test_the_program_and_the_bound_mean_the_same(p: float) -> None:
    n = np.arange(1, 3001)
    boundary = least_votes(p, 3000, k0=90, n0=100, alpha=0.001)
    possible = boundary <= n
    at = lower_bound(boundary[possible], n[possible], k0=90, n0=100, alpha=0.001)
    short = lower_bound(boundary - 1, n, k0=90, n0=100, alpha=0.001)
    assert (at >= p * (1 - 1e-9)).all()
    assert (short < p).all()


# ---------------------------------------------------------------- the whole procedure, simulated

IMAGES = 10_000
RULES = [
    Stopping(radii=(0.25, 0.5), max_draws=2000),
    Stopping(tolerance=0.2, max_draws=2000),
    Stopping(max_draws=500),
    Stopping(radii=(0.0, 0.3), tolerance=0.3, max_draws=3000, futility=0.1),
]


def certify_all(shares: list[float], stopping: Stopping, *, alpha: float, sigma: float, seed: int) -> tuple[Ints, ...]:
    """Votes, draws and selection votes of the class selected for each of many images, and which class that is."""
    rng, n0 = np.random.default_rng(seed), 20
    selection = rng.multinomial(n0, shares, size=IMAGES)
    selected, k0 = selection.argmax(axis=1), selection.max(axis=1)
    truth = np.array(shares)[selected]
    k, n = np.zeros(IMAGES, dtype=np.int64), np.zeros(IMAGES, dtype=np.int64)
    total, undecided = 0, np.full(IMAGES, True)
    while undecided.any():
        total = next_total(drawn := total, block=40, max_draws=stopping.max_draws, growth=1.3)
        k[undecided] += rng.binomial(total - drawn, truth[undecided])
        n[undecided] = total
        # Many images have the same votes: decide each kind once.
        kinds, kind = np.unique(np.stack([k[undecided], k0[undecided]]), axis=1, return_inverse=True)
        done = decided(kinds[0], total, k0=kinds[1], n0=n0, alpha=alpha, sigma=sigma, stopping=stopping)
        undecided[undecided] = ~done[kind]
    return k, n, k0, selected


@pytest.mark.parametrize("shares", [[0.5, 0.5], [0.8, 0.15, 0.05]], ids=str)
@pytest.mark.parametrize("stopping", RULES, ids=str)
def test_certificates_err_no_more_often_than_alpha_under_any_stopping_rule(
    stopping: Stopping, shares: list[float]
) -> None:
    alpha, sigma = 0.05, 0.5
    k, n, k0, selected = certify_all(shares, stopping, alpha=alpha, sigma=sigma, seed=5)
    kinds, kind = np.unique(np.stack([k, n, k0]), axis=1, return_inverse=True)
    bound = lower_bound(kinds[0], kinds[1], k0=kinds[2], n0=20, alpha=alpha)[kind]
    tolerated = binom.isf(1e-6, IMAGES, alpha) / IMAGES
    assert (bound > np.array(shares)[selected]).mean() <= tolerated
    assert n.max() <= stopping.max_draws
    low, high = radius_interval(
        kinds[0], kinds[1], k0=kinds[2], n0=20, alpha=alpha, futility=stopping.futility, sigma=sigma
    )
    true_radius = np.maximum(0, sigma * norm.ppf(shares))[selected]
    assert (low[kind] > true_radius).mean() <= tolerated
    assert (high[kind] < true_radius).mean() <= binom.isf(1e-6, IMAGES, stopping.futility) / IMAGES


def test_an_easy_radius_takes_few_draws_and_is_certified() -> None:
    stopping = Stopping(radii=(0.25,), max_draws=100_000)
    k, n, k0, _ = certify_all([0.9, 0.1], stopping, alpha=0.001, sigma=0.5, seed=6)
    assert np.mean(n) < 300, "of 100,000 that the fixed procedure draws"
    kinds, kind = np.unique(np.stack([k, n, k0]), axis=1, return_inverse=True)
    bound = lower_bound(kinds[0], kinds[1], k0=kinds[2], n0=20, alpha=0.001)[kind]
    assert (stats.radius(bound, sigma=0.5) >= 0.25).mean() > 0.998


# ---------------------------------------------------------------- properties


@settings(max_examples=60)
@given(counts(), ALPHAS)
def test_votes_move_the_bound_as_they_should(votes: Counts, alpha: float) -> None:
    k, n, k0, n0 = votes
    bound, one_more, vote_for, vote_against, careful, ten_times = (
        float(lower_bound(*seen, k0=k0, n0=n0, alpha=level))
        for *seen, level in (
            (k, n, alpha),
            (min(k + 1, n), n, alpha),
            (k + 1, n + 1, alpha),
            (k, n + 1, alpha),
            (k, n, alpha / 2),
            (10 * k, 10 * n, alpha),
        )
    )
    slack = 1e-9 * bound
    assert 0 <= bound <= k / n
    assert (bound == 0) if k == 0 else (bound < k / n)
    assert one_more >= bound - slack
    assert vote_for >= bound - slack
    assert vote_against <= bound + slack
    assert careful <= bound + slack
    # With votes and prior in agreement, ten times the draws tell more.
    if k0 == round(n0 * k / n) and k and n >= 100:
        assert ten_times >= bound


def test_more_draws_of_the_same_share_tighten_both_bounds() -> None:
    n = np.array([100, 1000, 10_000, 100_000, 1_000_000])
    low = lower_bound(n * 9 // 10, n, k0=90, n0=100, alpha=0.001)
    high = upper_bound(n * 9 // 10, n, k0=90, n0=100, alpha=0.001)
    assert (np.diff(low) > 0).all()
    assert (np.diff(high) < 0).all()
    assert (low < 0.9).all()
    assert (high > 0.9).all()
    # The price of looking at all times, at the full budget, is small.
    once = stats.radius(stats.lower_bound(90_000, 100_000, alpha=0.001), sigma=0.5)
    assert 0 < once - stats.radius(low[3], sigma=0.5) < 0.004


def test_no_draws_and_one_sided_votes() -> None:
    assert lower_bound([0, 0], [0, 50], k0=9, n0=10, alpha=0.01).tolist() == [0.0, 0.0]
    assert upper_bound([0, 50], [0, 50], k0=9, n0=10, alpha=0.01).tolist() == [1.0, 1.0]
    assert log_evidence([0.1, 0.9], 0, 0, k0=9, n0=10).tolist() == [0.0, 0.0]
    low, high = radius_interval([0, 50, 0], [0, 50, 50], k0=9, n0=10, alpha=0.01, futility=0.01, sigma=0.5)
    assert low.tolist()[0::2] == [0.0, 0.0]
    assert low[1] > 0
    assert high.tolist() == [math.inf, math.inf, 0.0]
    # All of n votes, none before: with p near 1 the mixture's tail is that of the arcsine law.
    assert 0.9 < lower_bound(100, 100, k0=0, n0=0, alpha=0.001) < stats.lower_bound(100, 100, alpha=0.001)


@given(counts(), ALPHAS)
def test_the_upper_bound_mirrors_the_lower(votes: Counts, alpha: float) -> None:
    k, n, k0, n0 = votes
    high = upper_bound(k, n, k0=k0, n0=n0, alpha=alpha)
    assert high == 1 - lower_bound(n - k, n, k0=n0 - k0, n0=n0, alpha=alpha)
    assert k / n <= high <= 1


def test_images_are_bounded_alone_as_in_a_batch() -> None:
    rng = np.random.default_rng(1)
    n = rng.integers(1, 5000, size=(20, 3))
    k, k0 = rng.binomial(n, 0.9), rng.integers(0, 101, size=3)
    batch = lower_bound(k, n, k0=k0, n0=100, alpha=0.001)
    assert batch.shape == (20, 3)
    alone = [[lower_bound(k[i, j], n[i, j], k0=k0[j], n0=100, alpha=0.001) for j in range(3)] for i in range(20)]
    assert batch == pytest.approx(np.array(alone), rel=1e-14)


def test_ten_thousand_images_take_few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Speed, without a clock: how many times the evidence is computed for an image."""
    from smoothmix import anytime

    original, sizes = anytime._evidence_and_slope, []
    monkeypatch.setattr(anytime, "_evidence_and_slope", lambda p, *rest: (sizes.append(p.size), original(p, *rest))[1])
    rng = np.random.default_rng(2)
    truth = rng.beta(3, 0.3, size=10_000)
    k, k0 = rng.binomial(100_000, truth), rng.binomial(100, truth)
    lower_bound(k, 100_000, k0=k0, n0=100, alpha=0.001)
    assert sum(sizes) < 60_000


# ---------------------------------------------------------------- stopping


def is_decided(k: int, n: int, stopping: Stopping, *, k0: int = 90, alpha: float = 0.001, sigma: float = 0.5) -> bool:
    return bool(decided(k, n, k0=k0, n0=100, alpha=alpha, sigma=sigma, stopping=stopping))


def test_a_radius_is_decided_when_certified_or_futile() -> None:
    # 900 of 1000 votes put the radius, of 0.64 at sigma 0.5, between 0.535 and 0.752.
    assert [is_decided(900, 1000, Stopping(radii=(r,))) for r in (0.53, 0.54, 0.74, 0.76)] == [True, False, False, True]
    assert is_decided(900, 1000, Stopping(radii=(0.1, 0.5, 0.8, 1.0)))
    assert not is_decided(900, 1000, Stopping(radii=(0.1, 0.6, 1.0)))
    # A bolder futility gives the middle up sooner.
    assert is_decided(900, 1000, Stopping(radii=(0.74,), futility=0.1))


def test_a_radius_beyond_the_budget_is_decided_at_once() -> None:
    reachable = float(radius_interval(2000, 2000, k0=90, n0=100, alpha=0.001, futility=0.5, sigma=0.5)[0])
    for r, hopeless in ((reachable * 0.999, False), (reachable * 1.001, True)):
        assert is_decided(0, 0, Stopping(radii=(r,), max_draws=2000)) == hopeless
        assert is_decided(1000, 1000, Stopping(radii=(r,), max_draws=2000)) == hopeless
    assert not is_decided(1000, 1000, Stopping(radii=(reachable * 1.001,), max_draws=100_000))


def test_radius_zero_asks_for_a_class() -> None:
    wants_class = Stopping(radii=(0.0,))
    assert is_decided(600, 1000, wants_class, k0=60)
    assert not is_decided(510, 1000, wants_class, k0=51)
    assert is_decided(400, 1000, wants_class, k0=40)


def test_the_tolerance_is_on_the_interval_of_the_radius() -> None:
    low, high = radius_interval(900, 1000, k0=90, n0=100, alpha=0.001, futility=0.001, sigma=0.5)
    width = float(high - low)
    assert is_decided(900, 1000, Stopping(tolerance=width + 1e-9))
    assert not is_decided(900, 1000, Stopping(tolerance=width - 1e-9))
    # Below 1/2 on both sides there is no radius to know: the image will be abstained from.
    assert is_decided(300, 1000, Stopping(tolerance=1e-6), k0=30)
    # All votes for the class: no upper bound, but near the end of the budget little is left to gain.
    assert not is_decided(1000, 1000, Stopping(tolerance=0.05))
    assert is_decided(1000, 1000, Stopping(tolerance=0.05, max_draws=1100))


def test_rules_given_together_must_all_be_met_until_the_budget_is_spent() -> None:
    met, unmet = {"radii": (0.5,)}, {"radii": (0.6,)}
    assert is_decided(900, 1000, Stopping(**met, tolerance=0.3))
    assert not is_decided(900, 1000, Stopping(**met, tolerance=0.1))
    assert not is_decided(900, 1000, Stopping(**unmet, tolerance=0.3))
    assert is_decided(900, 1000, Stopping(**unmet, tolerance=0.1, max_draws=1000))
    by_budget = decided([0, 90, 99], [0, 99, 100], k0=9, n0=10, alpha=0.1, sigma=1.0, stopping=Stopping(max_draws=100))
    assert by_budget.tolist() == [False, False, True]


@given(st.integers(1, 500), st.integers(1, 20_000), st.floats(1, 3))
def test_rounds_grow_in_whole_blocks_to_the_budget(block: int, max_draws: int, growth: float) -> None:
    totals = [0]
    while totals[-1] < max_draws:
        totals.append(next_total(totals[-1], block=block, max_draws=max_draws, growth=growth))
        assert totals[-1] > totals[-2]
    assert totals[-1] == max_draws
    assert all(total % block == 0 for total in totals[:-1])
    assert all(b <= a * growth + block for a, b in itertools.pairwise(totals))
    assert next_total(max_draws + 3, block=block, max_draws=max_draws) == max_draws + 3


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(("k", "n", "k0", "n0"), [(3, 2, 0, 0), (-1, 2, 0, 0), (1, 2, 3, 2), (1, 2, -1, 2)])
def test_impossible_votes_are_refused(k: int, n: int, k0: int, n0: int) -> None:
    for bound in (lower_bound, upper_bound):
        with pytest.raises(UsageError, match="votes must lie between 0 and the number of draws"):
            bound(k, n, k0=k0, n0=n0, alpha=0.1)
    with pytest.raises(UsageError, match="votes"):
        log_evidence(0.5, k, n, k0=k0, n0=n0)
    with pytest.raises(UsageError, match="votes"):
        decided(k, n, k0=k0, n0=n0, alpha=0.1, sigma=0.5, stopping=Stopping())


@pytest.mark.parametrize("outside", [0.0, 1.0, -1.0, math.nan])
def test_chances_outside_0_and_1_are_refused(outside: float) -> None:
    with pytest.raises(UsageError, match="alpha must lie strictly between 0 and 1"):
        lower_bound(1, 2, k0=1, n0=1, alpha=outside)
    with pytest.raises(UsageError, match="alpha must lie strictly between 0 and 1"):
        is_decided(1, 2, Stopping(), alpha=outside)
    with pytest.raises(UsageError, match="futility must lie strictly between 0 and 1"):
        radius_interval(1, 2, k0=1, n0=1, alpha=0.1, futility=outside, sigma=0.5)
    with pytest.raises(UsageError, match="p must lie strictly between 0 and 1"):
        log_evidence([0.5, outside], 1, 2, k0=1, n0=1)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"tolerance": -0.1}, "tolerance must be positive, got -0.1"),
        ({"tolerance": 0.0}, "tolerance must be positive, got 0.0"),
        ({"tolerance": math.nan}, "tolerance must be positive"),
        ({"radii": (0.5, -0.5)}, r"radii must be zero or more, got \[0.5, -0.5\]"),
        ({"radii": (math.inf,)}, "radii must be zero or more"),
        ({"max_draws": 0}, "max_draws must be at least 1, got 0"),
        ({"futility": 1.0}, "futility must lie strictly between 0 and 1, got 1.0"),
    ],
)
def test_wrong_stopping_rules_are_refused_where_they_are_born(wrong: dict[str, float], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Stopping(**wrong)


def test_a_wrong_sigma_is_refused() -> None:
    with pytest.raises(UsageError, match="sigma must be a positive number"):
        is_decided(1, 2, Stopping(), sigma=0.0)
    with pytest.raises(UsageError, match="sigma must be a positive number"):
        radius_interval(1, 2, k0=1, n0=1, alpha=0.1, futility=0.1, sigma=-1.0)


@pytest.mark.parametrize("wrong", [{"n": -1}, {"block": 0}, {"max_draws": 0}, {"growth": 0.5}, {"growth": math.nan}])
def test_wrong_rounds_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))):
        next_total(**{"n": 0, "block": 10, "max_draws": 100, **wrong})
