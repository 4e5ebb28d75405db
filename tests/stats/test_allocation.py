"""The allocation of a budget: simulated guarantees, and expected gains beside slow sums."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import betabinom, norm

from smoothmix.errors import UsageError
from smoothmix.noise import GAUSSIAN
from smoothmix.stats.allocation import Allocator, Budget, Goal, expected_certified
from smoothmix.stats.anytime import Stopping, expected_growth, lower_bound
from smoothmix.stats.guarantees import Anytime, SelectedVotes
from tests.helpers.anytime_reference import Ints

ALPHA = 0.05
SIGMA = 0.5
BATCH = 100
RADII = (0.25, 0.5)
RULES: dict[Goal, Stopping] = {
    "accuracy": Stopping(radii=RADII, max_draws=2_000, foresight=0.02),
    "acr": Stopping(max_draws=2_000),
}


def allocate(
    p: np.ndarray,
    goal: Goal,
    *,
    budget: int,
    seed: int = 0,
    on_round: Callable[[Allocator, list[int]], None] = lambda allocator, drawn: None,
) -> Allocator:
    """Spend a budget on images of these probabilities."""
    rng = np.random.default_rng(seed)
    guarantee = Anytime(RULES[goal], n0=20, alpha=ALPHA)
    allocator = Allocator(
        guarantee,
        GAUSSIAN,
        sigma=SIGMA,
        batch=BATCH,
        goal=goal,
        selection_votes=rng.binomial(20, p),
    )
    while blocks := allocator.plan(budget - allocator.spent):
        positions = np.array([block.position for block in blocks])
        stops = np.array([block.stop for block in blocks])
        more = rng.binomial(stops - allocator.draws[positions], p[positions])
        allocator.add(positions.tolist(), allocator.votes[positions] + more, stops)
        on_round(allocator, positions.tolist())
    return allocator


def bounds(allocator: Allocator, images: Sequence[int] | slice = slice(None)) -> np.ndarray:
    selection = np.full_like(allocator.draws, allocator.guarantee.n0)
    votes = (allocator.votes, allocator.draws, allocator.selection_votes, selection)
    return allocator.guarantee.lower_bound(SelectedVotes(*[each[images] for each in votes]))


# Just below what the radius needs: a certificate of that radius would be false.
@pytest.mark.parametrize(
    ("goal", "radius"), [("accuracy", 0.0), ("accuracy", 0.25), ("accuracy", 0.5), ("acr", 0.5)]
)
def test_false_certificates_are_rarer_than_alpha_where_p_is_chosen_against_the_rule(
    goal: Goal, radius: float
) -> None:
    """The allocator prefers images with lucky votes, and stops them once they are certified."""
    truth = norm.cdf(radius / SIGMA) - 1e-9
    images = 700 if goal == "accuracy" else 1_500
    # Others compete for the draws, so that lucky images are chosen and unlucky ones left.
    p = np.full(images, truth)
    p[::4] = norm.cdf((radius + 0.2) / SIGMA)
    ever_false = np.zeros(images, dtype=bool)

    def note_false(allocator: Allocator, drawn: list[int]) -> None:
        # The bound must hold after every round, not only after the last one.
        ever_false[drawn] |= bounds(allocator, drawn) > p[drawn]

    allocator = allocate(p, goal, budget=images * 250, on_round=note_false)
    false = ever_false[p == truth]
    # 3.7 standard deviations: the chance that a rate of alpha exceeds this is 1e-4.
    assert false.mean() <= ALPHA + 3.7 * np.sqrt(ALPHA / false.size)
    assert false.any(), "the test can fail"
    assert allocator.draws[p == truth].std() > 0


@pytest.mark.parametrize("goal", ["accuracy", "acr"])
def test_the_budget_is_spent_in_whole_batches_and_never_exceeded(goal: Goal) -> None:
    p = np.linspace(0.5, 0.99, 40)
    allocator = allocate(p, goal, budget=10_000)
    assert 10_000 - BATCH < allocator.spent <= 10_000
    assert not (allocator.draws % BATCH).any()


def test_selection_draws_alone_may_be_the_budget() -> None:
    allocator = allocate(np.full(10, 0.9), "acr", budget=200)
    assert allocator.spent == 200
    assert not bounds(allocator).any()


def test_draws_go_where_they_decide_something() -> None:
    certain, near, hopeless = 0.99, norm.cdf(0.55 / SIGMA), 0.3
    allocator = allocate(np.repeat([certain, near, hopeless], 20), "accuracy", budget=24_000)
    sure, close, lost = allocator.draws.reshape(3, 20).mean(1)
    assert close > 3 * sure
    assert close > 3 * lost
    assert (bounds(allocator)[:20] >= norm.cdf(0.5 / SIGMA)).all()


def test_it_beats_equal_shares() -> None:
    """Certified accuracy with the same draws, over 800 images of many kinds."""
    p = np.random.default_rng(1).beta(3, 0.5, size=800)
    allocator = allocate(p, "accuracy", budget=800 * 170)
    equal = np.random.default_rng(2).binomial(150, p)
    before = np.random.default_rng(3).binomial(20, p)
    shares = lower_bound(equal, 150, k0=before, n0=20, alpha=ALPHA)
    for radius, gain in zip(RADII, (0.02, 0.05), strict=True):
        level = norm.cdf(radius / SIGMA)
        assert (bounds(allocator) >= level).mean() > (shares >= level).mean() + gain


def test_equal_images_take_turns_in_their_order_and_rounds_depend_on_votes_alone() -> None:
    guarantee = Anytime(RULES["acr"], n0=20, alpha=ALPHA)
    allocator = Allocator(
        guarantee, GAUSSIAN, sigma=SIGMA, batch=BATCH, goal="acr", selection_votes=[18] * 50
    )
    first = [block.position for block in allocator.plan()]
    assert first == list(range(16))
    assert allocator.plan() == allocator.plan()
    assert [block.stop for block in allocator.plan(250)] == [BATCH, BATCH]
    assert allocator.plan(BATCH - 1) == []


def test_images_that_are_not_eligible_get_nothing() -> None:
    guarantee = Anytime(RULES["acr"], n0=20, alpha=ALPHA)
    allocator = Allocator(
        guarantee,
        GAUSSIAN,
        sigma=SIGMA,
        batch=BATCH,
        goal="acr",
        selection_votes=[18, 18, 18],
        eligible=[True, False, True],
    )
    assert [block.position for block in allocator.plan()] == [0, 2]
    assert allocator.decided == 1


@settings(max_examples=25, deadline=None)
@given(st.integers(50, 600), st.floats(0.4, 1), st.integers(1, 600), st.floats(0.5, 0.97))
def test_expected_certificates_are_the_predictive_chance(
    n: int, share: float, ahead: int, level: float
) -> None:
    k, k0 = round(share * n), round(share * 20)
    gain = expected_certified(
        np.array([k]),
        np.array([n]),
        k0=np.array([k0]),
        n0=20,
        ahead=np.array([[float(ahead)]]),
        levels=np.array([level]),
        alpha=ALPHA,
    )
    outcomes = np.arange(ahead + 1)
    later = lower_bound(k + outcomes, n + ahead, k0=k0, n0=20, alpha=ALPHA) >= level
    chance = betabinom(ahead, k + k0 + 0.5, n - k + 20 - k0 + 0.5).pmf(outcomes)[later].sum()
    now = float(lower_bound(k, n, k0=k0, n0=20, alpha=ALPHA)) >= level
    # Both are approximations: one vote more or less may be needed.
    one_vote = betabinom(ahead, k + k0 + 0.5, n - k + 20 - k0 + 0.5).pmf(outcomes).max()
    close = abs(float(lower_bound(k, n, k0=k0, n0=20, alpha=ALPHA)) - level) < 2 / n
    if not close:
        assert gain.item() == pytest.approx(chance - now, abs=0.05 + 2 * one_vote)


def test_expected_growth_is_the_mean_over_outcomes() -> None:
    n, ahead = 400, 600
    outcomes = np.arange(ahead + 1)
    for k, k0 in ((260, 13), (340, 17), (396, 20)):
        growth = expected_growth(k, n, k0=k0, n0=20, ahead=ahead, alpha=ALPHA, sigma=SIGMA)
        to_come = betabinom(ahead, k + k0 + 0.5, n - k + 20 - k0 + 0.5).pmf(outcomes)
        later = GAUSSIAN.radius(
            lower_bound(k + outcomes, n + ahead, k0=k0, n0=20, alpha=ALPHA), sigma=SIGMA
        )
        now = GAUSSIAN.radius(lower_bound(k, n, k0=k0, n0=20, alpha=ALPHA), sigma=SIGMA)
        assert float(growth) == pytest.approx(float(to_come @ later - now), rel=0.1)


def simulated(stopping: Stopping, p: np.ndarray, seed: int) -> tuple[Ints, np.ndarray]:
    """Draws and bounds of images that stop by the rules, checked after every batch."""
    rng = np.random.default_rng(seed)
    guarantee = Anytime(stopping, n0=20, alpha=ALPHA)
    before = rng.binomial(20, p)
    votes = np.zeros(len(p), dtype=np.int64)
    draws = np.zeros(len(p), dtype=np.int64)
    active = np.arange(len(p))
    while len(active):
        votes[active] += rng.binomial(BATCH, p[active])
        draws[active] += BATCH
        state = SelectedVotes(votes, draws, before, np.full_like(draws, 20))
        now = SelectedVotes(*(each[active] for each in vars(state).values()))
        active = active[~guarantee.enough(now, GAUSSIAN, sigma=SIGMA)]
    return draws, guarantee.lower_bound(
        SelectedVotes(votes, draws, before, np.full_like(draws, 20))
    )


def test_a_smaller_least_gain_draws_more_and_no_bound_errs_more_often() -> None:
    p = np.repeat([0.55, 0.8, 0.95], 20)
    totals = []
    for least in (2.0, 0.5):
        draws, found = simulated(Stopping(min_gain=least, max_draws=1_500), p, seed=3)
        totals.append(draws.sum())
        assert (found > p).mean() <= ALPHA + 3.7 * np.sqrt(ALPHA / p.size)
    assert totals == sorted(totals)
    assert totals[-1] > 1.5 * totals[0]


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"draws": 0},
        {"hours": 0.0},
        {"hours": float("inf")},
        {"draws": 100, "goal": "fame"},
        {"hours": True},
    ],
)
def test_budgets_that_make_no_sense_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        Budget(**wrong)  # type: ignore[arg-type]
