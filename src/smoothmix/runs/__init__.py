"""Run folders: their files, their settings, the options of a run, and the zoo.

The trained network of a folder is loaded when it is first asked for: the rest needs no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from smoothmix.runs.folder import RunFolder

if TYPE_CHECKING:
    from smoothmix.runs.load import build_network, load_run
    from smoothmix.runs.options import Overrides, RunOverrides, TrainingOptions
    from smoothmix.runs.plan import make_config, run_name
    from smoothmix.runs.schedule import scale_epochs

_MODULES = {
    "build_network": "load",
    "load_run": "load",
    "Overrides": "options",
    "RunOverrides": "options",
    "TrainingOptions": "options",
    "make_config": "plan",
    "run_name": "plan",
    "scale_epochs": "schedule",
}

__all__ = [
    "Overrides",
    "RunFolder",
    "RunOverrides",
    "TrainingOptions",
    "build_network",
    "load_run",
    "make_config",
    "run_name",
    "scale_epochs",
]


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
