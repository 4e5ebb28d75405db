"""What every noise distribution provides: addressed samples, and the radius that they certify."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike, NDArray

from smoothmix.config import require_sigma
from smoothmix.noise.streams import DrawRange, Pixels, fill_draws
from smoothmix.registry import address_of

Floats = NDArray[np.float64]


class Noisy(NamedTuple):
    """Noisy images, and which of them are not to be trusted."""

    pixels: Pixels
    """An array [count, channels, height, width]."""

    ambiguous: NDArray[np.int64]
    """Positions of the draws whose random bits do not determine their value: they are votes for
    nobody. Empty for noise in floats."""


@dataclass(frozen=True)
class Noise(ABC):
    """A distribution of noise: independent coordinates of mean 0 and standard deviation sigma.

    A subclass says how to draw it, which radius a probability certifies, and in which norm. Its
    fields, if it has any, are recorded in certificate files.
    """

    name: ClassVar[str]
    """Name in files and for `--noise`; `package.module:Class` for classes from outside."""

    scheme: ClassVar[str]
    """How its random numbers are made from addresses; recorded, since it decides every vote."""

    norm: ClassVar[str] = "L2"
    """The norm in which radii are measured."""

    fourth_moment: ClassVar[float] = math.nan
    """Of one coordinate at sigma 1. Only the study of input-dependent noise needs it."""

    relative_error: ClassVar[float] = 4e-15
    """A bound on the relative error of `signed_radius` above 1/2. `radius` subtracts it."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        # The address lets any process find a class from outside that a file names.
        if "name" not in vars(cls):
            cls.name = address_of(cls)

    @abstractmethod
    def fill(self, generator: Generator, out: Pixels) -> None:
        """Fill an array with noise of standard deviation 1."""

    @abstractmethod
    def signed_radius(self, probability: ArrayLike, *, sigma: float) -> Floats:
        """The certified radius for probabilities above 1/2, continued below as an odd function.

        That is, f(1 - p) = -f(p). Callers near p = 1 pass the small number 1 - p, which has more
        digits.
        """

    @abstractmethod
    def probability(self, radius: ArrayLike, *, sigma: float) -> Floats:
        """The probability that certifies a radius: the inverse of `signed_radius`."""

    @property
    def description(self) -> str:
        """How reports name it."""
        # L2 is the usual norm; radii in another one must not be taken for it.
        if self.norm == "L2":
            return f"{self.name} noise"
        return f"{self.name} noise ({self.norm} radii)"

    def require_image(self, image: ArrayLike) -> None:  # noqa: B027 - nothing to refuse here
        """Refuse an image that this noise cannot be added to; noise in floats takes any."""

    def radius(self, p_lower: ArrayLike, *, sigma: float) -> Floats:
        """The radius certified by a lower bound on the top class's probability; 0 up to 1/2.

        It is never above the exact radius of this probability and this sigma.
        """
        require_sigma(sigma)
        p = np.asarray(p_lower, dtype=np.float64)
        nearest = self.signed_radius(np.maximum(p, 0.5), sigma=sigma)
        return np.where(p > 0.5, nearest * (1 - self.relative_error), 0.0)

    def sample(self, draws: DrawRange, shape: tuple[int, ...], *, sigma: float) -> Pixels:
        """Addressed noise as an array [count, *shape]."""

        def fill_scaled(generator: Generator, out: Pixels) -> None:
            self.fill(generator, out)
            # In float32, as every file was made: other rounding would change votes. Stream by
            # stream, the numbers are still in the cache.
            out *= np.float32(sigma)

        return fill_draws(fill_scaled, draws, shape)

    def noisy_images(
        self, image: Pixels, draws: DrawRange, *, sigma: float, out: Pixels | None = None
    ) -> Noisy:
        """The image with each of these draws added to it.

        They are written into `out` [count, channels, height, width] if it is given, whatever its
        layout in memory is.
        """
        pixels = self.sample(draws, image.shape, sigma=sigma)
        if out is None:
            out = pixels
        np.add(pixels, image, out=out)
        return Noisy(out, np.empty(0, dtype=np.int64))
