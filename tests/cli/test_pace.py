"""The speed that progress shows, and the time left by it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smoothmix._process.progress import Progress
from smoothmix.cli import output
from smoothmix.cli.output import new_bar, progress


class Estimate:
    """The speed by a clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0
        self.bar = new_bar(enabled=False, clock=lambda: self.now)
        self.task = self.bar.add_task("testing", total=None, text="")

    def speed(self, done: float) -> float | None:
        self.bar.update(self.task, total=1e9, completed=done)
        return self.bar.tasks[0].speed


@given(
    done_before=st.integers(1, 1000),
    rate=st.floats(0.01, 1000),
    gaps=st.lists(st.floats(0.01, 1000), min_size=1, max_size=200),
)
def test_steady_work_has_its_rate_however_often_it_is_reported(
    done_before: int, rate: float, gaps: list[float]
) -> None:
    estimate = Estimate()
    assert not estimate.speed(done_before), "what an earlier run did says nothing about the speed"
    for gap in gaps:
        estimate.now += gap
        done = done_before + rate * estimate.now
        assert estimate.speed(done) == pytest.approx(rate, rel=1e-3)


def test_a_pause_is_forgotten() -> None:
    estimate = Estimate()
    for done in range(1, 2000):
        estimate.now += 1
        estimate.speed(done)
    estimate.now += 10_000  # the process was stopped, or the machine slept
    assert not estimate.speed(2000), "nothing is known yet about the speed after the pause"
    for done in range(2001, 2010):
        estimate.now += 1
        latest = estimate.speed(done)
    assert latest == pytest.approx(1)


def test_without_a_terminal_progress_is_a_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "SECONDS_BETWEEN_LINES", 0.0)
    with progress("certifying", unit="images") as on_progress:
        on_progress(Progress(0, 4))
        on_progress(Progress(1.5, 4, "image 1"))
    shown = capsys.readouterr().err.splitlines()
    assert shown == ["certifying: 0 of 4 images", "certifying: 1 of 4 images, image 1"]
