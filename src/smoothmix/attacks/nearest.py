"""The nearest adversarial example of the smoothed classifier that we can find for one image.

Four searches feed one another: PGD within radii that are doubled and then bisected, DDN, a walk
that needs decisions only, and steps along the boundary that shrink the distance. All of them see
search noise. What is reported is judged afterwards on noise that no search has seen, by the test
of `predict`; the tests for one image share its alpha. So a lucky draw cannot make an example.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from smoothmix.attacks.ddn import ddn
from smoothmix.attacks.l2 import (
    Objective,
    clamp_pixels,
    objective_gradient,
    pgd,
    smoothed_cross_entropy,
    unit_l2,
)
from smoothmix.certificates.attack_file import (
    CANDIDATE_SCALES,
    Attack,
    SearchSettings,
    round_up,
)
from smoothmix.certificates.row import sparse
from smoothmix.inference.sampler import Sampler
from smoothmix.networks.noisy import noisy_forward
from smoothmix.noise import Domain, DrawRange, GridNoise
from smoothmix.stats.binomial import ABSTAIN, predicted

FIRST_GRADIENT_DRAW = 2**32
"""Noise of gradients begins here; that of search votes begins at 0, and never comes so far."""

BISECTIONS = 7
"""Halvings of the distance between an image and an adversarial example."""

SHRINK = 0.995
"""A step along the boundary must reach this share of the distance so far."""

FIRST_TURN = 0.5
LEAST_TURN = 0.02
"""How far a step along the boundary turns towards the gradient; halved where that fails."""

WALK_STEPS = 24
"""Steps of the walk that needs decisions only, each of length sigma / 2."""


def nearest_attack(
    sampler: Sampler, image: Tensor, index: int, label: int, search: SearchSettings
) -> Attack:
    """The row of one image [C, H, W]: its class, and the nearest example of another class."""
    start = time.perf_counter()
    target = Target(sampler=sampler, image=image, index=index, search=search)
    # Test 0 is for the image; candidates have the tests, and so the draws, after it.
    votes = target.judgement(image, test=0)
    before = target.judged_class(votes)
    adversarial = None
    best = None
    # Without a class before there is none that could change.
    if before != ABSTAIN:
        best = Nearest(target=target, before=before).found()
    if best is not None:
        for test, point in enumerate(target.candidates(best), start=1):
            seen = target.judgement(point, test=test)
            other = target.judged_class(seen)
            # The nearest candidate that passes is the find; the rest lie farther away.
            if other not in (ABSTAIN, before):
                adversarial = other
                votes = seen
                best = point
                break
    distance = None
    squared = None
    if adversarial is not None and best is not None:
        distance = round_up(target.distance(best))
        squared = target.squared(best)
    return Attack(
        idx=index,
        label=label,
        before=before,
        adversarial=adversarial,
        distance=distance,
        squared=squared,
        votes=sparse(votes[:-1], nobody=int(votes[-1])),
        draws=target.spent,
        seconds=time.perf_counter() - start,
    )


@final
@dataclass(kw_only=True)
class Target:
    """One image under attack: points near it, their votes, and gradients there."""

    sampler: Sampler
    image: Tensor
    index: int
    search: SearchSettings
    spent: int = 0
    """Noise samples so far."""
    _gradients: int = field(default=0, repr=False)
    """Noise samples of gradients so far: each gradient gets fresh ones."""

    @property
    def levels(self) -> int | None:
        """Levels of the grid that points must lie on; None where any image will do."""
        noise = self.sampler.noise
        if isinstance(noise, GridNoise):
            return noise.levels
        return None

    def allowed(self, point: Tensor) -> Tensor:
        """The nearest image to a point: pixels in [0, 1], and on the grid where there is one."""
        point = clamp_pixels(point.detach().to("cpu", torch.float32))
        if self.levels is None:
            return point
        return (point * self.levels).round() / self.levels

    def squared(self, point: Tensor) -> int | None:
        """The sum of squared differences of pixels as integers; None without a grid."""
        noise = self.sampler.noise
        if not isinstance(noise, GridNoise):
            return None
        here = noise.levels_of(point.numpy()).astype(np.int64)
        image = noise.levels_of(self.image.numpy()).astype(np.int64)
        return int(np.square(here - image).sum())

    def distance(self, point: Tensor) -> float:
        """L2 distance of an allowed point from the image."""
        squared = self.squared(point)
        if squared is not None:
            assert self.levels is not None
            return math.sqrt(squared) / self.levels
        # In double precision: a distance that float32 rounds down would claim too much.
        return float((point.double() - self.image.double()).norm())

    def at_distance(self, direction: Tensor, length: float) -> Tensor:
        """The allowed point in a direction at about this distance."""
        scale = length
        point = self.image
        # Clamping shortens the offset, so that it takes a few attempts.
        for _ in range(4):
            point = clamp_pixels(self.image + scale * direction)
            reached = float((point - self.image).norm())
            if reached <= 0 or reached >= 0.999 * length:
                break
            scale *= length / reached
        return self.allowed(point)

    def candidates(self, best: Tensor) -> Iterator[Tensor]:
        """Points to judge, the nearest first: the best one, a little nearer, and farther away."""
        direction = unit_l2((best - self.image)[None])[0]
        length = self.distance(best)
        for scale in CANDIDATE_SCALES:
            if scale == 1:
                yield best
            else:
                yield self.at_distance(direction, scale * length)

    def judgement(self, point: Tensor, *, test: int) -> NDArray[np.int64]:
        """Votes of fresh draws, others for every test."""
        n = self.search.n
        self.spent += n
        return self.sampler.votes(
            point, self.index, Domain.PREDICTION, start=test * n, stop=(test + 1) * n
        )

    def judged_class(self, votes: NDArray[np.int64]) -> int:
        """The smoothed classifier's class by the test of `predict`, or ABSTAIN."""
        alpha = self.search.alpha_per_test
        return int(predicted(votes[:-1], alpha=alpha, nobody=int(votes[-1]))[0])

    def is_adversarial(self, point: Tensor, before: int) -> bool:
        """Whether search votes let expect that another class will pass the test here."""
        draws = self.search.search_draws
        self.spent += draws
        votes = self.sampler.votes(point, self.index, Domain.ATTACK, stop=draws)
        by_class = votes[:-1]
        first = int(by_class.argmax())
        if first == before:
            return False
        # The test compares the first two classes, whichever the second is.
        second = int(np.delete(by_class, first).max()) + int(votes[-1])
        return int(by_class[first]) - second >= self.search.lead * draws

    def gradient_noise(self) -> Tensor:
        """Fresh noise for gradients, [copies, 1, C, H, W], on the device of the network."""
        draws = self._fresh(self.search.copies)
        shape = tuple(self.image.shape)
        noise = self.sampler.noise.sample(draws, shape, sigma=self.sampler.sigma)
        return torch.from_numpy(noise)[:, None].to(self.sampler.device)

    def network_gradient(self, point: Tensor, before: int) -> Tensor:
        """The direction, through the network, that lowers the probability of a class."""
        forward = noisy_forward(self.sampler.model, self.gradient_noise())
        x = point[None].to(self.sampler.device)
        objective = smoothed_cross_entropy(torch.tensor([before], device=x.device))
        self.spent += self.search.copies
        gradient, _ = objective_gradient(self.sampler.model, forward, x, objective)
        return unit_l2(gradient.cpu())[0]

    def vote_gradient(self, point: Tensor, before: int) -> Tensor:
        """The same direction from votes alone, so that no gradient of the network can mislead.

        The smoothed probability of a class has the gradient E[vote * noise] / sigma^2 (Stein).
        """
        total = torch.zeros_like(point)
        draws = self._fresh(self.search.search_draws)
        self.spent += draws.count
        size = self.sampler.batch
        noises = []
        # In pieces of one batch, as votes are counted: large images need the memory.
        for first in range(draws.first, draws.first + draws.count, size):
            count = min(size, draws.first + draws.count - first)
            piece = DrawRange(draws.seed, draws.domain, draws.item, first, count)
            noisy = self.sampler.noise.noisy_images(point.numpy(), piece, sigma=self.sampler.sigma)
            pixels = torch.from_numpy(noisy.pixels)
            kept = (self.sampler.network(pixels).argmax(1).cpu() == before).float()
            noises.append((kept, pixels))
        mean = torch.cat([kept for kept, _ in noises]).mean()
        for kept, pixels in noises:
            # Around the mean vote: the same expectation with less variance.
            total += torch.einsum("n,n...->...", mean - kept, pixels - point)
        return unit_l2(total[None])[0]

    def _fresh(self, count: int) -> DrawRange:
        first = FIRST_GRADIENT_DRAW + self._gradients
        self._gradients += count
        return DrawRange(self.sampler.seed, Domain.ATTACK, self.index, first, count)


@final
@dataclass(kw_only=True)
class Nearest:
    """The search for the nearest point whose class is not the one before."""

    target: Target
    before: int
    best: Tensor | None = None
    length: float = math.inf
    """Distance of the best point."""

    def found(self) -> Tensor | None:
        """The nearest adversarial point of all searches; None if there is none."""
        # From cheap to fine: each search starts from the best distance of those before it.
        self.pgd_radii()
        self.ddn()
        if self.best is None:
            self.walk()
        self.follow_boundary()
        return self.best

    def offer(self, point: Tensor) -> bool:
        """Whether a point is adversarial and nearer than the best; it then becomes the best."""
        length = self.target.distance(point)
        # Votes are expensive, and a point farther away is not wanted; 0 is the image itself.
        if not 0 < length < self.length:
            return False
        if not self.target.is_adversarial(point, self.before):
            return False
        self.best = point
        self.length = length
        return True

    def offer_and_shrink(self, point: Tensor, *, low: float = 0.0) -> bool:
        """The same, followed by bisection between the image and the point."""
        if not self.offer(point):
            return False
        direction = unit_l2((point - self.target.image)[None])[0]
        high = self.length
        # The boundary may be crossed several times: bisection finds one crossing.
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            if self.offer(self.target.at_distance(direction, middle)):
                high = middle
            else:
                low = middle
        return True

    def pgd_radii(self) -> None:
        """PGD within radii that double until it succeeds, and are bisected from then on."""
        sampler = self.target.sampler
        search = self.target.search
        x = self.target.image[None].to(sampler.device)
        farthest = float(torch.maximum(x, 1 - x).norm())
        low = 0.0
        radius = min(sampler.sigma, farthest)
        for _ in range(search.radii):
            found = pgd(
                sampler.model,
                x,
                self.target.gradient_noise(),
                objective=self._objective(),
                radius=radius,
                steps=search.steps,
                direction=unit_l2,
            )
            self.target.spent += search.steps * search.copies
            if not self.offer_and_shrink(self.target.allowed(found[0])):
                low = radius
            # Between the largest radius that failed and the best distance.
            if self.best is not None:
                radius = (min(low, self.length) + self.length) / 2
                continue
            # All images lie within this radius.
            if radius == farthest:
                break
            radius = min(2 * radius, farthest)

    def ddn(self) -> None:
        """DDN from the best distance so far."""
        sampler = self.target.sampler
        search = self.target.search
        x = self.target.image[None].to(sampler.device)
        found = ddn(
            sampler.model,
            x,
            torch.tensor([self.before], device=sampler.device),
            self.target.gradient_noise(),
            objective=self._objective(),
            steps=search.steps,
            radius=min(self.length, 2 * sampler.sigma),
        )
        self.target.spent += search.steps * search.copies
        self.offer_and_shrink(self.target.allowed(found[0]))

    def walk(self) -> None:
        """A walk against the votes for the class: it needs decisions only."""
        point = self.target.image
        for _ in range(WALK_STEPS):
            direction = self.target.vote_gradient(point, self.before)
            point = self.target.allowed(point + self.target.sampler.sigma / 2 * direction)
            if self.offer_and_shrink(point):
                return

    def follow_boundary(self) -> None:
        """Turn the best offset towards the gradient at its end, as long as that shrinks it.

        Where the boundary is flat, its nearest point lies in the direction of its gradient.
        Gradients through the network and gradients of votes take turns.
        """
        kinds = (self.target.network_gradient, self.target.vote_gradient)
        turns = [FIRST_TURN, FIRST_TURN]
        for number in range(self.target.search.rounds):
            kind = number % 2
            if self.best is None or max(turns) < LEAST_TURN:
                return
            # This kind of gradient no longer helps; the other one may.
            if turns[kind] < LEAST_TURN:
                continue
            gradient = self._inwards(kinds[kind](self.best, self.before))
            offset = unit_l2((self.best - self.target.image)[None])[0]
            direction = torch.lerp(offset, gradient, turns[kind])
            direction = unit_l2(direction[None])[0]
            nearer = self.target.at_distance(direction, SHRINK * self.length)
            if not self.offer_and_shrink(nearer, low=0.8 * self.length):
                turns[kind] /= 2

    def _inwards(self, gradient: Tensor) -> Tensor:
        """The gradient without what would leave [0, 1] at once: black stays black."""
        image = self.target.image
        leaves = ((image <= 0) & (gradient < 0)) | ((image >= 1) & (gradient > 0))
        return unit_l2(gradient.masked_fill(leaves, 0)[None])[0]

    def _objective(self) -> Objective:
        device = self.target.sampler.device
        return smoothed_cross_entropy(torch.tensor([self.before], device=device))
