"""Foresight: what the draws left are likely to bring, beside slow sums over all outcomes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import betabinom

from smoothmix.noise import GAUSSIAN
from smoothmix.stats.anytime import Stopping, decided, hopeful_votes, lower_bound
from tests.helpers.anytime_reference import Counts, counts

N0 = 100
ALPHA = 0.001
SIGMA = 0.5


@given(counts(), st.integers(0, 3000), st.sampled_from([0.01, 0.02, 0.1, 0.5]))
def test_hopeful_votes_are_the_quantile_of_the_votes_to_come(
    votes: Counts, left: int, foresight: float
) -> None:
    k, n, k0, n0 = votes
    hopeful = float(hopeful_votes(k, n, k0=k0, n0=n0, left=left, foresight=foresight))
    to_come = betabinom(left, k + k0 + 0.5, n - k + n0 - k0 + 0.5)
    exact = float(to_come.ppf(1 - foresight))
    # The approximation matches mean and variance; whole votes are rounded up.
    assert abs(hopeful - exact) <= 2 + 0.2 * to_come.std()
    assert 0 <= hopeful <= left
    assert hopeful == int(hopeful)


@given(counts(), st.integers(0, 100_000))
def test_less_foresight_hopes_for_more_and_none_for_all_that_is_possible(
    votes: Counts, left: int
) -> None:
    k, n, k0, n0 = votes
    levels = (0.5, 0.1, 0.02, 0.001, 0.0)
    hopes = []
    for foresight in levels:
        hopes.append(float(hopeful_votes(k, n, k0=k0, n0=n0, left=left, foresight=foresight)))
    assert hopes == sorted(hopes)
    assert hopes[-1] == left


def chance_to_certify(radius: float, k: int, n: int, *, k0: int, max_draws: int) -> float:
    """The predictive probability that `max_draws` certify a radius, over all votes to come."""
    left = max_draws - n
    more = np.arange(left + 1)
    bounds = lower_bound(k + more, max_draws, k0=k0, n0=N0, alpha=ALPHA)
    certified = GAUSSIAN.radius(bounds, sigma=SIGMA) >= radius
    to_come = betabinom(left, k + k0 + 0.5, n - k + N0 - k0 + 0.5)
    return float(to_come.pmf(more)[certified].sum())


@pytest.mark.parametrize("level", [0.02, 0.2])
@pytest.mark.parametrize("share", [0.75, 0.9, 0.99])
def test_an_image_stops_where_the_chance_to_certify_the_radius_is_below_the_level(
    share: float, level: float
) -> None:
    n, max_draws = 512, 1536
    k, k0 = round(share * n), round(share * N0)
    stopped = []
    truth_radius = float(GAUSSIAN.radius(np.asarray(share), sigma=SIGMA))
    for radius in np.linspace(0.6, 1.2, 25) * truth_radius:
        without = Stopping(radii=(radius,), max_draws=max_draws)
        rules = Stopping(radii=(radius,), max_draws=max_draws, foresight=level)
        votes = {"k0": k0, "n0": N0, "alpha": ALPHA, "sigma": SIGMA}
        # Certified already, or refuted: no foresight is needed.
        if bool(decided(k, n, stopping=without, **votes)):
            assert bool(decided(k, n, stopping=rules, **votes))
            continue
        chance = chance_to_certify(radius, k, n, k0=k0, max_draws=max_draws)
        # The sum over outcomes and the approximation may differ next to the level.
        if 0.6 * level < chance < 1.6 * level:
            continue
        stops = bool(decided(k, n, stopping=rules, **votes))
        assert stops == (chance < level)
        stopped.append(stops)
    assert set(stopped) == {True, False}, "both outcomes were seen"


def test_only_the_next_radius_counts() -> None:
    """Once a radius is certified, larger ones that are hopeless do not keep an image."""
    # 900 of 1000 votes: 0.5 is certified, 0.6 is likely, 0.72 possible and unlikely.
    votes = {"k0": 90, "n0": N0, "alpha": ALPHA, "sigma": SIGMA}
    hopeless = Stopping(radii=(0.5, 0.72), foresight=0.02)
    likely = Stopping(radii=(0.5, 0.6, 0.72), foresight=0.02)
    assert bool(decided(900, 1000, stopping=hopeless, **votes))
    assert not bool(decided(900, 1000, stopping=likely, **votes))
    assert not bool(decided(900, 1000, stopping=Stopping(radii=(0.5, 0.72)), **votes))


def test_a_tolerance_is_met_where_more_is_unlikely() -> None:
    votes = {"k0": 90, "n0": N0, "alpha": ALPHA, "sigma": SIGMA}
    # With 900 of 1000 votes the radius is 0.535 now and hardly gets above 0.69.
    assert bool(decided(900, 1000, stopping=Stopping(tolerance=0.18, foresight=0.02), **votes))
    assert not bool(decided(900, 1000, stopping=Stopping(tolerance=0.18), **votes))
    assert not bool(decided(900, 1000, stopping=Stopping(tolerance=0.05, foresight=0.02), **votes))
