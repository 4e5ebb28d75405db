"""Certificates under a deadline: what is counted, what holds, and who shares the cores."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from typing import get_type_hints

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

import smoothmix as sm
from smoothmix.certify import Resident
from smoothmix.certify.request import CertifyOptions
from smoothmix.certify.turns import Pace, TimedImage
from smoothmix.errors import UsageError
from smoothmix.inference.sampler import ImageDraws, Sampler
from smoothmix.noise.streams import Domain
from smoothmix.stats import SelectedVotes
from tests.conftest import small_convnet

IMAGES = torch.randint(
    256, (4, 1, 28, 28), generator=torch.Generator().manual_seed(2), dtype=torch.uint8
)
ANYTIME = sm.Anytime(sm.Stopping(max_draws=2_000))
HANG = 60


def smoothed(**settings: object) -> sm.Smoothed:
    chosen = {"sigma": 0.5, "num_classes": 10, "batch": 64, **settings}
    return sm.Smoothed(small_convnet(), **chosen)  # type: ignore[arg-type]


def until(happened: Callable[[], bool]) -> None:
    end = time.monotonic() + HANG
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.005)


def drawn_in_time(images: Tensor, *, max_draws: int = 10**7, **options: int) -> sm.Certified:
    """What a deadline gives; a longer one if the machine is too busy for a single draw."""
    rules = sm.Stopping(max_draws=max_draws)
    with smoothed(batch=options.pop("batch", 64)).resident((1, 28, 28)) as resident:
        for seconds in (0.5, 2, 8, HANG):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = resident.certify(images, seconds=seconds, stopping=rules, **options)  # type: ignore[arg-type]
            if found.draws.any():
                return found
    raise AssertionError("no draw in a minute")


def test_what_holds_is_returned_with_how_far_it_came() -> None:
    found = drawn_in_time(IMAGES)
    assert not found.finished.any()
    assert (found.draws > 0).any()
    assert (found.draws % 64 == 0).all(), "whole batches only"
    assert torch.equal(found.counts.sum(1), found.draws)
    for image in range(len(IMAGES)):
        selected = int(found.selected[image])
        bound = ANYTIME.lower_bound(sm_votes(found.counts[image, selected], found, image, selected))
        assert float(found.p_lower[image]) == pytest.approx(float(bound), abs=1e-6)


def sm_votes(votes: Tensor, found: sm.Certified, image: int, selected: int) -> SelectedVotes:
    return SelectedVotes(
        *np.array([votes, found.draws[image], found.selection_counts[image, selected], 100])
    )


def test_a_call_with_time_to_spare_is_as_one_without_a_deadline() -> None:
    rules = sm.Stopping(radii=(0.1,), max_draws=1_024)
    timed = smoothed().certify(IMAGES, seconds=HANG, stopping=rules, seed=5)
    assert timed.finished.all()
    with smoothed().resident((1, 28, 28)) as resident:
        untimed = resident.certify(IMAGES, stopping=rules, seed=5)
    # The votes of a draw are those of its address: a longer run has the same ones, and more.
    most = smoothed().certify(IMAGES, guarantee=ANYTIME, seed=5)
    assert torch.equal(timed.selection_counts, untimed.selection_counts)
    assert torch.equal(timed.selection_counts, most.selection_counts)
    assert (timed.draws <= 1_024).all()
    assert torch.equal(timed.prediction, untimed.prediction)


def test_the_votes_are_those_of_the_first_draws() -> None:
    found = drawn_in_time(IMAGES[:1], seed=9)
    with smoothed().open((1, 28, 28), seed=9) as sampler:
        votes = sampler.votes(IMAGES[0] / 255, 0, Domain.ESTIMATION, stop=int(found.draws[0]))
    assert votes[:-1].tolist() == found.counts[0].tolist()


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"n": 1_000}, "the bound holds after exactly n draws, not after those that a clock"),
        ({"guarantee": sm.FixedDraws(1_000)}, "a fixed number of draws"),
        ({"seconds": 0}, "seconds must be a positive number"),
        ({"seconds": float("nan")}, "seconds must be a positive number"),
        ({"seconds": "1"}, "seconds must be a positive number"),
        ({"stopping": sm.Stopping(seconds=1)}, "seconds is given twice"),
    ],
)
def test_requests_that_cannot_be_are_refused(asked: dict[str, object], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        smoothed().certify(IMAGES, **{"seconds": 0.5, **asked})  # type: ignore[arg-type]


def test_seconds_may_stand_in_the_stopping_rules_but_in_no_guarantee() -> None:
    found = smoothed().certify(IMAGES, stopping=sm.Stopping(seconds=HANG, max_draws=64))
    assert found.finished.all()
    with pytest.raises(UsageError, match="seconds is the time of one call"):
        sm.Anytime(sm.Stopping(seconds=1))


def test_a_time_too_short_for_a_batch_abstains_and_says_what_to_do() -> None:
    with pytest.warns(UserWarning, match=r"no image got a draw .*: allow more time, or"):
        found = smoothed().certify(IMAGES, seconds=1e-9)
    assert found.draws.tolist() == [0] * 4
    assert found.prediction.tolist() == found.selected.tolist() == [-1] * 4
    assert found.radius.tolist() == found.p_lower.tolist() == [0] * 4
    assert not found.finished.any()


def test_of_many_images_some_get_certificates() -> None:
    """All at once would get too few draws for any."""
    many = IMAGES[:1].repeat(1_000, 1, 1, 1)
    found = drawn_in_time(many, max_draws=10**6, batch=256)
    assert (found.draws == 0).sum() > 0


def test_other_images_are_refused_by_an_open_classifier() -> None:
    with smoothed().resident((1, 28, 28)) as resident:
        with pytest.raises(UsageError, match="is open for images of shape"):
            resident.certify(torch.zeros(1, 1, 9, 9))
        with pytest.raises(UsageError, match="holds at any time"):
            resident.certify(IMAGES, guarantee=sm.FixedDraws(1_000))
        with pytest.raises(UsageError, match="holds at any time"):
            resident.certify(IMAGES, n=1_000)
        with pytest.raises(UsageError, match="takes a budget"):
            resident.certify(IMAGES, budget=sm.Budget(draws=10_000, goal="acr"))
        with pytest.raises(TypeError, match="unexpected keyword argument 'second'"):
            resident.certify(IMAGES, second=1)  # type: ignore[call-arg]


def test_the_options_that_are_handed_on_are_those_of_certify() -> None:
    hints = get_type_hints(sm.Smoothed.certify)
    del hints["images"], hints["return"]
    assert hints == get_type_hints(CertifyOptions)
    defaults = inspect.signature(sm.Smoothed.certify).parameters
    assert {defaults[name].default for name in hints} == {None}


def test_threads_share_one_classifier_and_get_their_own_votes() -> None:
    alone = smoothed().certify(IMAGES, guarantee=ANYTIME, seed=0)
    found: dict[int, sm.Certified] = {}
    with smoothed().resident((1, 28, 28)) as resident:

        def ask(number: int) -> None:
            found[number] = resident.certify(
                IMAGES[number : number + 1], guarantee=ANYTIME, seed=0, index=[number]
            )

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(HANG)
    for number in range(4):
        assert found[number].draws.item() == 2_048, "whole batches"
        assert torch.equal(found[number].counts[0], alone.counts[number])


def test_the_event_loop_goes_on_meanwhile() -> None:
    async def ask(resident: Resident) -> tuple[list[sm.Certified], int]:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.01)
                ticks += 1

        ticking = asyncio.create_task(tick())
        rules = sm.Stopping(max_draws=10**7)
        asked = [resident.acertify(IMAGES[:1], seconds=3, stopping=rules) for _ in range(3)]
        found = await asyncio.gather(*asked)
        ticking.cancel()
        return found, ticks

    with smoothed().resident((1, 28, 28)) as resident:
        found, ticks = asyncio.run(ask(resident))
    assert ticks > 2
    draws = [int(one.draws) for one in found]
    assert max(draws) > 0
    assert len({one.seed for one in found}) == 3, "fresh entropy for each"
    assert asyncio.run(smoothed().acertify(IMAGES, n=100)).draws.tolist() == [100] * 4


class Picky(torch.nn.Module):
    """Fails on images with a bright corner."""

    def forward(self, x: Tensor) -> Tensor:
        if float(x[:, 0, 0, 0].mean()) > 0.9:
            raise ValueError("too bright")
        return torch.stack([x.mean((1, 2, 3)), 0.4 + 0 * x[:, 0, 0, 0]], 1)


def test_an_error_of_the_network_reaches_the_call_that_caused_it() -> None:
    bright = torch.zeros(1, 1, 4, 4)
    bright[..., 0, 0] = 1
    rules = sm.Stopping(max_draws=64)
    classifier = sm.Smoothed(Picky(), sigma=0.05, num_classes=2, batch=64)
    with classifier.resident((1, 4, 4)) as resident:
        with pytest.raises(sm.SmoothmixError, match="too bright"):
            resident.certify(bright, stopping=rules)
        assert resident.certify(torch.zeros(1, 1, 4, 4), stopping=rules).finished.all()


def test_an_error_ends_the_other_images_of_its_call() -> None:
    images = torch.zeros(3, 1, 4, 4)
    images[0, :, 0, 0] = 1
    # Without a deadline, the others would go on for hours, and the context would wait for them.
    rules = sm.Stopping(max_draws=10**9)
    classifier = sm.Smoothed(Picky(), sigma=0.05, num_classes=2, batch=64)
    with classifier.resident((1, 4, 4)) as resident:
        with pytest.raises(sm.SmoothmixError, match="too bright"):
            resident.certify(images, stopping=rules)
        until(lambda: resident.turns.active == 0)


def works(resident: Resident, count: int, *, draws: int, deadline: float) -> Sequence[TimedImage]:
    certification = sm.Certification(
        sigma=0.5,
        guarantee=sm.Anytime(sm.Stopping(max_draws=draws)),
        noise=resident.smoothed.distribution,
        batch=resident.smoothed.batch,
    )
    return [
        resident.timed_image(IMAGES[0] / 255, number, certification, seed=1, deadline=deadline)
        for number in range(count)
    ]


def test_images_get_their_batches_in_turn() -> None:
    with smoothed().resident((1, 28, 28)) as resident:
        started = works(resident, 4, draws=10**8, deadline=float("inf"))
        for work in started:
            resident.turns.start(work)
        until(lambda: all(work.image.drawn > 0 for work in started))
        before = [work.image.drawn for work in started]
        until(lambda: started[0].image.drawn >= before[0] + 20 * 64)
        resident.turns.end_at(time.monotonic())
        gains = []
        for work, drawn in zip(started, before, strict=True):
            gains.append(work.done.result(HANG).image.drawn - drawn)
    assert min(gains) >= 15 * 64
    # The four are not read at one moment.
    assert max(gains) - min(gains) <= 5 * 64
    assert {work.ended for work in started} == {"deadline"}


def test_a_cancelled_image_and_a_moved_deadline_end_at_once() -> None:
    with smoothed().resident((1, 28, 28)) as resident:
        first, second = works(resident, 2, draws=10**9, deadline=float("inf"))
        resident.turns.start(first)
        resident.turns.start(second)
        resident.turns.cancel(first)
        assert first.done.result(HANG).ended == "cancelled"
        assert resident.turns.active == 1
        resident.turns.end_at(time.monotonic())
        assert second.done.result(HANG).ended == "deadline"
        assert resident.turns.active == 0


def test_no_image_waits_for_ever_when_the_estimate_falls() -> None:
    """An image that ends for lack of time makes the estimate fall, and there is time again."""
    with smoothed().resident((1, 28, 28)) as resident:
        started = works(resident, 6, draws=64, deadline=time.monotonic() + HANG)
        resident.turns._pace.latest.clear()
        resident.turns._pace.warm = 100.0
        for work in started:
            resident.turns.start(work)
        ended = [work.done.result(HANG).ended for work in started]
    assert set(ended) <= {"deadline", "enough"}
    assert "deadline" in ended


def test_a_load_that_is_gone_is_forgotten() -> None:
    pace = Pace(warm=1.0)
    pace.add(100.0)
    seconds = []
    for _ in range(12):
        seconds.append(pace.seconds(1))
        pace.forget_one()
    assert seconds[0] == 100
    assert seconds[-1] < 0.01


@pytest.fixture
def gates(monkeypatch: pytest.MonkeyPatch) -> dict[int, threading.Event]:
    """Batches of estimation, by their first draw, that do not end before their gate is opened."""
    closed: dict[int, threading.Event] = {}
    draw = Sampler.votes_of_batch

    def gated(self: Sampler, draws: ImageDraws) -> NDArray[np.int64]:
        votes = draw(self, draws)
        if draws.domain is Domain.ESTIMATION and draws.start in closed:
            assert closed[draws.start].wait(HANG)
        return votes

    monkeypatch.setattr(Sampler, "votes_of_batch", gated)
    return closed


def test_a_batch_in_flight_at_the_deadline_is_counted(gates: dict[int, threading.Event]) -> None:
    gates[64] = threading.Event()
    with smoothed().resident((1, 28, 28)) as resident:
        (work,) = works(resident, 1, draws=10**6, deadline=float("inf"))
        resident.turns.start(work)
        until(lambda: work.image.drawn == 64)
        resident.turns.end_at(time.monotonic())
        assert not work.done.done(), "not without the batch that was started"
        gates[64].set()
        work.done.result(HANG)
    assert (work.ended, work.image.drawn) == ("deadline", 128)


def test_votes_count_in_the_order_of_their_draws(gates: dict[int, threading.Event]) -> None:
    """Which of two batches ends first may depend on what they show."""
    gates[0] = threading.Event()
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with smoothed().resident((1, 28, 28)) as resident:
            (work,) = works(resident, 1, draws=256, deadline=float("inf"))
            resident.turns.start(work)
            until(lambda: len(work.early) == 3)
            assert work.image.drawn == 0
            assert resident.row(work).n == 0
            gates[0].set()
            work.done.result(HANG)
    finally:
        torch.set_num_threads(before)
    assert (work.ended, work.image.drawn) == ("enough", 256)
