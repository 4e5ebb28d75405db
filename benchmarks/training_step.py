"""How fast training steps are, against the same steps as the field usually writes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.certification import SHAPES
from benchmarks.turns import Line, matmul_speed, operations, take_turns
from smoothmix import networks
from smoothmix.inference import keep_freed_memory
from smoothmix.methods import Gaussian, Method, SmoothAdv, SmoothMix

ETA, EPOCH, EPSILON = 5.0, 10, 255 / 256
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


def field_network(name: str) -> nn.Module:
    """The network without memory format, as it is usually written; weights are in our order."""
    if name == "lenet":
        return field_lenet()
    # The layers of our ResNets are the usual ones.
    return networks.build(name)


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


def one_by_one(model: nn.Module, x: Tensor, noises: Tensor) -> list[Tensor]:
    """Logits of x + noise, one forward per noise sample."""
    return [model(x + noise) for noise in noises]


def all_at_once(model: nn.Module, x: Tensor, noises: Tensor) -> list[Tensor]:
    """Logits of x + noise, one forward for all samples: the arithmetic of BatchNorm needs it."""
    logits: Tensor = model(torch.cat([x + noise for noise in noises]))
    return list(logits.chunk(len(noises)))


def reference_smoothmix(
    model: nn.Module,
    batch: Batch,
    *,
    steps: int,
    length: float,
    forward: Callable[[nn.Module, Tensor, Tensor], list[Tensor]],
) -> Tensor:
    """SmoothMix: the attack, then both losses."""
    frozen(model, True)
    far = ascent(model, batch, steps, length)
    frozen(model, False)
    copies = len(batch.noise)
    logits = forward(model, batch.x, batch.noise)
    natural = sum(F.cross_entropy(logit, batch.y) for logit in logits) / copies
    smoothed = sum(F.softmax(logit, dim=1) for logit in logits) / copies
    ratio = batch.mix.view(-1, 1, 1, 1)
    x_mix = (1 - ratio) * batch.x + ratio * far
    y_mix = (1 - batch.mix[:, None]) * smoothed + batch.mix[:, None] / smoothed.shape[1]
    mixed = [F.log_softmax(logit, dim=1) for logit in forward(model, x_mix, batch.noise)]
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


@dataclass(frozen=True, kw_only=True)
class Case:
    """A method as both write it, and the network and batch that the paper's recipe gives it."""

    method: Method
    reference: Callable[[nn.Module, Batch], Tensor]
    images: int
    attack_steps: int = 0
    forwards: int = 1
    """Forwards of all copies whose gradient reaches the weights."""
    network: str = "lenet"
    repeats: int = 15
    tolerance: float = 0.02
    """How much both losses may differ: rounding grows with the steps of an attack."""

    @property
    def passes(self) -> int:
        """Passes through the network per image and step, where a gradient counts as one more pass.

        An attack step has 2 per copy (forward, input gradient), a training forward 3.
        """
        return self.method.copies * (2 * self.attack_steps + 3 * self.forwards)


def smoothmix_on_cifar(steps: int, length: float) -> Case:
    """SmoothMix on CIFAR-10 with ResNet-20: 256 images in two chunks, with two copies."""
    return Case(
        method=SmoothMix(sigma=0.5, copies=2, steps=steps, step_size=length, eta=ETA),
        reference=partial(reference_smoothmix, steps=steps, length=length, forward=all_at_once),
        images=128,
        attack_steps=steps,
        forwards=2,
        network="cifar_resnet20",
        repeats=5,
    )


CASES = {
    "SmoothMix step (m=4, T=8)": Case(
        method=SmoothMix(sigma=1.0, copies=4, steps=8, step_size=1.0, eta=ETA),
        reference=partial(reference_smoothmix, steps=8, length=1.0, forward=one_by_one),
        images=64,
        attack_steps=8,
        forwards=2,
    ),
    "SmoothAdv step (m=4, T=10)": Case(
        method=SmoothAdv(sigma=1.0, copies=4, epsilon=EPSILON, steps=10),
        reference=reference_smoothadv,
        images=64,
        attack_steps=10,
        tolerance=0.1,
    ),
    "Gaussian step": Case(method=Gaussian(sigma=1.0), reference=reference_gaussian, images=256),
    "SmoothMix step (m=2, T=4)": smoothmix_on_cifar(4, 1.0),
    "SmoothMix step (m=2, T=1)": smoothmix_on_cifar(1, 4.0),
}


BARS = {
    ("SmoothMix step (m=4, T=8)", "fp32"): 2.6,
    ("SmoothMix step (m=4, T=8)", "bf16"): 3.8,
    ("SmoothMix step (m=2, T=4)", "fp32"): 2.0,
    ("SmoothMix step (m=2, T=4)", "bf16"): 3.5,
}
"""How many times as fast as the reference a step is to be; bf16 by its instructions."""


def our_loss(method: Method, model: nn.Module, batch: Batch) -> Tensor:
    """The step's loss by this package."""
    keep_freed_memory()  # as the command line does
    return method.loss(model, batch.x, batch.y, epoch=EPOCH, noise=batch.noise, mix=batch.mix).total


def draw(case: Case) -> Batch:
    """Random images: what they show does not change the time."""
    shape = (case.images, *SHAPES[case.network])
    noise = case.method.sigma * torch.randn(case.method.copies, *shape)
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
    theirs = field_network(case.network).train()
    nets = [networks.build(case.network).to(memory_format=torch.channels_last) for _ in range(2)]
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


def measure(name: str, *, threads: int, cpu_time: bool = False) -> list[Line]:
    """Images per second of each way, in turns, on so many threads."""
    case = CASES[name]

    def check(losses: list[float]) -> None:
        if max(losses) - min(losses) > case.tolerance:
            raise AssertionError(f"the ways do not compute the same loss: {losses}")

    medians = take_turns(
        partial(ways, name), case.repeats, threads=threads, check=check, cpu_time=cpu_time
    )
    model = networks.build(case.network).eval()
    needed = case.passes * operations(lambda: model(torch.rand(1, *SHAPES[case.network])))
    return [
        Line(
            what=name,
            network=case.network,
            way=way,
            threads=threads,
            rate=case.images / seconds,
            unit="images",
            ratio=medians[REFERENCE] / seconds,
            floor=matmul_speed(way[-4:], threads, cpu_time=cpu_time) / needed,
        )
        for way, seconds in medians.items()
    ]


def summary(lines: Sequence[Line]) -> list[tuple[str, ...]]:
    """Per step and precision: how many times as fast as the reference, and the bar."""
    rows: list[tuple[str, ...]] = []
    for (what, precision), bar in BARS.items():
        for line in lines:
            if (line.what, line.way) == (what, f"smoothmix, {precision}"):
                cells = (what, line.network, precision, str(line.threads))
                rows.append((*cells, f"{line.ratio:.2f}", f"{bar:.1f}"))
    return rows
