"""Networks prepared to run on many noise samples, and the sampler that counts their votes.

The public names are loaded when they are first used: the command line needs `keep_freed_memory`
before torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from smoothmix.inference.malloc import keep_freed_memory

if TYPE_CHECKING:
    from smoothmix.inference.prepare import engine_name, prepare_network
    from smoothmix.inference.prepared import PreparedNetwork
    from smoothmix.inference.sampler import Sampler

_MODULES = {
    "PreparedNetwork": "prepared",
    "engine_name": "prepare",
    "prepare_network": "prepare",
    "Sampler": "sampler",
}

__all__ = [
    "PreparedNetwork",
    "Sampler",
    "engine_name",
    "keep_freed_memory",
    "prepare_network",
]


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
