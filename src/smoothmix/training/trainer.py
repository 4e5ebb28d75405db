"""The one training loop: any method, any network, any number of processes, resumable anywhere."""

from __future__ import annotations

import math
import time
from contextlib import closing
from dataclasses import dataclass, field, replace

import torch
from torch import nn

from smoothmix._process.signals import Interrupted, Stopped, StopRequest
from smoothmix.config import RunConfig
from smoothmix.data import Dataset
from smoothmix.errors import SmoothmixError
from smoothmix.methods import Method
from smoothmix.networks.noisy import noisy_accuracy
from smoothmix.runs.folder import RunFolder
from smoothmix.runs.load import save_trained
from smoothmix.runs.options import CHECKPOINT_MINUTES
from smoothmix.training.batches import Epoch, Share, prepare_shares
from smoothmix.training.checkpoint import State, load_latest, save_state
from smoothmix.training.metrics import (
    EpochMetrics,
    Listeners,
    StepProgress,
    append_line,
    keep_lines,
)
from smoothmix.training.parallel import ProcessGroup
from smoothmix.training.rescue import folder_identity, rescue_run
from smoothmix.training.step import Stepper, StepTotals


@dataclass(kw_only=True)
class Trainer:
    """A run in progress: the network, its optimiser, and the folder that both resume from."""

    config: RunConfig
    folder: RunFolder
    method: Method
    train: Dataset
    test: Dataset
    model: nn.Module
    device: torch.device
    workers: int = 0
    checkpoint_minutes: float = CHECKPOINT_MINUTES
    listeners: Listeners = field(default_factory=Listeners)
    group: ProcessGroup = field(default_factory=ProcessGroup)
    stop: StopRequest = field(default_factory=StopRequest)
    stepper: Stepper = field(init=False)
    state: State = field(init=False)
    finished: bool = field(init=False, default=False)
    """Whether the folder already holds the trained weights."""
    _folder_identity: tuple[int, int] | None = field(init=False, default=None)
    """Of the folder that was locked; None in processes that do not touch it."""

    def __post_init__(self) -> None:
        self.stepper = Stepper(
            self.model,
            self.method,
            self.config.recipe,
            self.device,
            self.group,
            self.config.fine_tuning,
        )
        self.state = State(model={}, optimiser={})

    def resume(self) -> None:
        """Load the state that an earlier process left in the folder, if there is one."""
        self._folder_identity = folder_identity(self.folder)
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
        """Continue from that state."""
        # A state without a network is that of a run that has not started.
        if state.model:
            self.model.load_state_dict(state.model)
            self.stepper.optimiser.load_state_dict(state.optimiser)
        self.state = state

    def save(self) -> None:
        """Write a checkpoint."""
        self.state.model = self.model.state_dict()
        self.state.optimiser = self.stepper.optimiser.state_dict()
        self.state.processes = self.group.world.size
        self._require_folder()
        save_state(self.folder, self.state)

    def _require_folder(self) -> None:
        """Save the run elsewhere and raise, if its folder is not the one that it started in."""
        if self._folder_identity in (None, folder_identity(self.folder)):
            return
        self.state.model = self.model.state_dict()
        self.state.optimiser = self.stepper.optimiser.state_dict()
        raise rescue_run(self.folder, self.config, self.state)

    def run(self) -> EpochMetrics | None:
        """Train to the last epoch, and save the weights in the folder.

        Returns the metrics of the last epoch; None if there was nothing left to train.
        """
        if self.finished:
            return None
        metrics = None
        while self.state.epoch < self.config.recipe.epochs:
            metrics = self._train_epoch()
        if self.group.world.is_main:
            self._require_folder()
            save_trained(self.model, self.folder)
        self.finished = True
        return metrics

    def _train_epoch(self) -> EpochMetrics:
        """Take the steps of the epoch that are left, evaluate the network, and save both."""
        recipe = self.config.recipe
        number = self.state.epoch
        epoch = Epoch(self.train, self.method, recipe.seed, number, recipe.batch, self.group.world)
        self.stepper.set_epoch(number)
        self._take_steps(epoch)
        self._require_finite_weights()
        metrics = self._metrics(self._accuracy(len(epoch)))
        self.state = replace(self.state, epoch=number + 1, step=0, sums={}, seconds=0.0)
        if self.group.world.is_main:
            self._require_folder()
            # The line first: after a crash between the two, the epoch's end is repeated, and
            # resuming drops the line.
            append_line(self.folder.metrics, metrics)
            self.save()
            self.listeners.on_epoch(metrics)
        return metrics

    def _take_steps(self, epoch: Epoch) -> None:
        steps = len(epoch)
        started = time.monotonic()
        saved = started
        seconds_before = self.state.seconds
        shares = prepare_shares(epoch, first=self.state.step, workers=self.workers)
        with closing(shares):
            for share in shares:
                totals = self._take_step(share)
                self.state.step += 1
                self.state.seconds = seconds_before + time.monotonic() - started
                self._report_step(steps, totals.means["loss"])
                # A single process stops at once; several must know it in the same step.
                if totals.stop or (self.group.world.alone and self.stop.requested):
                    raise self._stopped(steps)
                if time.monotonic() - saved > 60 * self.checkpoint_minutes:
                    self._save_if_finite()
                    saved = time.monotonic()

    def _take_step(self, share: Share) -> StepTotals:
        totals = self.stepper.step(share, stop=self.stop.requested)
        if not totals.finite:
            where = f"epoch {self.state.epoch + 1}, step {self.state.step + 1}"
            parts = ", ".join(f"{name} {value:g}" for name, value in totals.means.items())
            raise self._diverged(f"the loss is not finite in {where} ({parts})")
        sums = self.state.sums
        for name, value in (*totals.sums.items(), ("samples", totals.samples)):
            sums[name] = sums.get(name, 0.0) + value
        return totals

    def _report_step(self, steps: int, loss: float) -> None:
        self.listeners.on_step(
            StepProgress(
                epoch=self.state.epoch,
                epochs=self.config.recipe.epochs,
                step=self.state.step,
                steps=steps,
                loss=loss,
            )
        )

    def _save_if_finite(self) -> None:
        """Save a checkpoint within an epoch.

        If weights are not finite, the next step reports it, and the last good checkpoint is kept.
        """
        if self.group.world.is_main and self._weights_are_finite():
            self.save()

    def _weights_are_finite(self) -> bool:
        """Whether all weights are finite; the answer is the same in all processes."""
        return all(bool(weight.isfinite().all()) for weight in self.model.parameters())

    def _require_finite_weights(self) -> None:
        """Refuse to save weights that the last step made infinite, which its loss cannot show."""
        if not self._weights_are_finite():
            where = f"epoch {self.state.epoch + 1}, step {self.state.step}"
            raise self._diverged(f"weights are not finite after {where}")

    def _diverged(self, what: str) -> SmoothmixError:
        """The error that training has diverged, with the checkpoint that is left."""
        left = "nothing was saved yet"
        if self.folder.state.exists():
            left = f"the last good checkpoint is {self.folder.state}"
        return self.group.ending(
            SmoothmixError(f"{what}; {left}; a lower --learning-rate may help, with another --out")
        )

    def _stopped(self, steps: int) -> SmoothmixError:
        """The error that training was stopped, after saving: all processes are at this step."""
        self._require_finite_weights()
        if self.group.world.is_main:
            self.save()
        where = f"epoch {self.state.epoch + 1} after step {self.state.step} of {steps}"
        advice = "the checkpoint is saved; run the same command again to resume"
        error: SmoothmixError = Stopped(f"stopped by SIGTERM in {where}; {advice}")
        if self.stop.by_keyboard:
            error = Interrupted(f"interrupted in {where}; {advice}")
        return self.group.ending(error)

    def _accuracy(self, steps: int) -> float:
        """Accuracy under noise of the network as it is saved; each process evaluates a part."""
        world = self.group.world
        if world.is_main and not world.alone:
            # A process that is asked to stop here waits for the others, perhaps until it is
            # killed.
            self.save()
        self.group.share_buffers(self.model)
        part = self.stop.run_unless_stopped(self._own_part_of_accuracy)
        # Not a number in one process makes the sum not a number in all of them.
        accuracy = self.group.total(math.nan if part is None else part)
        if math.isnan(accuracy):
            raise self._stopped(steps)
        return accuracy

    def _own_part_of_accuracy(self) -> float:
        return noisy_accuracy(
            self.model,
            self.test,
            sigma=self.method.sigma,
            seed=self.config.recipe.seed,
            world=self.group.world,
        )

    def _metrics(self, accuracy: float) -> EpochMetrics:
        """The metrics of the epoch that has just ended."""
        sums = dict(self.state.sums)
        samples = sums.pop("samples", 0.0)
        means = {}
        if samples:
            means = {name: total / samples for name, total in sums.items()}
        seconds = self.state.seconds
        images_per_second = math.nan
        if seconds:
            images_per_second = samples / seconds
        return EpochMetrics(
            epoch=self.state.epoch + 1,
            loss=means.pop("loss", math.nan),
            parts=means,
            accuracy=accuracy,
            learning_rate=self.config.recipe.rate(self.state.epoch),
            images_per_second=images_per_second,
            seconds=seconds,
        )
