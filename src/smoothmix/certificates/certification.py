"""How images are certified: everything that decides the votes, and the guarantee made from them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Self

from smoothmix.certificates.seeds import DEFAULT_SEED, Seed, require_any_seed
from smoothmix.config import (
    Precision,
    require,
    require_precision,
    require_sigma,
    require_whole,
)
from smoothmix.noise import GAUSSIAN, GridNoise, Noise
from smoothmix.stats.guarantees import FixedDraws, Guarantee


@dataclass(frozen=True, kw_only=True)
class Certification:
    """How images are certified.

    >>> certification = Certification(sigma=0.5, guarantee=FixedDraws(1_000))
    >>> round(certification.largest_radius, 4)
    1.2316
    """

    sigma: float
    """Standard deviation of the noise, in the [0, 1] scale of the pixels."""

    guarantee: Guarantee = field(default_factory=FixedDraws)
    """What each certificate promises, and how many draws an image gets for it."""

    noise: Noise = GAUSSIAN
    """Distribution of the noise."""

    seed: Seed = DEFAULT_SEED
    """Decides all noise, together with the index of the image and the number of the draw."""

    batch: int = 256
    """Draws per forward pass; fixed, so that rounding does not depend on how the work is split."""

    precision: Precision = "fp32"
    """Arithmetic of the network: certify what will be deployed."""

    skip_wrong: bool = False
    """Draw no further for an image whose selected class is wrong: it counts as radius 0."""

    def __post_init__(self) -> None:
        require_sigma(self.sigma)
        require_any_seed(self.seed)
        require_whole("batch", self.batch)
        require(self.batch >= 1, f"batch must be at least 1, got {self.batch}")
        require_precision(self.precision)

    @property
    def largest_radius(self) -> float:
        """The largest radius that the draws can certify."""
        return self.guarantee.largest_radius(self.noise, sigma=self.sigma)

    @property
    def levels(self) -> int | None:
        """Levels of the grid that pixels and noise lie on; None for noise in floats."""
        if isinstance(self.noise, GridNoise):
            return self.noise.levels
        return None

    def require_reach(self, wanted: float = 0.0) -> None:
        """Refuse draws that can never certify the radius `wanted`; for 0, that certify nothing."""
        self.guarantee.require_reach(self.noise, sigma=self.sigma, wanted=wanted)

    def in_whole_batches(self) -> Self:
        """The same, with draws that fill whole batches where the guarantee needs that."""
        return replace(self, guarantee=self.guarantee.in_whole_batches(self.batch))
