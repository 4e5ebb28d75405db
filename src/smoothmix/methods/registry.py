"""Which training methods there are: facts that are known without importing one. No torch.

A method of your own is used by its address, `package.module:Class`, wherever a name is accepted.
An installed package can give it a name by an entry point of the group `smoothmix.methods`, which
points to such a class or to a `MethodEntry`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import TYPE_CHECKING, Any, cast, final

from smoothmix.errors import UsageError
from smoothmix.methods import log_folders
from smoothmix.registry import Registry, load_object

if TYPE_CHECKING:
    from smoothmix.methods.base import Method


@final
@dataclass(frozen=True, kw_only=True)
class MethodEntry:
    """One training method: its class, and what other parts of the program know about it."""

    method: str | type[Method]
    """The class, or its address."""

    title: str
    """What it is, and where it was published."""

    epoch_settings: Mapping[str, int] = field(default_factory=dict)
    """Settings that count epochs, with their defaults: they are scaled with the schedule."""

    trains_denoiser: bool = False
    """Whether it trains a denoiser in front of a classifier instead of a classifier."""

    log_folders: Callable[[Mapping[str, Any]], Sequence[str]] | None = None
    """The folders of its published MNIST logs by its settings; None if there are no such logs."""

    def load(self) -> type[Method]:
        """The class."""
        if isinstance(self.method, str):
            return cast("type[Method]", load_object(self.method))
        return self.method


@final
class MethodRegistry(Registry[MethodEntry]):
    """Training methods by name; a class from outside becomes an entry by what it declares."""

    def adopt(self, name: str, value: object) -> MethodEntry:
        # Whoever names a class from outside imports torch anyway.
        from smoothmix.methods.base import Method

        # A package that knows more about its method, such as a title, registers an entry.
        if isinstance(value, MethodEntry):
            return value
        if not (isinstance(value, type) and issubclass(value, Method) and is_dataclass(value)):
            raise UsageError(
                f"{name} is not a training method: it must be a dataclass that extends "
                "smoothmix.methods.Method"
            )
        return MethodEntry(
            method=value, title=first_line(value), epoch_settings=declared_epoch_settings(value)
        )


def declared_epoch_settings(method: type[Method]) -> dict[str, int]:
    """The settings of a method that count epochs, with their defaults.

    They are those that the class lists in `epoch_settings`, and all whose names end in `_epochs`.
    """
    found = {}
    for setting in fields(method):
        counts = setting.name in method.epoch_settings or setting.name.endswith("_epochs")
        if not (setting.init and counts):
            continue
        # Without a default, a schedule could not be scaled unless the setting is spelled out.
        if type(setting.default) is not int:
            raise UsageError(
                f"{method.__name__}.{setting.name} counts epochs: its default must be an integer"
            )
        found[setting.name] = setting.default
    missing = [name for name in method.epoch_settings if name not in found]
    if missing:
        raise UsageError(f"{method.__name__}.epoch_settings names no setting: {', '.join(missing)}")
    return found


def first_line(method: type[Method]) -> str:
    """The first line of the class's docstring."""
    return (method.__doc__ or method.__name__).strip().splitlines()[0]


METHODS = MethodRegistry(
    "method",
    group="smoothmix.methods",
    own={
        "gaussian": MethodEntry(
            method="smoothmix.methods.gaussian:Gaussian",
            title="Gaussian augmentation (Cohen et al., 2019)",
            log_folders=log_folders.gaussian,
        ),
        "stability": MethodEntry(
            method="smoothmix.methods.stability:Stability",
            title="Stability training (Li et al., 2019)",
            log_folders=log_folders.stability,
        ),
        "smoothadv": MethodEntry(
            method="smoothmix.methods.smoothadv:SmoothAdv",
            title="SmoothAdv (Salman et al., 2019)",
            epoch_settings={"warmup_epochs": 10},
            log_folders=log_folders.smoothadv,
        ),
        "macer": MethodEntry(
            method="smoothmix.methods.macer:Macer",
            title="MACER (Zhai et al., 2020)",
            epoch_settings={"defer_epochs": 0},
            log_folders=log_folders.macer,
        ),
        "consistency": MethodEntry(
            method="smoothmix.methods.consistency:Consistency",
            title="Consistency regularisation (Jeong and Shin, 2020)",
            epoch_settings={"warmup_epochs": 10},
            log_folders=log_folders.consistency,
        ),
        "smoothmix": MethodEntry(
            method="smoothmix.methods.smoothmix:SmoothMix",
            title="SmoothMix (Jeong et al., 2021)",
            epoch_settings={"warmup_epochs": 10},
            log_folders=log_folders.smoothmix,
        ),
        "denoiser": MethodEntry(
            method="smoothmix.methods.denoiser:Denoiser",
            title="Denoised smoothing (Salman et al., 2020)",
            epoch_settings={"mse_epochs": 0},
            trains_denoiser=True,
        ),
    },
)
"""Every method by the name that presets, run folders and the command line use."""
