"""A host program that forks: `python -m tests.helpers.forking` prints what became of each child.

In a process of its own, because torch's threads and the locks of pytest are no part of the test.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

import smoothmix as sm
from smoothmix.noise import GRID
from smoothmix.noise.grid import prepared_search
from smoothmix.noise.streams import Domain, DrawRange

TRIES = 6
SECONDS = 30.0
"""After which a child counts as hung. It works for a tenth of a second."""

SHAPE = (1, 28, 28)

BATCH = torch.full((60, *SHAPE), 0.5)
"""Enough pixels for torch to split their sum over its threads."""


class Uncopyable(nn.Module):
    """Holds what has no copy, so that threads take turns to run it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.lock = nn.Linear(784, 10), threading.Lock()

    def forward(self, x: Tensor) -> Tensor:
        time.sleep(0.02)
        return self.layer(x.flatten(1))


def convolution() -> nn.Module:
    """A network that is traced to be fused."""
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 4, 5, stride=3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(256, 10)).eval()


@contextmanager
def running_in_a_thread(work: Callable[[], object]) -> Iterator[None]:
    """The work again and again in another thread, until the block ends."""
    stop = threading.Event()

    def run() -> None:
        while not stop.is_set():
            work()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def outcome_of_fork(work: Callable[[], object]) -> str:
    """What a child that does the work comes to: its result, its error, or `hangs`."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            answer = f"{work()}"
        except BaseException as error:  # noqa: BLE001 - the parent reports it
            answer = f"{type(error).__name__}: {error}"
        os.write(writing, answer.encode())
        os._exit(0)
    os.close(writing)
    end = time.monotonic() + SECONDS
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return "hangs"
        time.sleep(0.01)
    return os.fdopen(reading).read()


def outcomes_while_certifying(model: nn.Module) -> list[str]:
    """What children come to that are forked while a thread certifies, and certify themselves."""
    smoothed = sm.Smoothed(model, sigma=0.5, num_classes=10, noise="gaussian")
    expected = smoothed.votes(BATCH[:2], n=20, seed=3)
    found = []
    with running_in_a_thread(lambda: smoothed.certify(BATCH[:1], n=300, n0=10)):
        for number in range(TRIES):
            time.sleep(0.01 * number)
            found.append(
                outcome_of_fork(
                    lambda: torch.equal(smoothed.votes(BATCH[:2], n=20, seed=3), expected)
                )
            )
    return found


def outcome_while_preparing_noise() -> str:
    """What a child that draws grid noise comes to, forked while a thread prepares such noise."""
    sigmas = itertools.count(1)
    # A sigma that is new takes its thread a table, which takes tens of milliseconds.
    with running_in_a_thread(lambda: prepared_search(next(sigmas) / 1024, 255)):
        time.sleep(0.1)
        draws = DrawRange(3, Domain.STUDY, item=0, first=0, count=20)
        image = BATCH[0].numpy() * 0
        return outcome_of_fork(lambda: GRID.noisy_images(image, draws, sigma=0.5).pixels.shape)


def outcome_after_threads_of_torch() -> str:
    """A child of a process that has run torch in several threads, with a large batch."""
    (torch.rand(800, 800) @ torch.rand(800, 800)).sum()
    smoothed = sm.Smoothed(convolution(), sigma=0.5, num_classes=10, noise="gaussian")
    return outcome_of_fork(lambda: int(smoothed.votes(BATCH, n=1).sum()))


def outcome_of_an_open_classifier() -> str:
    """A child that uses a classifier which its parent has opened."""
    smoothed = sm.Smoothed(convolution(), sigma=0.5, num_classes=10, noise="gaussian")
    with smoothed.open(SHAPE, seed=0) as sampler:
        sampler.votes(BATCH[0], 0, Domain.ESTIMATION, stop=600)
        return outcome_of_fork(lambda: sampler.votes(BATCH[0], 0, Domain.ESTIMATION, stop=600))


if __name__ == "__main__":
    torch.set_num_threads(2)
    outcomes = {
        "turns": outcomes_while_certifying(Uncopyable()),
        "traced": outcomes_while_certifying(convolution()),
        "noise": outcome_while_preparing_noise(),
        "threads of torch": outcome_after_threads_of_torch(),
        "open": outcome_of_an_open_classifier(),
    }
    print(json.dumps(outcomes))
