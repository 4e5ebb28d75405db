"""How images are certified: everything that decides the votes, and the guarantee made from them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Self

from smoothmix.certificates.seeds import DEFAULT_SEED, Seed, require_any_seed
from smoothmix.config import (
    Precision,
    plain_numbers,
    require,
    require_precision,
    require_sigma,
    require_whole,
)
from smoothmix.noise import GAUSSIAN, GridNoise, Noise
from smoothmix.stats.allocation import Budget
from smoothmix.stats.guarantees import Anytime, FixedDraws, Guarantee


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

    budget: Budget | None = None
    """What all images together may get, in turns by expected gain; None draws for each image until
    it has enough. It needs the guarantee `Anytime`."""

    def __post_init__(self) -> None:
        plain_numbers(self)
        require_sigma(self.sigma)
        require_any_seed(self.seed)
        require_whole("batch", self.batch)
        require(self.batch >= 1, f"batch must be at least 1, got {self.batch}")
        require_precision(self.precision)
        if self.budget is not None:
            self._require_budget(self.budget)

    def _require_budget(self, budget: Budget) -> None:
        require(
            isinstance(self.guarantee, Anytime),
            "a budget needs mode anytime: it gives images draws by their votes so far, and in mode "
            f"{self.guarantee.mode} the number of draws must not depend on the votes",
        )
        radii = self.guarantee.radii
        require(
            bool(radii) or budget.goal != "accuracy",
            "a budget for certified accuracy needs the radii at which to certify: give radii, or "
            "the goal acr",
        )
        require(
            not radii or budget.goal != "acr",
            "a budget for the goal acr takes no radii: images would stop once these are decided, "
            "however much their radii could still grow",
        )

    def require_budget_for(self, images: int) -> None:
        """Refuse a budget that is less than the selection draws of so many images."""
        if self.budget is None or self.budget.draws is None:
            return
        least = self.guarantee.n0 * images
        require(
            self.budget.draws >= least,
            f"a budget of {self.budget.draws:,} draws is less than the {least:,} selection draws "
            f"of {images:,} images (n0={self.guarantee.n0}), and every image needs its own: give a "
            "larger budget, or fewer images",
        )

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
