"""Gaussian augmentation (Cohen et al., 2019)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from torch.nn import functional as F

from smoothmix.methods.base import Batch, Method
from smoothmix.networks.noisy import noisy_logits

if TYPE_CHECKING:
    from torch import Tensor, nn


@final
@dataclass(frozen=True, kw_only=True)
class Gaussian(Method):
    """Mean cross-entropy on one noisy version of each image: (gaussian_training)."""

    def terms(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """`classification`: the cross-entropy."""
        logits = noisy_logits(model, batch.x, batch.noise)
        return {
            "classification": F.cross_entropy(logits.flatten(0, 1), batch.y.repeat(self.copies))
        }
