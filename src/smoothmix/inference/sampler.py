"""Votes of a network on addressed noise."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from smoothmix._io.text import counted
from smoothmix.config import (
    Engine,
    Precision,
    require,
    require_engine,
    require_precision,
    require_seed,
    require_sigma,
    require_whole,
)
from smoothmix.errors import SmoothmixError, UsageError
from smoothmix.inference.prepare import PreparedNetwork, prepare_network
from smoothmix.inference.threads import one_thread_per_forward
from smoothmix.networks.modes import device_of, has_own_mode
from smoothmix.noise import GAUSSIAN, Noise
from smoothmix.noise.addresses import GRAIN, Domain, DrawRange

Images = Iterator[tuple[int, int, Tensor]]
"""Number, label and pixels of each image."""

SECONDS_BETWEEN_TELLING = 1.0
"""Between two reports on images that take long."""

OnBlock = Callable[[NDArray[np.int64]], object]
"""Hears votes so far; if it returns true, there will be no more than those of blocks in work."""

NOISE_THREADS = 8
"""Threads that make noise for a network on another device, whose forwards take turns."""


@dataclass(frozen=True)
class Request:
    """Draws `first` to `stop` - 1 of one image."""

    image: Tensor
    index: int
    domain: Domain
    first: int
    stop: int


@dataclass(kw_only=True)
class Sampler:
    """Counts the votes of a network on addressed noise. Use as a context: it holds worker threads.

    Draw j of image i sees the same noise in any order, batch, process or sitting; forwards run on blocks of draws
    of one image that begin at multiples of `block`, so that their rounding is the same as well.
    """

    model: nn.Module
    sigma: float
    num_classes: int
    seed: int
    block: int = 256
    precision: Precision = "fp32"
    engine: Engine = "auto"
    noise: Noise = GAUSSIAN
    """Distribution of the noise."""
    recorded: str = ""
    """Name of the engine that a file was begun with; another is refused."""
    threads: int = field(init=False, default=1)
    """Forwards that run side by side, within the context."""
    _held: ExitStack = field(init=False, repr=False, default_factory=ExitStack)
    _pool: ThreadPoolExecutor = field(init=False, repr=False)
    _ready: PreparedNetwork | None = field(init=False, repr=False, default=None)

    def __post_init__(self) -> None:
        require(
            isinstance(self.model, nn.Module),
            f"a network is a torch.nn.Module, not {type(self.model).__name__}",
        )
        require_sigma(self.sigma)
        require_seed(self.seed)
        require_precision(self.precision)
        require_engine(self.engine)
        require_whole("num_classes", self.num_classes)
        require_whole("block", self.block)
        require(self.num_classes >= 2, f"num_classes must be at least 2, got {self.num_classes}")
        require(self.block >= 1, f"the block must hold at least 1 draw, got {self.block}")
        for name, module in self.model.named_modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.running_mean is None:
                raise UsageError(
                    f"the BatchNorm {name!r} keeps no running statistics, so that an image's class would depend on the "
                    "others in its batch: such a network cannot be certified"
                )
            if has_own_mode(module):
                raise UsageError(
                    f"{type(module).__name__} is in training mode and has an own way to leave it (it overrides train() "
                    "or eval()): call the network's eval() first"
                )

    @property
    def device(self) -> torch.device:
        """Where the network runs."""
        return device_of(self.model)

    def __enter__(self) -> Self:
        threads = self._held.enter_context(one_thread_per_forward())
        if self.device.type != "cpu":
            threads = min(threads, NOISE_THREADS)
        self.threads = threads
        # The limit holds for the thread that sets it: each worker must set its own before its first forward.
        workers = ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,))
        self._pool = self._held.enter_context(workers)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
        self._held.close()

    def votes(
        self,
        image: Tensor,
        index: int,
        domain: Domain,
        draws: int,
        *,
        first: int = 0,
        on_block: OnBlock = lambda counts: None,
    ) -> NDArray[np.int64]:
        """Votes by class of draws `first` to `draws` - 1 of an image [C, H, W] in [0, 1], whose number is `index`.

        `on_block` hears as in `tally`.
        """
        request = Request(image, index, domain, first, draws)
        return np.asarray(self.tally([request], on_block=lambda counts: on_block(counts[0]))[0])

    def tally(
        self, requests: Sequence[Request], *, on_block: OnBlock = lambda counts: None
    ) -> NDArray[np.int64]:
        """Votes by class of several images, a row each: all their blocks side by side.

        `on_block` hears the votes of all blocks up to each one, in the order of the requests and their draws. If it
        returns true, what is not yet begun is left out: the votes are those of the first so many blocks.
        """
        images = [request.image.to("cpu", torch.float32) for request in requests]
        ready = self._prepared(images[0].shape)
        blocks = [
            (row, first, min(self.block, request.stop - first))
            for row, request in enumerate(requests)
            for first in range(request.first, request.stop, self.block)
        ]

        def count(block: tuple[int, int, int]) -> NDArray[np.int64]:
            row, first, draws = block
            return self._block_votes(
                ready, images[row], requests[row].index, requests[row].domain, first, draws
            )

        counts = np.zeros((len(requests), self.num_classes), dtype=np.int64)
        futures = [self._pool.submit(count, block) for block in blocks]
        try:
            for (row, _, _), future in zip(blocks, futures, strict=True):
                if future.cancelled():
                    break
                counts[row] += future.result()
                if on_block(counts):
                    # Blocks begin in order: those that are left after this were all to come later.
                    _cancel(futures)
        finally:
            _cancel(futures)
        return counts

    def rehearse(self, shape: Sequence[int]) -> PreparedNetwork:
        """The network made ready, and run on an image of this shape: what is wrong with it is said before any work."""
        ready = self._prepared(shape)
        self._votes_at_once(
            ready, torch.full(tuple(shape), 0.5), 0, Domain.SELECTION, 0, min(2, self.block)
        )
        return ready

    def _prepared(self, shape: Sequence[int]) -> PreparedNetwork:
        if self._ready is None:
            ready = prepare_network(
                self.model, shape, batch=self.block, precision=self.precision, engine=self.engine
            )
            again = f"the network runs on {ready.engine} now, and ran on {self.recorded} a moment ago: try again"
            require(self.recorded in ("", ready.engine), again)
            self._ready = ready
        return self._ready

    def _block_votes(
        self,
        ready: PreparedNetwork,
        image: Tensor,
        index: int,
        domain: Domain,
        first: int,
        count: int,
    ) -> NDArray[np.int64]:
        # A whole block of large images would fill the memory. What is made at once is a grain of noise or more, in
        # whole microbatches, so that forwards are cut where they would be anyway.
        each = ready.microbatch * -(-GRAIN // ready.microbatch)
        votes = np.zeros(self.num_classes, dtype=np.int64)
        for start in range(first, first + count, each):
            votes += self._votes_at_once(
                ready, image, index, domain, start, min(each, first + count - start)
            )
        return votes

    def _votes_at_once(
        self,
        ready: PreparedNetwork,
        image: Tensor,
        index: int,
        domain: Domain,
        first: int,
        count: int,
    ) -> NDArray[np.int64]:
        shape = tuple(image.shape)
        draws = DrawRange(self.seed, domain, index, first, count)
        noisy = torch.from_numpy(self.noise.noisy_images(image.numpy(), draws, sigma=self.sigma))
        try:
            logits = ready(noisy)
        except Exception as error:
            # A network is anyone's code and may raise anything; --debug shows where.
            reason = f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
            where = f"{counted(count, 'image')} of shape {list(shape)}"
            raise SmoothmixError(
                f"the network fails on {where} ({reason}){_other_numbers(self.model)}"
            ) from error
        self._check(logits, count)
        return np.bincount(logits.argmax(1).cpu().numpy(), minlength=self.num_classes)

    def _check(self, logits: Tensor, count: int) -> None:
        if not isinstance(logits, Tensor) or not logits.is_floating_point():
            got = str(logits.dtype) if isinstance(logits, Tensor) else type(logits).__name__
            raise UsageError(
                f"the network must return a tensor of logits, one for each class, not {got}"
            )
        if logits.shape != (count, self.num_classes):
            classes = logits.shape[1] if logits.ndim == 2 and len(logits) == count else 0
            hint = f": say that it has {classes} (--num-classes {classes})" if classes > 1 else ""
            if count == 1 and logits.shape == (self.num_classes,):
                hint = ": a squeeze() in it drops the batch of a single image, where flatten(1) would keep it"
            raise UsageError(
                f"the network gives outputs of shape {list(logits.shape)} for {counted(count, 'image')}, "
                f"where {self.num_classes} classes need {[count, self.num_classes]}{hint}"
            )
        if not torch.isfinite(logits).all():
            raise SmoothmixError(
                "the network gives logits that are not finite: its weights may be broken"
            )


def _cancel(futures: Sequence[Future[NDArray[np.int64]]]) -> None:
    """Take back what no thread has begun, from the end: a thread that is free takes the first of them."""
    for future in reversed(futures):
        future.cancel()


def _other_numbers(model: nn.Module) -> str:
    """A guess at why a network fails on images in float32."""
    kinds = {weight.dtype for weight in model.parameters() if weight.is_floating_point()} - {
        torch.float32
    }
    names = " and ".join(sorted(str(kind).removeprefix("torch.") for kind in kinds))
    return (
        f"; it has weights in {names}, and images come in float32: call its float() first"
        if names
        else ""
    )
