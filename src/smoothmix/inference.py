"""A network made ready to be run on very many noisy copies of images: the only place that knows engines."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import final

import torch
from torch import Tensor, nn

from smoothmix.config import Engine, Precision
from smoothmix.fusion import fused
from smoothmix.memory import keep_freed_memory

FUSED = "torch-cpu-fused"
"""Name of the engine that folds BatchNorm, ReLU and additions into convolutions."""

PIECE_NUMBERS = 2**20
"""Numbers of input to one forward on a processor: few enough that large images do not fill the memory."""

LEAST_PIECE = 8


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """The network in eval mode, each of its parts put back into its own mode afterwards."""
    training = [module for module in model.modules() if module.training]
    try:
        for module in training:
            module.training = False
        yield
    finally:
        for module in training:
            module.training = True


@contextmanager
def channels_last(model: nn.Module) -> Iterator[None]:
    """The network's convolutions with channels last, which processors run twice as fast; put back afterwards."""
    kept = [(weight, weight.data) for weight in model.parameters() if weight.dim() == 4]
    try:
        for weight, values in kept:
            weight.data = values.to(memory_format=torch.channels_last)
        yield
    finally:
        for weight, values in kept:
            weight.data = values


def device_of(model: nn.Module) -> torch.device:
    """Where the network's weights are."""
    tensor = next(chain(model.parameters(), model.buffers()), None)
    return torch.device("cpu") if tensor is None else tensor.device


@contextmanager
def one_thread_per_forward() -> Iterator[int]:
    """Torch on one thread a forward; yields how many threads it had, to run as many forwards side by side.

    A sum that is split over threads may round differently for each number of threads. Splitting the work by
    blocks instead makes votes the same on any number of cores, and keeps each core in its own cache.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield threads
    finally:
        torch.set_num_threads(threads)


@final
@dataclass(frozen=True)
class Prepared:
    """A network that is ready to run: call it with images, get logits."""

    engine: str
    """Its name, as recorded with every certificate: rounding may depend on it."""
    network: Callable[[Tensor], Tensor]
    device: torch.device
    precision: Precision
    piece: int
    """Images in one forward."""
    channels_last: bool

    def __call__(self, images: Tensor) -> Tensor:
        if self.channels_last:
            images = images.contiguous(memory_format=torch.channels_last)
        with torch.inference_mode(), torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bf16"):
            logits = [self.network(part.to(self.device)) for part in torch.split(images, self.piece)]
        return logits[0] if len(logits) == 1 else torch.cat(logits)


@contextmanager
def prepared(
    model: nn.Module, shape: Sequence[int], *, block: int, precision: Precision = "fp32", engine: Engine = "auto"
) -> Iterator[Prepared]:
    """The network in eval mode, ready for images of one shape; put back as it was afterwards."""
    device = device_of(model)
    on_cpu = device.type == "cpu"
    piece = piece_size(shape, block) if on_cpu else block
    if on_cpu:
        keep_freed_memory()
    with ExitStack() as held:
        held.enter_context(eval_mode(model))
        if on_cpu and len(shape) == 3:
            if engine == "auto" and precision == "fp32" and (twin := _fused_twin(model, shape)):
                yield Prepared(FUSED, twin, device, precision, piece, channels_last=True)
                return
            if _runs_channels_last(model, shape, held):
                yield Prepared("torch-cpu", model, device, precision, piece, channels_last=True)
                return
        yield Prepared(f"torch-{device.type}", model, device, precision, piece, channels_last=False)


def engine_name(model: nn.Module, shape: Sequence[int], *, precision: Precision, engine: Engine = "auto") -> str:
    """What would run this network on images of that shape."""
    with prepared(model, shape, block=1, precision=precision, engine=engine) as ready:
        return ready.engine


def piece_size(shape: Sequence[int], block: int) -> int:
    """Images in one forward on a processor: a power of two, or the whole block where that is less.

    >>> piece_size((1, 28, 28), 256), piece_size((3, 32, 32), 256), piece_size((3, 224, 224), 256)
    (256, 256, 8)
    """
    fitting = max(LEAST_PIECE, PIECE_NUMBERS // max(1, math.prod(shape)))
    power: int = 2 ** (fitting.bit_length() - 1)
    return min(block, power)


def _trial(shape: Sequence[int]) -> Tensor:
    """Two images for a trial, always the same and without touching anyone's random numbers."""
    generator = torch.Generator().manual_seed(0)
    return torch.rand((2, *shape), generator=generator).contiguous(memory_format=torch.channels_last)


def _fused_twin(model: nn.Module, shape: Sequence[int]) -> nn.Module | None:
    """The same function with fewer passes, or None if there is none or it does not give the same logits."""
    if not torch._C._has_mkldnn or not (twin := fused(model)):
        return None
    images = _trial(shape)
    try:
        with torch.inference_mode():
            expected, found = model(images.clone()), twin(images.clone())
        alike = torch.allclose(expected, found, rtol=1e-3, atol=1e-3 * max(1e-6, float(expected.abs().max())))
    except Exception:  # noqa: BLE001 - whatever is wrong with the network is said by the first real forward
        return None
    return twin if alike else None


def _runs_channels_last(model: nn.Module, shape: Sequence[int], held: ExitStack) -> bool:
    """Hold the network with channels last if it runs so: one that flattens by `view` does not."""
    with ExitStack() as trial:
        trial.enter_context(channels_last(model))
        try:
            with torch.inference_mode():
                model(_trial(shape))
        except Exception:  # noqa: BLE001 - whatever is wrong is said by the first real forward
            return False
        held.push(trial.pop_all())
    return True
