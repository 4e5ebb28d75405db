"""How fast training steps of LeNet are, against the same steps as the field usually writes them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.turns import Line, matmul_speed, operations, take_turns
from smoothmix import networks
from smoothmix.inference import keep_freed_memory
from smoothmix.methods import Gaussian, Method, SmoothAdv, SmoothMix

SIGMA, ETA, EPOCH, EPSILON = 1.0, 5.0, 10, 255 / 256
REFERENCE = "as the field writes it, fp32"


@dataclass(frozen=True)
class Batch:
    """What one step sees."""

    x: Tensor
    y: Tensor
    noise: Tensor
    mix: Tensor


def field_lenet() -> nn.Sequential:
    """LeNet with ReLU before pooling, as it is usually written."""
    features = [
        nn.Conv2d(1, 20, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(20, 50, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
    ]
    return nn.Sequential(
        *features, nn.Flatten(), nn.Linear(800, 500), nn.ReLU(), nn.Linear(500, 10)
    )


def frozen(model: nn.Module, flag: bool) -> None:
    """The network in eval mode without gradients for its weights, or back, by flags."""
    model.train(not flag)
    for parameter in model.parameters():
        parameter.requires_grad_(not flag)


def ascent(model: nn.Module, batch: Batch, steps: int, length: float) -> Tensor:
    """Normalised gradient ascent, one forward per noise sample."""
    far = batch.x.detach()
    for _ in range(steps):
        far.requires_grad_()
        probs = torch.stack([F.softmax(model(far + noise), dim=1) for noise in batch.noise]).mean(0)
        objective = F.nll_loss(torch.log(probs.clamp(min=1e-20)), batch.y, reduction="sum")
        (gradient,) = torch.autograd.grad(objective, [far])
        norm = gradient.view(len(far), -1).norm(p=2, dim=1).view(-1, 1, 1, 1)
        far = torch.clamp(far.detach() + length * gradient / (norm + 1e-8), 0, 1)
    return far


def reference_smoothmix(model: nn.Module, batch: Batch) -> Tensor:
    """SmoothMix: eight steps of length 1, then both losses."""
    frozen(model, True)
    far = ascent(model, batch, 8, 1.0)
    frozen(model, False)
    copies = len(batch.noise)
    logits = [model(batch.x + noise) for noise in batch.noise]
    natural = sum(F.cross_entropy(logit, batch.y) for logit in logits) / copies
    smoothed = sum(F.softmax(logit, dim=1) for logit in logits) / copies
    ratio = batch.mix.view(-1, 1, 1, 1)
    x_mix = (1 - ratio) * batch.x + ratio * far
    y_mix = (1 - batch.mix[:, None]) * smoothed + batch.mix[:, None] / smoothed.shape[1]
    mixed = [F.log_softmax(model(x_mix + noise), dim=1) for noise in batch.noise]
    divergence = sum(F.kl_div(logit, y_mix, reduction="none").sum(1) for logit in mixed) / copies
    correct = (smoothed.argmax(1) == batch.y).float()
    return natural + ETA * (correct * divergence).mean()


def reference_smoothadv(model: nn.Module, batch: Batch) -> Tensor:
    """SmoothAdv: ten steps of PGD, projected at the end, as projections take hardly any time."""
    frozen(model, True)
    far = ascent(model, batch, 10, 2 * EPSILON / 10)
    offset = far - batch.x
    norm = offset.view(len(far), -1).norm(p=2, dim=1).view(-1, 1, 1, 1)
    far = batch.x + offset * (EPSILON / norm).clamp(max=1)
    frozen(model, False)
    losses = [F.cross_entropy(model(far + noise), batch.y) for noise in batch.noise]
    return sum(losses) / len(losses)


def reference_gaussian(model: nn.Module, batch: Batch) -> Tensor:
    """Cross-entropy on one noisy copy."""
    return F.cross_entropy(model(batch.x + batch.noise[0]), batch.y)


@dataclass(frozen=True)
class Case:
    """A method as both write it, and the batch that the paper's recipe gives it."""

    method: Method
    reference: Callable[[nn.Module, Batch], Tensor]
    images: int
    passes: int
    """Passes through the network per image and step, where a gradient counts as one more pass.

    An attack step has 2 per copy (forward, input gradient), a training forward 3.
    """
    tolerance: float = 0.02
    """How much both losses may differ: rounding grows with the steps of an attack."""


CASES = {
    "SmoothMix step (m=4, T=8)": Case(
        SmoothMix(sigma=SIGMA, copies=4, steps=8, step_size=1.0, eta=ETA),
        reference_smoothmix,
        64,
        8 * 4 * 2 + 2 * 4 * 3,
    ),
    "SmoothAdv step (m=4, T=10)": Case(
        SmoothAdv(sigma=SIGMA, copies=4, epsilon=EPSILON, steps=10),
        reference_smoothadv,
        64,
        10 * 4 * 2 + 4 * 3,
        tolerance=0.1,
    ),
    "Gaussian step": Case(Gaussian(sigma=SIGMA), reference_gaussian, 256, 3),
}


def our_loss(method: Method, model: nn.Module, batch: Batch) -> Tensor:
    """The step's loss by this package."""
    keep_freed_memory()  # as the command line does
    return method.loss(model, batch.x, batch.y, epoch=EPOCH, noise=batch.noise, mix=batch.mix).total


def draw(case: Case) -> Batch:
    """Random images: what they show does not change the time."""
    shape = (case.images, 1, 28, 28)
    noise = SIGMA * torch.randn(case.method.copies, *shape)
    return Batch(
        torch.rand(shape), torch.randint(10, (case.images,)), noise, torch.rand(case.images) / 2
    )


def stepper(
    loss: Callable[[nn.Module, Batch], Tensor],
    model: nn.Module,
    precision: Callable[[], AbstractContextManager[object]] = nullcontext,
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


def steppers(case: Case) -> dict[str, Callable[[Batch], float]]:
    """The reference, then ours in fp32 and bf16, from the same weights."""
    torch.manual_seed(0)
    theirs = field_lenet()
    nets = [networks.build("lenet").to(memory_format=torch.channels_last) for _ in range(2)]
    for net in nets:
        net.load_state_dict(dict(zip(net.state_dict(), theirs.state_dict().values(), strict=True)))
        net.train()
    ours = partial(our_loss, case.method)
    return {
        REFERENCE: stepper(case.reference, theirs),
        "smoothmix, fp32": stepper(ours, nets[0]),
        "smoothmix, bf16": stepper(
            ours, nets[1], lambda: torch.autocast("cpu", dtype=torch.bfloat16)
        ),
    }


def ways(name: str) -> dict[str, Callable[[], float]]:
    """The steps of a case on one batch, the same wherever it is called."""
    case = CASES[name]
    torch.manual_seed(1)
    batch = draw(case)
    return {way: partial(step, batch) for way, step in steppers(case).items()}


def measure(name: str, *, threads: int, repeats: int = 15) -> list[Line]:
    """Images per second of each way, in turns, on so many threads."""
    case = CASES[name]

    def check(losses: list[float]) -> None:
        if max(losses) - min(losses) > case.tolerance:
            raise AssertionError(f"the ways do not compute the same loss: {losses}")

    medians = take_turns(partial(ways, name), repeats, threads=threads, check=check)
    model = networks.build("lenet").eval()
    needed = case.passes * operations(lambda: model(torch.rand(1, 1, 28, 28)))
    return [
        Line(
            what=name,
            network="lenet",
            way=way,
            threads=threads,
            rate=case.images / seconds,
            unit="images",
            ratio=medians[REFERENCE] / seconds,
            floor=matmul_speed(way[-4:], threads) / needed,
        )
        for way, seconds in medians.items()
    ]
