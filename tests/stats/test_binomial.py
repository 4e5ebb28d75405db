"""The guarantees, simulated; the bounds, against scipy, by hand, and by their properties."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta, binom, binomtest, norm

from smoothmix.errors import UsageError
from smoothmix.noise import GAUSSIAN
from smoothmix.stats.binomial import (
    ABSTAIN,
    draws_to_predict,
    lower_bound,
    predicted,
    prediction_p_value,
    top_two,
    upper_bound,
)
from smoothmix.stats.guarantees import FixedDraws

REPEATS = 200_000
radius = GAUSSIAN.radius
probability_for = GAUSSIAN.probability
ALPHAS = st.floats(1e-6, 0.5)


def largest_radius(n: int, *, alpha: float, sigma: float) -> float:
    return FixedDraws(n, alpha=alpha).largest_radius(GAUSSIAN, sigma=sigma)


def draws_for(wanted: float, *, alpha: float, sigma: float) -> int:
    return FixedDraws(alpha=alpha).draws_for(wanted, GAUSSIAN, sigma=sigma)


def require_enough_draws(n: int, *, alpha: float, sigma: float, wanted: float = 0.0) -> None:
    FixedDraws(n, alpha=alpha).require_reach(GAUSSIAN, sigma=sigma, wanted=wanted)


def tolerated(alpha: float) -> float:
    """A rate that a right procedure exceeds in this simulation with chance below 1e-6."""
    return float(binom.isf(1e-6, REPEATS, alpha)) / REPEATS


@pytest.mark.parametrize("alpha", [0.001, 0.01, 0.1])
@pytest.mark.parametrize(
    ("n", "p"), [(10, 0.5), (100, 0.6), (1000, 0.5), (1000, 0.9), (1000, 0.999), (100_000, 0.99)]
)
def test_the_lower_bound_exceeds_the_truth_no_more_often_than_alpha(
    n: int, p: float, alpha: float
) -> None:
    counts = np.random.default_rng(7).binomial(n, p, size=REPEATS)
    values, where = np.unique(counts, return_inverse=True)
    assert (lower_bound(values, n, alpha=alpha)[where] > p).mean() <= tolerated(alpha)
    assert (upper_bound(values, n, alpha=alpha)[where] < p).mean() <= tolerated(alpha)


@pytest.mark.parametrize(("n", "p"), [(1000, 0.9), (100, 0.7)])
def test_the_lower_bound_is_tight(n: int, p: float) -> None:
    """It is the largest bound of its kind: a bound of half the alpha errs clearly less often."""
    chance = binom.pmf(np.arange(n + 1), n, p)[
        lower_bound(np.arange(n + 1), n, alpha=0.01) > p
    ].sum()
    assert 0.005 < chance <= 0.01


@pytest.mark.parametrize("alpha", [0.001, 0.05])
@pytest.mark.parametrize("p", [(0.5, 0.5), (0.4, 0.35, 0.25), (0.34, 0.33, 0.33)])
def test_a_prediction_is_wrong_no_more_often_than_alpha(p: tuple[float, ...], alpha: float) -> None:
    """The worst case: another class than the likeliest is returned.

    Ties have no likeliest: any answer is wrong.
    """
    votes = np.random.default_rng(11).multinomial(200, p, size=REPEATS)
    answers = predicted(votes, alpha=alpha)
    truth = {0} if p[0] > p[1] else set()
    wrong = np.isin(answers, [ABSTAIN, *truth], invert=True)
    assert wrong.mean() <= tolerated(alpha)


def test_certified_radii_are_too_large_no_more_often_than_alpha() -> None:
    """The whole procedure at one image.

    Select, estimate, certify; a true top probability of 0.7.
    """
    rng, sigma, alpha = np.random.default_rng(3), 0.5, 0.01
    p = np.array([0.7, 0.2, 0.1])
    selected = rng.multinomial(5, p, size=REPEATS).argmax(axis=1)
    counts = rng.multinomial(500, p, size=REPEATS)[np.arange(REPEATS), selected]
    bound = lower_bound(np.arange(501), 500, alpha=alpha)[counts]
    radii = radius(bound, sigma=sigma)
    truth = np.where(selected == 0, norm.ppf(0.7) * sigma, 0.0)
    assert (radii > truth).mean() <= tolerated(alpha)


@given(st.integers(1, 10_000), st.data(), ALPHAS)
def test_bounds_agree_with_scipy(n: int, data: st.DataObject, alpha: float) -> None:
    k = data.draw(st.integers(0, n))
    expected = beta.ppf(alpha, k, n - k + 1) if k else 0.0
    assert lower_bound(k, n, alpha=alpha) == pytest.approx(expected, abs=1e-12, rel=1e-9)
    interval = binomtest(k, n).proportion_ci(confidence_level=1 - 2 * alpha, method="exact")
    assert lower_bound(k, n, alpha=alpha) == pytest.approx(interval.low, abs=1e-9)
    assert upper_bound(k, n, alpha=alpha) == pytest.approx(interval.high, abs=1e-9)


@given(st.integers(1, 5000), st.data(), ALPHAS)
def test_the_bound_grows_with_votes_and_alpha_and_stays_below_the_share(
    n: int, data: st.DataObject, alpha: float
) -> None:
    k = data.draw(st.integers(0, n - 1))
    bound = lower_bound(k, n, alpha=alpha)
    assert bound < lower_bound(k + 1, n, alpha=alpha)
    assert bound <= lower_bound(k, n, alpha=1.5 * alpha)
    assert bound <= k / n
    assert lower_bound(k, n + 1, alpha=alpha) <= bound, "another vote against cannot help"
    assert lower_bound(k + 1, n + 1, alpha=alpha) >= bound, "another vote for cannot hurt"


@given(st.floats(0.0, 4.0), st.floats(0.01, 2.0))
def test_radius_and_probability_are_each_others_inverse(r: float, sigma: float) -> None:
    r = min(r, 5 * sigma)
    assert radius(probability_for(r, sigma=sigma), sigma=sigma) == pytest.approx(
        r, rel=1e-6, abs=1e-6
    )


def test_values_checked_by_hand() -> None:
    # All of n votes: the bound solves p^n = alpha.
    assert lower_bound(100, 100, alpha=0.001) == pytest.approx(0.001 ** (1 / 100), rel=1e-12)
    # One of n votes: 1 - (1 - p)^n = alpha.
    assert lower_bound(1, 50, alpha=0.01) == pytest.approx(1 - 0.99 ** (1 / 50), rel=1e-9)
    assert radius(norm.cdf(1.0), sigma=0.25) == pytest.approx(0.25)
    assert radius(0.5, sigma=1.0) == 0.0
    assert radius([0.2, 0.0], sigma=1.0).tolist() == [0.0, 0.0]
    # 3 and 0 votes: both tails of a fair coin, 2 / 8.
    assert prediction_p_value(3, 0) == pytest.approx(0.25)
    # The paper's setting: the cliff of the certified-accuracy curves at sigma 0.5.
    assert largest_radius(100_000, alpha=0.001, sigma=0.5) == pytest.approx(1.90576, abs=1e-4)


@given(st.integers(0, 300), st.integers(0, 300))
def test_the_prediction_test_is_scipys(first: int, second: int) -> None:
    expected = binomtest(max(first, second), first + second, 0.5).pvalue if first + second else 1.0
    assert prediction_p_value(first, second) == pytest.approx(expected, rel=1e-9)


def test_predictions_abstain_at_ties_and_answer_when_sure() -> None:
    assert predicted([[50, 50, 0], [0, 3, 997], [1, 1, 0]], alpha=0.001).tolist() == [
        ABSTAIN,
        2,
        ABSTAIN,
    ]


@given(st.lists(st.integers(0, 40), min_size=3, max_size=3), st.integers(0, 6))
def test_a_prediction_holds_whatever_ambiguous_draws_would_have_voted(
    counts: list[int], nobody: int
) -> None:
    (answer,) = predicted(counts, alpha=0.05, nobody=nobody)
    if answer == ABSTAIN:
        return
    for first in range(nobody + 1):
        for second in range(nobody + 1 - first):
            votes = np.add(counts, [first, second, nobody - first - second])
            assert predicted(votes, alpha=0.05).tolist() == [answer]


def test_ambiguous_draws_never_make_the_runner_up_the_answer() -> None:
    assert predicted([[60, 10], [60, 10]], alpha=0.05, nobody=[10, 500]).tolist() == [0, ABSTAIN]
    first, second = top_two([[60, 10, 0]], nobody=500)
    assert (first.tolist(), second.tolist()) == ([60], [60])


@given(st.floats(0, 12), ALPHAS, st.floats(0.1, 1.5))
def test_draws_for_a_radius_is_the_smallest_number_that_can_certify_it(
    r: float, alpha: float, sigma: float
) -> None:
    r = min(r, 9 * sigma)
    n = draws_for(r, alpha=alpha, sigma=sigma)
    assert alpha ** (1 / n) > 0.5 - 1e-12
    assert largest_radius(n, alpha=alpha, sigma=sigma) >= r * (1 - 1e-9)
    if n > 1:
        assert alpha ** (1 / (n - 1)) <= 0.5 + 1e-12 or largest_radius(
            n - 1, alpha=alpha, sigma=sigma
        ) < r * (1 + 1e-9)


@given(st.integers(1, 60), st.sampled_from([-1, 0, 1]))
def test_the_smallest_n_that_certifies_anything_is_exact_at_powers_of_two(
    k: int, side: int
) -> None:
    alpha = math.nextafter(2.0**-k, 1.0 if side > 0 else 0.0) if side else 2.0**-k
    n = draws_for(0.0, alpha=alpha, sigma=1.0)
    assert Fraction(1, 2**n) < Fraction(alpha) <= Fraction(1, 2 ** (n - 1))


@given(st.integers(1, 10**6), ALPHAS, st.floats(0.1, 2.0))
def test_the_largest_radius_is_that_of_all_votes(n: int, alpha: float, sigma: float) -> None:
    expected = float(radius(lower_bound(n, n, alpha=alpha), sigma=sigma))
    assert largest_radius(n, alpha=alpha, sigma=sigma) == pytest.approx(expected, abs=1e-7)


@given(ALPHAS)
def test_fewer_draws_than_these_can_never_predict(alpha: float) -> None:
    n = draws_to_predict(alpha)
    assert predicted([[n, 0]], alpha=alpha).tolist() == [0]
    if n > 1:
        assert predicted([[n - 1, 0]], alpha=alpha).tolist() == [ABSTAIN]


def test_too_few_draws_are_refused_with_the_number_that_would_do() -> None:
    require_enough_draws(10, alpha=0.001, sigma=0.5)
    with pytest.raises(
        UsageError,
        match=r"n=9 draws at alpha=0.001 can never certify anything: it takes n=10 or more",
    ):
        require_enough_draws(9, alpha=0.001, sigma=0.5)
    with pytest.raises(
        UsageError, match=r"can never certify the radius 2 at sigma 0.5: it takes n=\d+ or more"
    ):
        require_enough_draws(100_000, alpha=0.001, sigma=0.5, wanted=2.0)


@pytest.mark.parametrize("wanted", [18.0, 18.78, 18.8, 18.84, 19.0, 1e300])
def test_a_radius_that_no_number_of_draws_reaches_is_said_so(wanted: float) -> None:
    """Also where what p_A lacks to 1 is a number so small that its inverse is none."""
    try:
        assert draws_for(wanted, alpha=0.001, sigma=0.5) > 1e280
    except UsageError as error:
        # Either is right, a crash is not.
        assert "no number of draws certifies radius" in str(error)  # noqa: PT017
    with pytest.raises(UsageError):
        require_enough_draws(100_000, alpha=0.001, sigma=0.5, wanted=wanted)


@pytest.mark.parametrize("alpha", [0.0, 1.0, -1.0, math.nan])
def test_an_alpha_outside_0_and_1_is_refused(alpha: float) -> None:
    with pytest.raises(UsageError, match="alpha must lie strictly between 0 and 1"):
        lower_bound(1, 2, alpha=alpha)


def test_impossible_votes_are_refused() -> None:
    with pytest.raises(UsageError, match="votes"):
        lower_bound(3, 2, alpha=0.1)
