"""The trained network in a run folder."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from smoothmix import networks
from smoothmix._io.files import atomic_write
from smoothmix.config import RunConfig
from smoothmix.errors import CheckpointError, UsageError
from smoothmix.networks.weights import load_weights, weights_content
from smoothmix.runs import zoo
from smoothmix.runs.folder import RunFolder


def build_network(config: RunConfig) -> nn.Module:
    """The network of a run, with fresh weights."""
    # Runs of earlier versions, and imported ones, may not record the shape of their images.
    channels, height, width = config.image_shape or (None, None, None)
    if height != width and not networks.NETWORKS[config.network].any_size:
        raise UsageError(f"{config.network} takes square images, not {height}x{width}")
    # The denoiser first: weights of the classifier are never those that are drawn here.
    denoiser = None
    if config.denoiser:
        denoiser = networks.build_denoiser(config.denoiser, channels=channels, size=width)
    network = networks.build(
        config.network,
        num_classes=config.num_classes,
        channels=channels,
        size=width,
        normalisation=config.normalisation,
        settings=config.network_settings,
    )
    if denoiser is None:
        return network
    return networks.Denoised(denoiser, network)


def image_shape(config: RunConfig) -> tuple[int, ...]:
    """Channels, height and width of the images that a run's network takes; empty if unknown."""
    if config.image_shape:
        return config.image_shape
    # A network from outside does not say what images it takes.
    usual = networks.NETWORKS[config.network]
    if usual.channels is None or usual.size is None:
        return ()
    return (usual.channels, usual.size, usual.size)


def load_run(path: Path | str) -> tuple[RunConfig, nn.Module]:
    """The settings and the trained network, in eval mode, of a run folder or of `zoo:NAME`.

    A network from outside the package is built by the function that the settings name: load only
    run folders that you trust with that.
    """
    folder = RunFolder(zoo.resolved(Path(path)))
    if not folder.config.exists():
        raise UsageError(f"{path}: is no run folder (it has no {folder.config.name})")
    config = RunConfig.load(folder.config)
    if not folder.weights.exists():
        reason = f"{path}: has no trained weights"
        if folder.state.exists():
            reason += ": training has not ended; run the same `smoothmix train` command again"
        raise UsageError(reason)
    # The first weights are drawn at random, and overwritten at once: that must not change what
    # the caller draws.
    with torch.random.fork_rng(devices=[]):
        network = build_network(config)
    # A file that is cut off is refused by what is wrong with it; one changed bit, by its hash.
    load_weights(network, folder.weights)
    _require_recorded_weights(folder, config)
    return config, network.eval()


def save_trained(model: nn.Module, folder: RunFolder) -> None:
    """Write the weights of a run, and their hash into its settings."""
    content = weights_content(model)
    # A program may use the trainer alone, in a folder that is no run.
    if folder.config.exists():
        recorded = RunConfig.load(folder.config)
        digest = hashlib.sha256(content).hexdigest()
        # Before the weights: without it they would be loaded unchecked, should the process die.
        replace(recorded, weights_sha256=digest).save(folder.config)
    atomic_write(folder.weights, content)


def _require_recorded_weights(folder: RunFolder, config: RunConfig) -> None:
    """Refuse weights that have changed; runs of earlier versions have recorded no hash."""
    if not config.weights_sha256:
        return
    try:
        with folder.weights.open("rb") as stream:
            found = hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise CheckpointError(f"cannot read {folder.weights}: {error.strerror}") from error
    if found != config.weights_sha256:
        raise CheckpointError(
            f"{folder.weights}: is damaged or was replaced: its SHA-256 is not the one that "
            f"{folder.config.name} records; restore it, or delete the line weights_sha256 there "
            "if you replaced it on purpose"
        )
