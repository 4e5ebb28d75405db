"""A network that is ready to run, whatever computes its logits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from smoothmix.certificates.probes import RANDOM
from smoothmix.config import Precision


@final
@dataclass(frozen=True, kw_only=True)
class PreparedNetwork:
    """A network that is ready to run: call it with images, get logits."""

    engine: str
    """What computes the logits, as recorded with every certificate: rounding may depend on it."""
    network: Callable[[Tensor], Tensor]
    device: torch.device
    precision: Precision
    microbatch: int
    """Images in one forward."""
    channels_last: bool = False
    probe: str = ""
    """The probe of the network as it was written; empty if it fails on the probe images."""
    dtype: torch.dtype = torch.float32
    """The type of numbers that it gets images in: that of its weights."""
    gives_labels: bool = False
    """Whether its logits are labels, as rows with a single 1."""

    @property
    def is_random(self) -> bool:
        """Whether the network gives other logits each time."""
        return self.probe == RANDOM

    def __call__(self, images: Tensor) -> Tensor:
        if self.channels_last:
            images = images.contiguous(memory_format=torch.channels_last)
        in_bf16 = self.precision == "bf16"
        logits = []
        with (
            torch.inference_mode(),
            torch.autocast(self.device.type, torch.bfloat16, enabled=in_bf16),
        ):
            for part in torch.split(images, self.microbatch):
                logits.append(self.network(part.to(self.device, self.dtype)))
        if len(logits) == 1:
            return logits[0]
        return torch.cat(logits)
