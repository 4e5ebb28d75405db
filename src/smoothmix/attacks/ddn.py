"""Decoupled direction and norm (Rony et al., 2019), as the code of SmoothAdv uses it."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from smoothmix.attacks.l2 import (
    Objective,
    clamp_pixels,
    l2_norm,
    objective_gradient,
    project_l2,
    unit_l2_or_random,
)
from smoothmix.networks.noisy import noisy_forward

LAST_STEP = 0.01
"""Length of the last step; the first one is close to 1."""

NO_LENGTH = 1e-12
"""Keeps an offset of zero from being divided by its length."""


def ddn(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    noise: Tensor,
    *,
    objective: Objective,
    steps: int,
    radius: float,
    clamp: bool = True,
    gamma: float = 0.05,
    levels: int = 256,
) -> Tensor:
    """The nearest misclassified images that are found within `radius`; x where none is found.

    An image counts as misclassified by the most frequent prediction over the noise samples. The
    distance to x begins at `radius`; it shrinks by the share `gamma` after a misclassified
    iterate, and grows by it after any other. Pixels of the iterates, and of the perturbation that
    is returned, are rounded to `levels` values. With `clamp`, iterates stay in [0, 1].
    """
    x = x.detach()
    forward = noisy_forward(model, noise)
    # The distance to the farthest image with pixels in [0, 1].
    largest_norm = l2_norm(torch.maximum(x, 1 - x))
    norm = torch.full_like(largest_norm, radius)
    offset = torch.zeros_like(x)
    best = torch.zeros_like(x)
    best_norm = largest_norm

    for step in range(steps):
        gradient, logits = objective_gradient(model, forward, x + offset, objective)
        misclassified = (most_frequent_prediction(logits) != y).view_as(norm)

        # x is the first iterate, so that an image that is already misclassified is not changed.
        offset_norm = l2_norm(offset)
        nearer = misclassified & (offset_norm < best_norm)
        best = torch.where(nearer, offset, best)
        best_norm = torch.where(nearer, offset_norm, best_norm)

        norm = norm * torch.where(misclassified, 1 - gamma, 1 + gamma)
        norm = torch.minimum(norm, largest_norm)
        # Direction and norm apart: the step turns the offset, the norm alone decides its length.
        moved = offset + step_length(step, steps) * unit_l2_or_random(gradient)
        moved = moved * (norm / l2_norm(moved).clamp_min(NO_LENGTH))
        point = quantise(x + moved, levels)
        if clamp:
            point = clamp_pixels(point)
        offset = point - x

    # The released attack rounds the perturbation itself here, not the image, and does not clamp.
    best = project_l2(best, torch.zeros_like(best), radius)
    return x + quantise(best, levels)


def step_length(step: int, steps: int) -> float:
    """Length of step 0, 1, ... of `steps`: a cosine from nearly 1 to `LAST_STEP`.

    >>> [round(step_length(step, 4), 3) for step in range(4)]
    [0.855, 0.505, 0.155, 0.01]
    """
    # Counted from 1: the released code advances its schedule before each step.
    falling = (1 + math.cos(math.pi * (step + 1) / steps)) / 2
    return LAST_STEP + (1 - LAST_STEP) * falling


def most_frequent_prediction(logits: Tensor) -> Tensor:
    """The class that most copies vote for, [batch]; the first one of a tie."""
    return logits.argmax(-1).mode(0).values


def quantise(pixels: Tensor, levels: int) -> Tensor:
    """Pixels rounded to multiples of 1 / (levels - 1)."""
    return (pixels * (levels - 1)).round() / (levels - 1)
