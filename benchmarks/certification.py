"""How fast votes are counted, against the loop as the field usually writes it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks import toolbox
from benchmarks.turns import Line, matmul_speed, operations, take_turns
from smoothmix import networks
from smoothmix.certify.smoothed import Smoothed
from smoothmix.config import PRECISIONS
from smoothmix.inference import Sampler, keep_freed_memory
from smoothmix.inference.engines import ENGINES
from smoothmix.inference.speed import Setup, all_setups
from smoothmix.noise.streams import Domain

SIGMA = 0.5
WHAT = "certification"


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
REFERENCE = "as the field writes it, fp32"
BARS = {
    ("lenet", "fp32"): 3.8,
    ("lenet", "bf16"): 7.5,
    ("cifar_resnet20", "fp32"): 3.2,
    ("cifar_resnet20", "bf16"): 6.0,
}
"""How many times as fast as the reference certification is to be; bf16 by its instructions."""


def image_of(network: str) -> Tensor:
    """An 8-bit image of the network's shape."""
    levels = torch.randint(256, SHAPES[network], generator=torch.Generator().manual_seed(0))
    return levels / 255


def networks_of(network: str) -> tuple[nn.Module, nn.Module]:
    """The network as the field writes it and ours, with the same weights."""
    torch.manual_seed(0)
    ours = networks.build(network).eval()
    theirs = FieldLeNet().eval() if network == "lenet" else networks.build(network).eval()
    theirs.load_state_dict(dict(zip(theirs.state_dict(), ours.state_dict().values(), strict=True)))
    return theirs, ours


def setups(*, compiled: bool) -> list[Setup]:
    """The setups that are measured: torch, and every engine that is installed."""
    found = [each for each in all_setups() if each.engine != "eager"]
    if compiled and ENGINES["compiled"].installed:
        found += [Setup("compiled", precision) for precision in PRECISIONS]
    return found


def name_of(setup: Setup) -> str:
    """What the table calls a setup; `auto` without any measurement is the plain install."""
    engine = "plain install" if setup.engine == "auto" else setup.engine
    return f"smoothmix, {engine}, {setup.precision}"


def ways(
    network: str, *, compiled: bool = False, toolbox_folder: Path | None = None
) -> dict[str, Callable[[], np.ndarray]]:
    """The reference, the toolbox and ours with each engine, on the same weights."""
    theirs, ours = networks_of(network)
    image, draws = image_of(network), DRAWS[network]
    found = {REFERENCE: lambda: reference_votes(theirs, image, draws)}
    if toolbox_folder is not None and toolbox.installed(toolbox_folder):
        for batch in toolbox.BATCHES:
            counting = toolbox.Counting(theirs, image, sigma=SIGMA, draws=draws, batch=batch)
            found[f"{toolbox.name(batch)}, fp32"] = counting
    for setup in setups(compiled=compiled):
        found[name_of(setup)] = partial(_count, _Opened(ours, setup, image), draws)
    return found


STAY_OPEN = ExitStack()
"""Classifiers that are closed when the process ends."""


@dataclass(eq=False)
class _Opened:
    """A classifier that is opened once, as for a run over many images."""

    model: nn.Module
    setup: Setup
    image: Tensor

    @cached_property
    def sampler(self) -> Sampler:
        # As the command line does. Not in the process of the reference, which has no such thing.
        keep_freed_memory()
        smoothed = Smoothed(
            self.model,
            sigma=SIGMA,
            num_classes=10,
            precision=self.setup.precision,
            engine=self.setup.engine,
        )
        return STAY_OPEN.enter_context(smoothed.open(self.image.shape, seed=0))


def _count(opened: _Opened, draws: int) -> np.ndarray:
    votes = opened.sampler.votes(opened.image, 0, Domain.ESTIMATION, stop=draws)
    # Without the last element, which counts ambiguous draws.
    return votes[:-1]


def measure(
    network: str,
    *,
    threads: int,
    repeats: int = 7,
    compiled: bool = False,
    toolbox_folder: Path | None = None,
    cpu_time: bool = False,
) -> list[Line]:
    """Draws per second of each way, in turns, on so many threads."""
    draws = DRAWS[network]

    def check(votes: list[np.ndarray]) -> None:
        # The noise differs, and so do the votes, by as much as chance allows.
        if any(abs(v - votes[0]).max() > 6 * draws**0.5 for v in votes):
            raise AssertionError(f"the ways do not count the same votes: {votes}")

    make = partial(ways, network, compiled=compiled, toolbox_folder=toolbox_folder)
    medians = take_turns(make, repeats, threads=threads, check=check, cpu_time=cpu_time)
    model = networks.build(network).eval()
    per_draw = operations(lambda: model(torch.rand(1, *SHAPES[network])))
    lines = []
    for name, seconds in medians.items():
        made = draws
        # The toolbox selects a class by draws of its own before.
        if name.startswith(toolbox.NAME):
            made += toolbox.SELECTION_DRAWS
        lines.append(
            Line(
                what=WHAT,
                network=network,
                way=name,
                threads=threads,
                rate=made / seconds,
                unit="draws",
                ratio=made / draws * medians[REFERENCE] / seconds,
                floor=matmul_speed(name[-4:], threads, cpu_time=cpu_time) / per_draw,
            )
        )
    return lines


def summary(lines: Sequence[Line]) -> list[tuple[str, ...]]:
    """Per network and precision: the plain install, the best engine, and how that meets the bar."""
    rows = []
    for (network, precision), bar in BARS.items():
        for threads in sorted({line.threads for line in lines}):
            own = _by_way(lines, network, threads, f", {precision}")
            ours = {way: line for way, line in own.items() if way.startswith("smoothmix")}
            if not ours:
                continue
            best = max(ours.values(), key=lambda line: line.ratio)
            plain = ours[name_of(Setup("auto", precision))]
            theirs = _by_way(lines, network, threads, "")
            beside = []
            for batch in toolbox.BATCHES:
                if line := theirs.get(f"{toolbox.name(batch)}, fp32"):
                    beside.append(f"{best.rate / line.rate:.1f}")
            rows.append(
                (network, precision, str(threads), f"{plain.ratio:.2f}", f"{best.ratio:.2f}",
                 best.way.split(", ")[1], f"{bar:.1f}", " / ".join(beside))
            )  # fmt: skip
    return rows


def _by_way(lines: Sequence[Line], network: str, threads: int, ending: str) -> dict[str, Line]:
    found = {}
    for line in lines:
        here = (line.what, line.network, line.threads) == (WHAT, network, threads)
        if here and line.way.endswith(ending):
            found[line.way] = line
    return found


if __name__ == "__main__":
    # Certification alone: python -m benchmarks.certification [cpu]
    for name in SHAPES:
        measured = measure(
            name,
            threads=1,
            repeats=3,
            toolbox_folder=toolbox.folder(),
            cpu_time="cpu" in sys.argv[1:],
        )
        for line in measured:
            print(f"{line.network} {line.way:50} {line.rate:9,.0f}/s {line.ratio:5.2f}", flush=True)
        for row in summary(measured):
            print(*row)
