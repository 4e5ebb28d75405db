"""The rate that progress shows, and the time left by it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smoothmix.cli.output import SECONDS_OF_PACE, Pace


class Clock:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@given(
    begun=st.integers(0, 1000),
    rate=st.floats(0.01, 1000),
    gaps=st.lists(st.floats(0.01, 1000), min_size=1, max_size=200),
)
def test_steady_work_has_its_rate_however_often_it_is_told(
    begun: int, rate: float, gaps: list[float]
) -> None:
    clock = Clock()
    pace = Pace(clock)
    assert pace.rate(begun) == 0
    for gap in gaps:
        clock.now += gap
        assert pace.rate(begun + rate * clock.now) == pytest.approx(rate, rel=1e-3)


def test_a_pause_is_forgotten_and_few_calls_are_kept() -> None:
    clock = Clock()
    pace = Pace(clock)
    for done in range(2000):
        pace.rate(done)
        clock.now += 1
    clock.now += 10_000  # stopped, or put to sleep
    assert pace.rate(2000) < 0.1
    for done in range(2001, 2001 + int(SECONDS_OF_PACE) + 10):
        clock.now += 1
        latest = pace.rate(done)
    assert latest == pytest.approx(1)
    assert len(pace.heard) < 60
