"""What a command works on: a run folder of ours, or the person's own network."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from smoothmix._process.world import current_world
from smoothmix.cli.options import ImageOptions, ModelOptions
from smoothmix.config import require_sigma
from smoothmix.errors import UsageError

if TYPE_CHECKING:
    from torch import nn

    from smoothmix.data import Dataset


@dataclass(frozen=True)
class Target:
    """A network, and what is known about how it came to be."""

    model: nn.Module
    name: str
    sigma: float | None = None
    """The noise it was trained with."""
    data: str | None = None
    """The data it was trained on."""
    trained_on: str = ""
    """Fingerprint of the images it was trained on."""
    num_classes: int | None = None
    """What it tells apart, where that is known."""
    folder: Path | None = None
    weights: str = ""
    """The file that they were read from, if it was named."""
    shape: tuple[int, ...] = ()
    """Channels, height and width of its images, where they are known."""


def load_target(run: Path | None, options: ModelOptions) -> Target:
    """The network that a command was given, on its device: a run folder, or --model with or without --weights."""
    if (run is None) == (options.model is None):
        raise UsageError("give either a run folder or --model package.module:function")
    if run is not None and options.weights is not None:
        raise UsageError("--weights goes with --model; a run folder has its own")
    target = (
        _from_folder(run)
        if run is not None
        else _from_function(options.model or "", options.weights)
    )
    from smoothmix.inference.devices import choose_device, own_device

    target.model.to(own_device(choose_device(options.device), current_world()))
    return (
        target if options.num_classes is None else replace(target, num_classes=options.num_classes)
    )


def _from_folder(run: Path) -> Target:
    from smoothmix.runs import zoo
    from smoothmix.runs.load import image_shape, load_run

    from_zoo = zoo.is_zoo(run)
    config, network = load_run(run)
    # What is computed with a network of the zoo goes to the current folder: its own holds the published results.
    folder, name = (None, str(run)) if from_zoo else (run, config.network)
    return Target(
        model=network,
        name=name,
        sigma=config.sigma,
        data=config.data,
        trained_on=config.data_hash,
        num_classes=config.num_classes,
        folder=folder,
        shape=image_shape(config),
    )


def _from_function(spec: str, weights: Path | None) -> Target:
    from smoothmix.networks import build, load_weights, state_hash

    network = build(spec).eval()
    if weights is not None:
        load_weights(network, weights)
    elif state_hash(network) != state_hash(build(spec)):
        warnings.warn(
            f"{spec} gives other weights each time: --weights names a file with trained ones",
            stacklevel=2,
        )
    return Target(network, spec, weights="" if weights is None else str(weights))


def choose_sigma(target: Target, sigma: float | None) -> float:
    """The noise asked for, or that of the training; with a warning where they differ."""
    if sigma is None:
        if target.sigma is None:
            raise UsageError(
                "--sigma is needed: a network of your own does not say what noise it was trained with"
            )
        return target.sigma
    require_sigma(sigma)
    if target.sigma is not None and sigma != target.sigma:
        warnings.warn(
            f"sigma {sigma:g} is not the {target.sigma:g} that the network was trained with: "
            "what is certified holds, but expect less of it",
            stacklevel=2,
        )
    return sigma


def choose_data(target: Target, options: ImageOptions) -> Dataset:
    """The data set asked for, or that of the training."""
    from smoothmix import data

    name = options.data or target.data
    if name is None:
        raise UsageError("--data is needed: a network of your own does not say what it is for")
    dataset = data.load(name, options.split, data_dir=options.data_dir)
    if target.data is not None and dataset.name != target.data:
        warnings.warn(
            f"the network was trained on {target.data}, not on {dataset.name}", stacklevel=2
        )
    if dataset.fingerprint == target.trained_on:
        warnings.warn(
            f"the network was trained on these very images ({dataset.split} split)", stacklevel=2
        )
    return dataset
