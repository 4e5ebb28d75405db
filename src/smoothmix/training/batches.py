"""The steps of a training epoch, each a pure function of (seed, epoch, positions of its samples).

An epoch that is repeated after a crash repeats itself exactly, and several processes can each take a slice of a step.
"""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from smoothmix._process.world import World
from smoothmix.data import AUGMENTATION_NUMBERS
from smoothmix.errors import SmoothmixError
from smoothmix.noise.addresses import Domain, DrawRange, standard_normal, stream

if TYPE_CHECKING:
    from smoothmix.data import Dataset
    from smoothmix.methods import Method


@dataclass(frozen=True)
class Batch:
    """What one optimiser step sees."""

    x: Tensor
    y: Tensor
    noise: Tensor
    """[copies, batch, ...], times sigma."""
    mix: Tensor
    """[batch], in [0, 1/2]."""
    seed: int
    """For anything random inside the network or the method."""
    counted: int
    """How many of these images count; 0 where a process without a share of the step sees another's image."""
    total: int
    """Images of the step in all processes."""


def cut(samples: int, *, batch: int, chunks: int) -> list[range]:
    """The positions each step of an epoch takes: whole batches, or as many equal chunks of each.

    What is left of a batch that `chunks` does not divide is dropped, as in the code behind the published tables.

    >>> cut(10, batch=8, chunks=2)
    [range(0, 4), range(4, 8), range(8, 9), range(9, 10)]
    """
    steps = []
    for start in range(0, samples, batch):
        size = min(batch, samples - start) // chunks
        steps += [range(start + i * size, start + (i + 1) * size) for i in range(chunks) if size]
    return steps


@dataclass(frozen=True)
class Epoch:
    """One epoch as a sequence of steps that can be asked for in any order; of each step, this process's share."""

    dataset: Dataset
    method: Method
    seed: int
    number: int
    batch: int
    world: World = field(default_factory=World)

    @cached_property
    def ranges(self) -> list[range]:
        """The positions of each step."""
        return cut(
            len(self.dataset),
            batch=self.batch,
            chunks=self.method.copies if self.method.chunked else 1,
        )

    @cached_property
    def order(self) -> NDArray[np.int64]:
        """Which image stands at each position."""
        return stream(self.seed, Domain.ORDER, self.number).permutation(len(self.dataset))

    @cached_property
    def uniforms(self) -> NDArray[np.float64]:
        """The random numbers of each position's augmentation."""
        shape = (len(self.dataset), AUGMENTATION_NUMBERS)
        return stream(self.seed, Domain.AUGMENTATION, self.number).random(shape)

    @cached_property
    def mixes(self) -> NDArray[np.float64]:
        """The mixing ratio of each position."""
        return 0.5 * stream(self.seed, Domain.MIXING, self.number).random(len(self.dataset))

    def __len__(self) -> int:
        return len(self.ranges)

    def __getitem__(self, number: int) -> Batch:
        step = self.ranges[number]
        share = self.world.share(step)
        # Every process must take part in every step: one without images sees the first, which does not count.
        positions = share or step[:1]
        where = slice(positions.start, positions.stop)
        images = self.order[where]
        draws = DrawRange(self.seed, Domain.TRAINING, self.number, positions.start, len(positions))
        noise = standard_normal(draws, (self.method.copies, *self.dataset.shape))
        return Batch(
            x=self.dataset.training_images(images, self.uniforms[where]),
            y=torch.from_numpy(self.dataset.labels[images]),
            noise=torch.from_numpy(noise).transpose(0, 1).mul(self.method.sigma),
            mix=torch.from_numpy(self.mixes[where]).float(),
            seed=self._network_seed(number),
            counted=len(share),
            total=len(step),
        )

    def _network_seed(self, number: int) -> int:
        """Rank 0 has the seed of a single process; the others have their own, or their dropout would be the same."""
        seeds = stream(self.seed, Domain.NETWORK, self.number, number)
        return [int(seeds.integers(2**31)) for _ in range(self.world.rank + 1)][-1]


@dataclass(frozen=True)
class _Telling:
    """The steps of an epoch, or what is wrong with the data: torch would make a traceback of what a worker raises."""

    epoch: Epoch

    def __len__(self) -> int:
        return len(self.epoch)

    def __getitem__(self, number: int) -> Batch | SmoothmixError:
        try:
            return self.epoch[number]
        except SmoothmixError as error:
            return error


def prepared(epoch: Epoch, *, first: int, workers: int) -> Generator[Batch]:
    """The steps of an epoch from `first` on, made ready while the network is busy with the one before.

    Pictures that must be decoded are read by `workers` processes; what is in memory needs one thread.
    """
    if workers > 0:
        _ = epoch.order, epoch.uniforms, epoch.mixes  # once, in memory that all workers share
        loader: torch.utils.data.DataLoader[Batch | SmoothmixError] = torch.utils.data.DataLoader(
            _Telling(epoch),  # type: ignore[arg-type]  # the loader wants a sequence of steps, if not by its base class
            batch_size=None,
            sampler=range(first, len(epoch)),
            num_workers=workers,
            prefetch_factor=1,  # a step of ImageNet takes hundreds of megabytes of shared memory
        )
        with _deaf_to_sigterm():
            steps = iter(loader)  # starts the processes
        try:
            for step in steps:
                if isinstance(step, SmoothmixError):
                    raise step
                yield step
        finally:
            # Python would end them by SIGTERM, which they do not hear, and wait for them for ever.
            steps._shutdown_workers()  # type: ignore[attr-defined]
        return
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(epoch.__getitem__, first) if first < len(epoch) else None
        for number in range(first + 1, len(epoch) + 1):
            assert coming is not None
            step = coming.result()
            coming = pool.submit(epoch.__getitem__, number) if number < len(epoch) else None
            yield step


@contextmanager
def _deaf_to_sigterm() -> Iterator[None]:
    """What is started here does not hear SIGTERM, which torchrun and Slurm send to every process of a job.

    Its owner hears it, stops in its own time and then ends them; without them it could not finish its step.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@dataclass
class Ahead:
    """The steps of an epoch, made ready by a process in the time in which it would only wait for others.

    For one without a core to spare: a thread would take its time from this network, or from that of another process.
    """

    MOST: ClassVar[int] = 3
    """Steps that are ready at a time: who is faster for a while makes them, and has the time back when it is slower."""

    epoch: Epoch
    coming: int
    """The first step that is not made yet."""
    ready: deque[Batch] = field(default_factory=deque, init=False)

    def steps(self) -> Generator[Batch]:
        """The steps, in order."""
        while self.ready or self.coming < len(self.epoch):
            if not self.ready:
                self._make()
            yield self.ready.popleft()

    def work(self, waiting: Callable[[], bool]) -> None:
        """Make the next step ready, which must be done anyway, and more while somebody is waited for."""
        while self.coming < len(self.epoch) and (
            not self.ready or (len(self.ready) < self.MOST and waiting())
        ):
            self._make()

    def _make(self) -> None:
        self.ready.append(self.epoch[self.coming])
        self.coming += 1
