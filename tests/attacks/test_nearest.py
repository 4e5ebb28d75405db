"""The nearest adversarial example: never nearer than the exact distance, and close to it."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from smoothmix.attacks.nearest import Nearest, Target, nearest_attack
from smoothmix.certificates import Attack, SearchSettings
from smoothmix.certificates.attack_file import round_up
from smoothmix.certify import Smoothed
from smoothmix.errors import UsageError

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
    behind = SIGMA * 2.6 * SEARCH.lead / 2
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
            target = Target(sampler=sampler, image=grey(), index=3, search=search)
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
