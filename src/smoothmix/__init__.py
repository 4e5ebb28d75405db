"""Certified robustness by randomized smoothing: train, certify, compare and explain classifiers.

>>> import smoothmix as sm
>>> sm.Gaussian(sigma=0.5)
Gaussian(sigma=0.5, fidelity='official')

The public names are loaded when they are first used: importing smoothmix imports neither torch nor
scipy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from smoothmix.version import __version__

if TYPE_CHECKING:
    from smoothmix import analysis, certificates, data, models, plots, presets
    from smoothmix.analysis import choose, measure
    from smoothmix.certificates import Certification
    from smoothmix.certify.certified import Certified
    from smoothmix.certify.dataset import certify_dataset
    from smoothmix.certify.smoothed import Smoothed
    from smoothmix.errors import SmoothmixError
    from smoothmix.methods import (
        Consistency,
        Denoiser,
        Gaussian,
        Loss,
        Macer,
        Method,
        SmoothAdv,
        SmoothMix,
        Stability,
    )
    from smoothmix.networks import Denoised, Normalise
    from smoothmix.registry import trust
    from smoothmix.runs.load import load_run
    from smoothmix.stats.allocation import Budget
    from smoothmix.stats.anytime import Stopping
    from smoothmix.stats.guarantees import Anytime, FixedDraws

_HOMES = {
    "Anytime": "smoothmix.stats.guarantees",
    "Budget": "smoothmix.stats.allocation",
    "Certification": "smoothmix.certificates",
    "Certified": "smoothmix.certify.certified",
    "Smoothed": "smoothmix.certify.smoothed",
    "SmoothmixError": "smoothmix.errors",
    "Consistency": "smoothmix.methods",
    "Denoised": "smoothmix.networks",
    "Denoiser": "smoothmix.methods",
    "FixedDraws": "smoothmix.stats.guarantees",
    "Gaussian": "smoothmix.methods",
    "Loss": "smoothmix.methods",
    "Macer": "smoothmix.methods",
    "Method": "smoothmix.methods",
    "Normalise": "smoothmix.networks",
    "SmoothAdv": "smoothmix.methods",
    "SmoothMix": "smoothmix.methods",
    "Stability": "smoothmix.methods",
    "Stopping": "smoothmix.stats.anytime",
    "certify_dataset": "smoothmix.certify.dataset",
    "choose": "smoothmix.analysis",
    "load_run": "smoothmix.runs.load",
    "measure": "smoothmix.analysis",
    "trust": "smoothmix.registry",
}

__all__ = [
    "Anytime",
    "Budget",
    "Certification",
    "Certified",
    "Consistency",
    "Denoised",
    "Denoiser",
    "FixedDraws",
    "Gaussian",
    "Loss",
    "Macer",
    "Method",
    "Normalise",
    "SmoothAdv",
    "SmoothMix",
    "Smoothed",
    "SmoothmixError",
    "Stability",
    "Stopping",
    "__version__",
    "analysis",
    "certificates",
    "certify_dataset",
    "choose",
    "data",
    "load_run",
    "measure",
    "models",
    "plots",
    "presets",
    "trust",
]


_MODULES = ("analysis", "certificates", "data", "models", "plots", "presets")
"""Those that are used by their own names, such as `sm.data.load`."""


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return import_module(f"smoothmix.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'smoothmix' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
