"""The anytime guarantee, exactly by dynamic programming and by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit
from scipy.stats import binom, norm

from smoothmix.noise import GAUSSIAN
from smoothmix.stats import binomial as stats
from smoothmix.stats.anytime import (
    Stopping,
    decided,
    log_evidence,
    lower_bound,
    next_total,
    radius_interval,
)
from tests.helpers.anytime_reference import Counts, Ints, counts

# ---------------------------------------------------------------- what the guarantee rests on


@given(counts(), st.floats(-15, 15), st.floats(0, 1))
def test_the_evidence_is_fair_at_p_and_loses_below(
    votes: Counts, log_odds: float, fraction: float
) -> None:
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
def test_the_evidence_falls_in_p_below_the_share_of_votes_and_is_nothing_above(
    votes: Counts,
) -> None:
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
    """The smallest k for n = 1 ...

    Draws with which the evidence against p reaches 1 / alpha; n + 1 if none does.
    """
    n = np.arange(1, draws + 1)
    fails, passes = (
        np.floor(n * p).astype(np.int64) - 1,
        n + 1,
    )  # votes of a share of p or less never suffice
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
    assert min(rates) > 0.4, (
        "the guarantee is not vacuous: with more looks it comes nearer still to alpha"
    )
    assert max(rates) > 0.8


@pytest.mark.parametrize("k0", [0, 20, 100])
def test_no_selection_draws_however_misleading_break_the_guarantee(k0: int) -> None:
    assert chance_to_reach(least_votes(0.6, 3000, k0=k0, n0=100, alpha=0.01), 0.6) <= 0.01


def test_a_bound_for_one_look_fails_under_many() -> None:
    """Why there is an anytime bound.

    Clopper and Pearson's, looked at until it pleases, errs many times alpha.
    """
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
    Stopping(radii=(0.25, 0.5), max_draws=2000, foresight=0.02),
    # So bold that it gives up at the first bad luck.
    Stopping(radii=(0.0, 0.3), tolerance=0.3, max_draws=3000, foresight=0.6),
]


def certify_all(
    shares: list[float], stopping: Stopping, *, alpha: float, sigma: float, seed: int
) -> tuple[Ints, ...]:
    """Votes, draws and selection votes of the selected class of many images, and the class."""
    rng, n0 = np.random.default_rng(seed), 20
    selection = rng.multinomial(n0, shares, size=IMAGES)
    selected, k0 = selection.argmax(axis=1), selection.max(axis=1)
    truth = np.array(shares)[selected]
    k, n = np.zeros(IMAGES, dtype=np.int64), np.zeros(IMAGES, dtype=np.int64)
    total, undecided = 0, np.full(IMAGES, True)
    while undecided.any():
        total = next_total(drawn := total, batch=40, max_draws=stopping.max_draws, growth=1.3)
        k[undecided] += rng.binomial(total - drawn, truth[undecided])
        n[undecided] = total
        # Many images have the same votes: decide each kind once.
        kinds, kind = np.unique(
            np.stack([k[undecided], k0[undecided]]), axis=1, return_inverse=True
        )
        done = decided(
            kinds[0], total, k0=kinds[1], n0=n0, alpha=alpha, sigma=sigma, stopping=stopping
        )
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
    assert (GAUSSIAN.radius(bound, sigma=0.5) >= 0.25).mean() > 0.998
