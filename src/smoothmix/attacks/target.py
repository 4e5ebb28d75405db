"""One image under attack: the votes at points near it, gradients there, and the judgement.

The search sees search noise only. What is reported is judged on noise that no search has seen, by
the test of `predict`; the tests for one image share its alpha. So a lucky draw cannot make an
example.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, final

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import ndtri
from torch import Tensor, nn

from smoothmix.attacks.l2 import Objective, clamp_pixels, objective_gradient, unit_l2
from smoothmix.certificates.attack_file import CANDIDATE_SCALES, SearchSettings
from smoothmix.inference.copies import copy_sharing_weights
from smoothmix.inference.sampler import Sampler
from smoothmix.networks.noisy import noisy_forward
from smoothmix.noise import Domain, DrawRange, GridNoise
from smoothmix.stats.binomial import ABSTAIN, predicted

FIRST_GRADIENT_DRAW = 2**32
"""Noise of gradients begins here; that of search votes begins at 0, and never comes so far."""

CLEAR = 3.0
"""Standard deviations between a lead in search votes and the one that is wanted, beyond which no
further votes are counted. It decides what the search tries, and nothing that is reported."""

HOPELESS = 2.0
"""A judgement ends without a result where the lead, at so many standard deviations above what is
expected of it, would still not pass. An example is lost by that, but none is ever gained."""

FIRST_LOOK = 10
"""The image itself, whose class is usually clear, is judged after this part of the draws first."""


class Lead(NamedTuple):
    """How the votes at a point stand between the best other class and the rest."""

    value: float
    """(first - second) / sqrt(votes * (first + second)), first being `other`: see
    `SearchSettings.passing_lead`. It is negative where another class leads, and 1 at most."""
    other: int
    """The class with most votes, apart from the one before."""
    votes: int
    """How many were counted."""

    @property
    def deviation(self) -> float:
        """Standard deviation of the value, at most."""
        return 1 / math.sqrt(self.votes)


def lead_of(counts: NDArray[np.int64], before: int) -> Lead:
    """The lead in votes by class, of which the last element counts those for nobody."""
    by_class = counts[:-1].copy()
    at_before = int(by_class[before])
    # So that it is not found as the best of the others.
    by_class[before] = -1
    other = int(by_class.argmax())
    first = int(by_class[other])
    by_class[other] = -1
    # The test compares the first two classes, whichever the second is.
    second = max(at_before, int(by_class.max())) + int(counts[-1])
    votes = int(counts.sum())
    value = (first - second) / math.sqrt(votes * max(first + second, 1))
    return Lead(value=value, other=other, votes=votes)


@final
class ClearLead:
    """Ends the votes at a point once they clearly have the wanted lead, or clearly lack it.

    It keeps the votes that it decided on: batches that other threads have started by then arrive
    later, and a row of attacks does not depend on the number of threads.
    """

    def __init__(self, before: int, wanted: float) -> None:
        self.before = before
        self.wanted = wanted
        self.lead: Lead | None = None
        self._decided = False

    def __call__(self, counts: NDArray[np.int64]) -> bool:
        if not self._decided:
            self.lead = lead_of(counts, self.before)
            self._decided = abs(self.lead.value - self.wanted) > CLEAR * self.lead.deviation
        return self._decided


@final
class Hopeless:
    """Ends a judgement that is not expected to pass; see `HOPELESS`.

    Errors of the test are examples that pass by luck. Stopping early only makes these rarer, so
    that the judgement holds at its alpha however often the votes are checked.
    """

    def __init__(self, before: int, passing: float, draws: int) -> None:
        self.before = before
        self.passing = passing
        self.draws = draws
        self.stopped_after = 0
        """Votes after which it was stopped early; 0 if it was not."""

    def __call__(self, counts: NDArray[np.int64]) -> bool:
        if self.stopped_after:
            return True
        lead = lead_of(counts, self.before)
        remaining = self.draws - lead.votes
        # How far the lead may still move: its error so far and the remaining votes, in one.
        spread = lead.deviation * math.sqrt(remaining / self.draws)
        if remaining > 0 and lead.value + HOPELESS * spread < self.passing:
            self.stopped_after = lead.votes
        return self.stopped_after > 0


@final
@dataclass(kw_only=True)
class Target:
    """One image under attack: points near it, their votes, and gradients there."""

    sampler: Sampler
    image: Tensor
    index: int
    search: SearchSettings
    model: nn.Module
    """The network that gradients go through, from `model_for_gradients`."""
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

    @property
    def farthest(self) -> float:
        """The distance of the farthest image with pixels in [0, 1]."""
        return float(torch.maximum(self.image, 1 - self.image).norm())

    def direction(self, point: Tensor) -> Tensor:
        """The direction, of length 1, in which a point lies from the image."""
        return unit_l2((point - self.image)[None])[0]

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
        direction = self.direction(best)
        length = self.distance(best)
        for scale in CANDIDATE_SCALES:
            if scale == 1:
                yield best
            else:
                yield self.at_distance(direction, scale * length)

    def class_of_image(self) -> tuple[int, NDArray[np.int64]]:
        """The smoothed classifier's class at the image, or ABSTAIN; and the votes that tell it.

        The first look and the last one have a share of alpha each.
        """
        n = self.search.n
        # What is clear after a tenth of the draws would stay so.
        early = n // FIRST_LOOK
        votes = np.zeros(self.sampler.num_classes + 1, dtype=np.int64)
        found = ABSTAIN
        for start, stop in ((0, early), (early, n)):
            if start == stop:
                continue
            self.spent += stop - start
            votes += self._fresh_votes(self.image, start, stop)
            found = self._judged_class(votes)
            if found != ABSTAIN:
                break
        return found, votes

    def judged_class(
        self, point: Tensor, before: int, *, test: int
    ) -> tuple[int, NDArray[np.int64]]:
        """The class at a point by fresh votes, others for every test; ABSTAIN where they are few.

        A point that is not expected to pass as adversarial is stopped early, as ABSTAIN.
        """
        n = self.search.n
        hopeless = Hopeless(before, self.search.passing_lead, n)
        votes = self._fresh_votes(point, test * n, (test + 1) * n, hopeless)
        if hopeless.stopped_after:
            self.spent += hopeless.stopped_after
            return ABSTAIN, votes
        self.spent += n
        return self._judged_class(votes), votes

    def _fresh_votes(
        self, point: Tensor, start: int, stop: int, hopeless: Hopeless | None = None
    ) -> NDArray[np.int64]:
        if hopeless is None:
            return self.sampler.votes(point, self.index, Domain.PREDICTION, start=start, stop=stop)
        return self.sampler.votes(
            point, self.index, Domain.PREDICTION, start=start, stop=stop, on_batch=hopeless
        )

    def _judged_class(self, votes: NDArray[np.int64]) -> int:
        """The smoothed classifier's class by the test of `predict`, or ABSTAIN."""
        alpha = self.search.alpha_per_test
        return int(predicted(votes[:-1], alpha=alpha, nobody=int(votes[-1]))[0])

    def lead(self, point: Tensor, before: int) -> Lead:
        """The lead of the best other class in search votes, of which clear cases need few."""
        decision = ClearLead(before, self.search.wanted_lead)
        self.sampler.votes(
            point,
            self.index,
            Domain.ATTACK,
            stop=self.search.search_draws,
            on_batch=decision,
        )
        assert decision.lead is not None
        self.spent += decision.lead.votes
        return decision.lead

    def depth(self, lead: Lead) -> float:
        """How far behind a plane the other class has this lead: the boundary is nearly one.

        Behind a plane at depth d, the smoothed probability is Phi(d / sigma).
        """
        # All votes for one class would mean an infinite depth.
        most = 1 - 1 / lead.votes
        value = min(max(lead.value, -most), most)
        return self.sampler.sigma * float(ndtri((1 + value) / 2))

    @property
    def wanted_depth(self) -> float:
        """The depth at which the judgement is expected to pass."""
        return self.sampler.sigma * float(ndtri((1 + self.search.wanted_lead) / 2))

    def gradient_noise(self, copies: int) -> Tensor:
        """Fresh noise for gradients, [copies, 1, C, H, W], on the device of the network."""
        draws = self._fresh(copies)
        shape = tuple(self.image.shape)
        noise = self.sampler.noise.sample(draws, shape, sigma=self.sampler.sigma)
        return torch.from_numpy(noise)[:, None].to(self.sampler.device)

    def network_gradient(self, point: Tensor, objective: Objective, *, copies: int) -> Tensor:
        """The direction, through the network and fresh noise, that increases an objective."""
        forward = noisy_forward(self.model, self.gradient_noise(copies))
        x = point[None].to(self.sampler.device)
        self.spent += copies
        gradient, _ = objective_gradient(self.model, forward, x, objective)
        return unit_l2(gradient.cpu())[0]

    def vote_gradient(self, point: Tensor, before: int) -> Tensor:
        """The direction that lowers the probability of a class, from votes alone.

        No gradient of the network can mislead it: the smoothed probability of a class has the
        gradient E[vote * noise] / sigma^2 (Stein).
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

    def likely_classes(self, before: int, count: int) -> list[int]:
        """The classes that noisy copies of the image are nearest to, apart from the one before."""
        forward = noisy_forward(self.model, self.gradient_noise(self.search.copies))
        with torch.inference_mode():
            logits = forward(self.image[None].to(self.sampler.device))
        self.spent += self.search.copies
        scores = logits[:, 0].log_softmax(-1).mean(0)
        # Not a class to go to.
        scores[before] = -math.inf
        return [int(number) for number in scores.topk(min(count, len(scores) - 1)).indices]

    def _fresh(self, count: int) -> DrawRange:
        first = FIRST_GRADIENT_DRAW + self._gradients
        self._gradients += count
        return DrawRange(self.sampler.seed, Domain.ATTACK, self.index, first, count)


def model_for_gradients(sampler: Sampler) -> nn.Module:
    """A copy of the network whose gradients are faster on a CPU; itself where it has no copy."""
    if sampler.device.type != "cpu":
        return sampler.model
    copied = copy_sharing_weights(sampler.model)
    if copied is None:
        return sampler.model
    # Convolutions with channels last take two thirds of the time. The owner's network is not
    # touched: the copy gets convolution weights of its own.
    return copied.to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]
