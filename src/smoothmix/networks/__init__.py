"""Networks by name or address, their normalisation, and their weights in files.

The public names are loaded when they are first used: the registry of networks is needed before
torch is, for example to list the networks in `--help`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from smoothmix.networks.registry import DENOISERS, NETWORKS, Architecture

if TYPE_CHECKING:
    from smoothmix.networks.checkpoints import Imported, import_checkpoint
    from smoothmix.networks.denoised import Denoised
    from smoothmix.networks.diffusion import OneStepDiffusion
    from smoothmix.networks.modes import device_of, eval_mode
    from smoothmix.networks.network import Network, build, build_denoiser
    from smoothmix.networks.noisy import noisy_accuracy, noisy_forward, noisy_logits
    from smoothmix.networks.normalise import Normalise
    from smoothmix.networks.weights import load_weights, save_weights, state_hash

_MODULES = {
    "Imported": "checkpoints",
    "import_checkpoint": "checkpoints",
    "Denoised": "denoised",
    "OneStepDiffusion": "diffusion",
    "device_of": "modes",
    "eval_mode": "modes",
    "Network": "network",
    "build": "network",
    "build_denoiser": "network",
    "noisy_accuracy": "noisy",
    "noisy_forward": "noisy",
    "noisy_logits": "noisy",
    "Normalise": "normalise",
    "load_weights": "weights",
    "save_weights": "weights",
    "state_hash": "weights",
}

__all__ = [
    "DENOISERS",
    "NETWORKS",
    "Architecture",
    "Denoised",
    "Imported",
    "Network",
    "Normalise",
    "OneStepDiffusion",
    "build",
    "build_denoiser",
    "device_of",
    "eval_mode",
    "import_checkpoint",
    "load_weights",
    "noisy_accuracy",
    "noisy_forward",
    "noisy_logits",
    "save_weights",
    "state_hash",
]


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
