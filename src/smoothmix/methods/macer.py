"""MACER (Zhai et al., 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import torch
from torch.nn import functional as F

from smoothmix.methods.base import (
    Batch,
    Method,
    require_int,
    require_not_negative,
    require_positive,
)
from smoothmix.networks.noisy import noisy_logits

if TYPE_CHECKING:
    from torch import Tensor, nn


@final
@dataclass(frozen=True, kw_only=True)
class Macer(Method):
    """Maximises the certified radius of correctly classified images directly, without attack."""

    copies: int = 16
    """Noise samples per image; all pass through the network in one step."""

    weight: float = 16.0
    """Weight of the robustness term; the paper used 16 for MNIST, and 6 with sigma 1."""

    beta: float = 16.0
    """Inverse temperature of the softmax that replaces hard votes in the robustness term."""

    gamma: float = 8.0
    """Margin: an image whose radius exceeds sigma/2 gamma has no robustness term."""

    defer_epochs: int = 0
    """First epochs without the robustness term; the published MNIST runs used 31."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_not_negative(self, "weight")
        require_positive(self, "beta", "gamma")
        require_int(self, "defer_epochs")

    def terms(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """`classification`: of the averaged softmax; `robustness`: the hinge on the radius."""
        logits = noisy_logits(model, batch.x, batch.noise)
        smoothed = logits.softmax(-1).mean(0)
        robustness = logits.new_zeros(())
        # Deferred, the term is 0 instead of missing: the names of the terms must not change.
        if batch.epoch >= self.defer_epochs:
            robustness = self.weight / len(batch.y) * self.hinge(logits, batch.y).sum()
        return {
            # As in the released code: the logarithm of an averaged probability of 0 is finite.
            "classification": F.nll_loss((smoothed + 1e-10).log(), batch.y),
            "robustness": robustness,
        }

    def hinge(self, logits: Tensor, y: Tensor) -> Tensor:
        """sigma/2 (Phi^-1(p2) - Phi^-1(p1) + gamma) of correct images within the margin."""
        # The class that the smoothed classifier predicts, by softened votes, and the runner-up.
        top, classes = (self.beta * logits).softmax(-1).mean(0).topk(2)
        correct = top[classes[:, 0] == y]
        # A probability of 0 or 1 has no finite Phi^-1. Such images must be dropped before anything
        # is differentiated: a gradient that is multiplied by zero afterwards would be 0 * inf.
        with torch.no_grad():
            gap = quantile_gap(correct)
        kept = correct[gap.abs() <= self.gamma]
        return self.sigma / 2 * (quantile_gap(kept) + self.gamma)


def quantile_gap(top: Tensor) -> Tensor:
    """Phi^-1(p2) - Phi^-1(p1) of each row (p1, p2): minus twice the certified radius over sigma."""
    quantiles: Tensor = torch.special.ndtri(top)
    return quantiles[:, 1] - quantiles[:, 0]
