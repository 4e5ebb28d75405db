"""Consistency regularisation (Jeong and Shin, 2020), by itself or on top of SmoothAdv."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, final

from torch.nn import functional as F

from smoothmix.attacks import pgd, smoothed_cross_entropy
from smoothmix.attacks.l2 import FLOOR, Clamp
from smoothmix.methods.base import Batch, Method, require_int, require_not_negative, warmup
from smoothmix.networks.noisy import noisy_logits

if TYPE_CHECKING:
    from torch import Tensor, nn


@final
@dataclass(frozen=True, kw_only=True)
class Consistency(Method):
    """Makes the predictions of noisy versions agree with their mean, and the mean confident."""

    copies: int = 2
    """Noise samples per image."""

    weight: float = 10.0
    """Weight of the copies' divergence from their mean.

    The paper used 10, 5 and 5 for MNIST with sigma 0.25, 0.5 and 1; for CIFAR-10 20, 10 and 10.
    """

    entropy_weight: float = 0.5
    """Weight of the entropy of the mean prediction."""

    epsilon: float = 0.0
    """Largest L2 norm of the perturbation in adversarial training; 0 means no attack."""

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

    def terms(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """`classification`: mean cross-entropy; `consistency`: mean KL(mean || copy);
        `entropy`: that of the mean.
        """
        x = batch.x
        if self.epsilon > 0:
            x = self.adversarial(model, batch)
        log_probs = noisy_logits(model, x, batch.noise).log_softmax(-1)
        # Not detached: gradients flow through the mean prediction as a target too.
        mean = log_probs.exp().mean(0)
        # The floor keeps the gradient finite where a probability underflows to 0.
        negative_entropy = (mean * mean.clamp_min(FLOOR).log()).sum(-1).mean()
        # KL(mean || copy), averaged over copies, needs only the mean of the log-probabilities.
        divergence = negative_entropy - (mean * log_probs.mean(0)).sum(-1).mean()
        return {
            "classification": F.nll_loss(log_probs.flatten(0, 1), batch.y.repeat(self.copies)),
            "consistency": self.weight * divergence,
            "entropy": -self.entropy_weight * negative_entropy,
        }

    def adversarial(self, model: nn.Module, batch: Batch) -> Tensor:
        """The adversarial images that the network is trained on."""
        # The released code projects, then clamps; SmoothAdv's own does it in the other order.
        clamp: Clamp = "never"
        if self.official:
            clamp = "after"
        return pgd(
            model,
            batch.x,
            batch.noise,
            objective=smoothed_cross_entropy(batch.y, floor=FLOOR),
            radius=self.epsilon * warmup(batch.epoch, self.warmup_epochs),
            steps=self.steps,
            clamp=clamp,
        )
