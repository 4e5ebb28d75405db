"""How many draws a second a network gets through here, in each way that it can be run."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from smoothmix._process.progress import OnProgress, Progress, ignore_progress
from smoothmix.config import Engine, Precision
from smoothmix.inference.prepare import engine_name, microbatch_size
from smoothmix.inference.sampler import Request, Sampler
from smoothmix.noise.addresses import Domain

MOST_DRAWS = 2**22
"""Of one image in one turn: a network that does nothing would never fill the time."""


@dataclass(frozen=True)
class Way:
    """One way to run a network."""

    engine: Engine
    precision: Precision


WAYS = (Way("auto", "fp32"), Way("eager", "fp32"), Way("auto", "bf16"))


@dataclass(frozen=True, kw_only=True)
class Speed:
    """How fast one way is."""

    way: Way
    engine: str
    """What runs the network then, as a certificate file would record it."""
    rate: float
    """Draws a second, noise included."""
    ratio: float
    """How many times as fast as the first way, measured in turns with it."""


def measure(
    model: nn.Module,
    shape: Sequence[int],
    *,
    num_classes: int,
    block: int = 256,
    ways: Sequence[Way] = WAYS,
    turns: int = 5,
    seconds: float = 0.5,
    on_progress: OnProgress = ignore_progress,
) -> list[Speed]:
    """The speed of each way on images of this shape; of two ways that come to the same, the first alone.

    They take turns of about so many seconds, so that what else the machine does hits all alike; medians count.
    """
    engines = _distinct(model, shape, ways)
    rates: dict[Way, list[float]] = {way: [] for way in engines}
    with ExitStack() as held:
        threads = torch.get_num_threads()  # a sampler will leave it at 1 for the forwards of each
        takes = {}
        for way in engines:
            sampler = Sampler(
                model=model,
                sigma=0.5,  # any costs the same
                num_classes=num_classes,
                seed=0,
                block=block,
                precision=way.precision,
                engine=way.engine,
            )
            takes[way] = _warmed_up(held.enter_context(sampler), shape, threads, seconds)
        for turn in range(turns):
            on_progress(Progress(turn, turns))
            for way, take in takes.items():
                rates[way].append(take())
    on_progress(Progress(turns, turns))
    first = rates[ways[0]]
    return [
        Speed(
            way=way,
            engine=engine,
            rate=statistics.median(rates[way]),
            ratio=statistics.median(
                mine / its for mine, its in zip(rates[way], first, strict=True)
            ),
        )
        for way, engine in engines.items()
    ]


def _distinct(model: nn.Module, shape: Sequence[int], ways: Sequence[Way]) -> dict[Way, str]:
    """The ways with the engines that they come to, without those that come to what one before them does."""
    engines: dict[tuple[str, Precision], Way] = {}
    for way in ways:
        engine = engine_name(model, shape, precision=way.precision, engine=way.engine)
        engines.setdefault((engine, way.precision), way)
    return {way: engine for (engine, _), way in engines.items()}


def _warmed_up(
    sampler: Sampler, shape: Sequence[int], threads: int, seconds: float
) -> Callable[[], float]:
    """A function that draws for about so many seconds and returns draws a second."""
    image = torch.rand(tuple(shape), generator=torch.Generator().manual_seed(0))
    # An image for each thread, and few draws to begin with: a block of one would keep a single thread busy, and long.
    draws = microbatch_size(shape, sampler.block) if sampler.device.type == "cpu" else sampler.block
    _seconds(sampler, image, threads, draws)  # what comes first has to prepare the network
    while _seconds(sampler, image, threads, draws) < seconds / 2 and draws < MOST_DRAWS:
        draws *= 2
    return lambda: threads * draws / _seconds(sampler, image, threads, draws)


def _seconds(sampler: Sampler, image: Tensor, images: int, draws: int) -> float:
    requests = [Request(image, index, Domain.ESTIMATION, 0, draws) for index in range(images)]
    started = time.perf_counter()
    sampler.tally(requests)
    return time.perf_counter() - started
