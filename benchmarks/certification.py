"""How fast votes are counted, against the loop as the field usually writes it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.turns import Line, matmul_speed, operations, take_turns
from smoothmix import networks
from smoothmix.certify.smoothed import Smoothed
from smoothmix.config import Precision
from smoothmix.inference import keep_freed_memory
from smoothmix.noise.streams import Domain

SIGMA = 0.5


class FieldLeNet(nn.Module):
    """LeNet with ReLU before pooling, as it is usually written; weights are in the same order."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 20, 5), nn.Conv2d(20, 50, 5)
        self.fc1, self.fc2 = nn.Linear(800, 500), nn.Linear(500, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


def reference_votes(
    model: nn.Module, image: Tensor, draws: int, *, batch: int = 1000
) -> np.ndarray:
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


SHAPES = {"lenet": (1, 28, 28), "cifar_resnet20": (3, 32, 32)}
DRAWS = {"lenet": 10_240, "cifar_resnet20": 4_096}
PRECISIONS: tuple[Precision, ...] = ("fp32", "bf16")
REFERENCE = "as the field writes it, fp32"


def ways(network: str) -> dict[str, Callable[[], np.ndarray]]:
    """The reference and ours, on the same weights."""
    torch.manual_seed(0)
    ours = networks.build(network).eval()
    if network == "lenet":
        theirs = FieldLeNet().eval()
    else:
        theirs = networks.build(network).eval()
    theirs.load_state_dict(dict(zip(theirs.state_dict(), ours.state_dict().values(), strict=True)))
    image, draws = torch.rand(SHAPES[network]), DRAWS[network]

    def count(precision: Precision) -> np.ndarray:
        # As the command line does. Not in the process of the reference, which has no such thing.
        keep_freed_memory()
        smoothed = Smoothed(ours, sigma=SIGMA, num_classes=10, precision=precision)
        with smoothed.open(image.shape, seed=0) as sampler:
            return sampler.votes(image, 0, Domain.ESTIMATION, stop=draws)

    counting = {f"smoothmix, {precision}": partial(count, precision) for precision in PRECISIONS}
    return {REFERENCE: lambda: reference_votes(theirs, image, draws), **counting}


def measure(network: str, *, threads: int, repeats: int = 7) -> list[Line]:
    """Draws per second of each way, in turns, on so many threads."""
    draws = DRAWS[network]

    def check(votes: list[np.ndarray]) -> None:
        # The noise differs, and so do the votes, by as much as chance allows.
        if any(abs(v - votes[0]).max() > 6 * draws**0.5 for v in votes):
            raise AssertionError(f"the ways do not count the same votes: {votes}")

    medians = take_turns(partial(ways, network), repeats, threads=threads, check=check)
    model = networks.build(network).eval()
    per_draw = operations(lambda: model(torch.rand(1, *SHAPES[network])))
    return [
        Line(
            what="certification",
            network=network,
            way=name,
            threads=threads,
            rate=draws / seconds,
            unit="draws",
            ratio=medians[REFERENCE] / seconds,
            floor=matmul_speed(name[-4:], threads) / per_draw,
        )
        for name, seconds in medians.items()
    ]
