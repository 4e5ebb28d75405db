"""The nearest adversarial example of the smoothed classifier that we can find for one image.

Searches feed one another: PGD within growing radii, DDN, a walk that needs decisions only, and
ascents at a fixed distance, towards several classes and through gradients of the network or of
votes. Whatever is adversarial is pulled towards the image along its own direction.

Forward passes are spent where they decide something: gradients need few noise samples, so that many
steps are made between two counts of votes; and clear votes are counted briefly. `target.py` has the
image, its votes and the judgement.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from smoothmix.attacks.ddn import ddn
from smoothmix.attacks.l2 import Objective, pgd, smoothed_cross_entropy, unit_l2
from smoothmix.attacks.target import Lead, Target, model_for_gradients
from smoothmix.certificates.attack_file import Attack, SearchSettings, round_up
from smoothmix.certificates.row import sparse
from smoothmix.inference.sampler import Sampler
from smoothmix.stats.binomial import ABSTAIN

PULLS = 4
"""Most counts of votes by which an adversarial example is pulled towards the image."""

CLOSE = 0.01
"""An example is near enough to where its class just passes, in units of sigma."""

SHRINK = 0.995
"""The next example must lie at this share of the distance so far."""

FIRST_TURN = 0.5
LEAST_TURN = 0.02
"""How far a step at fixed distance turns towards the gradient."""

FALL = 4
"""By what the turn is divided where it fails."""

LAST_SHARE = 0.1
"""Within one ascent turns fall to this share, so that its last steps average over the noise."""

STEPS_THAT_AVERAGE = 4
"""Steps of an ascent that share the noise samples of one gradient."""

WORTH_IT = 0.998
"""A round that leaves more than this share of the distance has not helped."""

OTHER_CLASSES = 9
"""How many classes get an ascent of their own."""

COMES_CLOSE = 0.15
"""A class whose boundary seems to be this much farther away, as a share, gets a second ascent."""

WALK_STEPS = 24
"""Steps of the walk that needs decisions only, each of length sigma / 2."""


def nearest_attack(
    sampler: Sampler,
    image: Tensor,
    index: int,
    label: int,
    search: SearchSettings,
    *,
    model: nn.Module | None = None,
) -> Attack:
    """The row of one image [C, H, W]: its class, and the nearest example of another class.

    `model` is what `model_for_gradients` returns, for callers that attack many images.
    """
    start = time.perf_counter()
    target = Target(
        sampler=sampler,
        image=image,
        index=index,
        search=search,
        model=model or model_for_gradients(sampler),
    )
    before, votes = target.class_of_image()
    adversarial = None
    best = None
    # Without a class before there is none that could change.
    if before != ABSTAIN:
        best = Nearest(target=target, before=before).found()
    if best is not None:
        # Test 0 was for the image; candidates have the draws after it.
        for test, point in enumerate(target.candidates(best), start=1):
            other, seen = target.judged_class(point, before, test=test)
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


def margin(before: int, other: int) -> Objective:
    """The objective log p_other - log p_before of the smoothed probabilities p."""

    def objective(logits: Tensor) -> Tensor:
        smoothed = logits.log_softmax(-1).logsumexp(0)
        return smoothed[:, other] - smoothed[:, before]

    return objective


@final
@dataclass(kw_only=True)
class Nearest:
    """The search for the nearest point whose class is not the one before."""

    target: Target
    before: int
    best: Tensor | None = None
    length: float = math.inf
    """Distance of the best point."""
    other: int = -1
    """Class of the best point."""

    def found(self) -> Tensor | None:
        """The nearest adversarial point of all searches; None if there is none."""
        # From coarse to fine: each search starts from the best distance of those before it.
        self.pgd_until_found()
        if self.best is None:
            self.walk()
        if self.best is None:
            return None
        self.ddn()
        self.other_classes()
        self.follow_boundary()
        return self.best

    def offer(self, point: Tensor) -> Lead | None:
        """The lead at a point that is nearer than the best, and becomes it if adversarial."""
        length = self.target.distance(point)
        # Votes are expensive, and a point farther away is not wanted; 0 is the image itself.
        if not 0 < length < self.length:
            return None
        lead = self.target.lead(point, self.before)
        if self.passes(lead):
            self.best = point
            self.length = length
            self.other = lead.other
        return lead

    def passes(self, lead: Lead) -> bool:
        """Whether a lead in search votes lets expect that another class passes the test."""
        return lead.value >= self.target.search.wanted_lead

    def offer_and_pull(self, point: Tensor) -> Lead | None:
        """The same, followed by pulling an adversarial point towards the image."""
        lead = self.offer(point)
        if lead is not None and self.passes(lead):
            self._pull(point, lead)
        return lead

    def _pull(self, point: Tensor, lead: Lead) -> None:
        """Shrink the offset of the best point to where its lead just passes, by false position.

        The depth behind the boundary is nearly linear along the way, unlike the votes. The
        boundary may be crossed several times: this finds one crossing.
        """
        direction = self.target.direction(point)
        close = CLOSE * self.target.sampler.sigma
        aim = self.target.wanted_depth + close / 2
        depth = self.target.depth(lead)
        # Per unit of length, at most one unit of depth is lost behind a plane.
        slope = 1.0
        failed: tuple[float, float] | None = None
        for _ in range(PULLS):
            if depth - self.target.wanted_depth <= close:
                return
            length = self.length - (depth - aim) / slope
            if failed is not None:
                low, low_depth = failed
                share = (aim - low_depth) / (depth - low_depth)
                length = low + share * (self.length - low)
            previous = self.length
            nearer = self.target.at_distance(direction, max(length, 0.1 * previous))
            seen = self.offer(nearer)
            if seen is None:
                return
            # Too near: what lies between the two is tried next.
            if not self.passes(seen):
                failed = (self.target.distance(nearer), self.target.depth(seen))
                continue
            lost = depth - self.target.depth(seen)
            # Steeper than a plane it cannot be, but for noise.
            slope = min(max(lost / (previous - self.length), 0.25), 1.0)
            depth = self.target.depth(seen)

    def pgd_until_found(self) -> None:
        """PGD within radii that grow until it succeeds."""
        farthest = self.target.farthest
        # Most boundaries lie within a few sigmas: smaller radii would rarely succeed.
        radius = min(2 * self.target.sampler.sigma, farthest)
        for _ in range(self.target.search.radii):
            lead = self._pgd(radius)
            if self.best is not None or radius >= farthest:
                return
            # What the lead lets expect to be missing; more where nearly all votes were against.
            missing = math.inf
            if lead is not None:
                missing = self.target.wanted_depth - self.target.depth(lead)
            radius = min(radius + max(1.1 * missing, 0.1 * radius), 3 * radius, farthest)

    def _pgd(self, radius: float) -> Lead | None:
        sampler = self.target.sampler
        search = self.target.search
        found = pgd(
            self.target.model,
            self.target.image[None].to(sampler.device),
            self.target.gradient_noise(search.copies),
            objective=self._objective(),
            radius=radius,
            steps=search.steps,
            direction=unit_l2,
        )
        self.target.spent += search.steps * search.copies
        return self.offer_and_pull(self.target.allowed(found[0]))

    def ddn(self) -> None:
        """DDN from the best distance so far."""
        sampler = self.target.sampler
        search = self.target.search
        found = ddn(
            self.target.model,
            self.target.image[None].to(sampler.device),
            torch.tensor([self.before], device=sampler.device),
            self.target.gradient_noise(search.copies),
            objective=self._objective(),
            steps=search.steps,
            radius=self.length,
        )
        self.target.spent += search.steps * search.copies
        self.offer_and_pull(self.target.allowed(found[0]))

    def walk(self) -> None:
        """A walk against the votes for the class: it needs decisions only."""
        point = self.target.image
        for _ in range(WALK_STEPS):
            # Where nearly all votes agree, this is mostly noise: a step of a random walk.
            direction = self.target.vote_gradient(point, self.before)
            point = self.target.allowed(point + self.target.sampler.sigma / 2 * direction)
            lead = self.offer_and_pull(point)
            if lead is not None and self.passes(lead):
                return

    def other_classes(self) -> None:
        """Ascents from the image towards each of the likely classes: the first find is one only."""
        for other in self.target.likely_classes(self.before, OTHER_CLASSES):
            if other != self.other:
                self._towards(other)

    def _towards(self, other: int) -> None:
        """A short ascent towards a class, and a whole one where the first comes close."""
        search = self.target.search
        objective = margin(self.before, other)
        image = self.target.image
        gradient = self.target.network_gradient(image, objective, copies=search.copies)
        direction = self._inwards(gradient)
        for steps, turn in ((search.steps // 2, FIRST_TURN), (search.steps, FIRST_TURN / 2)):
            length = SHRINK * self.length
            direction = self._ascended(direction, length, objective, turn, steps=steps)
            lead = self.offer_and_pull(self.target.at_distance(direction, length))
            if lead is None or self.passes(lead):
                return
            missing = self.target.wanted_depth - self.target.depth(lead)
            # A whole ascent costs as much as a round along the boundary, which gains more then.
            if missing > COMES_CLOSE * length:
                return

    def follow_boundary(self) -> None:
        """Turn the best offset towards the gradient at its end, as long as that shrinks it.

        Where the boundary is flat, its nearest point lies in the direction of its gradient.
        Gradients through the network and gradients of votes take turns.
        """
        kinds = (self._turned_by_network, self._turned_by_votes)
        turns = [FIRST_TURN, FIRST_TURN]
        for number in range(self.target.search.rounds):
            kind = number % 2
            if self.best is None or max(turns) < LEAST_TURN:
                return
            # This kind of gradient no longer helps; the other one may.
            if turns[kind] < LEAST_TURN:
                continue
            previous = self.length
            self._round(kinds[kind], turns[kind])
            if self.length > WORTH_IT * previous:
                # It went past the best direction, or the gradient is too noisy for such a turn.
                turns[kind] /= FALL

    def _round(self, turned: Callable[[Tensor, float, float], Tensor], turn: float) -> None:
        assert self.best is not None
        length = SHRINK * self.length
        direction = turned(self.target.direction(self.best), length, turn)
        self.offer_and_pull(self.target.at_distance(direction, length))

    def _turned_by_network(self, direction: Tensor, length: float, turn: float) -> Tensor:
        objective = margin(self.before, self.other)
        steps = self.target.search.steps
        return self._ascended(direction, length, objective, turn, steps=steps)

    def _turned_by_votes(self, direction: Tensor, length: float, turn: float) -> Tensor:
        assert self.best is not None
        gradient = self._inwards(self.target.vote_gradient(self.best, self.before))
        return unit_l2(torch.lerp(direction, gradient, turn)[None])[0]

    def _ascended(
        self, direction: Tensor, length: float, objective: Objective, turn: float, *, steps: int
    ) -> Tensor:
        """The direction after ascent at a fixed distance; every step gets fresh noise."""
        # The steps average over their noise, so that each of them needs only some of the copies.
        copies = math.ceil(self.target.search.copies / STEPS_THAT_AVERAGE)
        for step in range(steps):
            point = self.target.at_distance(direction, length)
            gradient = self.target.network_gradient(point, objective, copies=copies)
            gradient = self._inwards(gradient)
            share = 1 - (1 - LAST_SHARE) * step / steps
            direction = unit_l2(torch.lerp(direction, gradient, turn * share)[None])[0]
        return direction

    def _inwards(self, gradient: Tensor) -> Tensor:
        """The gradient without what would leave [0, 1] at once: black stays black."""
        image = self.target.image
        leaves = ((image <= 0) & (gradient < 0)) | ((image >= 1) & (gradient > 0))
        return unit_l2(gradient.masked_fill(leaves, 0)[None])[0]

    def _objective(self) -> Objective:
        device = self.target.sampler.device
        return smoothed_cross_entropy(torch.tensor([self.before], device=device))
