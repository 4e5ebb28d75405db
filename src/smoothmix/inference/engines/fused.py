"""The network with its layers fused into its convolutions (`inference/fusion.py`)."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, final

import torch

from smoothmix.config import EngineName, Precision
from smoothmix.inference.copies import for_threads
from smoothmix.inference.engines.base import Engine, UnfitError, WrittenNetwork
from smoothmix.inference.fusion import fused, in_bf16
from smoothmix.inference.prepared import PreparedNetwork


@final
class Fused(Engine):
    """Torch, with BatchNorm, ReLU and additions computed by the convolutions before them."""

    name: ClassVar[EngineName] = "fused"

    def build(self, network: WrittenNetwork, precision: Precision) -> PreparedNetwork:
        if not torch._C._has_mkldnn:
            raise UnfitError("this torch was built without oneDNN")
        # Tracing leaves its marks on what a network sets in its forward: it gets a copy of its own.
        twin = fused(network.copy())
        if twin is None:
            raise UnfitError(
                "it cannot be traced, or has nothing after its convolutions that could be fused"
            )
        if precision == "bf16":
            in_bf16(twin)
        return replace(
            network.plain,
            engine=self.recorded,
            network=for_threads(twin),
            channels_last=True,
            precision=precision,
        )
