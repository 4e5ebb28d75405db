"""Settings of a run as frozen values: checked where they are born, written to TOML and read back. No torch."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields, is_dataclass, replace
from numbers import Real
from pathlib import Path
from typing import Any, Literal, TypeVar, get_origin, get_type_hints

import tomli_w

from smoothmix.errors import SmoothmixError, UsageError, unknown_name
from smoothmix.files import atomic_write

Precision = Literal["fp32", "bf16"]
PRECISIONS: tuple[Precision, ...] = ("fp32", "bf16")
Fidelity = Literal["official", "paper"]
FIDELITIES: tuple[Fidelity, ...] = ("official", "paper")
PAPER_RECIPE: Mapping[str, bool] = {"nesterov": True, "late_drops": False}
"""What the paper's text says of every training loop, and the code that made its tables did not do."""

Settings = Mapping[str, Any]
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How the training loop runs, whatever the method. The defaults are those of the MNIST tables."""

    epochs: int = 90
    """Passes over the training images."""

    batch: int = 256
    """Images read at once; methods with noise copies cut it into that many chunks, a step each."""

    learning_rate: float = 0.01
    """Step size of SGD before the first drop."""

    drops: tuple[int, ...] = (30, 60)
    """Epochs after which the learning rate is multiplied by `drop_factor`."""

    drop_factor: float = 0.1
    """What each drop multiplies the learning rate by."""

    late_drops: bool = True
    """Each drop comes one epoch late, as in the code that made the published tables."""

    momentum: float = 0.9
    """Momentum of SGD."""

    nesterov: bool = False
    """Nesterov momentum, as the paper's text says; the published tables were made without."""

    weight_decay: float = 1e-4
    """L2 penalty on all weights."""

    seed: int = 0
    """Decides initial weights, order, augmentation and noise."""

    precision: Precision = "fp32"
    """`bf16` runs the network under autocast; weights and losses stay in fp32."""

    def __post_init__(self) -> None:
        require(self.epochs >= 0, f"epochs must be zero or more, got {self.epochs}")
        require(self.batch >= 1, f"batch must be at least 1, got {self.batch}")
        require(0 < self.learning_rate < math.inf, f"learning_rate must be positive, got {self.learning_rate}")
        require(list(self.drops) == sorted(set(self.drops)), f"drops must increase, got {list(self.drops)}")
        require(min(self.drops, default=1) >= 1, f"drops must be epochs from 1 on, got {list(self.drops)}")
        require(0 < self.drop_factor <= 1, f"drop_factor must lie in (0, 1], got {self.drop_factor}")
        require(0 <= self.momentum < 1, f"momentum must lie in [0, 1), got {self.momentum}")
        require(0 <= self.weight_decay < math.inf, f"weight_decay must be zero or more, got {self.weight_decay}")
        require_seed(self.seed)
        require_precision(self.precision)

    def rate(self, epoch: int) -> float:
        """The learning rate in `epoch`, counted from 0.

        >>> [round(Recipe(drops=(2, 3)).rate(e), 6) for e in range(5)]
        [0.01, 0.01, 0.01, 0.001, 0.0001]
        """
        passed = sum(epoch >= drop + self.late_drops for drop in self.drops)
        return self.learning_rate * self.drop_factor**passed


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Everything that decides a trained network: data, network, method and recipe."""

    data: str
    """Name of the data set, as `smoothmix data list` shows it."""

    network: str
    """Name of the network."""

    train_split: str = "train"
    """Which part of it the network is trained on."""

    method: Settings = field(default_factory=dict)
    """The training method: its `name` and its own settings, `sigma` among them."""

    recipe: Recipe = field(default_factory=Recipe)
    """The training loop."""

    normalisation: str = "none"
    """Whose mean and deviation the network's first layer uses: none, cifar10 or imagenet."""

    num_classes: int = 10
    """Outputs of the network."""

    image_shape: tuple[int, ...] = ()
    """Channels, height and width of its images; empty means those the network is made for."""

    data_hash: str = ""
    """Fingerprint of the images and labels it was trained on; filled in by the training."""

    preset: str = ""
    """The preset this began as, if any."""

    notes: tuple[str, ...] = ()
    """What a reader of the results must know: a partial data set, cut epochs, an imported checkpoint."""

    def __post_init__(self) -> None:
        require("name" in self.method, "method needs a name")
        require(type(self.method["name"]) is str, f"the method's name must be text, got {self.method['name']!r}")
        require("sigma" in self.method, "method needs a sigma")
        sigma = self.method["sigma"]
        require(type(sigma) is not bool and isinstance(sigma, Real), f"sigma must be a number, got {sigma!r}")
        require_sigma(self.sigma)
        shape = list(self.image_shape)
        require(len(shape) in (0, 3) and all(side > 0 for side in shape), f"image_shape needs 3 sides, got {shape}")
        require(self.num_classes >= 2, f"num_classes must be at least 2, got {self.num_classes}")

    @property
    def sigma(self) -> float:
        """The noise the network is trained with."""
        return float(self.method["sigma"])

    def save(self, path: Path) -> None:
        """Write as TOML."""
        atomic_write(path, to_toml(self).encode())

    @classmethod
    def load(cls, path: Path) -> RunConfig:
        """Read from TOML, with an error that names the file and the key."""
        return from_table(cls, read_toml(path), where=str(path))


@dataclass(frozen=True, kw_only=True)
class Certification:
    """How images are certified: what decides the votes, and the guarantee drawn from them."""

    sigma: float
    """Deviation of the noise, in the [0, 1] scale of the pixels."""

    n0: int = 100
    """Draws that select the class."""

    n: int = 100_000
    """Fresh draws that estimate its probability."""

    alpha: float = 0.001
    """Chance that one certificate is wrong."""

    seed: int = 0
    """Decides all noise, together with the index of the image and of the draw."""

    block: int = 256
    """Draws in one forward; fixed, so that not even rounding depends on how the work is cut."""

    precision: Precision = "fp32"
    """Arithmetic of the network: certify what will be deployed."""

    skip_wrong: bool = False
    """Spend no further draws on an image whose selected class is wrong: it counts as radius 0."""

    def __post_init__(self) -> None:
        require_sigma(self.sigma)
        require(self.n0 >= 1, f"n0 must be at least 1, got {self.n0}")
        require(self.n >= 1, f"n must be at least 1, got {self.n}")
        require_alpha(self.alpha)
        require_seed(self.seed)
        require(self.block >= 1, f"the block must hold at least 1 draw, got {self.block}")
        require_precision(self.precision)


def require(condition: bool, message: str) -> None:
    """Raise a UsageError with `message` unless the condition holds."""
    if not condition:
        raise UsageError(message)


def require_sigma(sigma: float) -> None:
    """Refuse a noise level that is not a positive finite number."""
    require(math.isfinite(sigma) and sigma > 0, f"sigma must be a positive number, got {sigma}")


def require_alpha(alpha: float) -> None:
    """Refuse a failure probability outside (0, 1)."""
    require(0 < alpha < 1, f"alpha must lie strictly between 0 and 1, got {alpha}")


def require_seed(seed: int) -> None:
    """Refuse a seed that is negative or does not fit into TOML's 64-bit integers."""
    require(0 <= seed < 2**63, f"seed must lie in [0, 2**63), got {seed}")


def require_precision(precision: str) -> None:
    """Refuse an unknown precision."""
    require(precision in PRECISIONS, f"precision must be one of {', '.join(PRECISIONS)}, got {precision!r}")


METHOD_EPOCHS: Mapping[str, Mapping[str, int]] = {
    "smoothadv": {"warmup_epochs": 10},
    "macer": {"defer_epochs": 0},
    "consistency": {"warmup_epochs": 10},
    "smoothmix": {"warmup_epochs": 10},
}
"""Settings of methods that count epochs, with the defaults of their classes, which this module must not import."""


def scale_epochs(config: RunConfig, scale: float) -> RunConfig:
    """The run with its epochs, drops, warm-up and deferral all multiplied by `scale` and rounded."""
    require(math.isfinite(scale) and scale > 0, f"epochs-scale must be positive, got {scale}")
    recipe = config.recipe
    epochs = max(1, round(recipe.epochs * scale))
    drops = tuple(sorted({max(1, round(drop * scale)) for drop in recipe.drops}))
    counted = METHOD_EPOCHS.get(config.method["name"], {})
    scaled = {name: round(config.method.get(name, default) * scale) for name, default in counted.items()}
    return replace(config, method={**config.method, **scaled}, recipe=replace(recipe, epochs=epochs, drops=drops))


def to_table(settings: Any) -> dict[str, Any]:
    """A settings value as nested tables of what TOML can hold, without what is empty by default."""
    table: dict[str, Any] = _plain(asdict(settings))
    empty = [f.name for f in fields(settings) if not f.default and table.get(f.name) in ("", [], {})]
    return {k: v for k, v in table.items() if k not in empty}


def _plain(value: Any) -> Any:
    """The value with lists for tuples, and without what is None: TOML has no word for it."""
    if isinstance(value, Mapping):
        return {k: _plain(v) for k, v in value.items() if v is not None}
    return [_plain(v) for v in value] if isinstance(value, (list, tuple)) else value


def to_toml(settings: Any) -> str:
    """A settings value as TOML text."""
    return tomli_w.dumps(to_table(settings))


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a TOML file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"{path}: there is no such file") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SmoothmixError(f"{path}: cannot be read as TOML ({error})") from error


def from_table(cls: type[T], table: Mapping[str, Any], *, where: str) -> T:
    """A settings value from a table; unknown keys and wrong types are refused by file and key."""
    hints = get_type_hints(cls)
    every = [f for f in fields(cls) if f.init]  # type: ignore[arg-type]
    names = [f.name for f in every]
    values = {}
    for key, value in table.items():
        if key not in names:
            raise UsageError(f"{where}: {unknown_name('setting', key, names)}")
        values[key] = _fit(value, hints[key], where=f"{where}: {key}")
    needed = [f.name for f in every if f.default is MISSING and f.default_factory is MISSING]
    missing = [name for name in needed if name not in values]
    require(not missing, f"{where}: lacks {', '.join(missing)}")
    try:
        return cls(**values)
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from None


def _fit(value: Any, hint: Any, *, where: str) -> Any:
    """The value as the type its field wants, or an error."""
    if isinstance(hint, type) and is_dataclass(hint):
        return from_table(hint, _want(value, dict, where), where=where)
    if get_origin(hint) is Mapping:
        return _want(value, dict, where)
    if hint is float and type(value) in (int, float):
        return float(value)
    if hint in (int, bool, str):
        return _want(value, hint, where)
    if hint == tuple[int, ...]:
        return tuple(_want(v, int, where) for v in _want(value, list, where))
    if hint == tuple[str, ...]:
        return tuple(_want(v, str, where) for v in _want(value, list, where))
    if hint == Precision:
        return _want(value, str, where)
    raise UsageError(f"{where}: must be a number, got {value!r}")


KINDS = {int: "a whole number", str: "text in quotes", bool: "true or false", list: "a list", dict: "a table"}


def _want(value: Any, kind: type, where: str) -> Any:
    if type(value) is not kind:  # bool is an int to isinstance, but never what a file should say for one
        raise UsageError(f"{where}: must be {KINDS[kind]}, got {value!r}")
    return value
