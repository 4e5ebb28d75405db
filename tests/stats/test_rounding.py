"""No rounding lifts a bound or a radius: a sample of the long proofs, and what they rest on."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smoothmix.certificates.row import round_down
from smoothmix.noise import GAUSSIAN, NOISES, make_noise
from smoothmix.stats.binomial import (
    ABSTAIN,
    draws_for,
    lower_bound,
    predicted,
    smallest_remainder,
    upper_bound,
)
from smoothmix.stats.guarantees import FixedDraws
from tests.prove.bounds import CHECKS, Check, run
from tests.prove.certification import cases, guarantees, simulate


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_rounding_lifts_nothing(check: Check) -> None:
    """`make prove` checks 100,000 inputs."""
    summary = run(check, inputs=300, seed=1)
    assert not summary.too_high
    assert max(found.loss for found in summary.findings) < 1e-6, "the price is small"


@pytest.mark.parametrize("case", range(6))
@pytest.mark.parametrize("alpha", [0.01, 0.001])
def test_few_certificates_are_false(alpha: float, case: int) -> None:
    """`make prove` certifies 200,000 images per case, and with an adversary who stops at will."""
    rng = np.random.default_rng(2)
    chosen = cases(alpha)[case]
    for guarantee in guarantees(alpha)[::2]:
        rate = simulate(chosen, guarantee, 500, rng)
        assert not rate.refutes, str(rate)


def test_the_simulation_finds_a_bound_that_is_too_high() -> None:
    """The bound of a larger alpha than the claimed one does not pass."""
    greedy = FixedDraws(1_000, n0=10, alpha=0.05)
    rate = simulate(cases(0.05)[0], greedy, 5_000, np.random.default_rng(3))
    assert not rate.refutes
    claimed = FixedDraws(1_000, n0=10, alpha=0.01)
    assert replace(rate, guarantee=claimed).refutes


@given(st.integers(1, 300), st.data(), st.floats(1e-100, 0.9))
def test_the_bound_is_below_the_root_in_whole_numbers(
    n: int, data: st.DataObject, alpha: float
) -> None:
    """The exact chance of so many votes at the bound is at most alpha; just above, it is more."""
    k = data.draw(st.integers(1, n))
    bound = float(lower_bound(k, n, alpha=alpha))
    assert exact_tail(k, n, Fraction(bound)) <= Fraction(alpha)
    above = bound + 1e-11 * bound * (1 - bound) + 1e-15
    assert exact_tail(k, n, Fraction(above)) > Fraction(alpha)


def exact_tail(k: int, n: int, p: Fraction) -> Fraction:
    """The chance of k or more of n votes, as a fraction."""
    # With a common denominator all is whole numbers.
    success = p.numerator
    failure = p.denominator - p.numerator
    outcomes = 0
    for votes in range(k, n + 1):
        outcomes += math.comb(n, votes) * success**votes * failure ** (n - votes)
    return Fraction(outcomes, p.denominator**n)


@given(st.integers(0, 10**6), st.integers(1, 10**6), st.floats(1e-10, 0.5))
def test_upper_bounds_are_rounded_up(k: int, n: int, alpha: float) -> None:
    k = min(k, n)
    exact = 1 - Fraction(float(lower_bound(n - k, n, alpha=alpha)))
    found = float(upper_bound(k, n, alpha=alpha))
    assert math.nextafter(found, 0) < exact <= found


@given(st.integers(1, 10**9), st.floats(1e-100, 0.5), st.sampled_from(sorted(NOISES)))
def test_no_votes_certify_more_than_the_largest_radius(n: int, alpha: float, noise: str) -> None:
    kind = make_noise(noise)
    best = float(kind.radius(lower_bound(n, n, alpha=alpha), sigma=0.5))
    assert best <= FixedDraws(n, alpha=alpha).largest_radius(kind, sigma=0.5)


@given(st.integers(1, 10**9), st.floats(1e-100, 0.4))
def test_draws_that_suffice_are_not_refused(n: int, alpha: float) -> None:
    remainder = smallest_remainder(n, alpha=alpha) * (1 + 1.2e-14)
    least = draws_for(min(0.5, remainder), alpha=alpha)
    assert least <= max(n, draws_for(0.5, alpha=alpha))


@pytest.mark.parametrize("n", [2, 11, 30, 52])
def test_a_p_value_of_exactly_alpha_suffices_and_a_larger_one_does_not(n: int) -> None:
    alpha = 2.0 ** (1 - n)
    assert predicted([[n, 0]], alpha=alpha).tolist() == [0]
    assert predicted([[n, 0]], alpha=math.nextafter(alpha, 0)).tolist() == [ABSTAIN]


@given(st.floats(0, 1e15))
def test_the_text_of_a_radius_is_never_above_it(value: float) -> None:
    cut = round_down(value)
    text = f"{cut:.6f}"
    assert Fraction(text) <= Fraction(value)
    assert float(text) == cut, "a file returns the number that was written"


@given(st.integers(0, 10**8), st.integers(0, 10**8))
def test_radii_are_compared_as_their_texts_say(recorded: int, wanted: int) -> None:
    """Of numbers with six decimals, floats have the order of the decimal numbers."""
    assert (float(f"{recorded}e-6") >= float(f"{wanted}e-6")) == (recorded >= wanted)


def test_votes_for_half_at_most_are_never_certified() -> None:
    """All votes agree and 2^-n is exactly alpha: the bound is 1/2, which certifies nothing."""
    for n in (1, 5, 10, 40):
        bound = lower_bound(n, n, alpha=2.0**-n)
        assert 0.5 - 1e-12 < bound <= 0.5
        assert GAUSSIAN.radius(bound, sigma=1.0) == 0
