"""Smoothed classifiers: certify or classify a batch with anyone's network."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import final

import numpy as np
import torch
from torch import Tensor, nn

from smoothmix.certificates import Certificate, dense
from smoothmix.certify.loop import certified_rows
from smoothmix.config import Certification, Engine, Precision, require, require_whole
from smoothmix.errors import UsageError
from smoothmix.inference.guards import check_images, doubts
from smoothmix.inference.sampler import Sampler
from smoothmix.noise import addresses as randomness
from smoothmix.noise.addresses import Domain
from smoothmix.stats.anytime import Stopping, largest_radius
from smoothmix.stats.binomial import predicted, require_enough_draws, require_enough_to_predict


@final
@dataclass(frozen=True, kw_only=True)
class Certified:
    """The certificates of a batch, a row an image."""

    label: Tensor
    """The certified class, or -1 where the classifier abstains."""
    radius: Tensor
    """L2 distance within which the smoothed classifier's answer cannot change; 0 where it abstains."""
    p_lower: Tensor
    """Lower confidence bound on the probability of the selected class."""
    counts: Tensor
    """Estimation votes by class."""
    selected: Tensor
    """The class that the selection draws chose."""
    selection_counts: Tensor
    """Selection votes by class."""
    seed: int
    """The seed that gives the same votes again."""


@final
@dataclass(frozen=True)
class Smoothed:
    """A classifier smoothed by Gaussian noise: what the base network says most often round an image.

    The network maps float32 images in [0, 1] to logits and normalises inside. It is not touched itself: copies that
    share its weights run in eval mode on the device these are on, one on each thread of a processor.
    """

    model: nn.Module
    """The base network."""
    _: KW_ONLY
    sigma: float
    """Deviation of the noise, in the [0, 1] scale of the pixels."""
    num_classes: int
    """Classes the network tells apart."""
    block: int = 256
    """Draws in one forward."""
    precision: Precision = "fp32"
    """Arithmetic of the network."""
    engine: Engine = "auto"
    """`auto` may fuse layers where that gives the same logits; `eager` runs the network as it is written."""
    any_range: bool = False
    """Accept inputs outside [0, 1]; sigma and the radius are then in their scale."""

    def __post_init__(self) -> None:
        self.sampler(seed=0)  # refuses what cannot be used while the caller is still looking

    def sampler(self, *, seed: int) -> Sampler:
        """What counts this classifier's votes with the noise of one seed."""
        return Sampler(
            model=self.model,
            sigma=self.sigma,
            num_classes=self.num_classes,
            seed=seed,
            block=self.block,
            precision=self.precision,
            engine=self.engine,
        )

    def certify(
        self,
        images: Tensor,
        *,
        n0: int = 100,
        n: int | None = None,
        alpha: float = 0.001,
        seed: int | None = None,
        index: Sequence[int] | None = None,
        stopping: Stopping | None = None,
    ) -> Certified:
        """Class and certified L2 radius of each image of a batch; each is wrong with chance at most alpha.

        Each image gets n draws, 100,000 by default. With `stopping`, such as `Stopping(radii=(0.5,))`, each gets only
        those it needs and at most `stopping.max_draws`, under the anytime bound; n has no say then.

        Noise comes from the operating system's entropy unless a seed is given. `index` numbers the images for the
        noise (0, 1, ... by default): an image gets the same votes in any batch under the same seed and number. Give
        each batch of a larger set numbers (or a seed) of its own, or their certificates err together.
        """
        require(
            n is None or stopping is None or n == stopping.max_draws,
            f"with stopping, an image gets at most max_draws, which is {stopping.max_draws if stopping else 0:,} "
            f"there: leave out n={n}",
        )
        most = stopping.max_draws if stopping else Certification.n if n is None else n
        how = Certification(
            sigma=self.sigma, n0=n0, n=most, alpha=alpha, seed=seed_or_fresh(seed), batch=self.block
        )
        require_reach(how, stopping)
        self._look_at(images)
        numbered = list(zip(_numbers(index, images), images, strict=True))
        with self.sampler(seed=how.seed) as sampler:
            rows = list(
                certified_rows(
                    sampler, iter([(i, 0, image) for i, image in numbered]), how, stopping
                )
            )
        return _batch(rows, self.num_classes, how.seed)

    def predict(
        self,
        images: Tensor,
        *,
        n: int = 1_000,
        alpha: float = 0.001,
        seed: int | None = None,
        index: Sequence[int] | None = None,
    ) -> Tensor:
        """The smoothed classifier's class for each image, or -1 where n draws cannot tell the top two apart."""
        require_whole("n", n)
        require_enough_to_predict(n, alpha=alpha)
        return torch.from_numpy(
            predicted(self.votes(images, n=n, seed=seed, index=index), alpha=alpha)
        )

    def votes(
        self, images: Tensor, *, n: int, seed: int | None = None, index: Sequence[int] | None = None
    ) -> Tensor:
        """Votes by class of n draws for each image of a batch."""
        require_whole("n", n)
        require(n >= 1, f"n must be at least 1, got {n}")
        self._look_at(images)
        with self.sampler(seed=seed_or_fresh(seed)) as sampler:
            votes = [
                sampler.votes(image, number, Domain.PREDICTION, n)
                for number, image in zip(_numbers(index, images), images, strict=True)
            ]
        return torch.from_numpy(np.stack(votes))

    def _look_at(self, images: Tensor) -> None:
        check_images(images, any_range=self.any_range)
        for doubt in doubts(self.sigma, images):
            warnings.warn(doubt, stacklevel=3)


def require_reach(how: Certification, stopping: Stopping | None) -> None:
    """Refuse draws that could never certify anything, by the bound that is to be used."""
    require_enough_draws(how.n, alpha=how.alpha, sigma=how.sigma)
    if stopping:
        reach = largest_radius(how.n, n0=how.n0, alpha=how.alpha, sigma=how.sigma)
        require(reach > 0, f"{how.n:,} draws can never certify anything in mode anytime")


def seed_or_fresh(seed: int | None) -> int:
    """The seed given, or one that nobody could have prepared an input for."""
    return randomness.fresh_seed() if seed is None else seed


def _numbers(index: Sequence[int] | None, images: Tensor) -> Sequence[int]:
    try:
        numbers = range(len(images)) if index is None else [operator.index(i) for i in index]
    except TypeError:
        raise UsageError(f"index must hold whole numbers, got {index!r}") from None
    require(
        len(numbers) == len(images),
        f"index numbers {len(numbers)} images, but there are {len(images)}",
    )
    require(all(0 <= i < 2**64 for i in numbers), "index must be zero or more, and less than 2**64")
    return numbers


def _batch(rows: Sequence[Certificate], num_classes: int, seed: int) -> Certified:
    return Certified(
        label=torch.tensor([row.predict for row in rows]),
        radius=torch.tensor([row.radius for row in rows], dtype=torch.float64),
        p_lower=torch.tensor([row.p_lower for row in rows], dtype=torch.float64),
        counts=torch.from_numpy(np.stack([dense(row.counts, num_classes) for row in rows])),
        selected=torch.tensor([row.selected for row in rows]),
        selection_counts=torch.from_numpy(
            np.stack([dense(row.selection_counts, num_classes) for row in rows])
        ),
        seed=seed,
    )
