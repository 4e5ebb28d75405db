"""Options of a training run, shared by the commands `train`, `reproduce` and `study`. No torch.

Each option is declared and documented once, here; the command line shows these docstrings.
A field is None (a flag: False) unless the caller gave it, so a command can tell which ones were
given: see `given_options`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from smoothmix.config import Fidelity, Precision, require
from smoothmix.methods.registry import METHODS
from smoothmix.networks.registry import DENOISERS, NETWORKS

# Options that name something in a registry are documented by what it holds.
NETWORK_HELP = (
    f"{', '.join(NETWORKS)}, hf:NAME, timm:NAME, or your own as package.module:function; by "
    "default that of the data."
)
METHOD_HELP = (
    f"{', '.join(METHODS)}, or your own as package.module:Class; by default gaussian or as in "
    "the preset."
)

DENOISER_HELP = (
    f"What is trained with --classifier: {', '.join(DENOISERS)}, or your own as "
    "package.module:function; by default unet."
)

CHECKPOINT_MINUTES = 10.0
"""Minutes between two checkpoints within an epoch, unless `checkpoint_minutes` says otherwise."""


@dataclass(frozen=True, kw_only=True)
class Overrides:
    """Changes to the training of a preset; what is None stays as it is."""

    data: str | None = None
    """Data set (`smoothmix data list`); `sample` is embedded, to try things out."""

    fidelity: Fidelity | None = None
    """official, the default, does what made the published tables; paper what the paper says."""

    epochs: int | None = None
    """Passes over the data; learning-rate drops, warm-up and deferral stay where they are."""

    epochs_scale: float | None = None
    """Multiply epochs, drops, warm-up and deferral, except what --set gives."""

    batch: int | None = None
    """Images per batch; methods with noise copies take one step per chunk of it."""

    learning_rate: float | None = None
    """Step size of SGD before the first drop."""

    precision: Precision | None = None
    """bf16 trains under autocast; weights and losses stay in fp32."""

    def __post_init__(self) -> None:
        require(
            self.epochs is None or self.epochs >= 1,
            f"--epochs must be at least 1, got {self.epochs}",
        )
        require(
            self.epochs is None or self.epochs_scale is None,
            "give --epochs or --epochs-scale, not both",
        )


@dataclass(frozen=True, kw_only=True)
class RunOverrides(Overrides):
    """The same, with the settings that make another run than the preset's: for `train` alone."""

    train_split: str | None = None
    """Part of the data set to train on; by default train."""

    augmentation: str | None = None
    """none; flip-shift for images in memory; resized-crop for image files; by default as its data.
    """

    resize: int | None = None
    """Scale image files (folder:PATH) to so many pixels on the short side; recorded in the run."""

    crop: int | None = None
    """Crop the middle of image files to a square of so many pixels, after --resize; recorded."""

    channels: int | None = None
    """Read image files as grey (1) or colour (3); by default colour if any has it; recorded."""

    network: str | None = field(default=None, metadata={"help": NETWORK_HELP})

    normalisation: str | None = None
    """What the network does to pixels first: cifar10, imagenet, none, or mean/std such as 0.5/0.25
    or 0.5,0.4,0.3/0.25,0.25,0.25; by default as its data."""

    method: str | None = field(default=None, metadata={"help": METHOD_HELP})

    classifier: str | None = None
    """Train a denoiser for this classifier: a run folder, zoo:NAME or package.module:function."""

    denoiser: str | None = field(default=None, metadata={"help": DENOISER_HELP})

    weights: str | None = None
    """Weights to start from: a file, a run folder or zoo:NAME; a head of other classes is new."""

    freeze: tuple[str, ...] | None = None
    """Beginnings of names of parameters that training leaves alone; `body` is all but the head."""

    body_rate: float | None = None
    """Learning rate of all but the head, before the first drop; by default that of the head."""

    sigma: float | None = None
    """Standard deviation of the noise, for pixels in [0, 1]."""

    extend_epochs: int | None = None
    """Epochs beyond those that the run in --out was made with: a finished run continues."""

    set: tuple[str, ...] | None = None
    """A setting of the method as name=value; may be given several times."""

    seed: int | None = None
    """Decides initial weights, order, augmentation and noise; by default 0."""


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """Where training finds its data, and how it is executed.

    Only `allow_partial` and `sync_batchnorm` change the trained network.
    """

    data_dir: Path | None = None
    """Folder that holds the data set; by default $SMOOTHMIX_DATA or this user's cache."""

    allow_partial: bool = False
    """Train on an incomplete data set, and note in the run that it was."""

    device: str | None = None
    """cpu, cuda, cuda:1, ...; by default a GPU if there is one."""

    workers: int | None = None
    """Processes that decode images; by default none for data in memory, else one per core."""

    checkpoint_minutes: float | None = None
    """Minutes between checkpoints within an epoch, by default 10; each epoch ends with one too."""

    sync_batchnorm: bool = False
    """With several processes, take BatchNorm's statistics over the whole batch (needs GPUs)."""

    tensorboard: bool = False
    """Write TensorBoard events beside metrics.jsonl (needs `pip install tensorboard`)."""

    def __post_init__(self) -> None:
        minutes = self.checkpoint_minutes
        require(
            minutes is None or minutes > 0,
            f"--checkpoint-minutes must be positive, got {minutes}",
        )
        require(
            self.workers is None or self.workers >= 0,
            f"--workers must be zero or more, got {self.workers}",
        )


def given_options(options: object) -> list[str]:
    """The command-line names of the options that have a value.

    >>> given_options(Overrides(epochs=3, learning_rate=0.1))
    ['--epochs', '--learning-rate']
    """
    names = []
    for option in fields(options):  # type: ignore[arg-type]
        value: Any = getattr(options, option.name)
        # By identity: the number 0 was given, although it equals False.
        if value is None or value is False:
            continue
        # The one option that is named differently in Python, where max is a function.
        name = option.name.replace("maximum", "max")
        names.append(f"--{name.replace('_', '-')}")
    return names
