"""The network as it was written, with channels last in memory where it allows that."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, final

import torch

from smoothmix.config import EngineName, Precision
from smoothmix.inference.copies import for_threads
from smoothmix.inference.engines.base import Engine, UnfitError, WrittenNetwork
from smoothmix.inference.prepared import PreparedNetwork


@final
class Eager(Engine):
    """Torch, layer by layer. Processors run convolutions twice as fast with channels last."""

    name: ClassVar[EngineName] = "eager"

    def build(self, network: WrittenNetwork, precision: Precision) -> PreparedNetwork:
        model = network.copy()
        try:
            for weight in model.parameters():
                if weight.dim() == 4:
                    weight.data = weight.to(memory_format=torch.channels_last)
        except Exception as error:
            # Weights may be of anyone's own type.
            raise UnfitError("its weights cannot have their channels last") from error
        return replace(
            network.plain, network=for_threads(model), channels_last=True, precision=precision
        )
