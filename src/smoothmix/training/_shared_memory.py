"""Gradients of processes on one machine, averaged in memory that they share.

On processors torch sends them through sockets. A process that waits at a socket sleeps, and waking up and copying take
longer than the sum itself: with LeNet on two cores a twentieth to a tenth of every step.
"""

# No annotations from the future: torch compares the types of a hook's arguments with its own.

import mmap
import os
import platform
import secrets
import select
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch import distributed as dist
from torch.futures import Future

from smoothmix._process.world import World

PIECE = 2**20
"""Numbers that are exchanged at a time: the memory stays small however large the network is."""

LINE = 8
"""Distance between counters of two processes, of 8 bytes each: who writes one does not slow down readers of another."""

AWAKE = 0.02
"""Seconds for which a process with a core of its own waits without sleeping: most waits are shorter."""

ASLEEP = 1
"""Milliseconds between two looks after that."""


@dataclass
class SharedMean:
    """Means over all processes of a machine, equal to the last bit in each of them."""

    rank: int
    slots: Tensor
    """[2, processes, PIECE]: who is ahead may write the next exchange while another still reads this one, and waits for
    it before the one after."""
    written: NDArray[np.int64]
    """How many exchanges each process has written."""
    left: NDArray[np.int64]
    """Whether there will be no more of them, by process."""
    others: select.poll
    """Through it the kernel says that another process has ended."""
    cores: int
    """How many the processes may use, all together: each may be bound to a few of them."""
    meanwhile: Callable[[Callable[[], bool]], None] | None = None
    """What to do between writing and waiting; it is told how to ask whether anybody is still waited for."""
    exchanges: int = field(default=0, init=False)

    @property
    def spare_cores(self) -> bool:
        """Whether each process may have one more core than it computes with."""
        return self.cores >= len(self.written) * (torch.get_num_threads() + 1)

    def average(self, numbers: Tensor) -> None:
        """Replace the numbers by their means; every process must ask, with as many."""
        for piece in torch.split(numbers, PIECE):
            slots = self.slots[self.exchanges % 2, :, : len(piece)]
            slots[self.rank] = piece
            self.exchanges += 1
            self.written[self.rank] = self.exchanges
            if self.meanwhile:
                self.meanwhile(self._missing)
            self._wait()
            # One after the other: how torch adds up many rows depends on where a number stands in them.
            torch.add(slots[0], slots[1], out=piece)
            for row in slots[2:]:
                piece.add_(row)
            piece.div_(len(slots))

    def _wait(self) -> None:
        """Until all have written as many exchanges as this process has."""
        asleep_from = time.monotonic() + (AWAKE if self.cores >= len(self.written) else 0.0)
        while self._missing():
            if self._left_out():
                raise dist.DistError("it left in the middle of a run")
            if time.monotonic() < asleep_from:
                time.sleep(0)  # lets the other threads of this process go on
            elif self.others.poll(ASLEEP) and self._missing():
                raise dist.DistError("it ended in the middle of a step")

    def leave(self) -> None:
        """Let nobody wait for this process any more, which may live on."""
        self.left[self.rank] = True

    def _missing(self) -> bool:
        return bool(self.written.min() < self.exchanges)

    def _left_out(self) -> bool:
        """Whether somebody has left without this exchange; looked at first, since who leaves has written before."""
        left = self.left.copy()
        return bool((left & (self.written < self.exchanges)).any())


def _cores(pids: Iterable[int]) -> int:
    """How many cores these processes may use, all together."""
    return len(set().union(*map(os.sched_getaffinity, pids)))


def average_bucket(mean: SharedMean, bucket: dist.GradBucket) -> Future[Tensor]:  # type: ignore[name-defined]
    """The hook by which DistributedDataParallel has its gradients averaged."""
    mean.average(bucket.buffer())
    done: Future[Tensor] = Future()
    done.set_result(bucket.buffer())
    return done


@contextmanager
def shared_mean(world: World) -> Iterator[SharedMean | None]:
    """What the processes of a team exchange through, or None where they cannot share memory; all of them must ask."""
    if not _possible(world):
        yield None
        return
    with ExitStack() as held:
        found = _shared_mean(world, held)
        failed = torch.tensor(float(found is None))
        dist.all_reduce(failed)
        try:
            yield None if failed else found
        finally:
            if found:
                found.leave()


def _possible(world: World) -> bool:
    """Whether all are on this machine, whose processor shows everybody writes in the order in which they were made."""
    return (
        sys.platform == "linux"
        and platform.machine() == "x86_64"
        and world.local_size == world.size
    )


def _shared_mean(world: World, held: ExitStack) -> SharedMean | None:
    slots = 2 * world.size * PIECE * 4
    size = slots + world.size * LINE * 8
    mark = secrets.randbits(62)
    own = torch.tensor([os.getpid(), mark, _own_memory(size, mark, held) if world.is_main else -1])
    all_of_them = own.new_empty(world.size, len(own))
    dist.all_gather(list(all_of_them), own)
    (owner, mark, descriptor), pids = all_of_them[0].tolist(), all_of_them[:, 0].tolist()
    try:
        # In a container of its own this number could be that of another process, and the file anyone's.
        where = Path(f"/proc/{owner}/fd/{descriptor}")
        if _name(mark) not in str(where.readlink()):
            return None
        opened = os.open(where, os.O_RDWR)
        held.callback(os.close, opened)
        memory = torch.frombuffer(mmap.mmap(opened, size), dtype=torch.uint8)
        others = select.poll()
        for pid in pids[: world.rank] + pids[world.rank + 1 :]:
            process = os.pidfd_open(pid)
            held.callback(os.close, process)
            others.register(process, select.POLLIN)
        cores = _cores(pids)
    except OSError:  # the kernel does not allow it
        return None
    counters = memory[slots:].view(torch.int64).numpy()
    return SharedMean(
        rank=world.rank,
        slots=memory[:slots].view(torch.float32).view(2, world.size, PIECE),
        written=counters[::LINE],
        left=counters[1::LINE],
        others=others,
        cores=cores,
    )


def _name(mark: int) -> str:
    return f"smoothmix-{mark}"


def _own_memory(size: int, mark: int, held: ExitStack) -> int:
    """A descriptor of memory of which nothing is left when the last process has ended, however it ends; or -1."""
    descriptor = -1
    with suppress(OSError):
        descriptor = os.memfd_create(_name(mark))
        held.callback(os.close, descriptor)
        os.ftruncate(descriptor, size)
    return descriptor
