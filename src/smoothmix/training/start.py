"""The weights that training begins with, where they are not fresh."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

from torch import nn

from smoothmix.config import FineTuning, RunConfig
from smoothmix.errors import CheckpointError, UsageError
from smoothmix.models import hugging_face
from smoothmix.models.trainable import (
    LoadedWeights,
    PretrainedBody,
    library_facts,
    load_hugging_face,
)
from smoothmix.networks.denoised import Denoised
from smoothmix.networks.network import Network
from smoothmix.networks.parts import freeze
from smoothmix.networks.registry import LIBRARIES, OWN
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


def with_library_facts(config: RunConfig) -> RunConfig:
    """The settings with what another library knows about the network."""
    unknown = config.normalisation == OWN or not config.network_settings
    if not (unknown and config.network.startswith(tuple(LIBRARIES))):
        return config
    facts = library_facts(config.network)
    normalisation = config.normalisation
    if normalisation == OWN:
        normalisation = facts.normalisation
    return replace(config, network_settings=facts.settings, normalisation=normalisation)


def with_digest(config: RunConfig) -> RunConfig:
    """The settings with the SHA-256 of the first weights: a file may change under its name."""
    tuning = config.fine_tuning
    # `prepare` has those of a library, which has no one file for them.
    if tuning is None or not tuning.weights or tuning.weights.startswith(hugging_face.PREFIX):
        return config
    path = start_file(tuning.weights)
    try:
        with path.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror}") from error
    return replace(config, fine_tuning=replace(tuning, weights_sha256=digest))


def prepare(model: nn.Module, config: RunConfig) -> tuple[RunConfig, list[str]]:
    """Give a network its first weights, and freeze what stays as it is; settings and notes."""
    tuning = config.fine_tuning
    if tuning is None:
        return config, []
    notes = []
    if tuning.weights:
        target = model
        if isinstance(model, Denoised):
            target = model.classifier
        # The head of a classifier that stays as it is must not be a random one.
        loaded = _load(target, tuning, whole=target is not model)
        note = f"started from {tuning.weights}"
        if loaded.fresh:
            note += f", with a new {loaded.fresh}"
        notes.append(note)
        config = replace(config, fine_tuning=replace(tuning, weights_sha256=loaded.sha256))
    freeze(model, tuning.freeze)
    return config, notes


def _load(model: nn.Module, tuning: FineTuning, *, whole: bool) -> LoadedWeights:
    """Load the first weights of a network."""
    weights = tuning.weights
    if not weights.startswith(hugging_face.PREFIX):
        fresh = load_start(model, start_file(weights), whole=whole)
        return LoadedWeights(fresh=fresh, sha256=tuning.weights_sha256)
    body = model
    if isinstance(model, Network):
        body = model.body
    if not isinstance(body, PretrainedBody):
        raise UsageError(f"--weights {weights} goes with --network {weights}")
    return load_hugging_face(body, weights, whole=whole)
