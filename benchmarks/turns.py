"""Ways to do one thing, timed in turns, and the speed that no way can exceed."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch.utils.flop_counter import FlopCounterMode

T = TypeVar("T")

SIZE = 2048


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of the table: how fast one way is."""

    what: str
    network: str
    way: str
    threads: int
    rate: float
    """Items a second."""
    unit: str
    ratio: float
    """How many times faster than the reference on as many threads, measured in turns with it."""
    floor: float
    """Items a second if every operation ran at the speed of a large matrix product in the same precision."""

    @property
    def of_floor(self) -> float:
        """The share of the floor's speed that is reached."""
        return self.rate / self.floor


def take_turns(
    ways: Mapping[str, Callable[[], T]], repeats: int, *, check: Callable[[list[T]], None]
) -> dict[str, float]:
    """Median seconds of each way: what else the machine does hits all alike. The first turn warms up and is checked."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for repeat in range(repeats + 1):
        results = []
        for name, run in ways.items():
            start = time.perf_counter()
            results.append(run())
            seconds[name].append(time.perf_counter() - start)
        if repeat == 0:
            check(results)
    return {name: statistics.median(times[1:]) for name, times in seconds.items()}


@contextmanager
def on_threads(threads: int) -> Iterator[None]:
    """Torch limited to so many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def matmul_speed(precision: str, threads: int) -> float:
    """Operations a second of a large matrix product: the best of some."""
    kind = torch.bfloat16 if precision == "bf16" else torch.float32
    left, right = (torch.rand(SIZE, SIZE).to(kind) for _ in range(2))
    with on_threads(threads):
        seconds = []
        for _ in range(6):
            start = time.perf_counter()
            left @ right
            seconds.append(time.perf_counter() - start)
    return 2 * SIZE**3 / min(seconds)


def operations(run: Callable[[], object]) -> int:
    """Multiplications and additions in the matrix products and convolutions of a call."""
    with FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops()
