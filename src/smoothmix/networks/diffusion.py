"""A diffusion model as a denoiser in one step (Carlini et al., 2023)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, final, get_args

import torch
from torch import Tensor, nn

from smoothmix.config import require, require_sigma
from smoothmix.errors import UsageError, unknown_name

Prediction = Literal["noise", "image", "velocity"]
"""What a diffusion model returns: the noise (epsilon), the clean image (x0), or v."""


@final
class OneStepDiffusion(nn.Module):
    """Denoises images in the [0, 1] scale by one call of a diffusion model.

    At step t of its noise schedule, a diffusion model knows images `sqrt(a) x + sqrt(1 - a) e` with
    `a = alphas_cumprod[t]`, images x in [-1, 1] and standard normal noise e. Divided by `sqrt(a)`,
    these are images with noise of standard deviation `sqrt((1 - a) / a)`, which is twice as much in
    the scale of [-1, 1] as in that of [0, 1]. A schedule rarely has a step for exactly the `sigma`
    that is asked for: the step with the largest noise that is not above it is taken, and the
    attribute `sigma` is what that step has. Smooth with this `sigma`, which is the smaller one:
    noise and radius are then exactly those of the step.
    """

    def __init__(
        self,
        model: nn.Module,
        alphas_cumprod: Sequence[float] | Tensor,
        *,
        sigma: float,
        prediction: Prediction = "noise",
    ) -> None:
        """`model` is called with images [B, C, H, W] in [-1, 1], and with the step [B] of each."""
        super().__init__()
        require_sigma(sigma)
        kinds = get_args(Prediction)
        if prediction not in kinds:
            raise unknown_name("prediction", str(prediction), kinds)
        self.model = model
        self.prediction = prediction
        self.step, share = nearest_step(alphas_cumprod, sigma)
        # Of the signal, and of the noise, in the images that the model gets.
        self.signal = math.sqrt(share)
        self.noise = math.sqrt(1 - share)
        self.sigma = self.noise / self.signal / 2
        self.training = model.training

    def forward(self, images: Tensor) -> Tensor:
        scaled = (2 * images - 1) * self.signal
        steps = torch.full((len(images),), self.step, dtype=torch.long, device=images.device)
        returned = self.model(scaled, steps)
        # Networks of diffusers return an object; some also return the variance, after the image.
        predicted: Tensor = getattr(returned, "sample", returned)[:, : images.shape[1]]
        if self.prediction == "noise":
            predicted = (scaled - self.noise * predicted) / self.signal
        elif self.prediction == "velocity":
            predicted = self.signal * scaled - self.noise * predicted
        return (predicted.clamp(-1, 1) + 1) / 2


def nearest_step(alphas_cumprod: Sequence[float] | Tensor, sigma: float) -> tuple[int, float]:
    """The step with the largest noise up to `sigma`, for pixels in [0, 1], and its share of signal.

    >>> nearest_step([0.99, 0.8, 0.5, 0.1], 0.25)
    (1, 0.8)
    """
    shares = [float(share) for share in alphas_cumprod]
    require(
        all(0 < share < 1 for share in shares) and shares == sorted(shares, reverse=True),
        "alphas_cumprod must fall from below 1 to above 0, one value per step",
    )
    found = None
    for step, share in enumerate(shares):
        # A hair above counts as equal: sigma may be computed from the same schedule.
        if math.sqrt((1 - share) / share) / 2 <= sigma * (1 + 1e-9):
            found = step
    if found is None:
        least = math.sqrt((1 - shares[0]) / shares[0]) / 2 if shares else math.nan
        raise UsageError(
            f"the schedule has no step with noise as small as {sigma:g}: from {least:g}"
        )
    return found, shares[found]
