"""The weights that training begins with, where they are not fresh."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

from torch import nn

from smoothmix.config import RunConfig
from smoothmix.errors import CheckpointError, UsageError
from smoothmix.networks.denoised import Denoised
from smoothmix.networks.parts import freeze
from smoothmix.networks.starting import load_start
from smoothmix.runs.fine_tuning import run_folder


def start_file(name: str) -> Path:
    """The file of weights that `--weights` names: itself, or that of a run."""
    folder = run_folder(name)
    if folder is None:
        return Path(name).expanduser()
    if not folder.weights.exists():
        raise UsageError(f"{name}: has no trained weights")
    return folder.weights


def with_digest(config: RunConfig) -> RunConfig:
    """The settings with the SHA-256 of the first weights: a file may change under its name."""
    tuning = config.fine_tuning
    if tuning is None or not tuning.weights:
        return config
    path = start_file(tuning.weights)
    try:
        with path.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror}") from error
    return replace(config, fine_tuning=replace(tuning, weights_sha256=digest))


def prepare(model: nn.Module, config: RunConfig) -> list[str]:
    """Give a network its first weights, and freeze what stays as it is; notes on the run."""
    tuning = config.fine_tuning
    if tuning is None:
        return []
    notes = []
    if tuning.weights:
        target = model
        if isinstance(model, Denoised):
            target = model.classifier
        # The head of a classifier that stays as it is must not be a random one.
        fresh = load_start(target, start_file(tuning.weights), whole=target is not model)
        note = f"started from {tuning.weights}"
        if fresh:
            note += f", with a new {fresh}"
        notes.append(note)
    freeze(model, tuning.freeze)
    return notes
