"""The method that trains a denoiser, against its slow reference and its promises."""

import copy

import pytest
import torch
from torch import nn

import smoothmix as sm
from smoothmix.errors import UsageError
from smoothmix.methods import METHODS, make
from tests.helpers.methods import CLASSIFYING, Problem, settings_for_reference
from tests.helpers.reference_losses import LOSSES

PROBLEM = Problem(batchnorm=True)

SETTINGS = [
    {},
    {"objective": "stability"},
    {"objective": "stability", "mse_epochs": 4},
    {"objective": "stability", "mse_epochs": 3},
]


def denoised() -> sm.Denoised:
    """A denoiser with BatchNorm before the classifier of the problem."""
    classifier = PROBLEM.network()
    denoiser = nn.Sequential(
        nn.Conv2d(1, 3, 3, padding=1), nn.BatchNorm2d(3), nn.Tanh(), nn.Conv2d(3, 1, 3, padding=1)
    )
    return sm.Denoised(denoiser.to(PROBLEM.dtype), classifier).train()


@pytest.mark.parametrize("settings", SETTINGS)
def test_the_loss_and_its_gradient_are_the_references(settings: dict[str, object]) -> None:
    method = make("denoiser", sigma=0.5, **settings)
    ours, theirs = denoised(), denoised()
    loss = PROBLEM.loss(method, ours)
    loss.total.backward()
    x, y = PROBLEM.images()
    noise, mix = PROBLEM.randomness(method.copies, method.sigma)
    reference = LOSSES["denoiser"](
        theirs, x, y, noise, mix, epoch=3, **settings_for_reference(method)
    )
    reference.backward()
    torch.testing.assert_close(loss.total, reference, rtol=1e-5, atol=1e-6)
    pairs = zip(ours.denoiser.parameters(), theirs.denoiser.parameters(), strict=True)
    for mine, other in pairs:
        torch.testing.assert_close(mine.grad, other.grad, rtol=1e-5, atol=1e-6)
    assert set(loss.parts) == ({"mse"} if not settings else {"mse", "stability"})


def test_labels_are_not_used_and_the_classifier_stays_as_it_is() -> None:
    method = make("denoiser", sigma=0.5, objective="stability")
    network = denoised()
    before = copy.deepcopy(network.classifier.state_dict())
    x, y = PROBLEM.images()
    noise, _ = PROBLEM.randomness(1, 0.5)
    losses = [method.loss(network, x, labels, epoch=0, noise=noise).total for labels in (y, 3 - y)]
    assert torch.equal(*losses)
    after = network.classifier.state_dict()
    assert all(torch.equal(value, before[name]) for name, value in after.items())
    assert network.classifier.training


def test_mistakes_are_named() -> None:
    x, y = PROBLEM.images()
    with pytest.raises(UsageError, match=r"smoothmix\.Denoised network, not a Sequential"):
        make("denoiser", sigma=0.5).loss(PROBLEM.network(), x, y, epoch=0)
    with pytest.raises(UsageError, match="unknown objective 'msee': did you mean 'mse'"):
        make("denoiser", sigma=0.5, objective="msee")
    with pytest.raises(UsageError, match="only with objective stability"):
        make("denoiser", sigma=0.5, mse_epochs=2)
    with pytest.raises(UsageError, match=r"must be a torch\.nn\.Module, not function"):
        sm.Denoised(lambda x: x, PROBLEM.network())


def test_it_is_the_only_method_that_trains_no_classifier() -> None:
    assert set(METHODS) - set(CLASSIFYING) == {"denoiser"}
