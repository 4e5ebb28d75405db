"""Losses, gradients and BatchNorm updates, against slow references from the equations."""

import copy

import pytest
import torch

from smoothmix.config import FIDELITIES
from smoothmix.methods import METHODS
from tests.helpers.methods import CASES, CLASSIFYING, PROBLEMS, Problem, build, run_reference
from tests.helpers.reference_losses import LOSSES


def compare(case, fidelity, problem, *, epoch=3, tolerance=1e-5):
    """Our loss, parameter gradients and buffers are those of the reference."""
    method = build(case, fidelity=fidelity)
    ours = problem.network()
    theirs = copy.deepcopy(ours)
    loss = problem.loss(method, ours, epoch=epoch)
    loss.total.backward()
    reference = run_reference(case, method, problem, theirs, epoch=epoch)
    reference.backward()

    close = {"rtol": tolerance, "atol": tolerance}
    torch.testing.assert_close(loss.total, reference, **close)
    for (name, mine), other in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(
            mine.grad, other.grad, **close, msg=lambda text, name=name: f"{name}: {text}"
        )
    for mine, other in zip(ours.buffers(), theirs.buffers(), strict=True):
        torch.testing.assert_close(mine, other, **close)


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("fidelity", FIDELITIES)
@pytest.mark.parametrize("case", CASES)
def test_loss_gradient_and_buffers_are_the_references(case, fidelity, problem):
    compare(case, fidelity, PROBLEMS[problem])


@pytest.mark.parametrize("epoch", [0, 9, 50])
@pytest.mark.parametrize(
    "case", ["smoothadv", "smoothmix-one-step", "smoothmix-imagenet", "consistency-smoothadv"]
)
def test_warm_up_follows_the_epoch(case, epoch):
    compare(case, "official", Problem(batchnorm=True, seed=50), epoch=epoch)


@pytest.mark.parametrize("seed", range(60, 64))
@pytest.mark.parametrize("case", ["macer", "smoothmix", "smoothadv-ddn"])
def test_other_networks_and_images(case, seed):
    compare(case, "official", Problem(seed=seed, classes=3, batch=6))


@pytest.mark.parametrize("name", CLASSIFYING)
def test_single_precision(name):
    compare(name, "official", Problem(dtype=torch.float32, sharpness=1.0, seed=70), tolerance=1e-5)


def test_every_method_has_a_reference_and_a_case_of_its_own_name():
    assert set(LOSSES) == set(METHODS)
    assert set(CLASSIFYING) <= set(CASES)


@pytest.mark.parametrize("problem", ["plain", "batchnorm"])
def test_the_problems_are_worth_solving(problem):
    """Some images are classified correctly and some are not, so that masks are seen to work."""
    problem = PROBLEMS[problem]
    x, y = problem.images()
    noise, _ = problem.randomness(4, 0.5)
    correct = (
        problem.network()((x + noise).flatten(0, 1))
        .softmax(-1)
        .view(4, len(x), -1)
        .mean(0)
        .argmax(-1)
        == y
    )
    assert correct.any()
    assert not correct.all()
