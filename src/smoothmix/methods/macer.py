"""MACER (Zhai et al., 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import torch
from torch.nn import functional as F

from smoothmix.methods.base import Method, Step, require_int, require_not_negative, require_positive
from smoothmix.networks.noisy import noisy_logits

if TYPE_CHECKING:
    from torch import Tensor, nn


@final
@dataclass(frozen=True, kw_only=True)
class Macer(Method):
    """Attack-free: the certified radius of correctly classified images is maximised by itself."""

    copies: int = 16
    """Noises for each image; all go through the network in one step."""

    weight: float = 16.0
    """Weight of the robustness term; the paper took 16 for MNIST, 6 there with sigma 1."""

    beta: float = 16.0
    """Inverse temperature of the softmax that stands for hard votes in the robustness term."""

    gamma: float = 8.0
    """Margin: an image whose radius exceeds sigma/2 gamma is left alone."""

    defer_epochs: int = 0
    """First epochs without the robustness term; the published MNIST runs took 31."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_not_negative(self, "weight")
        require_positive(self, "beta", "gamma")
        require_int(self, "defer_epochs")

    def terms(self, model: nn.Module, step: Step) -> dict[str, Tensor]:
        """Means over images: `classification` by the averaged softmax, `robustness` the hinge on the radius."""
        logits = noisy_logits(model, step.x, step.noise)
        smoothed = logits.softmax(-1).mean(0)
        robustness = logits.new_zeros(())
        if step.epoch >= self.defer_epochs:
            robustness = self.weight / len(step.y) * self.hinge(logits, step.y).sum()
        return {
            "classification": F.nll_loss((smoothed + 1e-10).log(), step.y),
            "robustness": robustness,
        }

    def hinge(self, logits: Tensor, y: Tensor) -> Tensor:
        """sigma/2 (Phi^-1(p2) - Phi^-1(p1) + gamma) of the images that are correct and within the margin.

        A probability of 0 or 1 has no finite Phi^-1, and so no gap below gamma: such images are taken out
        before anything is differentiated, since a gradient multiplied by zero afterwards would be 0 * inf.
        """
        top, classes = (self.beta * logits).softmax(-1).mean(0).topk(2)
        correct = top[classes[:, 0] == y]
        with torch.no_grad():
            gap = quantile_gap(correct)
        kept = correct[gap.abs() <= self.gamma]
        return self.sigma / 2 * (quantile_gap(kept) + self.gamma)


def quantile_gap(top: Tensor) -> Tensor:
    """Phi^-1(p2) - Phi^-1(p1) of each row (p1, p2): minus twice the certified radius over sigma."""
    quantiles: Tensor = torch.special.ndtri(top)
    return quantiles[:, 1] - quantiles[:, 0]
