"""Uniform and Laplace noise, which certify L1 radii (Yang et al., 2020)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike

from smoothmix.config import require_sigma
from smoothmix.noise.base import Floats, Noise
from smoothmix.noise.streams import Pixels


@final
@dataclass(frozen=True)
class UniformNoise(Noise):
    """Independent coordinates, uniform in [-w, w] with w = sqrt(3) * sigma.

    A shift by d moves at most the share |d|_1 / (2 w) of the noise out of its cube.

    >>> round(float(UniformNoise().radius(0.99, sigma=0.5)), 4)
    0.8487
    """

    name: ClassVar[str] = "uniform"
    scheme: ClassVar[str] = "philox4x64-uniform-32"
    norm: ClassVar[str] = "L1"
    fourth_moment: ClassVar[float] = 9 / 5

    def fill(self, generator: Generator, out: Pixels) -> None:
        # The square root of 3 makes the variance 1.
        out[...] = (2 * generator.random(out.shape, np.float32) - 1) * 3**0.5

    def signed_radius(self, probability: ArrayLike, *, sigma: float) -> Floats:
        require_sigma(sigma)
        half_width = math.sqrt(3) * sigma
        return 2 * half_width * (np.asarray(probability, dtype=np.float64) - 0.5)

    def probability(self, radius: ArrayLike, *, sigma: float) -> Floats:
        require_sigma(sigma)
        half_width = math.sqrt(3) * sigma
        # No probability certifies more than the half width; beyond it the answer stays 1.
        return np.clip(0.5 + np.asarray(radius, dtype=np.float64) / (2 * half_width), 0.0, 1.0)


@final
@dataclass(frozen=True)
class LaplaceNoise(Noise):
    """Independent coordinates of density exp(-|x| / b) / (2 b) with b = sigma / sqrt(2).

    The likelihood ratio of two shifts is largest along a coordinate axis, where the worst
    classifier is a half line.

    >>> round(float(LaplaceNoise().radius(0.99, sigma=0.5)), 4)
    1.3831
    """

    name: ClassVar[str] = "laplace"
    scheme: ClassVar[str] = "philox4x64-laplace-32"
    norm: ClassVar[str] = "L1"
    fourth_moment: ClassVar[float] = 6.0

    def fill(self, generator: Generator, out: Pixels) -> None:
        # The difference of two exponential variables has a Laplace distribution.
        first, second = generator.standard_exponential((2, *out.shape), np.float32)
        out[...] = np.subtract(first, second) / 2**0.5

    def signed_radius(self, probability: ArrayLike, *, sigma: float) -> Floats:
        require_sigma(sigma)
        scale = sigma / math.sqrt(2)
        p = np.asarray(probability, dtype=np.float64)
        with np.errstate(divide="ignore"):
            # Both branches use the smaller of p and 1 - p, which has more digits.
            return scale * np.where(p < 0.5, np.log(2 * p), -np.log(2 * (1 - p)))

    def probability(self, radius: ArrayLike, *, sigma: float) -> Floats:
        require_sigma(sigma)
        scale = sigma / math.sqrt(2)
        in_scales = np.asarray(radius, dtype=np.float64) / scale
        tail = np.exp(-np.abs(in_scales)) / 2
        return np.where(in_scales < 0, tail, 1 - tail)
