"""Settings as frozen values: checked when made, written to TOML and read back. No torch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal

import tomli_w

from smoothmix._io.files import atomic_write
from smoothmix._io.toml import from_table, read_toml, to_table
from smoothmix.errors import UsageError

Precision = Literal["fp32", "bf16"]
PRECISIONS: tuple[Precision, ...] = ("fp32", "bf16")

EngineName = Literal["auto", "eager", "fused", "compiled", "openvino", "onnxruntime"]
"""What runs a network: `auto` a fast way to the same logits, `eager` its code as written."""
ENGINE_NAMES: tuple[EngineName, ...] = (
    "auto",
    "eager",
    "fused",
    "compiled",
    "openvino",
    "onnxruntime",
)
FUSED = "torch-cpu-fused"
"""Recorded name of the engine that fuses BatchNorm, ReLU and additions with convolutions."""
RECORDED_ENGINES: Mapping[EngineName, str] = {
    "eager": "torch-cpu",
    "fused": FUSED,
    "compiled": "torch-cpu-compiled",
    "openvino": "openvino-cpu",
    # `onnxruntime` alone is what runs a network that comes as an ONNX file.
    "onnxruntime": "onnxruntime-cpu",
}
"""What certificate files record for each engine where weights are in float32 on a processor."""
Fidelity = Literal["official", "paper"]
FIDELITIES: tuple[Fidelity, ...] = ("official", "paper")
PAPER_RECIPE: Mapping[str, bool] = {"nesterov": True, "late_drops": False}
"""What the paper says about every training loop, and the code behind its tables did not do."""

TESTED_ON_TRAINING = (
    "trained on the images that it is tested on: its accuracy says nothing of others"
)
"""A note on a run that every reader of its numbers must see."""

IMPORTED_FROM = "imported from"
"""How the note begins on a run whose weights somebody else trained."""

UNLABELLED = -1
"""The label of images whose true class is not known; no certificate of them counts as correct."""

Settings = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Settings of the training loop, for any method; the defaults are those of the MNIST tables."""

    epochs: int = 90
    """Passes over the training images."""

    batch: int = 256
    """Images per batch; some methods cut it into as many chunks as noise samples, a step each."""

    learning_rate: float = 0.01
    """Step size of SGD before the first drop."""

    drops: tuple[int, ...] = (30, 60)
    """Epochs after which the learning rate is multiplied by `drop_factor`."""

    drop_factor: float = 0.1
    """Factor of the learning rate at each drop."""

    late_drops: bool = True
    """Each drop comes one epoch late, as in the code that made the published tables."""

    momentum: float = 0.9
    """Momentum of SGD."""

    nesterov: bool = False
    """Nesterov momentum, as the paper says; the published tables were made without it."""

    weight_decay: float = 1e-4
    """L2 penalty on all weights."""

    seed: int = 0
    """Decides initial weights, order, augmentation and noise."""

    precision: Precision = "fp32"
    """`bf16` runs the network under autocast; weights and losses stay in fp32."""

    def __post_init__(self) -> None:
        plain_numbers(self)
        require(self.epochs >= 0, f"epochs must be zero or more, got {self.epochs}")
        require(self.batch >= 1, f"batch must be at least 1, got {self.batch}")
        require(
            0 < self.learning_rate < math.inf,
            f"learning_rate must be positive, got {self.learning_rate}",
        )
        require(
            list(self.drops) == sorted(set(self.drops)),
            f"drops must increase, got {list(self.drops)}",
        )
        require(
            min(self.drops, default=1) >= 1,
            f"drops must be epochs from 1 on, got {list(self.drops)}",
        )
        require(
            0 < self.drop_factor <= 1, f"drop_factor must lie in (0, 1], got {self.drop_factor}"
        )
        require(0 <= self.momentum < 1, f"momentum must lie in [0, 1), got {self.momentum}")
        require(self.momentum > 0 or not self.nesterov, "nesterov takes a momentum above 0")
        require(
            0 <= self.weight_decay < math.inf,
            f"weight_decay must be zero or more, got {self.weight_decay}",
        )
        require_seed(self.seed)
        require_precision(self.precision)

    def rate(self, epoch: int) -> float:
        """The learning rate in `epoch`, counted from 0.

        >>> [round(Recipe(drops=(2, 3)).rate(e), 6) for e in range(5)]
        [0.01, 0.01, 0.01, 0.001, 0.0001]
        """
        delay = int(self.late_drops)
        passed = sum(epoch >= drop + delay for drop in self.drops)
        return self.learning_rate * self.drop_factor**passed


@dataclass(frozen=True, kw_only=True)
class Preparation:
    """How image files of any size become images of one size, in 8 bits; None leaves it as it is."""

    resize: int | None = None
    """Pixels to which the short side is scaled."""

    crop: int | None = None
    """Pixels of each side of the square in the middle that is cropped, after scaling."""

    channels: int | None = None
    """1 to read images as grey, 3 to read them as colour."""

    def __post_init__(self) -> None:
        plain_numbers(self)
        for name in ("resize", "crop"):
            side = getattr(self, name)
            require(side is None or side >= 1, f"{name} must be at least 1, got {side}")
        require(self.channels in (None, 1, 3), f"channels must be 1 or 3, got {self.channels}")
        require(
            bool(self.resize or self.crop or self.channels),
            "a preparation of images needs resize, crop or channels",
        )
        if self.resize is not None and self.crop is not None:
            require(
                self.crop <= self.resize,
                f"crop must be at most resize ({self.resize}), got {self.crop}",
            )

    @property
    def resizes(self) -> bool:
        """Whether images get another size."""
        return self.resize is not None or self.crop is not None

    def __str__(self) -> str:
        """What is done to images, in words.

        >>> str(Preparation(resize=32, crop=28, channels=1))
        'scaled to 32 pixels on the short side, cropped to the middle 28x28 and read as grey'
        """
        steps = []
        if self.resize is not None:
            steps.append(f"scaled to {self.resize} pixels on the short side")
        if self.crop is not None:
            steps.append(f"cropped to the middle {self.crop}x{self.crop}")
        if self.channels is not None:
            steps.append({1: "read as grey", 3: "read as colour"}[self.channels])
        *others, last = steps
        if not others:
            return last
        return f"{', '.join(others)} and {last}"


def requested_preparation(
    *, resize: int | None, crop: int | None, channels: int | None
) -> Preparation | None:
    """The preparation that these options ask for; None if none of them is given."""
    if resize is None and crop is None and channels is None:
        return None
    return Preparation(resize=resize, crop=crop, channels=channels)


@dataclass(frozen=True, kw_only=True)
class FineTuning:
    """What a network has learned before the run, and which of its parts the run trains."""

    weights: str = ""
    """The run folder or the file of the first weights; empty for those of the network itself."""

    weights_sha256: str = ""
    """SHA-256 of that file, or of the tensors of `hf:NAME`; training fills it in."""

    freeze: tuple[str, ...] = ()
    """Beginnings of the names of parameters that stay as they are; `body` is all but the head."""

    body_rate: float | None = None
    """Learning rate of all but the head before the first drop; None for that of the head."""

    def __post_init__(self) -> None:
        rate = self.body_rate
        require(
            rate is None or 0 < rate < math.inf,
            f"body_rate must be positive, got {rate} (freeze keeps the body as it is)",
        )
        require(
            rate is None or "body" not in self.freeze,
            "body_rate has no effect on a body that is frozen: leave one of them out",
        )


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Everything that decides a trained network: data, network, method and recipe."""

    data: str
    """Name of the data set (`smoothmix data list`), or `package.module:name`."""

    network: str
    """Name of the network, or `package.module:function`."""

    network_settings: str = ""
    """The architecture of a network of `hf:NAME`, as JSON; training fills it in."""

    train_split: str = "train"
    """The split of the data set that the network is trained on."""

    method: Settings = field(default_factory=dict)
    """The training method: its `name` (or `package.module:Class`), `sigma` and other settings."""

    recipe: Recipe = field(default_factory=Recipe)
    """The training loop."""

    normalisation: str = "none"
    """Whose mean and std the first layer uses: none (or mnist), cifar10 or imagenet."""

    augmentation: str = ""
    """How training images are augmented; empty for the way of the data set."""

    preparation: Preparation | None = None
    """How image files are resized and cropped, for training and afterwards; None if they are not.
    """

    denoiser: str = ""
    """The denoiser in front of the network, which is then all that is trained; empty for none."""

    fine_tuning: FineTuning | None = None
    """What the network has learned before; None for a network with fresh weights."""

    num_classes: int = 10
    """Outputs of the network."""

    class_names: tuple[str, ...] = ()
    """Names of its classes, in the order of its outputs; training fills them in."""

    image_shape: tuple[int, ...] = ()
    """Channels, height and width of its images; empty means those that the network is made for."""

    data_hash: str = ""
    """Fingerprint of the images and labels it was trained on; training fills it in."""

    weights_sha256: str = ""
    """SHA-256 of the file of trained weights; training fills it in, and loading checks it."""

    extended_epochs: int | None = None
    """How many of its epochs were added to those that it was first made with (`train`)."""

    preset: str = ""
    """The preset that this is a run of, if any."""

    notes: tuple[str, ...] = ()
    """What a reader of the results must know: partial data, fewer epochs, imported weights."""

    def __post_init__(self) -> None:
        require("name" in self.method, "method needs a name")
        require(
            type(self.method["name"]) is str,
            f"the method's name must be text, got {self.method['name']!r}",
        )
        require("sigma" in self.method, "method needs a sigma")
        sigma = self.method["sigma"]
        # True is a number to Python, and never meant as one here.
        is_number = isinstance(sigma, Real) and not isinstance(sigma, bool)
        require(is_number, f"sigma must be a number, got {sigma!r}")
        require_sigma(self.sigma)
        shape = list(self.image_shape)
        positive = all(side > 0 for side in shape)
        require(len(shape) in (0, 3) and positive, f"image_shape needs 3 sides, got {shape}")
        require(self.num_classes >= 2, f"num_classes must be at least 2, got {self.num_classes}")

    @property
    def imported(self) -> bool:
        """Whether its weights were trained elsewhere, so that its recipe is not known."""
        return any(note.startswith(IMPORTED_FROM) for note in self.notes)

    @property
    def sigma(self) -> float:
        """Standard deviation of the noise in training."""
        return float(self.method["sigma"])

    def save(self, path: Path) -> None:
        """Write as TOML."""
        table = to_table(self)
        if self.imported:
            # Nobody gave it: the defaults are not how the weights were trained.
            del table["recipe"]
        atomic_write(path, tomli_w.dumps(table).encode())

    @classmethod
    def load(cls, path: Path) -> RunConfig:
        """Read from TOML, with an error that names the file and the key."""
        return from_table(cls, read_toml(path), where=str(path))


def require(condition: bool, message: str) -> None:
    """Raise a UsageError with `message` unless the condition holds."""
    if not condition:
        raise UsageError(message)


def require_whole(name: str, value: object) -> None:
    """Refuse what is not a whole number; numpy's will do, 1e3 will not."""
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    require(whole, f"{name} must be a whole number, got {value!r}")


def plain_numbers(settings: object) -> None:
    """Replace numbers of numpy in the fields of a frozen value by Python's own.

    Files cannot hold those of numpy. And one of few digits compares equal to numbers that it is
    not: 0.3 == np.float32(0.3), although the two are different noise levels.
    """
    for each in fields(settings):  # type: ignore[arg-type]
        value = getattr(settings, each.name)
        # True and False are whole numbers to Python, and stay what they are.
        if isinstance(value, bool):
            continue
        if isinstance(value, Integral):
            object.__setattr__(settings, each.name, int(value))
        elif isinstance(value, Real):
            object.__setattr__(settings, each.name, float(value))


def require_sigma(sigma: float) -> None:
    """Refuse a noise level that is not a positive finite number."""
    number = isinstance(sigma, Real) and math.isfinite(sigma)
    require(number and sigma > 0, f"sigma must be a positive number, got {sigma!r}")


LEAST_ALPHA = 1e-100
"""Below about 1e-250 scipy's inverse of the beta distribution is wrong, or fails."""


def require_alpha(alpha: float) -> None:
    """Refuse a failure probability outside (0, 1), or so small that bounds cannot be computed."""
    require(0 < alpha < 1, f"alpha must lie strictly between 0 and 1, got {alpha}")
    require(alpha >= LEAST_ALPHA, f"alpha must be at least {LEAST_ALPHA:g}, got {alpha}")


def require_seed(seed: int) -> None:
    """Refuse a seed that is negative or does not fit into TOML's 64-bit integers."""
    require_whole("seed", seed)
    # numpy's integers cannot be compared with 2**63.
    require(0 <= int(seed) < 2**63, f"seed must lie in [0, 2**63), got {seed}")


def require_engine(engine: str) -> None:
    """Refuse an unknown engine."""
    require(
        engine in ENGINE_NAMES,
        f"engine must be one of {', '.join(ENGINE_NAMES)}, got {engine!r}",
    )


def recorded_engine(record: str) -> EngineName:
    """The engine to ask for, so that a network runs as it did for a file.

    >>> recorded_engine("torch-cpu-fused"), recorded_engine("torch-cuda-tf32")
    ('fused', 'eager')
    """
    for name, recorded in RECORDED_ENGINES.items():
        if recorded == record:
            return name
    # A GPU, weights of another type, or a network that torch does not run.
    return "eager"


def require_precision(precision: str) -> None:
    """Refuse an unknown precision."""
    require(
        precision in PRECISIONS,
        f"precision must be one of {', '.join(PRECISIONS)}, got {precision!r}",
    )
