"""Averages gradients over three or more processes so that the result does not depend on position.

torch's own sum over processes adds them in an order that depends on where a number lies in the
buffer, and the buffers change after the first step of every start: a resumed run would round
otherwise. Two processes have only one order.
"""

# No `from __future__ import annotations`: torch compares the hook's annotations with its classes.

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel


def wrap_in_rank_order(module: nn.Module) -> DistributedDataParallel:
    """The module with gradients averaged over all processes, added up in the order of ranks."""
    wrapped = DistributedDataParallel(module, gradient_as_bucket_view=True)
    wrapped.register_comm_hook(None, average_bucket)
    return wrapped


def average_bucket(
    state: None,
    bucket: dist.GradBucket,  # type: ignore[name-defined]  # not in torch's own types
) -> Future[Tensor]:
    """The hook by which DistributedDataParallel averages one buffer of gradients."""
    own: Tensor = bucket.buffer()
    average_in_rank_order(own)
    done: Future[Tensor] = Future()
    done.set_result(own)
    return done


def average_in_rank_order(numbers: Tensor) -> None:
    """Replace the numbers by their means over all processes, equal to the last bit in each."""
    of_ranks = [torch.empty_like(numbers) for _ in range(dist.get_world_size())]
    dist.all_gather(of_ranks, numbers)
    numbers.copy_(of_ranks[0])
    for other in of_ranks[1:]:
        numbers.add_(other)
    numbers.div_(len(of_ranks))
