"""The training methods: one small class a file, and the one table of them."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from smoothmix.config import FIDELITIES, Fidelity
from smoothmix.errors import UsageError, unknown_name
from smoothmix.methods.base import Loss, Method, Step
from smoothmix.methods.consistency import Consistency
from smoothmix.methods.gaussian import Gaussian
from smoothmix.methods.macer import Macer
from smoothmix.methods.smoothadv import SmoothAdv
from smoothmix.methods.smoothmix import SmoothMix
from smoothmix.methods.stability import Stability

__all__ = [
    "FIDELITIES",
    "METHODS",
    "Consistency",
    "Fidelity",
    "Gaussian",
    "Loss",
    "Macer",
    "Method",
    "SmoothAdv",
    "SmoothMix",
    "Stability",
    "Step",
    "make",
    "settings_of",
]

METHODS: dict[str, type[Method]] = {
    "gaussian": Gaussian,
    "stability": Stability,
    "smoothadv": SmoothAdv,
    "macer": Macer,
    "consistency": Consistency,
    "smoothmix": SmoothMix,
}
"""Every method by the name that presets, files and the command line use."""


def settings_of(name: str) -> list[str]:
    """The names of a method's settings.

    >>> settings_of("stability")
    ['sigma', 'fidelity', 'weight']
    """
    if name not in METHODS:
        raise unknown_name("method", name, METHODS)
    return [field.name for field in fields(METHODS[name]) if field.init]


def make(name: str, **settings: Any) -> Method:
    """The method of that name with these settings; what it does not know is refused with the nearest name.

    >>> make("stability", sigma=0.5)
    Stability(sigma=0.5, fidelity='official', weight=2.0)
    """
    known = settings_of(name)
    for setting in settings:
        if setting not in known:
            raise unknown_name(f"setting of {name}", setting, known)
    if "sigma" not in settings:
        raise UsageError(f"{name} needs sigma, the deviation of the noise")
    return METHODS[name](**settings)
