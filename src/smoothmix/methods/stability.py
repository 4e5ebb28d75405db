"""Stability training (Li et al., 2019)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import torch
from torch.nn import functional as F

from smoothmix.methods.base import Batch, Method, require_not_negative
from smoothmix.networks.noisy import noisy_logits

if TYPE_CHECKING:
    from torch import Tensor, nn


@final
@dataclass(frozen=True, kw_only=True)
class Stability(Method):
    """Trains on clean images, and to predict noisy ones as their clean originals."""

    weight: float = 2.0
    """Weight of the stability term; the paper used 2, and 1 for CIFAR-10 with sigma 1."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_not_negative(self, "weight")

    def terms(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """`classification`: cross-entropy without noise; `stability`: that of noisy to clean."""
        # Two forwards: BatchNorm normalises clean and noisy images each by their own statistics.
        clean = noisy_logits(model, batch.x, torch.zeros_like(batch.noise))[0].log_softmax(-1)
        noisy = noisy_logits(model, batch.x, batch.noise)[0].log_softmax(-1)
        # Not detached: gradients flow through the clean prediction as a target too.
        stability = -(clean.exp() * noisy).sum(-1).mean()
        return {"classification": F.nll_loss(clean, batch.y), "stability": self.weight * stability}
