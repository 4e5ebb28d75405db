"""The one training loop: any method, any network, resumed exactly where it was killed."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import SGD

from smoothmix import data, methods
from smoothmix.checkpoint import State, load_state, save_state
from smoothmix.config import RunConfig, require
from smoothmix.data import Dataset
from smoothmix.errors import SmoothmixError, UsageError
from smoothmix.files import atomic_write
from smoothmix.locks import exclusive
from smoothmix.methods import Loss, Method
from smoothmix.run_folder import RunFolder
from smoothmix.runs import build_network
from smoothmix.smoothing import noisy_accuracy
from smoothmix.steps import Batch, Epoch, prepared
from smoothmix.weights import save_weights


@dataclass(frozen=True, kw_only=True)
class EpochMetrics:
    """One line of metrics.jsonl."""

    epoch: int
    """Counted from 1, as people do."""
    loss: float
    parts: dict[str, float]
    accuracy: float
    """Share of test images, each with one noise, that the network classifies right."""
    learning_rate: float
    images_per_second: float
    seconds: float


@dataclass(frozen=True, kw_only=True)
class StepProgress:
    """Where the loop is; sent after every step."""

    epoch: int
    epochs: int
    step: int
    steps: int
    loss: float


@dataclass(frozen=True, kw_only=True)
class Listeners:
    """What is to be told while training goes on."""

    on_step: Callable[[StepProgress], None] = lambda progress: None
    on_epoch: Callable[[EpochMetrics], None] = lambda metrics: None
    on_resume: Callable[[State], None] = lambda state: None


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
    optimiser: SGD = field(init=False)
    state: State = field(init=False)

    def __post_init__(self) -> None:
        recipe = self.config.recipe
        self.model.to(self.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.optimiser = SGD(
            self.model.parameters(),
            lr=recipe.learning_rate,
            momentum=recipe.momentum,
            nesterov=recipe.nesterov,
            weight_decay=recipe.weight_decay,
        )
        self.state = State(model={}, optimiser={})

    @property
    def finished(self) -> bool:
        """Whether the weights are there already."""
        return self.state.epoch >= self.config.recipe.epochs and self.folder.weights.exists()

    def resume(self) -> None:
        """Take up the state that an earlier run left in the folder, if there is one."""
        if not self.folder.state.exists():
            _keep_lines(self.folder.metrics, 0)
            return
        state = load_state(self.folder.state)
        self.model.load_state_dict(state.model)
        self.optimiser.load_state_dict(state.optimiser)
        self.state = state
        _keep_lines(self.folder.metrics, state.epoch)
        if not self.finished:
            self.listeners.on_resume(state)

    def save(self) -> None:
        """Put the state on disk."""
        self.state.model = self.model.state_dict()
        self.state.optimiser = self.optimiser.state_dict()
        save_state(self.folder.state, self.state)

    def run(self) -> EpochMetrics | None:
        """Train to the last epoch and leave the weights in the folder; the metrics of the last epoch that was run."""
        metrics = None
        while self.state.epoch < self.config.recipe.epochs:
            metrics = self._epoch()
        save_weights(self.model, self.folder.weights)
        return metrics

    def _epoch(self) -> EpochMetrics:
        number, recipe = self.state.epoch, self.config.recipe
        for group in self.optimiser.param_groups:
            group["lr"] = recipe.rate(number)
        epoch = Epoch(self.train, self.method, recipe.seed, number, recipe.batch)
        started, before, saved = time.monotonic(), self.state.seconds, time.monotonic()
        self.model.train()
        for step in prepared(epoch, first=self.state.step, workers=self.workers):
            loss = self._step(step, number)
            self.state.step += 1
            self.state.seconds = before + time.monotonic() - started
            self.listeners.on_step(self._progress(len(epoch), loss))
            if time.monotonic() - saved > 60 * self.checkpoint_minutes:
                self.save()
                saved = time.monotonic()
        metrics = self._metrics(epoch, recipe.rate(number))
        self.state = replace(self.state, epoch=number + 1, step=0, sums={}, seconds=0.0)
        # The line first: a crash between the two repeats the epoch's end and drops the line on resuming.
        _append_line(self.folder.metrics, asdict(metrics))
        self.save()
        self.listeners.on_epoch(metrics)
        return metrics

    def _step(self, step: Batch, epoch: int) -> float:
        torch.manual_seed(step.seed)
        x = step.x.to(self.device, memory_format=torch.channels_last)
        y, noise, mix = (tensor.to(self.device) for tensor in (step.y, step.noise, step.mix))
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.config.recipe.precision == "bf16"):
            loss = self.method.loss(self.model, x, y, epoch=epoch, noise=noise, mix=mix)
        values = _values(loss)
        if not all(map(math.isfinite, values.values())):
            raise SmoothmixError(self._lost(values))
        self.optimiser.zero_grad(set_to_none=True)
        loss.total.backward()  # type: ignore[no-untyped-call]
        self.optimiser.step()
        for name, value in {**values, "samples": 1.0}.items():
            self.state.sums[name] = self.state.sums.get(name, 0.0) + value * len(y)
        return values["loss"]

    def _lost(self, values: dict[str, float]) -> str:
        parts = ", ".join(f"{name} {value:g}" for name, value in values.items())
        left = (
            f"the last good checkpoint is {self.folder.state}"
            if self.folder.state.exists()
            else "nothing was saved yet"
        )
        return (
            f"the loss is not finite in epoch {self.state.epoch + 1}, step {self.state.step + 1} ({parts}); {left}; "
            "a lower --learning-rate may help, with another --out"
        )

    def _metrics(self, epoch: Epoch, rate: float) -> EpochMetrics:
        samples = self.state.sums.get("samples", 0.0)
        means = (
            {name: total / samples for name, total in self.state.sums.items() if name != "samples"} if samples else {}
        )
        seconds = self.state.seconds
        return EpochMetrics(
            epoch=epoch.number + 1,
            loss=means.pop("loss", math.nan),
            parts=means,
            accuracy=noisy_accuracy(self.model, self.test, sigma=self.method.sigma, seed=self.config.recipe.seed),
            learning_rate=rate,
            images_per_second=samples / seconds if seconds else math.nan,
            seconds=seconds,
        )

    def _progress(self, steps: int, loss: float) -> StepProgress:
        epochs = self.config.recipe.epochs
        return StepProgress(epoch=self.state.epoch, epochs=epochs, step=self.state.step, steps=steps, loss=loss)


def _values(loss: Loss) -> dict[str, float]:
    return {"loss": loss.total.item(), **{name: float(part) for name, part in loss.parts.items()}}


@contextmanager
def training(
    config: RunConfig,
    path: Path,
    *,
    data_dir: Path | None = None,
    allow_partial: bool = False,
    device: torch.device | str = "cpu",
    workers: int | None = None,
    checkpoint_minutes: float = 10.0,
    listeners: Listeners | None = None,
) -> Iterator[Trainer]:
    """A trainer for the run in folder `path`, ready to go on from wherever an earlier one stopped."""
    require(checkpoint_minutes > 0, f"checkpoint-minutes must be positive, got {checkpoint_minutes}")
    method = _method(config)
    config = replace(config, method={"name": config.method["name"], **_settings(method)})
    require(workers is None or workers >= 0, f"workers must be zero or more, got {workers}")
    train = data.load(config.data, config.train_split, data_dir=data_dir, allow_partial=allow_partial)
    test = data.load(config.data, "test", data_dir=data_dir)
    config = replace(config, num_classes=train.num_classes, image_shape=train.shape, data_hash=train.fingerprint)
    if train.note and train.note not in config.notes:
        config = replace(config, notes=(*config.notes, train.note))
    if not Epoch(train, method, config.recipe.seed, 0, config.recipe.batch).ranges:
        raise UsageError(
            f"{len(train)} images in batches of {config.recipe.batch} leave no step of {method.copies} chunks to take"
        )
    folder = RunFolder(path)
    path.mkdir(parents=True, exist_ok=True)
    with exclusive(folder.lock, what=str(path)), torch.random.fork_rng(devices=[]):
        _claim(folder, config)
        torch.manual_seed(config.recipe.seed)
        trainer = Trainer(
            config=config,
            folder=folder,
            method=method,
            train=train,
            test=test,
            model=build_network(config),
            device=torch.device(device),
            workers=_default_workers(train) if workers is None else workers,
            checkpoint_minutes=checkpoint_minutes,
            listeners=listeners or Listeners(),
        )
        trainer.resume()
        yield trainer


def _method(config: RunConfig) -> Method:
    settings = dict(config.method)
    return methods.make(settings.pop("name"), **settings)


def _settings(method: Method) -> dict[str, Any]:
    """All settings of a method, defaults too: what is kept with a run must not change when a default does."""
    values = {f.name: getattr(method, f.name) for f in fields(method) if f.init}
    return {name: value for name, value in values.items() if value is not None}


def _default_workers(dataset: Dataset) -> int:
    """Processes that decode pictures; what is in memory needs none."""
    return 0 if isinstance(dataset, data.MemoryDataset) else os.cpu_count() or 1


def _claim(folder: RunFolder, config: RunConfig) -> None:
    """Write the settings into a new folder, or refuse a folder that holds another run."""
    if not folder.config.exists():
        config.save(folder.config)
        return
    there, here = (_flat(c) for c in (RunConfig.load(folder.config), config))
    names = [*there, *(name for name in here if name not in there)]
    pairs = [(name, there.get(name, "not set"), here.get(name, "not set")) for name in names]
    different = "; ".join(f"{name} is {old} there and {new} here" for name, old, new in pairs if old != new)
    if different:
        raise UsageError(f"{folder.path}: holds a run with other settings: {different}; use another --out")


def _flat(config: RunConfig) -> dict[str, Any]:
    flat = asdict(config)
    recipe, method = flat.pop("recipe"), flat.pop("method")
    return {**{f"method {name}": value for name, value in method.items()}, **flat, **recipe}


def _append_line(path: Path, record: dict[str, Any]) -> None:
    with path.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(record) + "\n")
        stream.flush()
        os.fsync(stream.fileno())


def _keep_lines(path: Path, count: int) -> None:
    """Drop the lines of epochs that will be trained again."""
    if path.exists():
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        if len(lines) > count:
            atomic_write(path, "".join(lines[:count]).encode())
