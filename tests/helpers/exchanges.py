"""One of several processes that exchange numbers: exchanges.py CASE."""

from __future__ import annotations

import functools
import sys

import torch
from torch import distributed as dist

from smoothmix._process.world import World, current_world
from smoothmix.training._rank_order import average_in_rank_order
from smoothmix.training.parallel import ProcessGroup


def means_in_rank_order(world: World) -> None:
    """Every process gets the mean, added up in the order of ranks, whatever the size."""
    for number, size in enumerate((1, 5, 1000, 2**20 + 7)):
        of_ranks = [
            torch.randn(size, generator=torch.manual_seed(100 * number + rank))
            for rank in range(world.size)
        ]
        numbers = of_ranks[world.rank].clone()
        average_in_rank_order(numbers)
        expected = functools.reduce(torch.add, of_ranks) / world.size
        assert torch.equal(numbers, expected), f"{size} numbers"


def buffers_of_rank_0(world: World) -> None:
    """Before the network is evaluated, everyone gets the statistics that are saved."""
    norm = torch.nn.BatchNorm2d(3)
    for buffer in norm.buffers():
        buffer.fill_(world.rank + 7)
    ProcessGroup(world).share_buffers(norm)
    assert [buffer.unique().tolist() for buffer in norm.buffers()] == [[7], [7], [7]]


CASES = {case.__name__: case for case in (means_in_rank_order, buffers_of_rank_0)}

if __name__ == "__main__":
    dist.init_process_group("gloo")
    CASES[sys.argv[1]](current_world())
    dist.barrier()
    dist.destroy_process_group()
