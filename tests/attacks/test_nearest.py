"""The nearest adversarial example: never nearer than the exact distance, and close to it."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from smoothmix.attacks.nearest import Nearest, nearest_attack
from smoothmix.attacks.target import ClearLead, Hopeless, Target, lead_of, model_for_gradients
from smoothmix.certificates import Attack, SearchSettings
from smoothmix.certificates.attack_file import round_up
from smoothmix.certify import Smoothed
from smoothmix.errors import UsageError
from smoothmix.stats.binomial import predicted

SIGMA = 0.5
SIDE = 6
SEARCH = SearchSettings(n=4_000, search_draws=500, copies=8, steps=10, rounds=30)


class HalfSpace(nn.Module):
    """Class 1 on one side of a plane: the smoothed classifier has exactly this boundary."""

    def __init__(self, distance: float) -> None:
        super().__init__()
        normal = torch.randn(SIDE * SIDE, generator=torch.Generator().manual_seed(1))
        self.normal = nn.Parameter(normal / normal.norm())
        # The grey image lies at this distance from the plane, on the side of class 0.
        self.offset = nn.Parameter(grey().flatten() @ self.normal.detach() + distance)

    def forward(self, x: Tensor) -> Tensor:
        side = x.flatten(1) @ self.normal - self.offset
        return torch.stack([-side, side], 1)


class WithoutGradients(HalfSpace):
    """The same classifier, whose gradients are zero everywhere."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).sign() + 0 * x.flatten(1).sum(1, keepdim=True)


class Constant(HalfSpace):
    """A classifier without any adversarial example."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * 0 + torch.tensor([1.0, 0.0])


def grey() -> Tensor:
    """An image on the grid, from which the plane is reached without leaving [0, 1]."""
    return torch.full((1, SIDE, SIDE), 128 / 255)


def attacked(model: nn.Module, *, noise: str, search: SearchSettings = SEARCH) -> Attack:
    smoothed = Smoothed(model, sigma=SIGMA, num_classes=2, noise=noise)
    with smoothed.open((1, SIDE, SIDE), seed=search.seed) as sampler:
        return nearest_attack(sampler, grey(), 3, 0, search)


@pytest.mark.parametrize("noise", ["grid", "gaussian"])
@pytest.mark.parametrize("distance", [0.3, 1.2])
def test_the_distance_to_a_plane_is_found_and_never_undercut(noise: str, distance: float) -> None:
    row = attacked(HalfSpace(distance), noise=noise)
    assert (row.before, row.adversarial) == (0, 1)
    assert row.distance is not None
    # The test asks for more than half of the votes, which lie a little behind the plane.
    behind = SIGMA * 2.6 * SEARCH.wanted_lead / 2
    assert distance <= row.distance <= distance * 1.05 + 2 * behind
    assert sum(row.votes.values()) == SEARCH.n


@pytest.mark.parametrize("noise", ["grid", "gaussian"])
def test_a_network_without_gradients_does_not_escape(noise: str) -> None:
    row = attacked(WithoutGradients(0.6), noise=noise)
    assert row.adversarial == 1
    assert row.distance is not None
    assert 0.6 <= row.distance <= 0.9


def test_on_a_grid_the_distance_is_that_of_integers() -> None:
    row = attacked(HalfSpace(0.5), noise="grid")
    assert row.squared is not None
    assert row.distance == round_up(math.sqrt(row.squared) / 255)
    assert attacked(HalfSpace(0.5), noise="gaussian").squared is None


def test_nothing_is_found_where_there_is_nothing() -> None:
    quick = SearchSettings(n=200, search_draws=100, copies=2, steps=2, rounds=4)
    row = attacked(Constant(0.5), noise="gaussian", search=quick)
    assert (row.before, row.adversarial, row.distance) == (0, None, None)
    assert row.robust_distance == math.inf


def test_an_image_on_the_boundary_has_no_class_to_attack() -> None:
    row = attacked(HalfSpace(0.0), noise="gaussian")
    assert (row.before, row.adversarial) == (-1, None)
    assert row.draws == SEARCH.n


def test_a_clear_image_is_judged_by_few_draws() -> None:
    quick = SearchSettings(n=4_000, search_draws=100, copies=2, steps=2, radii=1, rounds=0)
    row = attacked(Constant(0.5), noise="gaussian", search=quick)
    assert row.before == 0
    # A tenth of the draws for the image; the search has no other judgement to make.
    assert row.votes == {0: 400}


def test_giving_up_early_never_adds_examples_and_loses_few() -> None:
    rng = np.random.default_rng(0)
    n = 2_000
    search = SearchSettings(n=n, alpha=0.6)
    passed = {"boundary": 0, "behind": 0}
    alone = {"boundary": 0, "behind": 0}
    # On the boundary half of the votes are for the other class; behind it the lead is wanted.
    shares = {"boundary": 0.5, "behind": (1 + search.wanted_lead + 0.03) / 2}
    trials = 3_000
    spent = 0
    for where, share in shares.items():
        for _ in range(trials):
            votes = np.zeros((8, 3), dtype=np.int64)
            votes[:, 1] = rng.binomial(n // 8, share, 8)
            votes[:, 0] = n // 8 - votes[:, 1]
            hopeless = Hopeless(0, search.passing_lead, n)
            stopped = False
            for counts in votes.cumsum(axis=0):
                stopped = stopped or hopeless(counts)
            total = votes.sum(axis=0)
            wins = predicted(total[:-1], alpha=search.alpha_per_test)[0] == 1
            alone[where] += int(wins)
            passed[where] += int(wins and not stopped)
            if where == "boundary":
                spent += hopeless.stopped_after or n
    # The test is two-sided: at the boundary each class passes with half of alpha.
    assert passed["boundary"] <= alone["boundary"]
    assert passed["boundary"] / trials <= search.alpha_per_test / 2 + 0.006
    assert passed["behind"] >= 0.97 * alone["behind"]
    assert alone["behind"] >= 0.7 * trials
    assert spent <= 0.7 * n * trials


def test_the_lead_is_what_the_test_compares() -> None:
    # Class 2 against class 0 and a vote for nobody; class 1 has the rest.
    lead = lead_of(np.array([30, 8, 60, 2]), before=0)
    assert (lead.other, lead.votes) == (2, 100)
    assert lead.value == pytest.approx((60 - 32) / math.sqrt(100 * 92))
    assert lead_of(np.array([90, 8, 2, 0]), before=0).value < 0
    # A third class counts as the second.
    assert lead_of(np.array([10, 50, 40, 0]), before=0).value == pytest.approx(
        10 / math.sqrt(100 * 90)
    )
    settings = SearchSettings()
    least = math.ceil(settings.passing_lead * settings.n)
    middle = (settings.n + least) // 2
    for first, sure in ((middle - 20, False), (middle + 20, True)):
        found = predicted([settings.n - first, first], alpha=settings.alpha_per_test)
        assert (found[0] == 1) == sure


def test_clear_leads_need_few_votes_whatever_the_threads_have_begun() -> None:
    decision = ClearLead(0, 0.045)
    assert not decision(np.array([120, 136, 0]))
    assert decision(np.array([130, 382, 0]))
    kept = decision.lead
    # Batches that were running arrive later, and change nothing.
    assert decision(np.array([700, 400, 0]))
    assert decision.lead == kept
    row = attacked(HalfSpace(0.6), noise="gaussian")
    assert row == replace(attacked(HalfSpace(0.6), noise="gaussian"), seconds=row.seconds)


def test_the_network_of_the_owner_is_not_touched() -> None:
    model = HalfSpace(0.6)
    model.train()
    weights = model.normal
    row = attacked(model, noise="gaussian")
    assert row.adversarial == 1
    assert model.normal is weights
    assert model.training
    assert model.normal.grad is None


def test_luck_makes_no_adversarial_example() -> None:
    """The classifier ignores its input and guesses: every found example would be luck."""

    class Guess(HalfSpace):
        def forward(self, x: Tensor) -> Tensor:
            # The last digits of a pixel decide, and class 0 wins 52 of 100 times.
            digits = (x.flatten(1)[:, 0] * 1e4).frac().abs()
            return torch.stack([(digits < 0.52).float(), (digits >= 0.52).float()], 1) + 0 * x.sum()

    many = SearchSettings(n=4_000, search_draws=20, copies=2, steps=2, rounds=20)
    fooled = 0
    for seed in range(5):
        search = replace(many, seed=seed)
        assert attacked(Guess(0.5), noise="gaussian", search=search).adversarial is None
        smoothed = Smoothed(Guess(0.5), sigma=SIGMA, num_classes=2, noise="gaussian")
        with smoothed.open((1, SIDE, SIDE), seed=seed) as sampler:
            model = model_for_gradients(sampler)
            target = Target(sampler=sampler, image=grey(), index=3, search=search, model=model)
            fooled += Nearest(target=target, before=0).found() is not None
    # The search itself was: only fresh noise told luck from an example.
    assert fooled >= 3


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"n": 10}, "can never predict"),
        ({"n": 10**9}, "n must be 1 to"),
        ({"alpha": 0.0}, "alpha must lie"),
        ({"alpha": math.nan}, "alpha must lie"),
        ({"copies": 0}, "copies must be 1"),
        ({"steps": 1.5}, "steps must be a whole number"),
        ({"rounds": -1}, "rounds must be 0"),
        ({"seed": -1}, "seed must lie"),
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, float], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        SearchSettings(**wrong)  # type: ignore[arg-type]
