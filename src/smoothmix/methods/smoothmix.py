"""SmoothMix (Jeong et al., 2021)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, final

import torch
from torch.nn import functional as F

from smoothmix.attacks import (
    ball,
    clamp_pixels,
    l2_ascent,
    project_l2,
    smoothed_cross_entropy,
)
from smoothmix.attacks.l2 import FLOOR, Constraint
from smoothmix.errors import UsageError
from smoothmix.methods.base import (
    Batch,
    Method,
    given,
    require_int,
    require_not_negative,
    require_positive,
    warmup,
)
from smoothmix.networks.noisy import noisy_logits

if TYPE_CHECKING:
    from torch import Tensor, nn


@final
@dataclass(frozen=True, kw_only=True)
class SmoothMix(Method):
    """Mixes images with unrestricted adversarial ones, and labels with the uniform distribution.

    Equation (total_loss) of the paper.
    """

    copies: int = 4
    """Noise samples per image, the same in the attack and in both forwards."""

    steps: int = 4
    """Steps of the attack (T).

    The paper used 2, 4 and 8 for MNIST with sigma 0.25, 0.5 and 1, and 4 for CIFAR-10.
    """

    step_size: float = 1.0
    """L2 length of one step of the attack (alpha)."""

    eta: float = 5.0
    """Weight of the mixing loss."""

    one_step: bool = False
    """Train on the attack's first iterate instead of the clean image."""

    one_step_radius: float | None = None
    """Largest distance of that iterate from the image; by default step_size."""

    limit: float | None = None
    """Largest distance of every iterate from the image, for the ablation; by default none."""

    warmup_epochs: int = 10
    """Epochs over which eta and the one-step radius grow to their full value (only official)."""

    chunked: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        require_int(self, "steps", "warmup_epochs")
        if not isinstance(self.one_step, bool):
            raise UsageError(f"one_step must be true or false, got {self.one_step!r}")
        require_positive(self, "step_size", *given(self, "one_step_radius", "limit"))
        require_not_negative(self, "eta")
        if self.one_step and self.steps == 0:
            raise UsageError("one_step takes the attack's first iterate: steps must be at least 1")
        if self.one_step_radius is not None and not self.one_step:
            raise UsageError("one_step_radius has an effect only with one_step = true")

    def terms(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """`classification`: L_nat, the mean cross-entropy; `mix`: eta times L_mix, (mix_loss)."""
        share = 1.0
        if self.official:
            share = warmup(batch.epoch, self.warmup_epochs)
        near, far = self.ends(model, batch, share)
        natural = noisy_logits(model, near, batch.noise).log_softmax(-1)
        smoothed = natural.exp().mean(0)
        x_mix, y_mix = mix(near, far, smoothed, batch.mixing_ratios())
        mixed = noisy_logits(model, x_mix, batch.noise).log_softmax(-1)
        # y_mix is the same for all noise samples: the mean may be taken of the log-probabilities.
        mix_loss = -(y_mix * mixed.mean(0)).sum(-1)
        if self.official:
            # KL, not cross-entropy: they differ by the entropy of y_mix, which has a gradient. The
            # clamp keeps it finite where a probability is 0.
            tiny = torch.finfo(y_mix.dtype).tiny
            divergence = mix_loss + (y_mix * y_mix.clamp_min(tiny).log()).sum(-1)
            mix_loss = torch.where(smoothed.argmax(-1) == batch.y, divergence, 0)
        classification = F.nll_loss(natural.flatten(0, 1), batch.y.repeat(self.copies))
        return {"classification": classification, "mix": self.eta * share * mix_loss.mean()}

    def ends(self, model: nn.Module, batch: Batch, share: float) -> tuple[Tensor, Tensor]:
        """The two images to mix: the clean one (or the first iterate) and the attack's last one."""
        constraints: list[Constraint] = []
        if self.limit is not None:
            constraints.append(ball(batch.x, self.limit))
        if self.official:
            constraints.append(clamp_pixels)
        path = list(
            l2_ascent(
                model,
                batch.x,
                batch.noise,
                objective=smoothed_cross_entropy(batch.y, floor=FLOOR),
                steps=self.steps,
                step_size=self.step_size,
                constraints=constraints,
            )
        )
        # The iterates of one attack serve both ends: path[0] is the clean image itself.
        if not self.replaces_clean:
            return batch.x, path[-1]
        radius = share * (self.one_step_radius or self.step_size)
        near = project_l2(path[1], batch.x, radius)
        if self.official:
            near = clamp_pixels(near)
        return near, path[-1]

    @property
    def replaces_clean(self) -> bool:
        """Whether the attack's first iterate takes the place of the clean image."""
        # The released code keeps the clean image where the first iterate is the last one too.
        only_iterate = self.steps <= 1 and self.one_step_radius is None
        return self.one_step and not (self.official and only_iterate)


def mix(x: Tensor, far: Tensor, probs: Tensor, ratios: Tensor) -> tuple[Tensor, Tensor]:
    """Images moved towards `far`, probabilities towards the uniform, both by `ratios`: (mixup)."""
    # Adversarial images far away should be uncertain, not of another class.
    uniform = torch.full_like(probs, 1 / probs.shape[-1])
    by_image = ratios.view(-1, *[1] * (x.ndim - 1))
    x_mix = torch.lerp(x, far, by_image.to(x.dtype))
    y_mix = torch.lerp(probs, uniform, ratios[:, None].to(probs.dtype))
    return x_mix, y_mix
