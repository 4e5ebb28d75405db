"""The training methods: one small class per file, and the registry that names them.

The classes are loaded when they are first used: the registry is needed before torch is, for
example to list the methods in `--help`.
"""

from __future__ import annotations

from dataclasses import fields
from importlib import import_module
from typing import TYPE_CHECKING, Any

from smoothmix.errors import UsageError, unknown_name
from smoothmix.methods.registry import METHODS, MethodEntry

if TYPE_CHECKING:
    from smoothmix.methods.base import Batch, Loss, Method
    from smoothmix.methods.consistency import Consistency
    from smoothmix.methods.denoiser import Denoiser
    from smoothmix.methods.gaussian import Gaussian
    from smoothmix.methods.macer import Macer
    from smoothmix.methods.smoothadv import SmoothAdv
    from smoothmix.methods.smoothmix import SmoothMix
    from smoothmix.methods.stability import Stability

_MODULES = {
    "Batch": "base",
    "Loss": "base",
    "Method": "base",
    "Consistency": "consistency",
    "Denoiser": "denoiser",
    "Gaussian": "gaussian",
    "Macer": "macer",
    "SmoothAdv": "smoothadv",
    "SmoothMix": "smoothmix",
    "Stability": "stability",
}

__all__ = [
    "METHODS",
    "Batch",
    "Consistency",
    "Denoiser",
    "Gaussian",
    "Loss",
    "Macer",
    "Method",
    "MethodEntry",
    "SmoothAdv",
    "SmoothMix",
    "Stability",
    "make",
    "settings_of",
]


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)


def settings_of(name: str) -> list[str]:
    """The names of a method's settings.

    >>> settings_of("stability")
    ['sigma', 'fidelity', 'weight']
    """
    return [setting.name for setting in fields(METHODS[name].load()) if setting.init]


def make(name: str, **settings: Any) -> Method:
    """The method of that name or address with these settings.

    >>> make("stability", sigma=0.5)
    Stability(sigma=0.5, fidelity='official', weight=2.0)
    """
    known = settings_of(name)
    for setting in settings:
        if setting not in known:
            raise unknown_name(f"setting of {name}", setting, known)
    if "sigma" not in settings:
        raise UsageError(f"{name} needs sigma, the standard deviation of the noise")
    return METHODS[name].load()(**settings)
