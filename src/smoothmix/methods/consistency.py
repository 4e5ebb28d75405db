"""Consistency regularisation (Jeong and Shin, 2020), by itself or on top of SmoothAdv."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, final

from torch.nn import functional as F

from smoothmix.attacks import pgd, smoothed_cross_entropy
from smoothmix.attacks.l2 import FLOOR
from smoothmix.methods.base import Method, Step, require_int, require_not_negative, warmup
from smoothmix.networks.noisy import noisy_logits

if TYPE_CHECKING:
    from torch import Tensor, nn


@final
@dataclass(frozen=True, kw_only=True)
class Consistency(Method):
    """The predictions of an image's noisy copies agree with their mean, and the mean is confident."""

    copies: int = 2
    """Noises for each image."""

    weight: float = 10.0
    """Weight of the copies' divergence from their mean; the paper took 10, 5, 5 (MNIST), 20, 10, 10 (CIFAR-10)."""

    entropy_weight: float = 0.5
    """Weight of the entropy of the mean prediction."""

    epsilon: float = 0.0
    """Largest L2 norm of a perturbation when trained on adversarial examples; 0 is without attack."""

    steps: int = 10
    """Steps of that attack, each of length 2 epsilon / steps."""

    warmup_epochs: int = 10
    """Epochs over which epsilon grows to its full value."""

    chunked: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        require_not_negative(self, "weight", "entropy_weight", "epsilon")
        require_int(self, "steps", least=1)
        require_int(self, "warmup_epochs")

    def terms(self, model: nn.Module, step: Step) -> dict[str, Tensor]:
        """`classification`: mean cross-entropy; `consistency`: mean KL(mean || copy); `entropy`: that of the mean.

        The mean prediction is not detached: gradients flow through it as a target too.
        """
        x = self.adversarial(model, step) if self.epsilon > 0 else step.x
        log_probs = noisy_logits(model, x, step.noise).log_softmax(-1)
        mean = log_probs.exp().mean(0)
        negative_entropy = (mean * mean.clamp_min(FLOOR).log()).sum(-1).mean()
        divergence = negative_entropy - (mean * log_probs.mean(0)).sum(-1).mean()
        return {
            "classification": F.nll_loss(log_probs.flatten(0, 1), step.y.repeat(self.copies)),
            "consistency": self.weight * divergence,
            "entropy": -self.entropy_weight * negative_entropy,
        }

    def adversarial(self, model: nn.Module, step: Step) -> Tensor:
        """The images that the network learns from; unlike SmoothAdv's own this attack projects, then clamps."""
        radius = self.epsilon * warmup(step.epoch, self.warmup_epochs)
        return pgd(
            model,
            step.x,
            step.noise,
            objective=smoothed_cross_entropy(step.y, floor=FLOOR),
            radius=radius,
            steps=self.steps,
            clamp="after" if self.official else "never",
        )
