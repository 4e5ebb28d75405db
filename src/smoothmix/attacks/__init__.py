"""Attacks on the smoothed classifier: adversarial examples in the L2 norm."""

from smoothmix.attacks.ddn import ddn
from smoothmix.attacks.gradients import fast_gradients
from smoothmix.attacks.l2 import (
    Constraint,
    Objective,
    ball,
    clamp_pixels,
    l2_ascent,
    pgd,
    project_l2,
    smoothed_cross_entropy,
    unit_l2,
    unit_l2_or_random,
)

__all__ = [
    "Constraint",
    "Objective",
    "ball",
    "clamp_pixels",
    "ddn",
    "fast_gradients",
    "l2_ascent",
    "pgd",
    "project_l2",
    "smoothed_cross_entropy",
    "unit_l2",
    "unit_l2_or_random",
]
