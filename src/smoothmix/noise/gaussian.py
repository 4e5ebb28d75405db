"""Gaussian noise, which certifies L2 radii."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from smoothmix.config import require_sigma
from smoothmix.noise.base import Floats, Noise
from smoothmix.noise.streams import SCHEME, Pixels, fill_normal


class NormalRadius(Noise):
    """Noise whose radii are those of Cohen et al. (2019), since it is normal before any rounding.

    If the smoothed classifier returns class A with probability at least p > 1/2, then it returns A
    everywhere within L2 distance sigma * Phi^-1(p).
    """

    def signed_radius(self, probability: ArrayLike, *, sigma: float) -> Floats:
        require_sigma(sigma)
        return np.asarray(sigma * ndtri(np.asarray(probability, dtype=np.float64)))

    def probability(self, radius: ArrayLike, *, sigma: float) -> Floats:
        require_sigma(sigma)
        return np.asarray(ndtr(np.asarray(radius, dtype=np.float64) / sigma))


@final
@dataclass(frozen=True)
class GaussianNoise(NormalRadius):
    """Independent normal deviates, added to the image as floats.

    >>> noise = GaussianNoise()
    >>> round(float(noise.radius(0.99, sigma=0.5)), 4)
    1.1632
    >>> round(float(noise.probability(1.1632, sigma=0.5)), 4)
    0.99
    """

    name: ClassVar[str] = "gaussian"
    scheme: ClassVar[str] = SCHEME
    fourth_moment: ClassVar[float] = 3.0

    def fill(self, generator: Generator, out: Pixels) -> None:
        fill_normal(generator, out)
