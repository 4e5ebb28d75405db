"""The numbers of the anytime bounds: against slow high precision, and how votes move them."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.special import expit

from smoothmix.errors import UsageError
from smoothmix.noise import GAUSSIAN
from smoothmix.stats import binomial as stats
from smoothmix.stats.anytime import (
    Stopping,
    decided,
    log_evidence,
    lower_bound,
    radius_interval,
    upper_bound,
)
from tests.helpers.anytime_reference import ALPHAS, Counts, counts, slow_log_evidence

# ---------------------------------------------------------------- against high precision


@pytest.mark.parametrize("p", [1e-6, 0.3, 0.5, 0.9, 1 - 1e-6])
@pytest.mark.parametrize(
    "votes", [(0, 3, 0, 0), (30, 40, 7, 10), (40, 40, 1, 100), (2, 40, 100, 100)]
)
def test_the_slow_evidence_is_a_mean_of_likelihood_ratios(p: float, votes: Counts) -> None:
    """The reference itself, against the integral that defines it.

    The mean over the prior, cut to q > p.
    """
    k, n, k0, n0 = votes
    with mp.workdps(30):
        lacking = 1 - mp.mpf(p)

        def integral(k: int, n: int) -> mp.mpf:
            """Prior times likelihood ratio; 1 - q = (1 - p) * u^2 removes the prior's pole at 1."""
            x, y = k + k0 - mp.mpf(1) / 2, n - k + n0 - k0
            return mp.quad(
                lambda u: ((1 - lacking * u**2) / p) ** x * u ** (2 * y),
                [0, 0.5, 0.8, 0.9, 0.99, 1],
            )

        mean = integral(k, n) / integral(0, 0)
        assert float(mp.log(mean)) == pytest.approx(
            float(slow_log_evidence(p, *votes)), rel=1e-9, abs=1e-9
        )


def check_evidence(p: float, votes: Counts) -> None:
    k, n, k0, n0 = votes
    with mp.workdps(50):
        error = abs(
            float(log_evidence(p, k, n, k0=k0, n0=n0)) - (exact := slow_log_evidence(p, *votes))
        )
    assert error <= 1e-9 * max(1, abs(exact)), f"{p=} {votes=}"


@settings(max_examples=100)
@given(counts(), st.data())
def test_the_evidence_has_nine_digits(votes: Counts, data: st.DataObject) -> None:
    k, n, k0, n0 = votes
    anywhere = st.one_of(
        st.floats(1e-12, 1 - 1e-12), st.floats(-600, 36).map(lambda s: float(expit(s)))
    )
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
    """A million draws: beyond the prior 1 - I_p(a, b) underflows, near 0 the powers overflow."""
    check_evidence(p, (k, 1_000_000, k0, n0))


@settings(max_examples=60)
@given(counts(least=1), ALPHAS)
def test_the_bound_is_just_below_the_root(votes: Counts, alpha: float) -> None:
    """The exact evidence at the bound passes, by no more than rounding and the search explain."""
    k, n, k0, n0 = votes
    bound = float(lower_bound(k, n, k0=k0, n0=n0, alpha=alpha))
    assume(bound > 0)
    with mp.workdps(50):
        excess = slow_log_evidence(bound, *votes) + mp.log(mp.mpf(alpha))
    # The evidence falls by at most k, or so, in a unit of the log-odds.
    assert 0 <= excess <= 2e-14 * (n + n0 + 100) + 4e-12 * (k + 1)


@pytest.mark.parametrize(
    "votes", [(1, 1, 1, 1), (95, 100, 90, 100), (1000, 1000, 100, 100), (7, 900, 60, 100)]
)
def test_the_bound_is_the_root_found_by_bisection(votes: Counts) -> None:
    k, n, k0, n0 = votes
    with mp.workdps(40):
        low, high = mp.mpf("1e-40"), mp.mpf(k) / n * (1 - mp.mpf("1e-30"))
        for _ in range(150):
            middle = (low + high) / 2
            passes = slow_log_evidence(middle, *votes) >= mp.log(1000)
            low, high = (middle, high) if passes else (low, middle)
    assert lower_bound(k, n, k0=k0, n0=n0, alpha=0.001) == pytest.approx(float(low), rel=1e-11)


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
    once = GAUSSIAN.radius(stats.lower_bound(90_000, 100_000, alpha=0.001), sigma=0.5)
    assert 0 < once - GAUSSIAN.radius(low[3], sigma=0.5) < 0.004


def test_no_draws_and_one_sided_votes() -> None:
    assert lower_bound([0, 0], [0, 50], k0=9, n0=10, alpha=0.01).tolist() == [0.0, 0.0]
    assert upper_bound([0, 50], [0, 50], k0=9, n0=10, alpha=0.01).tolist() == [1.0, 1.0]
    assert log_evidence([0.1, 0.9], 0, 0, k0=9, n0=10).tolist() == [0.0, 0.0]
    low, high = radius_interval(
        [0, 50, 0], [0, 50, 50], k0=9, n0=10, alpha=0.01, futility=0.01, sigma=0.5
    )
    assert low.tolist()[0::2] == [0.0, 0.0]
    assert low[1] > 0
    assert high.tolist() == [math.inf, math.inf, 0.0]
    # All of n votes, none before: with p near 1 the mixture's tail is that of the arcsine law.
    assert (
        0.9
        < lower_bound(100, 100, k0=0, n0=0, alpha=0.001)
        < stats.lower_bound(100, 100, alpha=0.001)
    )


@given(counts(), ALPHAS)
def test_the_upper_bound_mirrors_the_lower(votes: Counts, alpha: float) -> None:
    k, n, k0, n0 = votes
    high = float(upper_bound(k, n, k0=k0, n0=n0, alpha=alpha))
    exact = 1 - Fraction(float(lower_bound(n - k, n, k0=n0 - k0, n0=n0, alpha=alpha)))
    assert math.nextafter(high, 0) < exact <= high
    assert k / n <= high <= 1


def test_images_are_bounded_alone_as_in_a_batch() -> None:
    rng = np.random.default_rng(1)
    n = rng.integers(1, 5000, size=(20, 3))
    k, k0 = rng.binomial(n, 0.9), rng.integers(0, 101, size=3)
    batch = lower_bound(k, n, k0=k0, n0=100, alpha=0.001)
    assert batch.shape == (20, 3)
    alone = [
        [lower_bound(k[i, j], n[i, j], k0=k0[j], n0=100, alpha=0.001) for j in range(3)]
        for i in range(20)
    ]
    assert batch == pytest.approx(np.array(alone), rel=1e-14)


def test_ten_thousand_images_take_few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Speed, without a clock: how many times the evidence is computed for an image."""
    from smoothmix.stats import anytime

    original, sizes = anytime.evidence_and_slope, []
    monkeypatch.setattr(
        anytime,
        "evidence_and_slope",
        lambda p, *rest: (sizes.append(p.size), original(p, *rest))[1],
    )
    rng = np.random.default_rng(2)
    truth = rng.beta(3, 0.3, size=10_000)
    k, k0 = rng.binomial(100_000, truth), rng.binomial(100, truth)
    lower_bound(k, 100_000, k0=k0, n0=100, alpha=0.001)
    assert sum(sizes) < 60_000


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("k", "n", "k0", "n0"), [(3, 2, 0, 0), (-1, 2, 0, 0), (1, 2, 3, 2), (1, 2, -1, 2)]
)
def test_impossible_votes_are_refused(k: int, n: int, k0: int, n0: int) -> None:
    for bound in (lower_bound, upper_bound):
        with pytest.raises(UsageError, match="votes must lie between 0 and the number of draws"):
            bound(k, n, k0=k0, n0=n0, alpha=0.1)
    with pytest.raises(UsageError, match="votes"):
        log_evidence(0.5, k, n, k0=k0, n0=n0)
    with pytest.raises(UsageError, match="votes"):
        decided(k, n, k0=k0, n0=n0, alpha=0.1, sigma=0.5, stopping=Stopping())
