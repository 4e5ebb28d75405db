"""Noise from outside whose random bits do not determine every draw."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike, NDArray

from smoothmix.noise import GAUSSIAN, DrawRange, Noise
from smoothmix.noise.base import Noisy


@dataclass(frozen=True)
class EverySeventh(Noise):
    """Gaussian noise, of which the draws 0, 7, 14, ... are ambiguous."""

    scheme: ClassVar[str] = "every seventh"

    def fill(self, generator: Generator, out: NDArray[np.float32]) -> None:
        GAUSSIAN.fill(generator, out)

    def signed_radius(self, probability: ArrayLike, *, sigma: float) -> NDArray[np.float64]:
        return GAUSSIAN.signed_radius(probability, sigma=sigma)

    def probability(self, radius: ArrayLike, *, sigma: float) -> NDArray[np.float64]:
        return GAUSSIAN.probability(radius, sigma=sigma)

    def is_ambiguous(self, draw: Any) -> Any:
        """Whether a draw is ambiguous, by its number."""
        return draw % 7 == 0

    def noisy_images(self, image: Any, draws: DrawRange, *, sigma: float, out: Any = None) -> Noisy:
        pixels = super().noisy_images(image, draws, sigma=sigma, out=out).pixels
        numbers = np.arange(draws.first, draws.first + draws.count)
        return Noisy(pixels, np.flatnonzero(self.is_ambiguous(numbers)))


@dataclass(frozen=True)
class AllButSeventh(EverySeventh):
    """Gaussian noise, of which only the draws 0, 7, 14, ... are determined."""

    def is_ambiguous(self, draw: Any) -> Any:
        return draw % 7 != 0


@dataclass(frozen=True)
class AllAmbiguous(EverySeventh):
    """Noise that determines no draw."""

    def is_ambiguous(self, draw: Any) -> Any:
        return draw >= 0


def put_noise(folder: Path) -> str:
    """Make the noise importable for commands that run in a folder; its name for `--noise`."""
    (folder / "sevenths.py").write_text(Path(__file__).read_text())
    return "sevenths:EverySeventh"
