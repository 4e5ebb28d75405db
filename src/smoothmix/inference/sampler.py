"""Votes of a network on noisy images, counted by worker threads."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import NamedTuple, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from smoothmix._io.text import counted
from smoothmix.errors import SmoothmixError, UsageError
from smoothmix.inference.guards import check_logits
from smoothmix.inference.noisy import noisy_on_device, noisy_on_processor
from smoothmix.inference.prepared import PreparedNetwork
from smoothmix.noise import GAUSSIAN, Domain, DrawRange, Noise
from smoothmix.noise.streams import DRAWS_PER_STREAM

NUMBERS_AT_ONCE = 2**21
"""Pixels whose noise one thread draws at a time, for several batches of small images.

After each forward pass, little of what the noise needs is left in the cache: for images of 28x28
pixels, the noise of ten batches at once takes two thirds of the time.
"""

TASKS_PER_THREAD = 4
"""Least tasks per thread in a tally."""

OnBatch = Callable[[NDArray[np.int64]], object]
"""Gets the votes so far; if it returns true, no further batch is started."""


def never_stop(counts: NDArray[np.int64]) -> bool:
    """The `on_batch` of callers that want all draws."""
    return False


@final
@dataclass(frozen=True, kw_only=True)
class ImageDraws:
    """Draws `start` to `stop - 1` of one image, for one purpose."""

    image: Tensor
    index: int
    """The image's number, which is part of the address of its noise."""
    domain: Domain
    start: int
    stop: int


@final
@dataclass(frozen=True, kw_only=True)
class Sampler:
    """Counts the votes of a prepared network on addressed noise; `Smoothed.open` makes it.

    Draw j of image i sees the same noise in any order, batch, process or run. Every forward pass
    takes draws of one image that start at a multiple of `batch`, so rounding is the same as well.
    """

    network: PreparedNetwork
    model: nn.Module
    """The network as its owner wrote it, for messages about it."""
    workers: ThreadPoolExecutor
    threads: int
    """Forward passes that run side by side."""
    sigma: float
    num_classes: int
    # Not shown: it may be the key of a secret seed.
    seed: int = field(repr=False)
    batch: int
    """Draws per forward pass."""
    noise: Noise = GAUSSIAN
    """Distribution of the noise."""
    draws_on_device: bool = False
    """Whether the device of the network draws grid noise, which gives the same noisy images."""
    process: int = field(default_factory=os.getpid, repr=False)
    """The process that has the worker threads."""

    @property
    def engine(self) -> str:
        """The name of what runs the network, as certificate files record it."""
        return self.network.engine

    @property
    def probe(self) -> str:
        """Some logits on probe images, as certificate files record them."""
        return self.network.probe

    @property
    def device(self) -> torch.device:
        """Where the network runs."""
        return self.network.device

    def votes(
        self,
        image: Tensor,
        index: int,
        domain: Domain,
        *,
        stop: int,
        start: int = 0,
        on_batch: OnBatch = never_stop,
    ) -> NDArray[np.int64]:
        """Votes of draws `start` to `stop - 1` of an image [C, H, W] in [0, 1].

        They are votes by class, and the last element counts the ambiguous draws, which vote for
        nobody. `index` is the image's number. `on_batch` is called as in `tally`.
        """
        draws = ImageDraws(image=image, index=index, domain=domain, start=start, stop=stop)
        counts = self.tally([draws], on_batch=lambda counts: on_batch(counts[0]))
        return np.asarray(counts[0])

    def tally(
        self, ranges: Sequence[ImageDraws], *, on_batch: OnBatch = never_stop
    ) -> NDArray[np.int64]:
        """Votes of several images, one row each as in `votes`; all batches run side by side.

        `on_batch` gets the votes of all batches up to each one, in the order of the ranges and
        their draws. If it returns true, batches that have not started are left out: the votes are
        then those of the first so many batches.
        """
        self.require_own_process()
        images = [draws.image.detach().resolve_neg().to("cpu", torch.float32) for draws in ranges]
        groups = list(self._groups(ranges))

        def count(group: _Draws) -> Sequence[NDArray[np.int64]]:
            image = images[group.row]
            return self._votes_by_batch(image, ranges[group.row], group.start, group.stop)

        counts = np.zeros((len(ranges), self.num_classes + 1), dtype=np.int64)
        futures = [self.workers.submit(count, group) for group in groups]
        try:
            for group, future in zip(groups, futures, strict=True):
                if future.cancelled():
                    break
                for votes in future.result():
                    counts[group.row] += votes
                    if on_batch(counts):
                        # Groups start in order, so all that are cancelled come after this one.
                        _cancel(futures)
        finally:
            _cancel(futures)
        return counts

    def votes_of_batch(self, draws: ImageDraws) -> NDArray[np.int64]:
        """The votes of one batch as in `votes`, drawn in the calling thread.

        The draws start at a multiple of `batch`, and there are at most so many. The thread must
        have limited torch to one thread, as the workers have.
        """
        self.require_own_process()
        image = draws.image.detach().resolve_neg().to("cpu", torch.float32)
        return self._batch_votes(image, draws, draws.start, draws.stop)

    def near_ties(self, draws: ImageDraws, *, tolerance: float) -> NDArray[np.int64]:
        """How many draws have two highest logits that are nearly equal.

        Such draws may vote otherwise on other hardware. They are counted by their first class, in
        row 0, and by their second, in row 1; the last column, for nobody, is zero. Nearly equal
        are logits that differ by at most `tolerance` times the draw's largest logit in size.
        """
        image = draws.image.detach().to("cpu", torch.float32)

        def count(batch: _Draws) -> NDArray[np.int64]:
            ties = np.zeros((2, self.num_classes + 1), dtype=np.int64)
            for start, stop in self._pieces(batch.start, batch.stop):
                ties += self._piece_ties(image, draws, start, stop, tolerance)
            return ties

        ties = np.zeros((2, self.num_classes + 1), dtype=np.int64)
        for found in self.workers.map(count, _cut([draws], self.batch)):
            ties += found
        return ties

    def check_network(self, shape: Sequence[int]) -> None:
        """Run the network on noisy black images, so that its errors appear before any work."""
        # Black lies on the grid of any noise, as grey does not.
        black = torch.zeros(tuple(shape))
        draws = ImageDraws(image=black, index=0, domain=Domain.SELECTION, start=0, stop=2)
        self._piece_votes(black, draws, 0, min(2, self.batch))

    def require_own_process(self) -> None:
        """Refuse to draw in a child of the process that has the worker threads."""
        # Work for threads that do not exist would wait for ever.
        if os.getpid() != self.process:
            raise UsageError(
                "this classifier was opened before the process forked, and its worker threads are "
                "not in the child: open it again there (certify, predict and votes do so by "
                "themselves)"
            )

    def _groups(self, ranges: Sequence[ImageDraws]) -> Iterator[_Draws]:
        """The draws of each task: one batch, or several of small images."""
        batches = list(_cut(ranges, self.batch))
        # Each thread gets several tasks, so that all end at about the same time.
        most = len(batches) // (TASKS_PER_THREAD * self.threads)
        largest = max((draws.image.numel() for draws in ranges), default=1)
        fitting = NUMBERS_AT_ONCE // (self.batch * max(1, largest))
        # Forward passes are cut as they would be anyway only where they fill whole batches.
        if self.device.type != "cpu" or self.batch % self.network.microbatch:
            fitting = 1
        return _cut(ranges, self.batch * max(1, min(most, fitting)))

    def _votes_by_batch(
        self, image: Tensor, draws: ImageDraws, start: int, stop: int
    ) -> list[NDArray[np.int64]]:
        """The votes of each batch of some draws, whose noise is drawn at once if these are many."""
        if stop - start <= self.batch:
            return [self._batch_votes(image, draws, start, stop)]
        classes = self._classes(image, draws, start, stop)
        votes = []
        for first in range(0, len(classes), self.batch):
            votes.append(self._counted(classes[first : first + self.batch]))
        return votes

    def _batch_votes(
        self, image: Tensor, draws: ImageDraws, start: int, stop: int
    ) -> NDArray[np.int64]:
        votes = np.zeros(self.num_classes + 1, dtype=np.int64)
        for first, last in self._pieces(start, stop):
            votes += self._piece_votes(image, draws, first, last)
        return votes

    def _pieces(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        # A whole batch of large images would fill the memory. A piece holds at least one stream of
        # noise, and a whole number of forward passes, so these are cut where they would be anyway.
        forwards = math.ceil(DRAWS_PER_STREAM / self.network.microbatch)
        size = forwards * self.network.microbatch
        for first in range(start, stop, size):
            yield first, min(first + size, stop)

    def _piece_votes(
        self, image: Tensor, draws: ImageDraws, start: int, stop: int
    ) -> NDArray[np.int64]:
        return self._counted(self._classes(image, draws, start, stop))

    def _classes(
        self, image: Tensor, draws: ImageDraws, start: int, stop: int
    ) -> NDArray[np.int64]:
        """The class of each draw; `num_classes` where it votes for nobody."""
        logits, ambiguous = self._piece_logits(image, draws, start, stop)
        classes: NDArray[np.int64] = logits.argmax(1).cpu().numpy()
        # Their random bits do not determine their pixels: they vote for nobody.
        classes[ambiguous] = self.num_classes
        return classes

    def _counted(self, classes: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.bincount(classes, minlength=self.num_classes + 1)

    def _piece_ties(
        self, image: Tensor, draws: ImageDraws, start: int, stop: int, tolerance: float
    ) -> NDArray[np.int64]:
        logits, ambiguous = self._piece_logits(image, draws, start, stop)
        values, classes = logits.float().topk(2, dim=1)
        near = values[:, 0] - values[:, 1] <= tolerance * logits.float().abs().amax(1)
        # Ambiguous draws vote for nobody on any hardware.
        near[torch.from_numpy(ambiguous)] = False
        pairs = classes[near].cpu().numpy()
        ties = np.zeros((2, self.num_classes + 1), dtype=np.int64)
        for row in range(2):
            ties[row] = np.bincount(pairs[:, row], minlength=self.num_classes + 1)
        return ties

    def _piece_logits(
        self, image: Tensor, draws: ImageDraws, start: int, stop: int
    ) -> tuple[Tensor, NDArray[np.int64]]:
        """The logits of some draws, and the positions of those that are ambiguous."""
        draw_range = DrawRange(self.seed, draws.domain, draws.index, start, stop - start)
        if self.draws_on_device:
            noisy = noisy_on_device(
                self.noise, image, draw_range, sigma=self.sigma, network=self.network
            )
            if noisy is not None:
                logits = self._logits(noisy.pixels)
                if not noisy.needs_processor():
                    return logits, noisy.ambiguous
        noisy = noisy_on_processor(
            self.noise, image, draw_range, sigma=self.sigma, network=self.network
        )
        return self._logits(noisy.pixels), noisy.ambiguous

    def _logits(self, images: Tensor) -> Tensor:
        """The logits of a batch of images, one row each."""
        count = len(images)
        try:
            logits = self.network(images)
        except SmoothmixError:
            # Adapters of ours say themselves what is wrong.
            raise
        except Exception as error:
            # A network is anyone's code and may raise anything; --debug shows where.
            first_line = next(iter(str(error).splitlines()), "")
            shape = list(images.shape[1:])
            raise SmoothmixError(
                f"the network fails on {counted(count, 'image')} of shape {shape} "
                f"({type(error).__name__}: {first_line})"
                f"{_dtype_hint(self.model)}{_batch_hint(images[0])}"
            ) from error
        check_logits(logits, count, num_classes=self.num_classes)
        return logits


class _Draws(NamedTuple):
    """Draws of one row of the tally that one thread makes in one go."""

    row: int
    start: int
    stop: int


def _cut(ranges: Sequence[ImageDraws], size: int) -> Iterator[_Draws]:
    """The draws of all ranges, at most `size` of one range at a time."""
    for row, draws in enumerate(ranges):
        for start in range(draws.start, draws.stop, size):
            yield _Draws(row, start, min(start + size, draws.stop))


def _cancel(futures: Sequence[Future[Sequence[NDArray[np.int64]]]]) -> None:
    """Cancel what no thread has started, from the end: a free thread takes the first of them."""
    for future in reversed(futures):
        future.cancel()


def _dtype_hint(model: nn.Module) -> str:
    """A guess at why a network fails on images in float32; empty where there is none."""
    dtypes = {weight.dtype for weight in model.parameters() if weight.is_floating_point()}
    # A network of one type gets images of that type.
    if len(dtypes) < 2:
        return ""
    names = " and ".join(sorted(str(dtype).removeprefix("torch.") for dtype in dtypes))
    return f"; it has weights in {names}, and images come in float32: call its float() first"


def _batch_hint(image: Tensor) -> str:
    """A guess that a single image was taken for a batch; empty for whole images."""
    if image.dim() != 2:
        return ""
    return (
        "; images come as a batch [B, C, H, W]: give a single image as image[None], and grey "
        "images without channels as images[:, None]"
    )
