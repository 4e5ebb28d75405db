"""Stability training (Li et al., 2019)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import torch
from torch.nn import functional as F

from smoothmix.methods.base import Method, Step, require_not_negative
from smoothmix.networks.noisy import noisy_logits

if TYPE_CHECKING:
    from torch import Tensor, nn


@final
@dataclass(frozen=True, kw_only=True)
class Stability(Method):
    """The image itself is learnt, and its noisy copy is to be predicted like it."""

    weight: float = 2.0
    """Weight of the stability term; the paper took 2, and 1 for CIFAR-10 with sigma 1."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_not_negative(self, "weight")

    def terms(self, model: nn.Module, step: Step) -> dict[str, Tensor]:
        """`classification`: cross-entropy without noise; `stability`: that of the noisy prediction to the clean.

        The clean prediction is a target through which gradients flow. The two forwards are separate, as the
        definition writes them: BatchNorm normalises clean and noisy images each by their own statistics.
        """
        clean = noisy_logits(model, step.x, torch.zeros_like(step.noise))[0].log_softmax(-1)
        noisy = noisy_logits(model, step.x, step.noise)[0].log_softmax(-1)
        stability = -(clean.exp() * noisy).sum(-1).mean()
        return {"classification": F.nll_loss(clean, step.y), "stability": self.weight * stability}
