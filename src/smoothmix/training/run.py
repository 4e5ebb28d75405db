"""A training run in its folder: prepared, locked by one process, and resumed where it stopped."""

from __future__ import annotations

import os
import re
import time
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import torch

from smoothmix import data, methods
from smoothmix._io.locks import exclusive
from smoothmix._io.toml import from_table, to_toml, to_toml_value
from smoothmix._process.signals import StopRequest
from smoothmix._process.world import ReportedByRankZero, World, current_world
from smoothmix.config import TESTED_ON_TRAINING, RunConfig, require
from smoothmix.data import Dataset
from smoothmix.data.classes import recorded_names
from smoothmix.errors import UsageError
from smoothmix.inference.devices import choose_device, own_device
from smoothmix.inference.guards import warn_of_doubts
from smoothmix.methods import Method
from smoothmix.runs.folder import RunFolder
from smoothmix.runs.load import build_network
from smoothmix.runs.options import CHECKPOINT_MINUTES, TrainingOptions
from smoothmix.training import start
from smoothmix.training.batches import Epoch
from smoothmix.training.checkpoint import pack, unpack
from smoothmix.training.metrics import Listeners
from smoothmix.training.parallel import ProcessGroup, open_group, synchronised, uses_batchnorm
from smoothmix.training.trainer import Trainer

LOCK_PATIENCE = 15.0
"""Seconds that a restarted process waits for the lock of the process it replaces."""


@contextmanager
def open_run(
    config: RunConfig,
    path: Path,
    options: TrainingOptions | None = None,
    *,
    listeners: Listeners | None = None,
    stop: StopRequest | None = None,
) -> Iterator[Trainer]:
    """A trainer for the run in folder `path`, ready to resume wherever an earlier one stopped.

    Started by torchrun, this process is one of several that train together; only rank 0 touches
    the folder.
    """
    options = options or TrainingOptions()
    stop = stop or StopRequest()
    world = current_world()
    device = own_device(choose_device(options.device), world)
    method = make_method(config)
    train, test = load_data(config, options)
    config = _complete(config, method, train, test)
    if world.is_main:
        warn_of_doubts(method.sigma, train)
    with (
        open_group(world, device, stop) as group,
        ExitStack() as held,
        torch.random.fork_rng(devices=[]),
    ):
        torch.manual_seed(config.recipe.seed)
        model = build_network(config)
        config, notes = start.prepare(model, config)
        config = _with_notes(config, *notes)
        if options.sync_batchnorm:
            model = synchronised(model, world, device)
        elif uses_batchnorm(model) and not world.alone:
            note = f"BatchNorm saw each batch in {world.size} shares, one per process"
            config = _with_notes(config, note)
        trainer = Trainer(
            config=config,
            folder=RunFolder(path),
            method=method,
            train=train,
            test=test,
            model=model,
            device=device,
            workers=_number_of_workers(options, train, world),
            checkpoint_minutes=options.checkpoint_minutes or CHECKPOINT_MINUTES,
            listeners=listeners or Listeners(),
            group=group,
            stop=stop,
        )
        _require_same_settings(group, config)
        state = group.from_main(lambda: _begin(trainer, held))
        if not world.is_main:
            trainer.follow(unpack(state))
        trainer.finished = group.any(trainer.finished)
        try:
            yield trainer
        finally:
            # Before the group is left: see `open_group`.
            trainer.stepper.release()


def make_method(config: RunConfig) -> Method:
    """The training method of a run."""
    settings = dict(config.method)
    return methods.make(settings.pop("name"), **settings)


def load_data(config: RunConfig, options: TrainingOptions) -> tuple[Dataset, Dataset]:
    """The images to train on and those to evaluate on, which must have the same shape."""
    train = data.load(
        config.data,
        config.train_split,
        data_dir=options.data_dir,
        allow_partial=options.allow_partial,
        preparation=config.preparation,
    )
    if config.augmentation:
        # Images for evaluation and certification stay as they are.
        train = replace(train, augmentation=config.augmentation)
    test = data.load(config.data, "test", data_dir=options.data_dir, preparation=config.preparation)
    require(
        (train.shape, train.num_classes) == (test.shape, test.num_classes),
        f"{config.data}: its training images have shape {list(train.shape)} and "
        f"{train.num_classes} classes, its test images {list(test.shape)} and {test.num_classes}",
    )
    return train, test


def _complete(config: RunConfig, method: Method, train: Dataset, test: Dataset) -> RunConfig:
    """The settings with what only the method and the data know."""
    config = replace(
        start.with_digest(start.with_library_facts(config)),
        method={"name": config.method["name"], **_all_settings(method)},
        num_classes=train.num_classes,
        class_names=recorded_names(train),
        image_shape=train.shape,
        data_hash=train.fingerprint,
        # Settings may come from the folder of another run.
        weights_sha256="",
    )
    recipe = config.recipe
    if not Epoch(train, method, recipe.seed, 0, recipe.batch).ranges:
        raise UsageError(
            f"{len(train)} images in batches of {recipe.batch} leave no step of "
            f"{method.copies} chunks to take"
        )
    notes = [train.note or ""]
    if train.fingerprint == test.fingerprint:
        notes.append(TESTED_ON_TRAINING)
    return _with_notes(config, *notes)


def _all_settings(method: Method) -> dict[str, Any]:
    """All settings of a method, defaults included.

    A later version may have other defaults, and the settings that a run records must not change.
    """
    settings = {}
    for setting in fields(method):
        value = getattr(method, setting.name)
        if setting.init and value is not None:
            settings[setting.name] = value
    return settings


def _with_notes(config: RunConfig, *notes: str) -> RunConfig:
    new = tuple(note for note in notes if note and note not in config.notes)
    return replace(config, notes=config.notes + new)


def _number_of_workers(options: TrainingOptions, dataset: Dataset, world: World) -> int:
    """Processes that decode images; images in memory need none."""
    if options.workers is not None:
        return options.workers
    if isinstance(dataset, data.MemoryDataset):
        return 0
    return max(1, (os.cpu_count() or 1) // world.local_size)


def _require_same_settings(group: ProcessGroup, config: RunConfig) -> None:
    """Refuse processes that were started with other settings, or with other data, than rank 0."""
    if group.world.alone:
        return
    text = group.from_main(lambda: to_toml(config).encode()).decode()
    main = from_table(RunConfig, tomllib.loads(text), where="rank 0")
    different = differences(main, config)
    if not group.any(bool(different)):
        return
    if different:
        raise UsageError(f"rank 0 was started with other settings: {different}")
    raise ReportedByRankZero


def _begin(trainer: Trainer, held: ExitStack) -> bytes:
    """Lock the folder for as long as `held` lasts, and load the state that is in it."""
    folder = trainer.folder
    folder.path.mkdir(parents=True, exist_ok=True)
    _lock(folder, held)
    claim(folder, trainer.config)
    trainer.resume()
    if trainer.finished:
        # With the notes of the training that took place: this process trains nothing.
        trainer.config = RunConfig.load(folder.config)
    else:
        add_notes(folder, trainer.config.notes)
    return pack(trainer.state)


def _lock(folder: RunFolder, held: ExitStack) -> None:
    """Hold the lock of the folder.

    After a restart, workers that decode images for the dead process may live for a moment longer,
    and with them its lock.
    """
    deadline = time.monotonic()
    if os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0":
        deadline += LOCK_PATIENCE
    while True:
        try:
            held.enter_context(exclusive(folder.lock, name=str(folder.path)))
        except UsageError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(0.2)
        else:
            return


def claim(folder: RunFolder, config: RunConfig) -> None:
    """Write the settings into a new folder, or refuse a folder that holds another run."""
    if not folder.config.exists():
        config.save(folder.config)
        return
    recorded = RunConfig.load(folder.config)
    if config.extended_epochs is not None:
        recorded = extend(folder, recorded, config)
    different = differences(recorded, config)
    if different:
        raise UsageError(
            f"{folder.path}: holds a run with other settings: {different}; {_advice(different)}"
        )


def _advice(different: str) -> str:
    if re.fullmatch(r"epochs is \d+ there and \d+ here", different):
        return "use another --out, or --extend-epochs to train this run for more epochs"
    return "use another --out"


def extend(folder: RunFolder, recorded: RunConfig, config: RunConfig) -> RunConfig:
    """Give the run in a folder more epochs, where that is all that it lacks; its settings."""
    longer = replace(
        recorded,
        recipe=replace(recorded.recipe, epochs=config.recipe.epochs),
        extended_epochs=config.extended_epochs,
        weights_sha256="",
    )
    if recorded.recipe.epochs >= config.recipe.epochs or differences(longer, config):
        return recorded
    if not folder.state.exists():
        raise UsageError(
            f"{folder.path}: has no checkpoint to continue from ({folder.state.name} is missing): "
            "train again with more --epochs and another --out"
        )
    # The weights first: a process that dies here leaves a run that has not ended, and no weights
    # of fewer epochs than the settings say.
    if folder.weights.exists():
        folder.weights.replace(folder.weights_after(recorded.recipe.epochs))
    longer.save(folder.config)
    return longer


def add_notes(folder: RunFolder, notes: Sequence[str]) -> None:
    """Add to the notes of a run, such as that several processes resumed it."""
    recorded = RunConfig.load(folder.config)
    with_notes = _with_notes(recorded, *notes)
    if with_notes != recorded:
        with_notes.save(folder.config)


def differences(there: RunConfig, here: RunConfig) -> str:
    """What two runs do not have in common, as a sentence; empty if they are the same."""
    old = _flat(there)
    new = _flat(here)
    if old.get("weights_sha256") == "":
        # An earlier version has not recorded which weights of a library it started from.
        new["weights_sha256"] = ""
    found = []
    for name in {**old, **new}:
        before = old.get(name, "not set")
        now = new.get(name, "not set")
        if before != now:
            found.append(f"{name} is {before} there and {now} here")
    return "; ".join(found)


def _flat(config: RunConfig) -> dict[str, Any]:
    """All settings by name, those of the method marked as such."""
    table = asdict(config)
    # Notes follow from the other settings, and weights are made by them.
    del table["notes"]
    del table["weights_sha256"]
    # Earlier versions did not record them; the fingerprint of the data distinguishes names.
    del table["class_names"]
    # The same run, whether it had its epochs from the start or not.
    del table["extended_epochs"]
    recipe = table.pop("recipe")
    method = table.pop("method")
    tuning = table.pop("fine_tuning") or {}
    del table["preparation"]
    preparation = to_toml_value(config.preparation) or {}
    flat = {f"method {name}": value for name, value in method.items()}
    return {**flat, **table, **preparation, **tuning, **recipe}
