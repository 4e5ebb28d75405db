"""Diffusion models as denoisers: the step that fits a noise level, and what comes out."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.stats import norm
from torch import Tensor, nn

import smoothmix as sm
from smoothmix.errors import UsageError
from smoothmix.networks import OneStepDiffusion

SCHEDULE = torch.linspace(1, 0, 202, dtype=torch.float64)[1:-1] ** 2
"""Shares of the signal in 200 steps."""


class KnowsTheImage(nn.Module):
    """A diffusion model that knows the clean image, and so makes a perfect prediction."""

    def __init__(self, clean: Tensor, kind: str) -> None:
        super().__init__()
        self.clean = 2 * clean - 1
        self.kind = kind
        self.called_with: list[Tensor] = []

    def forward(self, images: Tensor, steps: Tensor) -> object:
        self.called_with = [images, steps]
        share = SCHEDULE[steps[0]].to(images)
        noise = (images - share.sqrt() * self.clean) / (1 - share).sqrt()
        if self.kind == "image":
            return self.clean.expand_as(images)
        if self.kind == "velocity":
            return SimpleNamespace(sample=share.sqrt() * noise - (1 - share).sqrt() * self.clean)
        # With a variance that the network has learned as well.
        return torch.cat([noise, torch.zeros_like(noise)], 1)


@pytest.mark.parametrize("kind", ["noise", "image", "velocity"])
def test_a_perfect_model_gives_the_clean_image(kind: str) -> None:
    clean = torch.rand(1, 3, 6, 6, dtype=torch.float64)
    model = KnowsTheImage(clean, kind)
    denoiser = OneStepDiffusion(model, SCHEDULE, sigma=0.25, prediction=kind)  # type: ignore[arg-type]
    noisy = clean + denoiser.sigma * torch.randn(4, 3, 6, 6, dtype=torch.float64)
    torch.testing.assert_close(denoiser(noisy), clean.expand(4, -1, -1, -1))
    images, steps = model.called_with
    # What the model gets is what it was trained on at this step: unit variance of the noise part.
    share = float(SCHEDULE[denoiser.step])
    noise = (images - math.sqrt(share) * (2 * clean - 1)) / math.sqrt(1 - share)
    assert steps.tolist() == [denoiser.step] * 4
    assert abs(float(noise.std()) - 1) < 0.1


@pytest.mark.parametrize("sigma", [0.12, 0.25, 0.5, 1.0])
def test_the_step_is_the_last_one_with_no_more_noise(sigma: float) -> None:
    denoiser = OneStepDiffusion(nn.Identity(), SCHEDULE, sigma=sigma)
    levels = [math.sqrt((1 - float(a)) / float(a)) / 2 for a in SCHEDULE]
    assert denoiser.sigma == pytest.approx(levels[denoiser.step], rel=1e-12)
    assert levels[denoiser.step] <= sigma < levels[denoiser.step + 1]
    # The level of a step finds the step again.
    assert OneStepDiffusion(nn.Identity(), SCHEDULE, sigma=denoiser.sigma).step == denoiser.step


def test_certificates_use_the_smaller_sigma() -> None:
    clean = torch.randint(256, (1, 1, 4, 4)) / 255
    denoiser = OneStepDiffusion(
        KnowsTheImage(clean, "image"), SCHEDULE, sigma=0.25, prediction="image"
    )
    network = sm.Denoised(denoiser, nn.Sequential(nn.Flatten(), nn.Linear(16, 2))).eval()
    assert denoiser.sigma < 0.25
    smoothed = sm.Smoothed(network, sigma=denoiser.sigma, num_classes=2)
    certified = smoothed.certify(clean, n=500, seed=0)
    # All draws agree, since the prediction is perfect.
    bound = 0.001 ** (1 / 500)
    assert np.allclose(certified.radius, denoiser.sigma * norm.ppf(bound), atol=2e-6)


def test_mistakes_are_named() -> None:
    with pytest.raises(UsageError, match=r"no step with noise as small as 0\.001"):
        OneStepDiffusion(nn.Identity(), SCHEDULE, sigma=0.001)
    with pytest.raises(UsageError, match="alphas_cumprod must fall from below 1"):
        OneStepDiffusion(nn.Identity(), [0.5, 0.9], sigma=0.25)
    with pytest.raises(UsageError, match="unknown prediction 'nose': did you mean 'noise'"):
        OneStepDiffusion(nn.Identity(), SCHEDULE, sigma=0.25, prediction="nose")  # type: ignore[arg-type]
