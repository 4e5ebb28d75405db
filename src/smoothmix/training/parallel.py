"""Processes that train one network together: how they find each other, and what they tell each other."""

from __future__ import annotations

import secrets
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache

import torch

# Its functions take the group that exists when it is imported for their default, and so keep it alive for ever. DDP
# imports it; imported here, before there is a group, it lets the group's threads end before the process does. A thread
# that is still there when Python ends may make it abort.
import torch.distributed.nn.functional
from torch import Tensor, nn
from torch import distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous
from torch.nn.parallel import DistributedDataParallel

from smoothmix._process.signals import Stopped, StopRequest
from smoothmix._process.world import ReportedByRankZero, World
from smoothmix.errors import SmoothmixError, UsageError
from smoothmix.training._shared_memory import SharedMean, average_bucket, shared_mean

PATIENCE = timedelta(hours=2)
"""How long one process waits for another that is alive: to start, to save a checkpoint, to evaluate."""

BETWEEN_LOOKS = 0.02
"""Seconds between two looks at the store."""


@dataclass(frozen=True)
class Team:
    """All processes of a run; a single one is a team too, and then nothing is sent."""

    world: World = field(default_factory=World)
    mean: SharedMean | None = None
    """How gradients are averaged, if not torch's way."""

    def wrap(self, module: nn.Module) -> nn.Module:
        """The module with gradients averaged over all processes, and rank 0's weights and buffers everywhere."""
        if self.world.alone:
            return module
        if self.mean is None or any(
            weight.dtype != torch.float32 for weight in module.parameters()
        ):
            return DistributedDataParallel(module, gradient_as_bucket_view=True)
        # A size that is given holds for the first portion too, else small: every portion is a wait for the slowest.
        wrapped = DistributedDataParallel(module, gradient_as_bucket_view=True, bucket_cap_mb=25)
        wrapped.register_comm_hook(self.mean, average_bucket)
        return wrapped

    def total(self, number: float) -> float:
        """The sum over all processes; all of them must ask."""
        if self.world.alone:
            return number
        total = torch.tensor(number, dtype=torch.float64)
        dist.all_reduce(total)
        return float(total)

    def any(self, flag: bool) -> bool:
        """Whether a process says so; all of them must ask."""
        return self.total(float(flag)) > 0

    def share_buffers(self, module: nn.Module) -> None:
        """Give rank 0's buffers to everyone: of BatchNorm's statistics, its own are those that are saved."""
        if not self.world.alone:
            for buffer in module.buffers():
                dist.broadcast(buffer, src=0)

    def from_main(self, make: Callable[[], bytes]) -> bytes:
        """What rank 0 makes, for everyone; where it fails, all end with its exit code, and only rank 0 says why."""
        if self.world.alone:
            return make()
        if not self.world.is_main:
            return self._receive()
        try:
            made = make()
        except BaseException as error:
            self._send_size(-int(getattr(error, "exit_code", SmoothmixError.exit_code)))
            self.any(False)
            raise
        self._send_size(len(made))
        dist.broadcast(torch.frombuffer(bytearray(made), dtype=torch.uint8), src=0)
        return made

    def _send_size(self, size: int) -> None:
        dist.broadcast(torch.tensor(size), src=0)

    def _receive(self) -> bytes:
        size = torch.tensor(0)
        dist.broadcast(size, src=0)
        if size < 0:
            self.any(False)
            raise ReportedByRankZero(-int(size))
        made = torch.empty(int(size), dtype=torch.uint8)
        dist.broadcast(made, src=0)
        return made.numpy().tobytes()

    def ending(self, error: SmoothmixError) -> SmoothmixError:
        """What to raise where all processes end at the same point: the error at rank 0, elsewhere one without words."""
        self.any(False)
        return error if self.world.is_main else ReportedByRankZero(error.exit_code)


class Tally(nn.Module):
    """Numbers that are added up over all processes: they travel with the gradients, as the gradient of a parameter.

    A second exchange in each step, for them alone, would cost a tenth of the step.
    """

    MOST = 64

    def __init__(self) -> None:
        super().__init__()
        self.carrier = nn.Parameter(torch.zeros(self.MOST))
        self.names: list[str] = []

    def load(self, numbers: Mapping[str, float]) -> Tensor:
        """What to add to the loss before its gradient is taken: zero."""
        self.names = list(numbers)
        self.carrier.grad = None
        values = torch.tensor([*numbers.values(), *[0.0] * (self.MOST - len(numbers))])
        return (self.carrier * values.to(self.carrier.device)).sum()

    def totals(self, world: World) -> dict[str, float]:
        """The sums, once gradients are averaged."""
        assert self.carrier.grad is not None
        return dict(zip(self.names, (self.carrier.grad * world.size).tolist(), strict=False))


@contextmanager
def team(world: World, device: torch.device, stop: StopRequest) -> Iterator[Team]:
    """The processes of this job, once all of them are there."""
    if world.alone:
        yield Team(world)
        return
    try:
        store = meet(_common_store(), world, stop)
        # Numbers for bookkeeping are on the CPU wherever the network is.
        backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
        dist.init_process_group(
            backend, store=store, rank=world.rank, world_size=world.size, timeout=PATIENCE
        )
        with shared_mean(world) if device.type == "cpu" else nullcontext() as mean:
            members = Team(world, mean)
            yield members
            members.any(False)  # with gloo, whoever leaves first may make another abort at its exit
    except BaseException as error:
        # Its frames hold the wrapped network. To end that after the group is to wait for the group's thread, which may
        # be waiting for this one.
        traceback.clear_frames(error.__traceback__)
        if not _is_loss(error):
            raise
        reason = str(error).splitlines()[0]
        raise SmoothmixError(
            f"another process of the run is gone ({reason}); the same command goes on from the last checkpoint"
        ) from error
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def _is_loss(error: BaseException) -> bool:
    """Whether torch says that another process cannot be reached."""
    return isinstance(error, dist.DistError) or (
        isinstance(error, RuntimeError) and "gloo" in str(error)
    )


@cache
def _common_store() -> Store:
    """The launcher's store, or rank 0's own where there is none; kept, since others may still need it."""
    store: Store = next(iter(rendezvous("env://", timeout=PATIENCE)))[0]
    return store


def meet(store: Store, world: World, stop: StopRequest) -> Store:
    """A part of the store that only the processes of this attempt share.

    torchrun keeps its store over restarts, and those who read the addresses of an earlier attempt wait for the dead.
    Its count of restarts tells no attempts apart either: it differs between machines of which one has failed. So each
    process leaves a fresh name, rank 0 answers to those it finds, and waits until every rank has heard the answer:
    what a dead process has left is answered in vain.
    """
    own, deadline = secrets.token_hex(8), time.monotonic() + PATIENCE.total_seconds()
    common = PrefixStore("smoothmix", store)
    if world.is_main:
        missing = set(range(1, world.size))
        while missing:
            for rank in sorted(missing):
                if common.check([f"joined/{own}/{rank}"]):
                    missing.remove(rank)
                elif common.check([f"here/{rank}"]):
                    common.set(f"welcome/{common.get(f'here/{rank}').decode()}", own)
            _pause(stop, deadline, f"rank {', '.join(map(str, sorted(missing)))}")
        return PrefixStore(own, common)
    common.set(f"here/{world.rank}", own)
    while not common.check([f"welcome/{own}"]):
        _pause(stop, deadline, "rank 0")
    meeting = common.get(f"welcome/{own}").decode()
    common.set(f"joined/{meeting}/{world.rank}", "")
    return PrefixStore(meeting, common)


def _pause(stop: StopRequest, deadline: float, missing: str) -> None:
    if stop.requested:
        raise Stopped("stopped by SIGTERM before all processes were there; nothing was changed")
    if time.monotonic() > deadline:
        raise SmoothmixError(
            f"{missing} did not come within {PATIENCE}: see what it has said; nothing was changed"
        )
    time.sleep(BETWEEN_LOOKS)


def uses_batchnorm(model: nn.Module) -> bool:
    """Whether some layer takes statistics over the batch, which several processes see in parts."""
    return any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in model.modules())


def synchronised(model: nn.Module, world: World, device: torch.device) -> nn.Module:
    """The network with BatchNorm statistics taken over the batch of all processes."""
    if world.alone:
        raise UsageError(
            "--sync-batchnorm is for several processes, and this is the only one: start it with torchrun"
        )
    if device.type != "cuda":
        raise UsageError(
            f"--sync-batchnorm needs GPUs: torch cannot do it on the device {device.type!r}"
        )
    if not uses_batchnorm(model):
        raise UsageError("--sync-batchnorm has nothing to do: the network has no BatchNorm")
    converted: nn.Module = nn.SyncBatchNorm.convert_sync_batchnorm(model)  # type: ignore[no-untyped-call]
    return converted
