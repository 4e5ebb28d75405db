"""How many draws per second a network reaches here, with each engine and precision."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from smoothmix._process.progress import OnProgress, Progress, ignore_progress
from smoothmix.config import PRECISIONS, EngineName, Precision
from smoothmix.errors import UsageError
from smoothmix.inference.engines import ENGINES
from smoothmix.inference.prepare import microbatch_size
from smoothmix.inference.sampler import ImageDraws, Sampler
from smoothmix.noise.streams import Domain

MOST_DRAWS = 2**22
"""Draws of one image in one turn: a network that does nothing would never fill the time."""


@final
@dataclass(frozen=True)
class Setup:
    """An engine and a precision to run a network with."""

    engine: EngineName
    precision: Precision


SETUPS = (
    Setup("auto", "fp32"),
    Setup("eager", "fp32"),
    Setup("auto", "bf16"),
    Setup("eager", "bf16"),
)
"""The setups of torch, the first of which is what others are compared with."""


def all_setups(engine: EngineName = "auto") -> tuple[Setup, ...]:
    """The setups to compare: those of torch, of one engine, or of all that are installed.

    The engine `compiled` takes a minute to prepare, and is among them only if it is named.
    """
    names = [name for name, each in ENGINES.items() if each.needs and each.installed]
    if engine != "auto":
        names = [engine]
    setups = list(SETUPS)
    for precision in PRECISIONS:
        for name in names:
            setup = Setup(name, precision)
            if precision in ENGINES[name].precisions and setup not in setups:
                setups.append(setup)
    # By precision, with what torch does first.
    return tuple(sorted(setups, key=lambda setup: PRECISIONS.index(setup.precision)))


OpenSampler = Callable[[Setup], AbstractContextManager[Sampler]]
"""Opens the smoothed classifier with one setup."""


@final
@dataclass(frozen=True, kw_only=True)
class Speed:
    """How fast one setup is."""

    setup: Setup
    engine: str
    """What runs the network, as a certificate file would record it."""
    rate: float
    """Draws per second, noise included."""
    ratio: float
    """How many times as fast as the first setup, measured in turns with it."""


def measure(
    open_sampler: OpenSampler,
    shape: Sequence[int],
    *,
    setups: Sequence[Setup] = SETUPS,
    turns: int = 5,
    seconds: float = 0.5,
    on_progress: OnProgress = ignore_progress,
) -> list[Speed]:
    """The speed of each setup on images of this shape; of two that run the same, the first alone.

    Engines that cannot run the network are left out, unless torch cannot run it either.
    The setups take turns of about so many seconds each, so that other work on the machine affects
    all of them alike. Medians count.
    """
    # Opening a sampler limits torch to one thread per forward pass, so the number is read before.
    threads = torch.get_num_threads()
    with ExitStack() as opened:
        samplers: dict[Setup, Sampler] = {}
        for setup in setups:
            # A setup that runs as an earlier one does is closed again at once.
            with ExitStack() as attempt:
                try:
                    sampler = attempt.enter_context(open_sampler(setup))
                except UsageError:
                    if setup in SETUPS or len(setups) == 1:
                        raise
                    continue
                if not _is_measured_already(setup, sampler, samplers):
                    samplers[setup] = sampler
                    opened.push(attempt.pop_all())
        turn_of = {}
        for setup, sampler in samplers.items():
            turn_of[setup] = _warmed_up(sampler, shape, threads, seconds)
        rates: dict[Setup, list[float]] = {setup: [] for setup in samplers}
        for turn in range(turns):
            on_progress(Progress(turn, turns))
            for setup, take_turn in turn_of.items():
                rates[setup].append(take_turn())
    on_progress(Progress(turns, turns))
    usual_rates = rates[setups[0]]
    usual_rate = statistics.median(usual_rates)
    speeds = []
    for setup, sampler in samplers.items():
        # Other work on the machine falls on one turn more than on another, and least on ratios
        # within a turn. The rate follows from the ratio, so that they cannot contradict each other.
        ratio = _median_ratio(rates[setup], usual_rates)
        speeds.append(
            Speed(setup=setup, engine=sampler.engine, rate=ratio * usual_rate, ratio=ratio)
        )
    return speeds


def _is_measured_already(setup: Setup, sampler: Sampler, samplers: dict[Setup, Sampler]) -> bool:
    for earlier, other in samplers.items():
        if (earlier.precision, other.engine) == (setup.precision, sampler.engine):
            return True
    return False


def _median_ratio(rates: Sequence[float], reference: Sequence[float]) -> float:
    pairs = zip(rates, reference, strict=True)
    return statistics.median(rate / base for rate, base in pairs)


def _warmed_up(
    sampler: Sampler, shape: Sequence[int], threads: int, seconds: float
) -> Callable[[], float]:
    """A function that draws for about so many seconds and returns draws per second."""
    # An 8-bit image: grid noise takes no other.
    levels = torch.randint(256, tuple(shape), generator=torch.Generator().manual_seed(0))
    image = levels / 255
    # One image per thread, and few draws at first: one batch would keep a single thread busy, and
    # for long if the images are large.
    draws = sampler.batch
    if sampler.device.type == "cpu":
        draws = microbatch_size(shape, sampler.batch)
    # The first forward passes of every thread copy the network, which must not be measured.
    _seconds(sampler, image, threads, draws)
    while _seconds(sampler, image, threads, draws) < seconds / 2 and draws < MOST_DRAWS:
        draws *= 2
    return lambda: threads * draws / _seconds(sampler, image, threads, draws)


def _seconds(sampler: Sampler, image: Tensor, images: int, draws: int) -> float:
    ranges = [
        ImageDraws(image=image, index=index, domain=Domain.ESTIMATION, start=0, stop=draws)
        for index in range(images)
    ]
    started = time.perf_counter()
    sampler.tally(ranges)
    return time.perf_counter() - started
