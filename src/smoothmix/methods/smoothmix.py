"""SmoothMix (Jeong et al., 2021)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
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
from smoothmix.attacks.l2 import FLOOR
from smoothmix.errors import UsageError
from smoothmix.methods.base import (
    Method,
    Step,
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
    """Images are mixed with unrestricted adversarial ones, and their labels with the uniform: eq. (total_loss)."""

    copies: int = 4
    """Noises for each image, the same in the attack and in both forwards."""

    steps: int = 4
    """Steps of the attack (T); the paper took 2, 4, 8 for MNIST with sigma 0.25, 0.5, 1 and 4 for CIFAR-10."""

    step_size: float = 1.0
    """L2 length of one step of the attack (alpha)."""

    eta: float = 5.0
    """Weight of the mixing loss."""

    one_step: bool = False
    """Take the attack's first iterate instead of the clean image."""

    one_step_radius: float | None = None
    """Largest distance of that iterate from the image; left out it is step_size."""

    limit: float | None = None
    """Largest distance of every iterate from the image, for the ablation; left out there is none."""

    warmup_epochs: int = 10
    """Epochs over which eta and the one-step radius grow to their full value (official; the text has none)."""

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

    def terms(self, model: nn.Module, step: Step) -> dict[str, Tensor]:
        """`classification`: L_nat, the mean cross-entropy; `mix`: eta (warmed up) times L_mix, eq. (mix_loss)."""
        share = warmup(step.epoch, self.warmup_epochs) if self.official else 1.0
        near, far = self.ends(model, step, share)
        natural = noisy_logits(model, near, step.noise).log_softmax(-1)
        smoothed = natural.exp().mean(0)
        x_mix, y_mix = mix(near, far, smoothed, step.mixing_ratios())
        mixed = noisy_logits(model, x_mix, step.noise).log_softmax(-1)
        # y_mix is one for all copies, so that the mean over copies may be taken of the log-probabilities.
        mix_loss = -(y_mix * mixed.mean(0)).sum(-1)
        if self.official:
            # KL, not cross-entropy: they differ by the entropy of y_mix, which has a gradient (finite also at 0).
            tiny = torch.finfo(y_mix.dtype).tiny
            divergence = mix_loss + (y_mix * y_mix.clamp_min(tiny).log()).sum(-1)
            mix_loss = torch.where(smoothed.argmax(-1) == step.y, divergence, 0)
        classification = F.nll_loss(natural.flatten(0, 1), step.y.repeat(self.copies))
        return {"classification": classification, "mix": self.eta * share * mix_loss.mean()}

    def ends(self, model: nn.Module, step: Step, share: float) -> tuple[Tensor, Tensor]:
        """What to mix between: the image (or the attack's first iterate, brought near it) and the last iterate."""
        clamp = (clamp_pixels,) if self.official else ()
        limit = (ball(step.x, self.limit),) if self.limit is not None else ()
        attack = partial(
            l2_ascent, steps=self.steps, step_size=self.step_size, constraints=limit + clamp
        )
        objective = smoothed_cross_entropy(step.y, floor=FLOOR)
        path = list(attack(model, step.x, step.noise, objective=objective))
        # The released code never replaces the clean side when the first iterate is the last one too.
        replaced = self.steps > 1 or self.one_step_radius is not None or not self.official
        if not (self.one_step and replaced):
            return step.x, path[-1]
        near = project_l2(path[1], step.x, share * (self.one_step_radius or self.step_size))
        return (clamp_pixels(near) if self.official else near), path[-1]


def mix(x: Tensor, far: Tensor, probs: Tensor, ratios: Tensor) -> tuple[Tensor, Tensor]:
    """Images moved towards `far` and probabilities towards the uniform by the same ratio: eq. (mixup)."""
    uniform = torch.full_like(probs, 1 / probs.shape[-1])
    by_image = ratios.view(-1, *[1] * (x.ndim - 1))
    return torch.lerp(x, far, by_image.to(x.dtype)), torch.lerp(
        probs, uniform, ratios[:, None].to(probs.dtype)
    )
