"""One image under one smoothed classifier: its votes near the image, and its adversarial examples.

No torch at import.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from smoothmix.config import require, require_seed
from smoothmix.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor

    from smoothmix.attacks.l2 import Constraint
    from smoothmix.certify.smoothed import Smoothed
    from smoothmix.data import Dataset
    from smoothmix.inference.sampler import Sampler


@dataclass(frozen=True, kw_only=True)
class VoteSettings:
    """How many votes are counted, under which noise."""

    n: int = 1000
    """Votes for each point that is classified. All points of one image see the same noise, so that
    their votes differ by the points alone."""
    seed: int = 0
    """Decides the noise of votes and attacks, which are independent of one another."""

    def __post_init__(self) -> None:
        require(self.n >= 1, f"n must be at least 1, got {self.n}")
        require_seed(self.seed)


@dataclass(frozen=True, kw_only=True)
class SmoothedAttack:
    """PGD on the smoothed classifier by normalised gradients, eq. (adv_step); pixels in [0, 1]."""

    steps: int = 20
    epsilon: float | None = None
    """Largest L2 distance from the image; None for no limit."""
    step_size: float | None = None
    """L2 length of a step; by default 2 epsilon / steps, as in SmoothAdv."""
    copies: int = 16
    """Noise samples that smooth the classifier under attack, the same in all steps. With few, the
    attack overfits them and becomes weak."""

    def __post_init__(self) -> None:
        require(self.steps >= 1, f"the attack needs at least 1 step, got {self.steps}")
        require(self.copies >= 1, f"the attack needs at least 1 noise sample, got {self.copies}")
        if self.epsilon is None and self.step_size is None:
            raise UsageError("an attack without a largest distance needs a step size")
        if self.epsilon is not None:
            possible = 0 <= self.epsilon < math.inf
            require(possible, f"eps must be a number of zero or more, got {self.epsilon:g}")
        if self.step_size is not None:
            possible = 0 < self.step_size < math.inf
            require(possible, f"the step size must be a positive number, got {self.step_size:g}")

    @property
    def length(self) -> float:
        """L2 length of one step."""
        if self.step_size is not None:
            return self.step_size
        assert self.epsilon is not None, "checked when the attack was made"
        return 2 * self.epsilon / self.steps

    def describe(self, limit: str = "") -> str:
        """The attack in a few words, with `limit` instead of its own limit if given."""
        if not limit and self.epsilon is None:
            limit = f"steps of L2 length {self.length:g}"
        elif not limit:
            limit = f"within L2 distance {self.epsilon:g}"
        steps = f"{self.steps}-step PGD on the smoothed classifier"
        return f"{steps} with {self.copies} noise samples, {limit}"


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """One image under one smoothed classifier."""

    smoothed: Smoothed
    image: Tensor
    index: int
    """Position of the image in the data set, which addresses its noise."""
    label: int
    votes_wanted: VoteSettings
    sampler: Sampler

    def votes(self, point: Tensor) -> NDArray[np.int64]:
        """Votes by class at a point near the image; those of ambiguous draws go to the rival."""
        from smoothmix.noise.streams import Domain

        votes = self.sampler.votes(point, self.index, Domain.STUDY, stop=self.votes_wanted.n)
        by_class = votes[:-1]
        # The last element is for nobody. Counted against the label, it makes no study too kind.
        by_class[strongest_other_class(by_class, self.label)] += votes[-1]
        return by_class

    def adversarial(self, attack: SmoothedAttack) -> Tensor:
        """The adversarial example that the attack ends in.

        The image is attacked alone, so that the result does not depend on other images.
        """
        import torch

        from smoothmix.attacks import (
            ball,
            clamp_pixels,
            l2_ascent,
            smoothed_cross_entropy,
            unit_l2,
        )
        from smoothmix.noise.streams import Domain, DrawRange

        if attack.epsilon == 0:
            return self.image
        seed = self.votes_wanted.seed
        draws = DrawRange(seed, Domain.ATTACK, self.index, 0, attack.copies)
        shape = tuple(self.image.shape)
        samples = self.smoothed.distribution.sample(draws, shape, sigma=self.smoothed.sigma)
        # One image in the batch: [samples, 1, ...].
        noise = torch.from_numpy(samples)[:, None]
        device = self.sampler.device
        x = self.image[None].to(device)
        # Pixels are clamped last: that moves every point towards x, so that it stays in the ball.
        constraints: list[Constraint] = [clamp_pixels]
        if attack.epsilon is not None:
            constraints.insert(0, ball(x, attack.epsilon))
        *_, last = l2_ascent(
            self.smoothed.model,
            x,
            noise.to(device),
            objective=smoothed_cross_entropy(torch.tensor([self.label], device=device)),
            steps=attack.steps,
            step_size=attack.length,
            constraints=constraints,
            # Steps of full length: a very confident network has tiny gradients, and damped steps
            # would make it seem robust.
            direction=unit_l2,
        )
        return last[0].to(self.image.device)


@contextmanager
def open_cases(
    smoothed: Smoothed, dataset: Dataset, votes: VoteSettings
) -> Iterator[Callable[[int], Case]]:
    """A function from the position of an image to its case, while the classifier is open."""
    from smoothmix.inference.guards import check_images

    with smoothed.open(dataset.shape, seed=votes.seed) as sampler:

        def case(index: int) -> Case:
            (image,) = dataset.images([index])
            # A pixel outside of [0, 1] would be clamped, which moves points away from the image.
            check_images(image[None])
            return Case(
                smoothed=smoothed,
                image=image,
                index=index,
                label=int(dataset.labels[index]),
                votes_wanted=votes,
                sampler=sampler,
            )

        yield case


def distance(one: Tensor, other: Tensor) -> float:
    """L2 distance of two images."""
    return float((one - other).norm())


def strongest_other_class(votes: NDArray[np.int64], label: int) -> int:
    """The class other than the label with most votes."""
    others = votes.copy()
    others[label] = -1
    return int(others.argmax())


def label_lost(votes: NDArray[np.int64], label: int) -> bool:
    """Whether another class has as many votes as the label or more."""
    return bool(votes[strongest_other_class(votes, label)] >= votes[label])
