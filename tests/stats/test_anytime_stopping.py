"""When an image is decided, how rounds grow, and the rules that are refused."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smoothmix.errors import UsageError
from smoothmix.stats.anytime import (
    Stopping,
    decided,
    log_evidence,
    lower_bound,
    next_total,
    radius_interval,
)


def is_decided(
    k: int, n: int, stopping: Stopping, *, k0: int = 90, alpha: float = 0.001, sigma: float = 0.5
) -> bool:
    return bool(decided(k, n, k0=k0, n0=100, alpha=alpha, sigma=sigma, stopping=stopping))


def test_a_radius_is_decided_when_certified_or_futile() -> None:
    # 900 of 1000 votes put the radius, of 0.64 at sigma 0.5, between 0.535 and 0.752.
    assert [is_decided(900, 1000, Stopping(radii=(r,))) for r in (0.53, 0.54, 0.74, 0.76)] == [
        True,
        False,
        False,
        True,
    ]
    assert is_decided(900, 1000, Stopping(radii=(0.1, 0.5, 0.8, 1.0)))
    assert not is_decided(900, 1000, Stopping(radii=(0.1, 0.6, 1.0)))
    # A bolder futility gives the middle up sooner.
    assert is_decided(900, 1000, Stopping(radii=(0.74,), futility=0.1))


def test_a_radius_beyond_the_budget_is_decided_at_once() -> None:
    reachable = float(
        radius_interval(2000, 2000, k0=90, n0=100, alpha=0.001, futility=0.5, sigma=0.5)[0]
    )
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
    # All votes for the class: no upper bound, but near the end of the budget little is left to
    # gain.
    assert not is_decided(1000, 1000, Stopping(tolerance=0.05))
    assert is_decided(1000, 1000, Stopping(tolerance=0.05, max_draws=1100))


def test_rules_given_together_must_all_be_met_until_the_budget_is_spent() -> None:
    met, unmet = {"radii": (0.5,)}, {"radii": (0.6,)}
    assert is_decided(900, 1000, Stopping(**met, tolerance=0.3))
    assert not is_decided(900, 1000, Stopping(**met, tolerance=0.1))
    assert not is_decided(900, 1000, Stopping(**unmet, tolerance=0.3))
    assert is_decided(900, 1000, Stopping(**unmet, tolerance=0.1, max_draws=1000))
    by_budget = decided(
        [0, 90, 99],
        [0, 99, 100],
        k0=9,
        n0=10,
        alpha=0.1,
        sigma=1.0,
        stopping=Stopping(max_draws=100),
    )
    assert by_budget.tolist() == [False, False, True]


@given(st.integers(1, 500), st.integers(1, 20_000), st.floats(1, 3))
def test_rounds_grow_in_whole_blocks_to_the_budget(
    block: int, max_draws: int, growth: float
) -> None:
    totals = [0]
    while totals[-1] < max_draws:
        totals.append(next_total(totals[-1], batch=block, max_draws=max_draws, growth=growth))
        assert totals[-1] > totals[-2]
    assert totals[-1] == max_draws
    assert all(total % block == 0 for total in totals[:-1])
    assert all(b <= a * growth + block for a, b in itertools.pairwise(totals))
    assert next_total(max_draws + 3, batch=block, max_draws=max_draws) == max_draws + 3


# ---------------------------------------------------------------- refusals


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
        ({"foresight": 1.0}, "foresight must be 0 or more, and less than 1, got 1.0"),
        ({"foresight": -0.1}, "foresight must be 0 or more, and less than 1, got -0.1"),
        ({"foresight": math.nan}, "foresight must be 0 or more, and less than 1, got nan"),
        ({"foresight": "0.1"}, "foresight must be numbers, got '0.1'"),
    ],
)
def test_wrong_stopping_rules_are_refused_where_they_are_born(
    wrong: dict[str, float], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        Stopping(**wrong)


def test_a_wrong_sigma_is_refused() -> None:
    with pytest.raises(UsageError, match="sigma must be a positive number"):
        is_decided(1, 2, Stopping(), sigma=0.0)
    with pytest.raises(UsageError, match="sigma must be a positive number"):
        radius_interval(1, 2, k0=1, n0=1, alpha=0.1, futility=0.1, sigma=-1.0)


@pytest.mark.parametrize(
    "wrong", [{"n": -1}, {"batch": 0}, {"max_draws": 0}, {"growth": 0.5}, {"growth": math.nan}]
)
def test_wrong_rounds_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))):
        next_total(**{"n": 0, "batch": 10, "max_draws": 100, **wrong})
