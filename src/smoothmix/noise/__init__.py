"""Noise distributions, and random numbers by address. No torch."""

from smoothmix.errors import UsageError
from smoothmix.noise.base import Noise, Noisy
from smoothmix.noise.gaussian import GaussianNoise
from smoothmix.noise.grid import GridNoise
from smoothmix.noise.l1 import LaplaceNoise, UniformNoise
from smoothmix.noise.streams import Domain, DrawRange, fresh_seed, standard_normal, stream
from smoothmix.registry import ClassRegistry

__all__ = [
    "GAUSSIAN",
    "GRID",
    "NOISES",
    "Domain",
    "DrawRange",
    "GaussianNoise",
    "GridNoise",
    "LaplaceNoise",
    "Noise",
    "Noisy",
    "UniformNoise",
    "fresh_seed",
    "make_noise",
    "standard_normal",
    "stream",
]

NOISES: ClassRegistry[Noise] = ClassRegistry(
    "noise",
    Noise,
    group="smoothmix.noises",
    own={
        "gaussian": GaussianNoise,
        "grid": GridNoise,
        "uniform": UniformNoise,
        "laplace": LaplaceNoise,
    },
)
"""Every noise distribution by its name; others by entry point or by `package.module:Class`."""

GAUSSIAN = GaussianNoise()
"""The noise of the field's certificates, added to images as floats."""


GRID = GridNoise()
"""The same noise on the grid of 8-bit images: the default of certificates for these."""


def make_noise(name: str) -> Noise:
    """The noise of a name, with its default settings.

    >>> make_noise("gaussian")
    GaussianNoise()
    """
    try:
        return NOISES[name]()
    except TypeError as error:
        # A class from outside may have fields without a default.
        raise UsageError(
            f"the noise {name} cannot be made from its name alone ({error})"
        ) from error
