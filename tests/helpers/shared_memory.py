"""One of several processes that tell each other something: shared_memory.py CASE."""

from __future__ import annotations

import functools
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import distributed as dist

from smoothmix._process.world import World, current_world
from smoothmix.config import RunConfig
from smoothmix.training import _shared_memory as exchange
from smoothmix.training._shared_memory import PIECE, SharedMean, shared_mean
from smoothmix.training.parallel import Team
from smoothmix.training.run import open_run


def equals_the_mean(here: World, mean: SharedMean | None) -> None:
    """Sizes around that of a piece, while every process is late at times."""
    assert mean is not None
    delays = np.random.default_rng(here.rank)
    for number, size in enumerate(
        [1, 5, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE + 7, *[1000] * 300]
    ):
        of_ranks = [
            torch.randn(size, generator=torch.manual_seed(100 * number + rank))
            for rank in range(here.size)
        ]
        numbers = of_ranks[here.rank].clone()
        if delays.random() < 0.1:
            time.sleep(0.05 * delays.random())
        mean.average(numbers)
        expected = functools.reduce(torch.add, of_ranks) / here.size
        assert torch.equal(numbers, expected), f"exchange {number} of {size} numbers"


def busy_while_waiting(here: World, mean: SharedMean | None) -> None:
    """What a process does before it waits keeps nobody waiting, and it can tell when all others are there."""
    assert mean is not None
    ends = []

    def work(waiting: Callable[[], bool]) -> None:
        """Until all are there: for ever, if others did not have this process's numbers by now."""
        deadline = time.monotonic() + 30
        while waiting() and time.monotonic() < deadline:
            time.sleep(0.001)
        ends.append(waiting())

    mean.meanwhile = work
    for number in range(20):
        if number % here.size == here.rank:
            time.sleep(0.02)
        numbers = torch.full((10,), float(here.rank))
        mean.average(numbers)
        assert numbers.tolist() == [(here.size - 1) / 2] * 10
    assert ends == [False] * 20


def one_is_killed(here: World, mean: SharedMean | None) -> None:
    """The others hear of it in the exchange that the last rank never enters."""
    assert mean is not None
    mean.average(torch.zeros(10))
    if here.rank == here.size - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        mean.average(torch.zeros(10))
    except dist.DistError as error:
        print(error)
        os._exit(0)  # the group cannot be left in an orderly way any more
    raise AssertionError("nobody has noticed")


def without_memory(here: World, mean: SharedMean | None) -> None:
    """All of them do without where one has to."""
    assert mean is None


def buffers_of_rank_0(here: World, mean: SharedMean | None) -> None:
    """Before the network is evaluated everyone has the statistics that are saved."""
    norm = torch.nn.BatchNorm2d(3)
    for buffer in norm.buffers():
        buffer.fill_(here.rank + 7)
    Team(here, mean).share_buffers(norm)
    assert [buffer.unique().tolist() for buffer in norm.buffers()] == [[7], [7], [7]]


def prepares_in_two_ways() -> None:
    """A training run with cores to spare and one without: in folders of their names."""
    config = RunConfig.load(Path("config.toml"))
    for name, cores in (("spare", 64), ("busy", 2)):
        exchange._cores = lambda pids, cores=cores: cores
        with open_run(config, Path(name)) as trainer:
            trainer.run()
            assert trainer.team.mean is not None
            assert (trainer.team.mean.meanwhile is None) == (name == "spare")


def left_by_one(here: World, mean: SharedMean | None) -> None:
    """The others do not wait for a process that lives on without them."""
    assert mean is not None
    if here.rank == 1:
        mean.leave()
    else:
        try:
            mean.average(torch.zeros(10))
        except dist.DistError as error:
            print(error)
        else:
            raise AssertionError("nobody has noticed")


CASES: dict[str, Callable[[World, SharedMean | None], None]] = {
    "equals_the_mean": equals_the_mean,
    "busy_while_waiting": busy_while_waiting,
    "one_is_killed": one_is_killed,
    "left_by_one": left_by_one,
    "one_cannot": without_memory,
    "memory_of_another": without_memory,
    "buffers_of_rank_0": buffers_of_rank_0,
}

if __name__ == "__main__":
    here, case = current_world(), sys.argv[1]
    if case == "prepares_in_two_ways":
        prepares_in_two_ways()
        sys.exit()
    if case == "one_cannot" and here.rank == 1:

        def refuse(pid: int, flags: int = 0) -> int:
            raise PermissionError("not in this container")

        os.pidfd_open = refuse
    if case == "memory_of_another" and here.is_main:
        # In a container the number of a process may be that of another, whose memory is left alone.
        real = os.memfd_create
        os.memfd_create = lambda name: real("not what it should be called")
    dist.init_process_group("gloo")
    with shared_mean(here) as mean:
        CASES[case](here, mean)
    dist.barrier()
    dist.destroy_process_group()
