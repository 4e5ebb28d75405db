"""What can run a network on a processor: one file per engine, and the registry of all."""

from __future__ import annotations

from collections.abc import Mapping

from smoothmix.config import EngineName
from smoothmix.inference.engines.base import Engine, UnfitError, WrittenNetwork
from smoothmix.inference.engines.compiled import Compiled
from smoothmix.inference.engines.eager import Eager
from smoothmix.inference.engines.fused import Fused
from smoothmix.inference.engines.onnxruntime import OnnxRuntime
from smoothmix.inference.engines.openvino import OpenVino

__all__ = ["ENGINES", "Engine", "UnfitError", "WrittenNetwork"]

_ALL: tuple[Engine, ...] = (Eager(), Fused(), Compiled(), OpenVino(), OnnxRuntime())

ENGINES: Mapping[EngineName, Engine] = {engine.name: engine for engine in _ALL}
"""Every engine by its name."""
