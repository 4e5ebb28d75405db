"""The one training loop: any method, any network, any number of processes, resumed where it was killed."""

from __future__ import annotations

import math
import time
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn
from torch.optim import SGD

from smoothmix._process.signals import Interrupted, Stopped, StopRequest
from smoothmix.config import RunConfig
from smoothmix.data import Dataset
from smoothmix.errors import SmoothmixError
from smoothmix.methods import Loss, Method
from smoothmix.networks.noisy import noisy_accuracy
from smoothmix.networks.weights import save_weights
from smoothmix.runs.folder import RunFolder
from smoothmix.training.batches import Ahead, Batch, Epoch, prepared
from smoothmix.training.checkpoint import State, load_latest, save_state
from smoothmix.training.metrics import (
    EpochMetrics,
    Listeners,
    StepProgress,
    append_line,
    keep_lines,
)
from smoothmix.training.parallel import Tally, Team


class Objective(nn.Module):
    """A method's loss as a module of its own.

    This is what is wrapped for several processes, not the network: a loss runs it several times and attacks it, which
    a wrapper takes for as many steps. The method sees the bare network.
    """

    def __init__(self, network: nn.Module, method: Method) -> None:
        super().__init__()
        self.network = network
        self.method = method
        self.tally = Tally()

    def forward(self, x: Tensor, y: Tensor, noise: Tensor, mix: Tensor, epoch: int) -> Loss:
        return self.method.loss(self.network, x, y, epoch=epoch, noise=noise, mix=mix)


@dataclass(kw_only=True)
class Trainer:
    """A run in progress: the network, its optimiser, and the folder that can bring both back."""

    config: RunConfig
    folder: RunFolder
    method: Method
    train: Dataset
    test: Dataset
    model: nn.Module
    device: torch.device
    workers: int = 0
    checkpoint_minutes: float = 10.0
    listeners: Listeners = field(default_factory=Listeners)
    team: Team = field(default_factory=Team)
    stop: StopRequest = field(default_factory=StopRequest)
    optimiser: SGD = field(init=False)
    state: State = field(init=False)
    finished: bool = field(init=False, default=False)
    """Whether the weights are there already."""

    def __post_init__(self) -> None:
        recipe = self.config.recipe
        self.model.to(self.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.optimiser = SGD(
            self.model.parameters(),
            lr=recipe.learning_rate,
            momentum=recipe.momentum,
            nesterov=recipe.nesterov,
            weight_decay=recipe.weight_decay,
            fused=True,  # one pass over the weights
        )
        self.state = State(model={}, optimiser={})

    def resume(self) -> None:
        """Take up the state that an earlier run left in the folder, if there is one."""
        state = load_latest(self.folder)
        if state is None:
            # Weights without a state are those of a run that was copied, imported or tidied up.
            self.finished = self.folder.weights.exists()
            if not self.finished:
                keep_lines(self.folder.metrics, 0)
            return
        self.follow(state)
        keep_lines(self.folder.metrics, state.epoch)
        self.finished = state.epoch >= self.config.recipe.epochs and self.folder.weights.exists()
        if not self.finished:
            self.listeners.on_resume(state)

    def follow(self, state: State) -> None:
        """Stand where that state stands."""
        if state.model:
            self.model.load_state_dict(state.model)
            self.optimiser.load_state_dict(state.optimiser)
        self.state = state

    def save(self) -> None:
        """Put the state on disk."""
        self.state.model = self.model.state_dict()
        self.state.optimiser = self.optimiser.state_dict()
        self.state.processes = self.team.world.size
        save_state(self.folder, self.state)

    def run(self) -> EpochMetrics | None:
        """Train to the last epoch and leave the weights in the folder; the metrics of the last epoch that was run."""
        metrics = None
        if self.finished:
            return None
        bare = Objective(self.model, self.method).to(self.device)
        objective = self.team.wrap(bare)
        while self.state.epoch < self.config.recipe.epochs:
            metrics = self._epoch(objective, bare.tally)
        if self.team.world.is_main:
            save_weights(self.model, self.folder.weights)
        self.finished = True
        return metrics

    def _epoch(self, objective: nn.Module, tally: Tally) -> EpochMetrics:
        number, recipe = self.state.epoch, self.config.recipe
        for group in self.optimiser.param_groups:
            group["lr"] = recipe.rate(number)
        epoch = Epoch(self.train, self.method, recipe.seed, number, recipe.batch, self.team.world)
        started, before, saved = time.monotonic(), self.state.seconds, time.monotonic()
        self.model.train()
        with closing(self._steps(epoch)) as steps:
            for step in steps:
                totals = self._step(objective, tally, step, number)
                self.state.step += 1
                self.state.seconds = before + time.monotonic() - started
                self.listeners.on_step(self._progress(len(epoch), totals["loss"] / step.total))
                if totals["stop"] or (self.team.world.alone and self.stop.requested):
                    raise self._stopped(len(epoch))
                if (
                    self.team.world.is_main
                    and time.monotonic() - saved > 60 * self.checkpoint_minutes
                ):
                    if (
                        not self._broken()
                    ):  # else the next step says so, and the last good state is kept
                        self.save()
                    saved = time.monotonic()
        self._require_whole()
        metrics = self._metrics(epoch, recipe.rate(number), self._accuracy(len(epoch)))
        self.state = replace(self.state, epoch=number + 1, step=0, sums={}, seconds=0.0)
        if self.team.world.is_main:
            # The line first: a crash between the two repeats the epoch's end and drops the line on resuming.
            append_line(self.folder.metrics, metrics)
            self.save()
            self.listeners.on_epoch(metrics)
        return metrics

    def _steps(self, epoch: Epoch) -> Generator[Batch]:
        mean = self.team.mean
        if self.workers > 0 or mean is None or mean.spare_cores:
            return prepared(epoch, first=self.state.step, workers=self.workers)
        ahead = Ahead(epoch, self.state.step)
        mean.meanwhile = ahead.work
        return ahead.steps()

    def _step(
        self, objective: nn.Module, tally: Tally, step: Batch, epoch: int
    ) -> dict[str, float]:
        """Take one step; the sums of loss and parts over its images in all processes, and whether to stop."""
        _seed(self.device, step.seed)
        x = step.x.to(self.device, memory_format=torch.channels_last)
        y, noise, mix = (tensor.to(self.device) for tensor in (step.y, step.noise, step.mix))
        with torch.autocast(
            self.device.type, torch.bfloat16, enabled=self.config.recipe.precision == "bf16"
        ):
            loss: Loss = objective(x, y, noise, mix, epoch)
        values = {
            "loss": loss.total.item(),
            **{name: float(part) for name, part in loss.parts.items()},
        }
        sums = {name: value * step.counted for name, value in values.items()}
        totals = {**sums, "samples": step.counted, "stop": float(self.stop.requested)}
        self.optimiser.zero_grad(set_to_none=True)
        # Losses are means over images and gradients are averaged over processes, whose shares may differ.
        weight = step.counted * self.team.world.size / step.total
        carried = 0.0 if self.team.world.alone else tally.load(totals)
        (loss.total * weight + carried).backward()  # type: ignore[no-untyped-call]
        if not self.team.world.alone:
            totals = tally.totals(self.team.world)
        means = {name: totals[name] / step.total for name in values}
        if not all(map(math.isfinite, means.values())):
            parts = ", ".join(f"{name} {value:g}" for name, value in means.items())
            raise self._lost(
                f"the loss is not finite in epoch {epoch + 1}, step {self.state.step + 1} ({parts})"
            )
        self.optimiser.step()
        for name in (*values, "samples"):
            self.state.sums[name] = self.state.sums.get(name, 0.0) + totals[name]
        return totals

    def _broken(self) -> bool:
        """Whether a weight is no finite number any more: so it is in all processes."""
        return not all(bool(weight.isfinite().all()) for weight in self.model.parameters())

    def _require_whole(self) -> None:
        """Refuse to save weights that a step has broken: the loss, taken before it, did not show it."""
        if self._broken():
            raise self._lost(
                f"weights are not finite after epoch {self.state.epoch + 1}, step {self.state.step}"
            )

    def _lost(self, what: str) -> SmoothmixError:
        """That training has diverged, and what is left of it."""
        left = (
            f"the last good checkpoint is {self.folder.state}"
            if self.folder.state.exists()
            else "nothing was saved yet"
        )
        return self.team.ending(
            SmoothmixError(f"{what}; {left}; a lower --learning-rate may help, with another --out")
        )

    def _stopped(self, steps: int) -> SmoothmixError:
        """Save, and say so: all processes are at the same step."""
        self._require_whole()
        if self.team.world.is_main:
            self.save()
        kind, why = (
            (Interrupted, "interrupted")
            if self.stop.by_keyboard
            else (Stopped, "stopped by SIGTERM")
        )
        return self.team.ending(
            kind(
                f"{why} in epoch {self.state.epoch + 1} after step {self.state.step} of {steps}; "
                "the checkpoint is saved, and the same command goes on from there"
            )
        )

    def _accuracy(self, steps: int) -> float:
        """Accuracy of the network as it is saved, of which each process does a part; broken off when told to stop."""
        if self.team.world.is_main and not self.team.world.alone:
            self.save()  # a process that is told to stop waits here for others, perhaps in vain
        self.team.share_buffers(self.model)
        sigma, seed, world = self.method.sigma, self.config.recipe.seed, self.team.world
        part = self.stop.run_unless_stopped(
            lambda: noisy_accuracy(self.model, self.test, sigma=sigma, seed=seed, world=world)
        )
        accuracy = self.team.total(math.nan if part is None else part)
        if math.isnan(accuracy):
            raise self._stopped(steps)
        return accuracy

    def _metrics(self, epoch: Epoch, rate: float, accuracy: float) -> EpochMetrics:
        samples = self.state.sums.get("samples", 0.0)
        means = (
            {name: total / samples for name, total in self.state.sums.items() if name != "samples"}
            if samples
            else {}
        )
        seconds = self.state.seconds
        return EpochMetrics(
            epoch=epoch.number + 1,
            loss=means.pop("loss", math.nan),
            parts=means,
            accuracy=accuracy,
            learning_rate=rate,
            images_per_second=samples / seconds if seconds else math.nan,
            seconds=seconds,
        )

    def _progress(self, steps: int, loss: float) -> StepProgress:
        epochs = self.config.recipe.epochs
        return StepProgress(
            epoch=self.state.epoch, epochs=epochs, step=self.state.step, steps=steps, loss=loss
        )


def _seed(device: torch.device, seed: int) -> None:
    """Set what torch draws from; its own function keeps a traceback for every kind of device that there might be, which
    takes half a millisecond."""
    if device.type == "cpu":
        torch.default_generator.manual_seed(seed)
    else:
        torch.manual_seed(seed)
