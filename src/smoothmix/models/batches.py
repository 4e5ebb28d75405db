"""Networks that take batches of one size only, as files often do."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor, nn


@final
class FixedBatch(nn.Module):
    """A network for batches of one size as one for batches of any size.

    The last batch is filled up with black images, whose logits are dropped.
    """

    def __init__(self, model: nn.Module, batch: int) -> None:
        super().__init__()
        self.model = model
        self.batch = batch
        # The network is in eval mode, and a new module would say otherwise.
        self.training = False

    def forward(self, images: Tensor) -> Tensor:
        logits = []
        for part in torch.split(images, self.batch):
            missing = self.batch - len(part)
            filled = torch.cat([part, part.new_zeros((missing, *part.shape[1:]))])
            logits.append(self.model(filled)[: len(part)])
        return torch.cat(logits)
