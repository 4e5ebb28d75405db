"""A network is certified only as a function of its input, not of its place in a batch."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import Tensor, nn

import smoothmix as sm
from smoothmix import networks
from smoothmix.errors import UsageError
from smoothmix.inference.positions import position_dependence
from smoothmix.inference.prepare import prepare_network
from smoothmix.stats.anytime import Stopping

SHAPE = (3, 4, 4)
BATCH = 32


class Linear(nn.Module):
    """The same logits at every position."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.head = nn.Linear(48, 3)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(x.flatten(1))
        return logits + self.extra(logits)

    def extra(self, logits: Tensor) -> Tensor:
        return torch.zeros_like(logits)


class FavoursTheLast(Linear):
    """Another classifier for the last image of a batch."""

    def extra(self, logits: Tensor) -> Tensor:
        extra = torch.zeros_like(logits)
        extra[-1] = 1
        return extra


class CountsTheBatch(Linear):
    """Another classifier for shorter batches."""

    def extra(self, logits: Tensor) -> Tensor:
        return torch.full_like(logits, 0.1 * len(logits)) * torch.tensor([1.0, 0.0, 0.0])


class RoundsTheLast(Linear):
    """What another kernel for the end of a batch does."""

    def extra(self, logits: Tensor) -> Tensor:
        extra = torch.zeros_like(logits)
        extra[-1] = 1e-6
        return extra


class ListensFarAway(Linear):
    """Each image gets something of the one 16 places further; a probe of eight cannot see it."""

    def extra(self, logits: Tensor) -> Tensor:
        extra = torch.zeros_like(logits)
        extra[:-16] = logits[16:]
        return extra


class ListensALittle(Linear):
    """Each image gets a trace of the next one, far below every tolerance."""

    def extra(self, logits: Tensor) -> Tensor:
        return 1e-5 * logits.roll(1, 0)


@pytest.mark.parametrize(
    ("network", "found"),
    [(Linear, ""), (RoundsTheLast, "rounding"), (FavoursTheLast, "average")],
)
def test_dependence_on_the_position_is_measured(network: type[nn.Module], found: str) -> None:
    prepared = prepare_network(network(), SHAPE, batch=BATCH)
    assert position_dependence(prepared, SHAPE, [BATCH]) == found


def test_shorter_batches_are_positions_too() -> None:
    prepared = prepare_network(CountsTheBatch(), SHAPE, batch=BATCH)
    assert position_dependence(prepared, SHAPE, [BATCH]) == ""
    assert position_dependence(prepared, SHAPE, [BATCH, 5]) == "average"


@pytest.mark.parametrize("network", [FavoursTheLast, CountsTheBatch])
def test_fixed_draws_certify_the_average_over_positions_and_say_so(
    network: type[nn.Module],
) -> None:
    smoothed = sm.Smoothed(network(), sigma=0.5, num_classes=3, noise="gaussian", batch=BATCH)
    with pytest.warns(UserWarning, match="certificates are about the average over positions"):
        smoothed.certify(torch.rand(1, *SHAPE).mul(255).round().div(255), n=100)


def test_a_guarantee_for_any_time_needs_one_classifier() -> None:
    smoothed = sm.Smoothed(
        FavoursTheLast(), sigma=0.5, num_classes=3, noise="gaussian", batch=BATCH
    )
    image = torch.rand(1, *SHAPE).mul(255).round().div(255)
    with pytest.raises(UsageError, match=r"depend on its position in a batch .* \(mode exact\)"):
        smoothed.certify(image, stopping=Stopping(radii=(0.25,), max_draws=1024))
    # The shorter last batch is no matter there: draws fill whole batches.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sm.Smoothed(
            CountsTheBatch(), sigma=0.5, num_classes=3, noise="gaussian", batch=BATCH
        ).certify(image, stopping=Stopping(radii=(0.25,), max_draws=1000))


def test_draws_that_may_stop_at_any_time_fill_whole_batches() -> None:
    # A shorter last batch would be another classifier here, and its size is never checked.
    smoothed = sm.Smoothed(
        CountsTheBatch(), sigma=0.5, num_classes=3, noise="gaussian", batch=BATCH
    )
    found = smoothed.certify(torch.zeros(1, *SHAPE), stopping=Stopping(max_draws=1000))
    assert found.draws.tolist() == [1024]


@pytest.mark.parametrize("network", [ListensFarAway, ListensALittle])
def test_dependence_on_other_images_is_refused_however_small_or_far(
    network: type[nn.Module],
) -> None:
    smoothed = sm.Smoothed(network(), sigma=0.5, num_classes=3, noise="gaussian", batch=BATCH)
    with pytest.raises(UsageError, match="depends on the others in its batch"):
        smoothed.certify(torch.rand(1, *SHAPE).mul(255).round().div(255), n=1000)


@pytest.mark.parametrize("name", ["lenet", "cifar_resnet20"])
@pytest.mark.parametrize("engine", ["auto", "eager"])
def test_own_networks_have_the_same_bits_at_every_position(name: str, engine: str) -> None:
    shape = (1, 28, 28) if name == "lenet" else (3, 32, 32)
    torch.manual_seed(0)
    prepared = prepare_network(networks.build(name), shape, batch=64, engine=engine)  # type: ignore[arg-type]
    # Rounding would be allowed for, on processors that were not tried.
    assert position_dependence(prepared, shape, [64, 32]) in ("", "rounding")
