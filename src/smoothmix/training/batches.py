"""The steps of a training epoch, each a pure function of (seed, epoch, positions of its images).

An epoch that is repeated after a crash repeats exactly, and several processes can each compute a
share of a step.
"""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from smoothmix._process.world import World
from smoothmix.data import AUGMENTATION_NUMBERS
from smoothmix.errors import SmoothmixError
from smoothmix.methods.base import Batch
from smoothmix.noise.streams import Domain, DrawRange, standard_normal, stream

if TYPE_CHECKING:
    from smoothmix.data import Dataset
    from smoothmix.methods import Method


@dataclass(frozen=True, kw_only=True)
class Share:
    """The part of one step that this process computes."""

    batch: Batch

    seed: int
    """Seeds what the network or the method draws itself, such as dropout."""

    counted: int
    """How many images of the batch count; 0 if this process has no image of its own."""

    total: int
    """Images of the step in all processes."""


def cut(samples: int, *, batch: int, chunks: int) -> list[range]:
    """The positions of each step of an epoch: whole batches, or equal chunks of each batch.

    What is left of a batch that `chunks` does not divide is dropped, as in the code behind the
    published tables.

    >>> cut(10, batch=8, chunks=2)
    [range(0, 4), range(4, 8), range(8, 9), range(9, 10)]
    """
    steps = []
    for start in range(0, samples, batch):
        size = min(batch, samples - start) // chunks
        if size == 0:
            continue
        for chunk in range(chunks):
            first = start + chunk * size
            steps.append(range(first, first + size))
    return steps


@dataclass(frozen=True)
class Epoch:
    """One epoch as a sequence of steps, in any order; of each step, the share of this process."""

    dataset: Dataset
    method: Method
    seed: int
    number: int
    """Counted from 0."""
    batch: int
    world: World = field(default_factory=World)

    @cached_property
    def ranges(self) -> list[range]:
        """The positions of each step."""
        chunks = 1
        if self.method.chunked:
            chunks = self.method.copies
        return cut(len(self.dataset), batch=self.batch, chunks=chunks)

    @cached_property
    def order(self) -> NDArray[np.int64]:
        """Which image is at each position."""
        return stream(self.seed, Domain.ORDER, self.number).permutation(len(self.dataset))

    @cached_property
    def augmentation_numbers(self) -> NDArray[np.float64]:
        """The random numbers of each position's augmentation."""
        shape = (len(self.dataset), AUGMENTATION_NUMBERS)
        return stream(self.seed, Domain.AUGMENTATION, self.number).random(shape)

    @cached_property
    def mixing_ratios(self) -> NDArray[np.float64]:
        """The mixing ratio of each position."""
        return 0.5 * stream(self.seed, Domain.MIXING, self.number).random(len(self.dataset))

    def draw(self) -> None:
        """Draw the numbers of all positions now, instead of when they are first needed."""
        _ = self.order, self.augmentation_numbers, self.mixing_ratios

    def __len__(self) -> int:
        return len(self.ranges)

    def __getitem__(self, number: int) -> Share:
        step = self.ranges[number]
        own = self.world.share(step)
        # Every process takes part in every step. One without images of its own computes the first
        # image, which does not count.
        positions = own or step[:1]
        return Share(
            batch=self._batch(positions),
            seed=self._network_seed(number),
            counted=len(own),
            total=len(step),
        )

    def _batch(self, positions: range) -> Batch:
        where = slice(positions.start, positions.stop)
        images = self.order[where]
        draws = DrawRange(
            self.seed,
            Domain.TRAINING,
            item=self.number,
            first=positions.start,
            count=len(positions),
        )
        noise = standard_normal(draws, (self.method.copies, *self.dataset.shape))
        return Batch(
            x=self.dataset.training_images(images, self.augmentation_numbers[where]),
            y=torch.from_numpy(self.dataset.labels[images]),
            noise=torch.from_numpy(noise).transpose(0, 1).mul(self.method.sigma),
            epoch=self.number,
            mix=torch.from_numpy(self.mixing_ratios[where]).float(),
        )

    def _network_seed(self, number: int) -> int:
        """The seed of the network's own randomness.

        Rank 0 has the seed of a single process. Each other rank has one of its own: with the same,
        dropout would be the same for images of different processes.
        """
        numbers = stream(self.seed, Domain.NETWORK, self.number, number)
        for _ in range(self.world.rank):
            numbers.integers(2**31)
        return int(numbers.integers(2**31))


def prepare_shares(epoch: Epoch, *, first: int, workers: int) -> Generator[Share]:
    """The steps of an epoch from `first` on, each prepared while the one before is computed.

    `workers` processes decode image files; for images in memory (0 workers) a thread is enough.
    """
    if workers > 0:
        return _by_workers(epoch, first, workers)
    return _by_thread(epoch, first)


def _by_thread(epoch: Epoch, first: int) -> Generator[Share]:
    with ThreadPoolExecutor(1) as pool:
        pending: deque[Future[Share]] = deque()
        for number in range(first, len(epoch)):
            pending.append(pool.submit(epoch.__getitem__, number))
            # One step ahead hides the preparation; more would only take memory.
            if len(pending) == 2:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


def _by_workers(epoch: Epoch, first: int, workers: int) -> Generator[Share]:
    # Once, in memory that all workers share after the fork.
    epoch.draw()
    loader: torch.utils.data.DataLoader[Share | SmoothmixError] = torch.utils.data.DataLoader(
        # The loader needs only a sequence; its type asks for a base class.
        _Steps(epoch),  # type: ignore[arg-type]
        batch_size=None,
        sampler=range(first, len(epoch)),
        num_workers=workers,
        # A step of ImageNet takes hundreds of megabytes of shared memory.
        prefetch_factor=1,
    )
    with _block_sigterm():
        # This starts the processes, which inherit the blocked signal.
        shares = iter(loader)
    try:
        for share in shares:
            if isinstance(share, SmoothmixError):
                raise share
            yield share
    finally:
        # Otherwise Python would send them SIGTERM, which they block, and wait for ever.
        shares._shutdown_workers()  # type: ignore[attr-defined]


@dataclass(frozen=True)
class _Steps:
    """The steps of an epoch for a worker process; an error about the data is returned as a value.

    torch would wrap an exception of a worker in a traceback, and lose its message.
    """

    epoch: Epoch

    def __len__(self) -> int:
        return len(self.epoch)

    def __getitem__(self, number: int) -> Share | SmoothmixError:
        try:
            return self.epoch[number]
        except SmoothmixError as error:
            return error


@contextmanager
def _block_sigterm() -> Iterator[None]:
    """Processes that are started in this block ignore SIGTERM.

    torchrun and Slurm send it to every process of a job. The trainer stops after its step, for
    which it still needs its workers, and ends them itself.
    """
    # Windows has no signal masks.
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
