"""Real grid noise and a network whose probabilities are known: few claims in integers are false.

Other simulations draw votes from a binomial distribution. Here nothing is simulated: images are
certified as anyone's are, from the random bits to the largest sum of squared differences.
"""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
import torch
from scipy.stats import binom
from torch import Tensor, nn

import smoothmix as sm
from smoothmix.stats import Anytime, FixedDraws, Guarantee, Stopping

LEVELS = 255
SIGMA = 0.25
THRESHOLD = 100
IMAGES = 1_000
BATCH = 64


class Above(nn.Module):
    """Class 1 if the first pixel is above the threshold, else class 0; others say nothing."""

    def forward(self, x: Tensor) -> Tensor:
        above = torch.round(x[:, 0, 0, 0] * LEVELS) - THRESHOLD - 0.5
        return torch.stack([-above, above], dim=1)


def exact_probability(value: int, sigma: float = SIGMA) -> float:
    """The probability that class 1 gets the vote of a draw."""
    z = mpmath.mpf(2 * (value - THRESHOLD) - 1) / (2 * LEVELS * mpmath.mpf(sigma))
    return float(mpmath.ncdf(z))


def exact_claim(value: int) -> tuple[int, int]:
    """The class of the smoothed network, and the largest squared difference that keeps it."""
    # J has a median of 0: the class is that of the image without noise.
    if value > THRESHOLD:
        return 1, (value - THRESHOLD) ** 2 - 1
    return 0, (THRESHOLD + 1 - value) ** 2 - 1


def guarantees(alpha: float) -> list[Guarantee]:
    return [
        FixedDraws(128, n0=10, alpha=alpha),
        Anytime(Stopping(radii=(0.0, 0.2), max_draws=256), n0=10, alpha=alpha),
    ]


# Just below a majority for class 1, and well above.
@pytest.mark.parametrize("value", [THRESHOLD, 150])
@pytest.mark.parametrize("kind", [0, 1], ids=["fixed draws", "any time"])
@pytest.mark.parametrize("alpha", [0.01, 0.001])
def test_claims_are_false_no_more_often_than_alpha(alpha: float, kind: int, value: int) -> None:
    images = torch.full((IMAGES, 1, 1, 2), value, dtype=torch.uint8)
    smoothed = sm.Smoothed(Above(), sigma=SIGMA, num_classes=2, batch=BATCH)
    found = smoothed.certify(images, guarantee=guarantees(alpha)[kind], seed=value)
    prediction = found.prediction.numpy()
    selected = found.selected.numpy()
    assert found.squared is not None
    right, largest = exact_claim(value)
    p = np.where(selected == 1, exact_probability(value), 1 - exact_probability(value))

    certified = prediction >= 0
    false = certified & ((prediction != right) | (found.squared.numpy() > largest))
    too_high = found.p_lower.numpy() > p
    # A right program fails with this chance.
    tolerated = binom.isf(1e-6, IMAGES, alpha)
    assert too_high.sum() <= tolerated
    assert false.sum() <= too_high.sum(), "a claim is false only if its bound is"
    if value == THRESHOLD:
        return
    assert certified.mean() > 0.9, "or nothing would be claimed"
    if kind == 0 and alpha == 0.01:
        # Noise with a smaller standard deviation than the claimed one would be noticed.
        p_of_wider_noise = exact_probability(value, sigma=1.2 * SIGMA)
        assert (found.p_lower.numpy() > p_of_wider_noise).sum() > tolerated
