"""A training run in its folder: set up, claimed by one process, and taken up where an earlier one stopped."""

from __future__ import annotations

import os
import time
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from smoothmix import data, methods
from smoothmix._io.files import remove_unfinished
from smoothmix._io.locks import exclusive
from smoothmix._io.toml import from_table, to_toml
from smoothmix._process.signals import StopRequest
from smoothmix._process.world import ReportedByRankZero, World, current_world
from smoothmix.config import TESTED_ON_TRAINING, RunConfig, require
from smoothmix.data import Dataset
from smoothmix.errors import UsageError
from smoothmix.inference.guards import say_doubts
from smoothmix.methods import Method
from smoothmix.runs.folder import RunFolder
from smoothmix.runs.load import build_network
from smoothmix.training.batches import Epoch
from smoothmix.training.checkpoint import pack, unpack
from smoothmix.training.metrics import EpochMetrics, Listeners, StepProgress
from smoothmix.training.parallel import Team, own_device, synchronised, team, uses_batchnorm
from smoothmix.training.trainer import Trainer

__all__ = ["EpochMetrics", "Listeners", "StepProgress", "Trainer", "training"]

LOCK_PATIENCE = 15.0
"""Seconds that a restarted process waits for what the one before has left to die."""


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
    sync_batchnorm: bool = False,
    listeners: Listeners | None = None,
    stop: StopRequest | None = None,
) -> Iterator[Trainer]:
    """A trainer for the run in folder `path`, ready to go on from wherever an earlier one stopped.

    Started by torchrun, it is one of several that train together. Only rank 0 touches the folder.
    """
    require(
        checkpoint_minutes > 0, f"checkpoint-minutes must be positive, got {checkpoint_minutes}"
    )
    require(workers is None or workers >= 0, f"workers must be zero or more, got {workers}")
    world, stop = current_world(), stop or StopRequest()
    method = _method(config)
    train = data.load(
        config.data, config.train_split, data_dir=data_dir, allow_partial=allow_partial
    )
    test = data.load(config.data, "test", data_dir=data_dir)
    require(
        (train.shape, train.num_classes) == (test.shape, test.num_classes),
        f"{config.data}: its images for training have shape {list(train.shape)} and {train.num_classes} classes, those "
        f"for testing {list(test.shape)} and {test.num_classes}",
    )
    config = _completed(config, method, train)
    if train.fingerprint == test.fingerprint:
        config = _with_note(config, TESTED_ON_TRAINING)
    if world.is_main:
        say_doubts(method.sigma, train)
    device = own_device(torch.device(device), world)
    with (
        team(world, device, stop) as members,
        ExitStack() as held,
        torch.random.fork_rng(devices=[]),
    ):
        torch.manual_seed(config.recipe.seed)
        model = _network(config, world, device, sync_batchnorm)
        if uses_batchnorm(model) and not (world.alone or sync_batchnorm):
            config = _with_note(
                config, f"BatchNorm saw a batch in {world.size} shares, one a process"
            )
        trainer = Trainer(
            config=config,
            folder=RunFolder(path),
            method=method,
            train=train,
            test=test,
            model=model,
            device=device,
            workers=_default_workers(train, world) if workers is None else workers,
            checkpoint_minutes=checkpoint_minutes,
            listeners=listeners or Listeners(),
            team=members,
            stop=stop,
        )
        _compare(members, config)
        told = members.from_main(lambda: _begin(trainer, held))
        if not world.is_main:
            trainer.follow(unpack(told))
        trainer.finished = members.any(trainer.finished)
        yield trainer


def _completed(config: RunConfig, method: Method, train: Dataset) -> RunConfig:
    """The settings with what only the method and the data know."""
    config = replace(
        config,
        method={"name": config.method["name"], **_settings(method)},
        num_classes=train.num_classes,
        image_shape=train.shape,
        data_hash=train.fingerprint,
    )
    config = _with_note(config, train.note or "")
    if not Epoch(train, method, config.recipe.seed, 0, config.recipe.batch).ranges:
        raise UsageError(
            f"{len(train)} images in batches of {config.recipe.batch} leave no step of {method.copies} chunks to take"
        )
    return config


def _with_note(config: RunConfig, *notes: str) -> RunConfig:
    new = tuple(note for note in notes if note and note not in config.notes)
    return replace(config, notes=config.notes + new)


def _network(
    config: RunConfig, world: World, device: torch.device, sync_batchnorm: bool
) -> nn.Module:
    network = build_network(config)
    return synchronised(network, world, device) if sync_batchnorm else network


def _begin(trainer: Trainer, held: ExitStack) -> bytes:
    """Take possession of the folder, for as long as `held` lasts, and take up what is in it."""
    folder = trainer.folder
    folder.path.mkdir(parents=True, exist_ok=True)
    _lock(folder, held)
    claim(folder, trainer.config)
    remove_unfinished(folder.state.parent)
    trainer.resume()
    if trainer.finished:
        trainer.config = RunConfig.load(
            folder.config
        )  # with its own notes: nothing is trained otherwise now
    else:
        note_down(folder, trainer.config.notes)
    return pack(trainer.state)


def _compare(members: Team, config: RunConfig) -> None:
    """Refuse processes that were started with other settings, or with other data, than rank 0."""
    if members.world.alone:
        return
    main = members.from_main(lambda: to_toml(config).encode()).decode()
    different = differences(from_table(RunConfig, tomllib.loads(main), where="rank 0"), config)
    if members.any(bool(different)):
        raise (
            UsageError(f"rank 0 was started otherwise: {different}")
            if different
            else ReportedByRankZero()
        )


def _lock(folder: RunFolder, held: ExitStack) -> None:
    """Hold the lock of the folder. After a restart, processes that read pictures for the dead one may live for a
    moment longer, and with them its lock."""
    restarted = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"
    deadline = time.monotonic() + (LOCK_PATIENCE if restarted else 0.0)
    while True:
        try:
            held.enter_context(exclusive(folder.lock, name=str(folder.path)))
        except UsageError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(0.2)
        else:
            return


def _method(config: RunConfig) -> Method:
    settings = dict(config.method)
    return methods.make(settings.pop("name"), **settings)


def _settings(method: Method) -> dict[str, Any]:
    """All settings of a method, defaults too: what is kept with a run must not change when a default does."""
    values = {f.name: getattr(method, f.name) for f in fields(method) if f.init}
    return {name: value for name, value in values.items() if value is not None}


def _default_workers(dataset: Dataset, world: World) -> int:
    """Processes that decode pictures; what is in memory needs none."""
    if isinstance(dataset, data.MemoryDataset):
        return 0
    return max(1, (os.cpu_count() or 1) // world.local_size)


def claim(folder: RunFolder, config: RunConfig) -> None:
    """Write the settings into a new folder, or refuse a folder that holds another run."""
    if not folder.config.exists():
        config.save(folder.config)
        return
    if different := differences(RunConfig.load(folder.config), config):
        raise UsageError(
            f"{folder.path}: holds a run with other settings: {different}; use another --out"
        )


def note_down(folder: RunFolder, notes: Sequence[str]) -> None:
    """Add to the notes of a run, such as that it is gone on with by several processes."""
    there = RunConfig.load(folder.config)
    if (noted := _with_note(there, *notes)) != there:
        noted.save(folder.config)


def differences(there: RunConfig, here: RunConfig) -> str:
    """What two runs do not have in common, in words; empty if they are the same."""
    old, new = _flat(there), _flat(here)
    names = [*old, *(name for name in new if name not in old)]
    pairs = [(name, old.get(name, "not set"), new.get(name, "not set")) for name in names]
    return "; ".join(f"{name} is {a} there and {b} here" for name, a, b in pairs if a != b)


def _flat(config: RunConfig) -> dict[str, Any]:
    flat = asdict(config)
    del flat["notes"]  # they follow from the rest
    recipe, method = flat.pop("recipe"), flat.pop("method")
    return {**{f"method {name}": value for name, value in method.items()}, **flat, **recipe}
