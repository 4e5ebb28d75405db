"""Ways to do one thing, timed in turns, and the speed that no way can exceed."""

from __future__ import annotations

import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
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
    """Items per second."""
    unit: str
    ratio: float
    """How many times faster than the reference on as many threads, measured in turns with it."""
    floor: float
    """Items per second if all operations were as fast as a large matrix product."""

    @property
    def subject(self) -> tuple[str, str, str, int]:
        """What was measured: a later line with the same subject replaces this one."""
        return self.what, self.network, self.way, self.threads

    @property
    def of_floor(self) -> float:
        """The share of the floor's speed that is reached."""
        return self.rate / self.floor


def take_turns(
    make: Callable[[], Mapping[str, Callable[[], T]]],
    repeats: int,
    *,
    threads: int,
    check: Callable[[list[T]], None],
    cpu_time: bool = False,
) -> dict[str, float]:
    """Median seconds of each way. They take turns, so that other load affects all of them.

    With `cpu_time` these are seconds of the processor, of all threads together: what other programs
    take on the machine does not count.

    The first turn is a warm-up, and its results are checked. Each way has its own process, so that
    what one does to its process, such as to its memory, does not affect another.
    """
    with ExitStack() as running:
        ways = {}
        for name in make():
            own = _in_own_process(make, name, threads, cpu_time)
            ways[name] = running.enter_context(own)
        turns = [{name: take() for name, take in ways.items()} for _ in range(repeats + 1)]
    check([result for _, result in turns[0].values()])
    return {name: statistics.median(turn[name][0] for turn in turns[1:]) for name in ways}


@contextmanager
def _in_own_process(
    make: Callable[[], Mapping[str, Callable[[], T]]], name: str, threads: int, cpu_time: bool
) -> Iterator[Callable[[], tuple[float, T]]]:
    """A function that runs the way in another process, and returns its seconds and result."""
    fresh = multiprocessing.get_context("spawn")
    here, there = fresh.Pipe()
    process = fresh.Process(
        target=_take_turns_there, args=(there, make, name, threads, cpu_time), daemon=True
    )
    process.start()
    there.close()

    def take() -> tuple[float, T]:
        here.send(None)
        answer: tuple[float, T] = here.recv()
        return answer

    try:
        yield take
    finally:
        here.close()
        process.join()


def _take_turns_there(
    orders: Connection,
    make: Callable[[], Mapping[str, Callable[[], object]]],
    name: str,
    threads: int,
    cpu_time: bool,
) -> None:
    torch.set_num_threads(threads)
    clock = time.process_time if cpu_time else time.perf_counter
    run = make()[name]
    with suppress(EOFError):  # the other end was closed
        while True:
            orders.recv()
            start = clock()
            result = run()
            orders.send((clock() - start, result))


@contextmanager
def on_threads(threads: int) -> Iterator[None]:
    """Torch limited to so many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def matmul_speed(precision: str, threads: int, *, cpu_time: bool = False) -> float:
    """Operations per second of a large matrix product: the best of six, by either library.

    The seconds are those of `take_turns`.

    Torch has two: for float32 the usual one, MKL, is only half as fast as oneDNN on some
    processors.
    """
    kind = torch.bfloat16 if precision == "bf16" else torch.float32
    left, right = (torch.rand(SIZE, SIZE).to(kind) for _ in range(2))
    clock = time.process_time if cpu_time else time.perf_counter
    products = [lambda: left @ right]
    if torch._C._has_mkldnn:
        pointwise = torch.ops.mkldnn._linear_pointwise
        products.append(lambda: pointwise(left, right, None, "none", [], ""))
    seconds = []
    with on_threads(threads), torch.inference_mode():
        for _ in range(6):
            for product in products:
                start = clock()
                product()
                seconds.append(clock() - start)
    return 2 * SIZE**3 / min(seconds)


def operations(run: Callable[[], object]) -> int:
    """Multiplications and additions in the matrix products and convolutions of a call."""
    with FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops()
