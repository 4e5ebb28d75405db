"""How fast votes are counted, against the loop as the field usually writes it.

Both take turns in one run, so that what else the machine does hits them alike; the ratio of medians is the result.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from smoothmix import models
from smoothmix.randomness import Domain
from smoothmix.smoothing import Sampler

SIGMA = 0.5


@dataclass(frozen=True)
class Row:
    """One way to count votes: samples a second, and how many times faster than the reference it is."""

    network: str
    way: str
    samples_per_second: float
    ratio: float


class FieldLeNet(nn.Module):
    """LeNet with ReLU before pooling, as it is usually written; the weights go by the same order."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 20, 5), nn.Conv2d(20, 50, 5)
        self.fc1, self.fc2 = nn.Linear(800, 500), nn.Linear(500, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


def reference_votes(model: nn.Module, image: Tensor, draws: int, *, batch: int = 1000) -> np.ndarray:
    """Repeat the image, add fresh noise, forward, argmax, count one by one."""
    counts = np.zeros(10, dtype=int)
    with torch.no_grad():
        while draws > 0:
            size = min(batch, draws)
            draws -= size
            repeated = image.repeat((size, 1, 1, 1))
            noise = torch.randn_like(repeated) * SIGMA
            predictions = model(repeated + noise).argmax(1)
            for label in predictions.cpu().numpy():
                counts[label] += 1
    return counts


def ways(network: str, draws: int) -> dict[str, Callable[[], np.ndarray]]:
    """The reference and ours, on the same weights."""
    torch.manual_seed(0)
    ours = models.build(network).eval()
    if network == "lenet":
        theirs: nn.Module = FieldLeNet().eval()
        theirs.load_state_dict({k.removeprefix("body."): v for k, v in ours.state_dict().items()})
    else:
        theirs = models.build(network).eval()
        theirs.load_state_dict(ours.state_dict())
    channels = 1 if network == "lenet" else 3
    image = torch.rand(channels, *(28, 28) if network == "lenet" else (32, 32))

    def count(precision: str) -> Callable[[], np.ndarray]:
        def run() -> np.ndarray:
            sampler = Sampler(model=ours, sigma=SIGMA, num_classes=10, seed=0, precision=precision)  # type: ignore[arg-type]
            with sampler:
                return sampler.votes(image, 0, Domain.ESTIMATION, draws)

        return run

    return {
        "as the field writes it, fp32": lambda: reference_votes(theirs, image, draws),
        "smoothmix, fp32": count("fp32"),
        "smoothmix, bf16": count("bf16"),
    }


def measure(network: str, *, draws: int, repeats: int = 7) -> list[Row]:
    """Median speeds of the ways, taking turns."""
    candidates = ways(network, draws)
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    for repeat in range(repeats + 1):
        votes = []
        for name, run in candidates.items():
            start = time.perf_counter()
            votes.append(run())
            seconds[name].append(time.perf_counter() - start)
        if repeat == 0 and any(abs(v - votes[0]).max() > 6 * draws**0.5 for v in votes):
            raise AssertionError(f"the ways do not count the same votes: {votes}")
    medians = {name: statistics.median(times[1:]) for name, times in seconds.items()}  # the first turn warms up
    slowest = next(iter(medians.values()))
    return [Row(network, name, draws / t, slowest / t) for name, t in medians.items()]
