"""Noise in floats certifies a radius that an adversarial example violates; grid noise does not.

A sum x + d of floats is a multiple of the coarser of two units in the last place. Near 0 the noise
alone has finer digits than any sum in which x is not 0. A classifier that looks at those digits
recognises a black image under any amount of noise. Voracek and Hein (2023) found such classifiers.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

import smoothmix as sm
from smoothmix.noise import GaussianNoise, GridNoise

SHAPE = (3, 32, 32)
SIGMA = 0.5

BLACK = torch.zeros(1, *SHAPE)
TWO_LEVELS_BRIGHTER = torch.full((1, *SHAPE), 2 / 255)
for image in (BLACK, TWO_LEVELS_BRIGHTER):
    # One white pixel: images that are nearly black as a whole are taken for a mistake.
    image[0, 0, 0, 0] = 1
DISTANCE = math.sqrt(math.prod(SHAPE) - 1) * 2 / 255

HAS_FINE_DIGITS = 0
HAS_NONE = 1


class LooksAtLastDigits(nn.Module):
    """Class 0 if any pixel close to 0 has digits that no float32 sum with 2/255 could have.

    2/255 is a multiple of 2^-31, and so is the noise that cancels it down to 2^-8 or less.
    """

    def forward(self, images: Tensor) -> Tensor:
        in_units = images.flatten(1) * 2.0**31
        is_near_zero = in_units.abs() < 2.0**23
        is_fine = is_near_zero & (in_units != in_units.round())
        found = is_fine.any(1).float()
        return torch.stack([found, 1 - found], 1)


def smoothed(noise: GaussianNoise | GridNoise) -> sm.Smoothed:
    return sm.Smoothed(LooksAtLastDigits(), sigma=SIGMA, num_classes=2, noise=noise)


def test_noise_in_floats_certifies_what_an_adversarial_example_violates() -> None:
    attacked = smoothed(GaussianNoise())
    certified = attacked.certify(BLACK, n=5_000, seed=0)
    assert certified.prediction.item() == HAS_FINE_DIGITS
    # More than three times as far as the image below, with a chance of 0.001 of being wrong.
    assert certified.radius.item() > 3 * DISTANCE
    # All votes are for the other class: no chance explains that.
    votes = attacked.votes(TWO_LEVELS_BRIGHTER, n=5_000, seed=1)
    assert votes.tolist() == [[0, 5_000]]


def test_noise_on_the_grid_shows_no_digits_of_the_image() -> None:
    """The only grid point so close to 0 is 0 itself: both images get the same certificate."""
    attacked = smoothed(GridNoise())
    certified = attacked.certify(torch.cat([BLACK, TWO_LEVELS_BRIGHTER]), n=1_000, seed=0)
    assert certified.prediction.tolist() == [HAS_NONE, HAS_NONE]
    assert certified.radius.min().item() > DISTANCE
    assert certified.counts.tolist() == [[0, 1_000], [0, 1_000]]
