"""Processes that train one network together: how they meet, and what they exchange."""

from __future__ import annotations

import secrets
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache

import torch

# Imported before there is a process group. Its functions take the group that exists at import as
# their default and keep it alive for ever; DDP imports it too, then with our group. A thread of the
# group that still runs when Python ends may make the process abort.
import torch.distributed.nn.functional
from torch import Tensor, nn
from torch import distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous
from torch.nn.parallel import DistributedDataParallel

from smoothmix._process.signals import Stopped, StopRequest
from smoothmix._process.world import ReportedByRankZero, World
from smoothmix.errors import SmoothmixError, UsageError
from smoothmix.training._rank_order import wrap_in_rank_order

PATIENCE = timedelta(hours=2)
"""How long a process waits for another that is alive: to start, save or evaluate."""

SECONDS_BETWEEN_CHECKS = 0.02
"""Time between two checks of the store, while processes wait for each other to start."""


@dataclass(frozen=True)
class ProcessGroup:
    """All processes of a run; a single process is a group too, and then nothing is sent."""

    world: World = field(default_factory=World)

    def wrap(self, module: nn.Module) -> nn.Module:
        """The module with gradients averaged over all processes, and rank 0's weights in each."""
        if self.world.alone:
            return module
        on_cpu = all(weight.device.type == "cpu" for weight in module.parameters())
        if on_cpu and self.world.size > 2:
            return wrap_in_rank_order(module)
        return DistributedDataParallel(module, gradient_as_bucket_view=True)

    def total(self, number: float) -> float:
        """The sum over all processes; every process must call this."""
        if self.world.alone:
            return number
        total = torch.tensor(number, dtype=torch.float64)
        dist.all_reduce(total)
        return float(total)

    def any(self, flag: bool) -> bool:
        """Whether the flag is set in any process; every process must call this."""
        return self.total(float(flag)) > 0

    def share_buffers(self, module: nn.Module) -> None:
        """Copy rank 0's buffers to all processes: its BatchNorm statistics are those saved."""
        if self.world.alone:
            return
        for buffer in module.buffers():
            dist.broadcast(buffer, src=0)

    def from_main(self, make: Callable[[], bytes]) -> bytes:
        """What rank 0 makes, in every process.

        If it fails there, all processes end with its exit code, and only rank 0 reports why.
        """
        if self.world.alone:
            return make()
        if not self.world.is_main:
            return self._receive()
        try:
            made = make()
        except BaseException as error:
            # A negative size is an exit code.
            self._send_size(-int(getattr(error, "exit_code", SmoothmixError.exit_code)))
            self.wait_for_all()
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
            self.wait_for_all()
            raise ReportedByRankZero(-int(size))
        made = torch.empty(int(size), dtype=torch.uint8)
        dist.broadcast(made, src=0)
        return made.numpy().tobytes()

    def wait_for_all(self) -> None:
        """Wait until every process is here."""
        self.any(False)

    def ending(self, error: SmoothmixError) -> SmoothmixError:
        """What to raise where all processes end at the same point; only rank 0 reports it."""
        self.wait_for_all()
        if self.world.is_main:
            return error
        return ReportedByRankZero(error.exit_code)


class Tally(nn.Module):
    """Numbers that are added up over all processes, sent as the gradient of a parameter.

    A second exchange in each step, for these numbers alone, would cost a tenth of the step.
    """

    MOST = 64

    def __init__(self) -> None:
        super().__init__()
        self.carrier = nn.Parameter(torch.zeros(self.MOST))
        self.names: list[str] = []

    def load(self, numbers: Mapping[str, float]) -> Tensor:
        """A zero to add to the loss, whose gradient by the carrier is the numbers."""
        self.names = list(numbers)
        self.carrier.grad = None
        padding = [0.0] * (self.MOST - len(numbers))
        values = torch.tensor([*numbers.values(), *padding])
        return (self.carrier * values.to(self.carrier.device)).sum()

    def totals(self, world: World) -> dict[str, float]:
        """The sums, once gradients are averaged."""
        assert self.carrier.grad is not None
        sums = (self.carrier.grad * world.size).tolist()
        return dict(zip(self.names, sums, strict=False))


@contextmanager
def open_group(world: World, device: torch.device, stop: StopRequest) -> Iterator[ProcessGroup]:
    """The processes of this job, once all of them have started."""
    if world.alone:
        yield ProcessGroup(world)
        return
    try:
        store = meet(_common_store(), world, stop)
        # Numbers for bookkeeping are on the CPU, wherever the network is.
        backend = "gloo"
        if device.type == "cuda":
            backend = "cpu:gloo,cuda:nccl"
        dist.init_process_group(
            backend, store=store, rank=world.rank, world_size=world.size, timeout=PATIENCE
        )
        group = ProcessGroup(world)
        yield group
        # With gloo, a process that leaves first may make another abort at its exit.
        group.wait_for_all()
    except BaseException as error:
        # The frames of the traceback hold the wrapped network. It must be freed before the group:
        # afterwards it would wait for the group's thread, which may wait for this one.
        traceback.clear_frames(error.__traceback__)
        if not _is_lost_process(error):
            raise
        reason = str(error).splitlines()[0]
        raise SmoothmixError(
            f"another process of the run is gone ({reason}); "
            "run the same command again to resume from the last checkpoint"
        ) from error
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def _is_lost_process(error: BaseException) -> bool:
    """Whether torch reports that another process cannot be reached."""
    if isinstance(error, dist.DistError):
        return True
    return isinstance(error, RuntimeError) and "gloo" in str(error)


@cache
def _common_store() -> Store:
    """The launcher's store, or rank 0's own; cached, since other processes may still need it."""
    store: Store = next(iter(rendezvous("env://", timeout=PATIENCE)))[0]
    return store


def meet(store: Store, world: World, stop: StopRequest) -> Store:
    """A part of the store that only the processes of this attempt share.

    torchrun keeps its store over restarts, and a process that reads the addresses of an earlier
    attempt waits for dead processes. The count of restarts does not identify an attempt either: it
    differs between machines of which one has failed. So each process writes a fresh name, rank 0
    answers all names that it finds, and waits until every rank has read an answer; the names of
    dead processes are answered too, and nobody reads it.
    """
    own_name = secrets.token_hex(8)
    deadline = time.monotonic() + PATIENCE.total_seconds()
    common = PrefixStore("smoothmix", store)
    if world.is_main:
        _welcome_others(common, own_name, world, stop, deadline)
        return PrefixStore(own_name, common)
    common.set(f"here/{world.rank}", own_name)
    while not common.check([f"welcome/{own_name}"]):
        _pause(stop, deadline, "rank 0")
    meeting = common.get(f"welcome/{own_name}").decode()
    common.set(f"joined/{meeting}/{world.rank}", "")
    return PrefixStore(meeting, common)


def _welcome_others(
    common: Store, own_name: str, world: World, stop: StopRequest, deadline: float
) -> None:
    missing = set(range(1, world.size))
    while missing:
        for rank in sorted(missing):
            if common.check([f"joined/{own_name}/{rank}"]):
                missing.remove(rank)
            elif common.check([f"here/{rank}"]):
                name = common.get(f"here/{rank}").decode()
                common.set(f"welcome/{name}", own_name)
        _pause(stop, deadline, f"rank {', '.join(map(str, sorted(missing)))}")


def _pause(stop: StopRequest, deadline: float, missing: str) -> None:
    if stop.requested:
        raise Stopped("stopped by SIGTERM before all processes had started; nothing was changed")
    if time.monotonic() > deadline:
        raise SmoothmixError(
            f"{missing} did not start within {PATIENCE}: see its messages; nothing was changed"
        )
    time.sleep(SECONDS_BETWEEN_CHECKS)


def uses_batchnorm(model: nn.Module) -> bool:
    """Whether some layer takes statistics over the batch, which each process sees in part."""
    return any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in model.modules())


def synchronised(model: nn.Module, world: World, device: torch.device) -> nn.Module:
    """The network with BatchNorm statistics taken over the batch of all processes."""
    if world.alone:
        raise UsageError(
            "--sync-batchnorm is for several processes, and this is the only one: "
            "start it with torchrun"
        )
    if device.type != "cuda":
        raise UsageError(
            f"--sync-batchnorm needs GPUs: torch cannot do it on the device {device.type!r}"
        )
    if not uses_batchnorm(model):
        raise UsageError("--sync-batchnorm has no effect: the network has no BatchNorm")
    convert: Callable[[nn.Module], nn.Module] = nn.SyncBatchNorm.convert_sync_batchnorm
    return convert(model)
