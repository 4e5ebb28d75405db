"""A network made ready to be run on very many noisy copies of images: the only place that knows engines."""

from __future__ import annotations

import copy
import math
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import final

import torch
from torch import Tensor, nn

from smoothmix.config import FUSED, Engine, Precision
from smoothmix.errors import UsageError
from smoothmix.inference.fusion import fused
from smoothmix.inference.malloc import keep_freed_memory
from smoothmix.networks.modes import device_of, eval_mode

PIECE_NUMBERS = 2**20
"""Numbers of input to one forward on a processor: few enough that large images do not fill the memory."""

LEAST_PIECE = 8


@contextmanager
def one_thread_per_forward() -> Iterator[int]:
    """Torch on one thread a forward; yields how many threads it had, to run as many forwards side by side.

    A sum that is split over threads may round differently for each number of threads. Splitting the work by
    blocks instead makes votes the same on any number of cores, and keeps each core in its own cache.
    """
    with _limiting:
        # One that comes while another is in here would find its 1, and leave it behind for good.
        threads = _limited[0] if _limited else torch.get_num_threads()
        _limited.append(threads)
    torch.set_num_threads(1)
    try:
        yield threads
    finally:
        torch.set_num_threads(threads)
        with _limiting:
            _limited.pop()


_limiting = threading.Lock()
_limited: list[int] = []
"""How many threads torch had, once for each that is in `one_thread_per_forward`."""


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
    trial: str = ""
    """Some of the logits that the network as written gives for images of trial, if they are the same each time."""

    def __call__(self, images: Tensor) -> Tensor:
        if self.channels_last:
            images = images.contiguous(memory_format=torch.channels_last)
        with (
            torch.inference_mode(),
            torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bf16"),
        ):
            logits = [
                self.network(part.to(self.device)) for part in torch.split(images, self.piece)
            ]
        return logits[0] if len(logits) == 1 else torch.cat(logits)


def prepared(
    model: nn.Module,
    shape: Sequence[int],
    *,
    block: int,
    precision: Precision = "fp32",
    engine: Engine = "auto",
) -> Prepared:
    """The network in eval mode, ready for images of one shape and for many threads; the model itself is not touched."""
    device = device_of(model)
    on_cpu = device.type == "cpu"
    piece = piece_size(shape, block) if on_cpu else block
    if on_cpu:
        keep_freed_memory()
    base = own_copy(model)
    as_written = (
        _for_threads(base)
        if base is not None and on_cpu
        else OneAtATime(model if base is None else base)
    )
    plain = Prepared(
        engine_on(device, precision), as_written, device, precision, piece, channels_last=False
    )
    trial = _trial(shape)
    expected = _outcome(plain, trial)
    if expected is None:
        return plain  # whatever is wrong with the network is said by the first real forward
    if not _alike(_outcome(plain, trial), expected):
        warnings.warn(RANDOM, stacklevel=1)  # of this place: whoever asks twice is told once
        return plain
    _require_alone(plain, trial, expected)
    plain = replace(plain, trial=_some(expected))
    if base is None or not on_cpu or len(shape) != 3:
        return plain
    for faster in _faster(base, plain, fuse=engine == "auto" and precision == "fp32"):
        # A network may do with its input what depends on how it lies in memory: only the outcome tells.
        if _alike(_outcome(faster, trial), expected):
            return faster
    return plain


def _some(logits: Tensor) -> str:
    """A few of the logits, of classes from the first to the last, with as many digits as rounding leaves."""
    rows = torch.atleast_2d(logits.detach().to("cpu", torch.float64)).flatten(1)  # type: ignore[no-untyped-call]
    classes = torch.linspace(0, rows.shape[1] - 1, min(rows.shape[1], TOLD_CLASSES)).long()
    return " ".join(f"{value:.5g}" for value in rows[:, classes].flatten().tolist())


TOLD_CLASSES = 4
"""Whose logits on trial images are recorded with certificates."""

RANDOM = (
    "the network gives other logits each time for the same images (dropout outside of training mode, say): its votes "
    "cannot be had again from the seed; the guarantee holds if its random numbers have nothing to do with the noise"
)


def _require_alone(ready: Prepared, images: Tensor, expected: Tensor) -> None:
    """Refuse a network whose answer for an image depends on the others in its batch: it classifies no single image."""
    alone = [_outcome(ready, image) for image in torch.split(images, 1)]
    for found, together in zip(alone, torch.split(expected, 1), strict=False):
        # Kernels for other sizes round otherwise, on a GPU in the third digit.
        tolerance = 1e-3 if ready.device.type == "cpu" else 0.03
        if (
            found is not None
            and found.shape == together.shape
            and not _alike(found, together, tolerance=tolerance)
        ):
            raise UsageError(
                "the network's answer for an image depends on the others in its batch, as if it took statistics of it: "
                "such a network cannot be certified"
            )


def _faster(base: nn.Module, plain: Prepared, *, fuse: bool) -> Iterator[Prepared]:
    """Ways to run the network that ought to be faster, the fastest first."""
    if fuse and (twin := _fused_twin(base)):
        yield replace(plain, engine=FUSED, network=twin, channels_last=True)
    if lying := _with_channels_last(base):
        yield replace(plain, network=_for_threads(lying), channels_last=True)


def _for_threads(network: nn.Module) -> Callable[[Tensor], Tensor]:
    return OneAtATime(network) if own_copy(network) is None else OneForEachThread(network)


def engine_on(device: torch.device, precision: Precision) -> str:
    """The name of torch's own arithmetic on a device: what it calls fp32 on a GPU may have ten bits in products.

    >>> engine_on(torch.device("cpu"), "fp32")
    'torch-cpu'
    """
    short = torch.backends.cudnn.allow_tf32 or torch.backends.cuda.matmul.allow_tf32
    return f"torch-{device.type}" + (
        "-tf32" if device.type == "cuda" and precision == "fp32" and short else ""
    )


def engine_name(
    model: nn.Module, shape: Sequence[int], *, precision: Precision, engine: Engine = "auto"
) -> str:
    """What would run this network on images of that shape."""
    return prepared(model, shape, block=1, precision=precision, engine=engine).engine


def own_copy(model: nn.Module) -> nn.Module | None:
    """The network in eval mode, with the same weights in the same memory and all else its own; None if it has no copy.

    What a network keeps on itself during a forward would otherwise mix up threads that run it side by side.
    """
    weights = list(model.parameters())
    others = [
        *model.buffers(),
        *(value for module in model.modules() for value in vars(module).values()),
    ]
    tensors = [value for value in others if isinstance(value, Tensor)]
    # Both lists stay here until the end: the numbers below name their tensors only as long as these live.
    try:
        known: dict[int, object] = {
            id(weight): nn.Parameter(weight.detach(), requires_grad=False) for weight in weights
        }
        # Some that are computed, as those of weight_norm, would refuse to be copied in the ordinary way.
        known |= {id(tensor): tensor.detach().clone() for tensor in tensors}
        copied = copy.deepcopy(model, known)
        for module in copied.modules():
            if getattr(module, "training", False):
                module.training = False
    except Exception:  # noqa: BLE001 - networks are anyone's code, and may hold what cannot be copied
        return None
    return copied


@final
class OneForEachThread:
    """A network of which every thread that calls it has its own copy."""

    def __init__(self, network: nn.Module) -> None:
        self.network = network
        self._mine = threading.local()

    def __call__(self, images: Tensor) -> Tensor:
        if not hasattr(self._mine, "network"):
            self._mine.network = own_copy(self.network)
        logits: Tensor = self._mine.network(images)
        return logits


@final
class OneAtATime:
    """A network that threads take turns to run: one that has no copy, or one on a device that has no room for many."""

    _turn = threading.Lock()
    """One for all: two of these may hold the same network."""

    def __init__(self, network: nn.Module) -> None:
        self.network = network

    def __call__(self, images: Tensor) -> Tensor:
        with self._turn, eval_mode(self.network):
            logits: Tensor = self.network(images)
        return logits


def piece_size(shape: Sequence[int], block: int) -> int:
    """Images in one forward on a processor: a power of two, or the whole block where that is less.

    >>> piece_size((1, 28, 28), 256), piece_size((3, 32, 32), 256), piece_size((3, 224, 224), 256)
    (256, 256, 8)
    """
    fitting = max(LEAST_PIECE, PIECE_NUMBERS // max(1, math.prod(shape)))
    power: int = 2 ** (fitting.bit_length() - 1)
    return min(block, power)


def _trial(shape: Sequence[int]) -> Tensor:
    """Two noisy images for a trial, always the same and without touching anyone's random numbers."""
    generator = torch.Generator().manual_seed(0)
    return torch.rand((2, *shape), generator=generator) + torch.randn(
        (2, *shape), generator=generator
    )


def _outcome(ready: Prepared, images: Tensor) -> Tensor | None:
    """The logits in full precision, where ways to run a network differ by rounding alone; None if it gives none."""
    try:
        logits = replace(ready, precision="fp32")(images.clone())
    except Exception:  # noqa: BLE001 - networks are anyone's code
        return None
    usable = (
        isinstance(logits, Tensor) and logits.is_floating_point() and bool(logits.isfinite().all())
    )
    return logits if usable else None


def _alike(found: Tensor | None, expected: Tensor, *, tolerance: float = 1e-3) -> bool:
    """Whether these are the expected logits but for rounding."""
    if found is None or found.shape != expected.shape:
        return False
    largest = max(1e-6, float(expected.abs().max()))
    return torch.allclose(expected, found, rtol=tolerance, atol=tolerance * largest)


def _fused_twin(base: nn.Module) -> nn.Module | None:
    """What ought to be the same function with fewer passes, or None if there is none."""
    # Tracing leaves its marks on what a network sets in its forward: it gets a copy of its own.
    model = own_copy(base) if torch._C._has_mkldnn else None
    return None if model is None else fused(model)


def _with_channels_last(base: nn.Module) -> nn.Module | None:
    """The network with channels last, which processors run twice as fast; None if its weights cannot lie so."""
    lying = own_copy(base)
    try:
        for weight in lying.parameters() if lying else ():
            if weight.dim() == 4:
                weight.data = weight.to(memory_format=torch.channels_last)
    except Exception:  # noqa: BLE001 - weights may be of anyone's own kind
        return None
    return lying
