"""How fast a SmoothMix training step is, against the same step written as the field usually writes it.

python benchmarks/training_step.py [repeats]

Both take turns in one run, so that what else the machine does hits them alike; the ratio of medians is the result.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from smoothmix import models
from smoothmix.methods import SmoothMix

IMAGES, COPIES, STEPS, SIGMA, ETA, EPOCH = 64, 4, 8, 1.0, 5.0, 10


@dataclass(frozen=True)
class Row:
    """One way to compute the step: its median time and how many times faster than the reference it is."""

    name: str
    milliseconds: float
    images_per_second: float
    ratio: float


@dataclass(frozen=True)
class Batch:
    """What one step sees."""

    x: Tensor
    y: Tensor
    noise: Tensor
    mix: Tensor


def field_lenet() -> nn.Sequential:
    """LeNet with ReLU before pooling, as it is usually written."""
    features = [nn.Conv2d(1, 20, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(20, 50, 5), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*features, nn.Flatten(), nn.Linear(800, 500), nn.ReLU(), nn.Linear(500, 10))


def reference_loss(model: nn.Module, batch: Batch) -> Tensor:
    """SmoothMix as published code writes it: a forward per noise, weights frozen by flags in the attack."""
    noises = list(batch.noise)
    model.eval()
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    far = batch.x.detach()
    for _ in range(STEPS):
        far.requires_grad_()
        probs = torch.stack([F.softmax(model(far + noise), dim=1) for noise in noises]).mean(0)
        objective = F.nll_loss(torch.log(probs.clamp(min=1e-20)), batch.y, reduction="sum")
        (gradient,) = torch.autograd.grad(objective, [far])
        norm = gradient.view(len(far), -1).norm(p=2, dim=1).view(-1, 1, 1, 1)
        far = torch.clamp(far.detach() + gradient / (norm + 1e-8), 0, 1)
    model.train()
    for parameter in model.parameters():
        parameter.requires_grad_(True)
    logits = [model(batch.x + noise) for noise in noises]
    natural = sum(F.cross_entropy(logit, batch.y) for logit in logits) / COPIES
    smoothed = sum(F.softmax(logit, dim=1) for logit in logits) / COPIES
    ratio = batch.mix.view(-1, 1, 1, 1)
    x_mix = (1 - ratio) * batch.x + ratio * far
    y_mix = (1 - batch.mix[:, None]) * smoothed + batch.mix[:, None] / smoothed.shape[1]
    mixed = [F.log_softmax(model(x_mix + noise), dim=1) for noise in noises]
    divergence = sum(F.kl_div(logit, y_mix, reduction="none").sum(1) for logit in mixed) / COPIES
    correct = (smoothed.argmax(1) == batch.y).float()
    return natural + ETA * (correct * divergence).mean()


def our_loss(model: nn.Module, batch: Batch) -> Tensor:
    """SmoothMix of this package."""
    method = SmoothMix(sigma=SIGMA, copies=COPIES, steps=STEPS, step_size=1.0, eta=ETA)
    return method.loss(model, batch.x, batch.y, epoch=EPOCH, noise=batch.noise, mix=batch.mix).total


def draw() -> Batch:
    """Random images: what they show does not change the time."""
    noise = SIGMA * torch.randn(COPIES, IMAGES, 1, 28, 28)
    return Batch(torch.rand(IMAGES, 1, 28, 28), torch.randint(10, (IMAGES,)), noise, torch.rand(IMAGES) / 2)


def stepper(
    loss: Callable[[nn.Module, Batch], Tensor],
    model: nn.Module,
    precision: Callable[[], AbstractContextManager[object]],
) -> Callable[[Batch], float]:
    """A function that takes one optimiser step and returns its loss."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)

    def step(batch: Batch) -> float:
        optimizer.zero_grad()
        with precision():
            value = loss(model, batch)
        value.backward()
        optimizer.step()
        return float(value.detach())

    return step


def measure(repeats: int = 15) -> list[Row]:
    """The reference, then ours in fp32 and bf16: `repeats` steps of each, taking turns."""
    torch.manual_seed(0)
    theirs, nets = field_lenet(), [models.build("lenet").to(memory_format=torch.channels_last) for _ in range(2)]
    for net in nets:
        net.load_state_dict(dict(zip(net.state_dict(), theirs.state_dict().values(), strict=True)))
        net.train()
    ways = {
        "as the field writes it, fp32": stepper(reference_loss, theirs, nullcontext),
        "smoothmix, fp32": stepper(our_loss, nets[0], nullcontext),
        "smoothmix, bf16": stepper(our_loss, nets[1], lambda: torch.autocast("cpu", dtype=torch.bfloat16)),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for repeat in range(repeats + 1):
        batch, losses = draw(), []
        for name, step in ways.items():
            start = time.perf_counter()
            losses.append(step(batch))
            seconds[name].append(time.perf_counter() - start)
        if repeat == 0 and max(losses) - min(losses) > 0.01:
            raise AssertionError(f"the ways do not compute the same loss: {losses}")
    # The first turn warms caches up.
    medians = {name: statistics.median(times[1:]) for name, times in seconds.items()}
    slowest = next(iter(medians.values()))
    return [Row(name, 1000 * time, IMAGES / time, slowest / time) for name, time in medians.items()]


if __name__ == "__main__":
    for row in measure(int(sys.argv[1]) if len(sys.argv) > 1 else 15):
        print(f"{row.name:30} {row.milliseconds:7.0f} ms {row.images_per_second:7.0f} images/s {row.ratio:6.2f}x")
