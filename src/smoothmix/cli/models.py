"""The network that a command was given: a run folder of ours, or the user's own network."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, final

from smoothmix._process.world import current_world
from smoothmix.cli.options import ImageOptions, ModelOptions
from smoothmix.cli.output import echo
from smoothmix.config import EngineName, Precision, Preparation, require, require_sigma
from smoothmix.errors import UsageError

if TYPE_CHECKING:
    from torch import nn

    from smoothmix.certify.smoothed import Smoothed
    from smoothmix.data import Dataset
    from smoothmix.noise import Noise


@final
@dataclass(frozen=True)
class LoadedNetwork:
    """A network, and what is known about its origin."""

    model: nn.Module
    name: str
    sigma: float | None = None
    """Standard deviation of the noise it was trained with."""
    data: str | None = None
    """The data set it was trained on."""
    trained_on: str = ""
    """Fingerprint of the images it was trained on."""
    num_classes: int | None = None
    """Its outputs, where their number is known."""
    folder: Path | None = None
    """Its run folder, where results go by default."""
    weights: str = ""
    """The file its weights were read from, if the user named one."""
    shape: tuple[int, ...] = ()
    """Channels, height and width of its images, where they are known."""
    trained_shape: tuple[int, ...] = ()
    """The same, where its run has recorded them."""
    class_names: tuple[str, ...] = ()
    """Names of its classes, where its run has recorded them."""
    preparation: Preparation | None = None
    """How its run has resized and cropped image files."""

    def smoothed(
        self,
        *,
        sigma: float,
        num_classes: int,
        batch: int,
        noise: Noise,
        precision: Precision = "fp32",
        engine: EngineName = "auto",
    ) -> Smoothed:
        """The classifier that this network becomes under noise."""
        from smoothmix.certify.smoothed import Smoothed

        return Smoothed(
            self.model,
            sigma=sigma,
            num_classes=num_classes,
            noise=noise,
            batch=batch,
            precision=precision,
            engine=engine,
        )


def load_network(run: Path | None, options: ModelOptions) -> LoadedNetwork:
    """The network of a run folder, or of --model with or without --weights, on its device."""
    if (run is None) == (options.model is None):
        raise UsageError(
            "give either a run folder or --model (package.module:function, hf:NAME, timm:NAME or "
            "a file)"
        )
    if run is not None and options.weights is not None:
        raise UsageError("--weights goes with --model; a run folder has its own")
    network = _from_anywhere(run, options)
    # Each process of a job gets its own GPU.
    from smoothmix.inference.devices import choose_device, own_device

    network.model.to(own_device(choose_device(options.device), current_world()))
    if options.num_classes is None:
        return network
    return replace(network, num_classes=options.num_classes)


def _from_anywhere(run: Path | None, options: ModelOptions) -> LoadedNetwork:
    from smoothmix.models.load import is_model

    if run is not None:
        return _from_folder(run)
    if is_model(options.model or ""):
        return _from_model(options.model or "", options)
    return _from_function(options.model or "", options)


def _from_model(name: str, options: ModelOptions) -> LoadedNetwork:
    """The network of another library or of a file."""
    from smoothmix import models

    loaded = models.load(
        name,
        weights=options.weights,
        output=_output(options),
        normalisation=options.normalisation,
        layout=options.layout,
        num_classes=options.num_classes,
        allow_code=options.allow_code,
        revision=options.revision,
    )
    _note_prefix(options.weights, loaded.removed_prefix)
    return LoadedNetwork(
        loaded.module,
        loaded.name,
        num_classes=loaded.num_classes,
        weights=str(options.weights or ""),
        shape=loaded.shape,
        class_names=loaded.class_names,
    )


def _output(options: ModelOptions) -> str | int | None:
    """Where the logits are; a number is a position."""
    if options.output is not None and options.output.isdigit():
        return int(options.output)
    return options.output


def _from_folder(run: Path) -> LoadedNetwork:
    from smoothmix.runs import zoo
    from smoothmix.runs.load import image_shape, load_run

    config, model = load_run(run)
    network = LoadedNetwork(
        model=model,
        name=config.network,
        sigma=config.sigma,
        data=config.data,
        trained_on=config.data_hash,
        num_classes=config.num_classes,
        folder=run,
        shape=image_shape(config),
        trained_shape=config.image_shape,
        class_names=config.class_names,
        preparation=config.preparation,
    )
    if zoo.is_zoo(run):
        # Results for a network of the zoo go to the current folder: its own holds published ones.
        return replace(network, folder=None, name=str(run))
    return network


def _from_function(spec: str, options: ModelOptions) -> LoadedNetwork:
    from smoothmix.models import with_output
    from smoothmix.networks import load_weights, state_hash

    model = _built(spec, options).eval()
    weights = ""
    if options.weights is not None:
        _note_prefix(options.weights, load_weights(model, options.weights))
        weights = str(options.weights)
    # Networks are certified by their weights, which must be the same when a run is resumed.
    elif state_hash(model) != state_hash(_built(spec, options)):
        warnings.warn(
            f"{spec} gives other weights each time: name a file with trained weights by --weights",
            stacklevel=2,
        )
    return LoadedNetwork(with_output(model, _output(options)), spec, weights=weights)


def _built(spec: str, options: ModelOptions) -> nn.Module:
    from smoothmix.networks import build

    return build(spec, num_classes=options.num_classes, normalisation=options.normalisation)


def _note_prefix(weights: Path | None, removed: str) -> None:
    """Say if the names in the file of --weights were read without a prefix."""
    if removed:
        echo(f"note: names in {weights} are read without the prefix {removed}")


def choose_sigma(network: LoadedNetwork, sigma: float | None) -> float:
    """The requested sigma, or that of the training; a warning where they differ."""
    if sigma is None:
        if network.sigma is None:
            raise UsageError(
                "--sigma is needed: the noise that your network was trained with is not known"
            )
        return network.sigma
    require_sigma(sigma)
    # Allowed: a certificate holds for any sigma, whatever the network was trained with.
    if network.sigma is not None and sigma != network.sigma:
        warnings.warn(
            f"sigma {sigma:g} is not the {network.sigma:g} that the network was trained with: "
            "certificates hold, but expect smaller radii",
            stacklevel=2,
        )
    return sigma


def choose_noise(
    options: ModelOptions, dataset: Dataset | None = None, *, path: Path | None = None
) -> Noise:
    """The requested noise; by default that of the file at `path`, or else the data set's grid."""
    from smoothmix.certificates.existing import existing_settings
    from smoothmix.noise import GRID, GridNoise, make_noise

    if options.levels is not None:
        return GridNoise(options.levels)
    if options.noise is not None and options.noise != GRID.name:
        return make_noise(options.noise)
    existing = None
    if path is not None and options.noise is None:
        existing = existing_settings(path)
    if existing is not None:
        return existing.certification.noise
    if dataset is None or dataset.levels is None:
        return GRID
    return GridNoise(dataset.levels)


def choose_data(network: LoadedNetwork, options: ImageOptions) -> Dataset:
    """The requested data set, or that of the training."""
    from smoothmix import data

    if options.photos:
        return _photos(network, options.photos, _preparation(network, options))
    name = options.data or network.data
    if name is None:
        raise UsageError("--data is needed: the data set of your network is not known")
    preparation = _preparation(network, options)
    # Arrays, for example, are of one size already; match_shape compares it with the network's.
    if options.preparation is None and not data.DATASETS[name].takes_preparation:
        preparation = None
    dataset = data.load(name, options.split, data_dir=options.data_dir, preparation=preparation)
    if dataset.preparation is not None:
        echo(f"note: {dataset.note}")
    dataset = as_trained(network, dataset, classes=options.classes)
    if network.data is not None and dataset.name != network.data:
        warnings.warn(
            f"the network was trained on {network.data}, not on {dataset.name}", stacklevel=2
        )
    # Certified accuracy on training images says nothing about other images.
    if dataset.fingerprint == network.trained_on:
        warnings.warn(
            f"the network was trained on these very images ({dataset.split} split)", stacklevel=2
        )
    return dataset


def _preparation(network: LoadedNetwork, options: ImageOptions) -> Preparation | None:
    """How images are resized and cropped: as for training, or by options for other networks."""
    given = options.preparation
    if given is None:
        return network.preparation
    require(
        network.preparation in (None, given),
        f"the run has recorded how its images were prepared ({network.preparation}): leave "
        "--resize, --crop and --channels out",
    )
    return given


def _photos(
    network: LoadedNetwork, places: Sequence[str], preparation: Preparation | None
) -> Dataset:
    """Images without labels, prepared as the network's training images."""
    from smoothmix.data.photos import load_images

    require(
        bool(network.shape),
        "--images needs to know the shape of the network's images, which runs, hf: and timm: "
        f"models and .onnx files of fixed sizes have on record, and {network.name} has not: "
        "bring the images to one size, and give them as --data npz:PATH",
    )
    return load_images(
        places,
        shape=network.shape,
        class_names=network.class_names or _numbers(network.num_classes or 0),
        trained_on=network.data or "",
        preparation=preparation,
    )


def _numbers(count: int) -> tuple[str, ...]:
    return tuple(str(number) for number in range(count))


def as_trained(
    network: LoadedNetwork, dataset: Dataset, *, classes: Sequence[str] | None = None
) -> Dataset:
    """The data set with the network's numbers for its classes, and images of the network's shape.

    What a run of an earlier version has not recorded is not checked.
    """
    from smoothmix.data.classes import match_classes, match_shape, parse_mapping

    if network.trained_shape:
        dataset = match_shape(dataset, network.trained_shape)
    mapping = parse_mapping(classes)
    if network.class_names and (mapping or _is_matched(network, dataset)):
        return match_classes(dataset, network.class_names, mapping)
    require(not mapping, "--classes needs a run that has recorded the names of its classes")
    return dataset


def _is_matched(network: LoadedNetwork, dataset: Dataset) -> bool:
    """Whether the classes of a data set are matched with the network's by their names."""
    from smoothmix.data import FolderDataset

    of_a_run = network.data is not None
    # Folders are numbered by the alphabet, which is nobody's order. Known data sets have an order
    # that all networks for them share, whatever the names: ImageNet's are numbers of WordNet.
    is_own_folder = isinstance(dataset, FolderDataset) and dataset.name.startswith("folder:")
    return of_a_run or is_own_folder or set(dataset.class_names) <= set(network.class_names)
