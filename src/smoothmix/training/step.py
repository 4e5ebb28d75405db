"""One optimiser step: what training repeats, and what the estimate of its duration measures."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import nn
from torch.optim import SGD

from smoothmix.config import FineTuning, Precision, Recipe
from smoothmix.methods import Batch, Loss, Method
from smoothmix.networks.parts import RATE_FACTOR, keep_frozen_modules, parameter_groups
from smoothmix.training.batches import Share
from smoothmix.training.parallel import ProcessGroup, Tally


class LossModule(nn.Module):
    """A method's loss as a module.

    This module is what DistributedDataParallel wraps, not the network: a loss calls the network
    several times and attacks it, and the wrapper would take each call for a step.
    """

    def __init__(self, network: nn.Module, method: Method) -> None:
        super().__init__()
        self.network = network
        self.method = method
        self.tally = Tally()

    def forward(self, batch: Batch) -> Loss:
        return self.method.batch_loss(self.network, batch)


@dataclass(frozen=True, kw_only=True)
class StepTotals:
    """Sums over the images of one step, in all processes."""

    sums: Mapping[str, float]
    """The loss and each of its parts, by name, summed over images."""

    samples: float
    """Number of images."""

    stop: bool
    """Whether a process was asked to stop."""

    @property
    def means(self) -> dict[str, float]:
        """The loss and each of its parts, mean over images."""
        return {name: total / self.samples for name, total in self.sums.items()}

    @property
    def finite(self) -> bool:
        """Whether the loss and all its parts are finite numbers."""
        return all(map(math.isfinite, self.sums.values()))


@dataclass
class Stepper:
    """A network, its optimiser, and `step`, which trains the one with the other."""

    model: nn.Module
    method: Method
    recipe: Recipe
    device: torch.device
    group: ProcessGroup = field(default_factory=ProcessGroup)
    tuning: FineTuning | None = None
    optimiser: SGD = field(init=False)
    _loss: LossModule = field(init=False)
    _wrapped: nn.Module | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.model.to(self.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.optimiser = SGD(
            parameter_groups(self.model, self.tuning, learning_rate=self.recipe.learning_rate),
            lr=self.recipe.learning_rate,
            momentum=self.recipe.momentum,
            nesterov=self.recipe.nesterov,
            weight_decay=self.recipe.weight_decay,
            # One pass over the weights instead of one per operation.
            fused=True,
        )
        self._loss = LossModule(self.model, self.method).to(self.device)

    def set_epoch(self, epoch: int) -> None:
        """Set the learning rate of an epoch, and train mode."""
        for parameters in self.optimiser.param_groups:
            parameters["lr"] = self.recipe.rate(epoch) * parameters.get(RATE_FACTOR, 1.0)
        self.model.train()
        if self.tuning is not None and self.tuning.freeze:
            keep_frozen_modules(self.model)

    def step(self, share: Share, *, stop: bool = False) -> StepTotals:
        """Take one step on this process's share of it; every process must call this.

        `stop` says whether this process was asked to stop, which all processes learn. If the loss
        is not finite, the weights stay as they are.
        """
        if self._wrapped is None:
            # Not before the first step: wrapping copies rank 0's weights to all processes, and
            # until then a checkpoint may be loaded.
            self._wrapped = self.group.wrap(self._loss)
        _seed(self.device, share.seed)
        batch = share.batch.to(self.device)
        with autocast(self.device, self.recipe.precision):
            loss: Loss = self._wrapped(batch)
        values = {"loss": loss.total.item()}
        for name, part in loss.parts.items():
            values[name] = float(part)
        totals = self._backward(loss, values, share, stop=stop)
        if totals.finite:
            self.optimiser.step()
        return totals

    def release(self) -> None:
        """Free what wraps the network for several processes; the next step wraps it again."""
        self._wrapped = None

    def _backward(
        self, loss: Loss, values: Mapping[str, float], share: Share, *, stop: bool
    ) -> StepTotals:
        """Compute the gradients, averaged over processes, and add up the values of the loss."""
        world = self.group.world
        numbers = {name: value * share.counted for name, value in values.items()}
        numbers["samples"] = share.counted
        numbers["stop"] = float(stop)
        self.optimiser.zero_grad(set_to_none=True)
        # A loss is a mean over images, and gradients are averaged over processes, whose shares may
        # have different sizes.
        weight = share.counted * world.size / share.total
        if world.alone:
            (loss.total * weight).backward()  # type: ignore[no-untyped-call]
        else:
            tally = self._loss.tally
            (loss.total * weight + tally.load(numbers)).backward()  # type: ignore[no-untyped-call]
            numbers = tally.totals(world)
        return StepTotals(
            sums={name: numbers[name] for name in values},
            samples=numbers["samples"],
            stop=bool(numbers["stop"]),
        )


def autocast(device: torch.device, precision: Precision) -> torch.autocast:
    """The arithmetic of the network: bf16 under autocast, or as it is."""
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16")


def _seed(device: torch.device, seed: int) -> None:
    """Seed torch's generator."""
    if device.type == "cpu":
        # torch.manual_seed() also prepares a traceback for every other kind of device, which takes
        # half a millisecond.
        torch.default_generator.manual_seed(seed)
    else:
        torch.manual_seed(seed)
