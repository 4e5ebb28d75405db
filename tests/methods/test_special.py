"""Cases of the methods whose answer is known without a reference."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from smoothmix.methods import Consistency, Gaussian, Macer, SmoothAdv, SmoothMix, Stability
from smoothmix.methods.base import Batch
from tests.helpers.methods import CASES, PROBLEMS, Problem, build

PLAIN = Problem()


def cross_entropy_over_copies(problem, copies, sigma=0.5):
    x, y = problem.images()
    noise, _ = problem.randomness(copies, sigma)
    return F.cross_entropy(problem.network()((x + noise).flatten(0, 1)), y.repeat(copies))


def test_gaussian_is_cross_entropy_on_one_copy():
    loss = PLAIN.loss(Gaussian(sigma=0.5), PLAIN.network())
    torch.testing.assert_close(loss.total, cross_entropy_over_copies(PLAIN, 1))


@pytest.mark.parametrize("problem", ["plain", "batchnorm"])
@pytest.mark.parametrize("copies", [1, 4])
@pytest.mark.parametrize("fidelity", ["official", "paper"])
def test_smoothmix_without_eta_is_gaussian_with_copies(problem, copies, fidelity):
    problem = PROBLEMS[problem]
    method = SmoothMix(sigma=0.5, copies=copies, steps=2, eta=0.0, fidelity=fidelity)
    loss = problem.loss(method, problem.network())
    torch.testing.assert_close(loss.total, cross_entropy_over_copies(problem, copies))
    assert float(loss.parts["mix"]) == 0


def test_smoothmix_with_zero_ratios_mixes_nothing():
    """Both forwards see the image, and the target is the prediction itself: KL(F^ || copy)."""
    x, y = PLAIN.images()
    noise, _ = PLAIN.randomness(3, 0.5)
    log_probs = PLAIN.network()((x + noise).flatten(0, 1)).log_softmax(-1).view(3, len(x), -1)
    mean = log_probs.exp().mean(0)
    divergence = (mean * (mean.log() - log_probs)).sum(-1).mean(0)
    expected = divergence[mean.argmax(-1) == y].sum() / len(y)
    method = SmoothMix(sigma=0.5, copies=3, steps=3, eta=2.0)
    loss = PLAIN.loss(method, PLAIN.network(), epoch=20, mix=torch.zeros(len(x), dtype=x.dtype))
    torch.testing.assert_close(loss.parts["mix"], 2 * expected.detach())


def test_smoothmix_with_zero_ratios_and_one_copy_has_no_mixing_loss():
    method = SmoothMix(sigma=0.5, copies=1, steps=3)
    loss = PLAIN.loss(method, PLAIN.network(), mix=torch.zeros(PLAIN.batch, dtype=torch.float64))
    assert float(loss.parts["mix"]) == pytest.approx(0, abs=1e-12)


def test_smoothmix_without_steps_mixes_the_image_with_itself():
    still, ratios = (
        SmoothMix(sigma=0.5, copies=2, steps=0),
        torch.full((PLAIN.batch,), 0.25, dtype=torch.float64),
    )
    tiny = SmoothMix(sigma=0.5, copies=2, steps=3, step_size=1e-9)
    losses = [PLAIN.loss(method, PLAIN.network(), mix=ratios).total for method in (still, tiny)]
    torch.testing.assert_close(*losses)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("case", CASES)
def test_losses_are_finite_where_probabilities_vanish(case, dtype):
    problem = Problem(sharpness=1e5, dtype=dtype)
    network = problem.network()
    loss = problem.loss(build(case), network, mix=torch.zeros(problem.batch, dtype=dtype))
    loss.total.backward()
    assert loss.total.isfinite()
    assert all(parameter.grad.isfinite().all() for parameter in network.parameters())


def test_smoothmix_counts_no_image_that_is_misclassified_but_in_the_paper():
    x, _ = PLAIN.images()
    with torch.no_grad():
        noise, ratios = PLAIN.randomness(4, 0.5)
        worst = (
            PLAIN.network()((x + noise).flatten(0, 1))
            .softmax(-1)
            .view(4, len(x), -1)
            .mean(0)
            .argmin(-1)
        )
    losses = {
        fidelity: SmoothMix(sigma=0.5, steps=1, fidelity=fidelity).loss(
            PLAIN.network(), x, worst, epoch=20, noise=noise, mix=ratios
        )
        for fidelity in ("official", "paper")
    }
    assert float(losses["official"].parts["mix"]) == 0
    assert float(losses["paper"].parts["mix"]) > 0


class Spy(nn.Module):
    """A linear network that remembers the batches of its train-mode forwards."""

    def __init__(self, direction):
        super().__init__()
        self.weight = nn.Parameter(torch.stack([direction.flatten(), -direction.flatten()]))
        self.seen = []

    def forward(self, x):
        if self.training:
            self.seen.append(x.detach().clone())
        return x.flatten(1) @ self.weight.T


def training_inputs(method, *, epoch=100, mix=0.5, steepness=1.0, grey=0.5):
    """Mean pixels of the train-mode forwards for a grey image, which the attack darkens evenly."""
    x = torch.full((1, 1, 2, 2), grey, dtype=torch.float64)
    spy = Spy(steepness * torch.ones_like(x))
    noise = torch.zeros(method.copies, *x.shape, dtype=torch.float64)
    # Not by way of `loss`, which refuses images that are too bright.
    method.terms(
        spy,
        Batch(
            x=x,
            y=torch.tensor([0]),
            noise=noise,
            epoch=epoch,
            mix=torch.tensor([mix], dtype=torch.float64),
        ),
    )
    return [round(float(batch.mean()), 5) for batch in spy.seen]


@pytest.mark.parametrize(
    ("settings", "epoch", "expected"),
    [
        # A step of length s moves each of the four pixels by s / 2; the mixed image lies half way.
        ({"steps": 2, "step_size": 0.2}, 100, [0.5, 0.4]),
        ({"steps": 2, "step_size": 0.2, "one_step": True}, 100, [0.4, 0.35]),
        ({"steps": 2, "step_size": 0.2, "one_step": True}, 4, [0.45, 0.375]),
        (
            {"steps": 2, "step_size": 0.2, "one_step": True, "one_step_radius": 0.1},
            4,
            [0.475, 0.3875],
        ),
        (
            {"steps": 2, "step_size": 0.2, "one_step": True, "one_step_radius": 5.0},
            100,
            [0.4, 0.35],
        ),
        ({"steps": 1, "step_size": 0.2, "one_step": True}, 100, [0.5, 0.45]),
        (
            {"steps": 1, "step_size": 0.8, "one_step": True, "one_step_radius": 0.2},
            100,
            [0.4, 0.25],
        ),
        ({"steps": 3, "step_size": 0.8}, 100, [0.5, 0.25]),
        ({"steps": 3, "step_size": 0.2, "limit": 0.4}, 100, [0.5, 0.4]),
        ({"steps": 2, "step_size": 0.2, "one_step": True, "fidelity": "paper"}, 4, [0.4, 0.35]),
        ({"steps": 1, "step_size": 0.2, "one_step": True, "fidelity": "paper"}, 4, [0.4, 0.4]),
        (
            {
                "steps": 1,
                "step_size": 0.8,
                "one_step": True,
                "one_step_radius": 0.2,
                "fidelity": "paper",
            },
            4,
            [0.4, 0.25],
        ),
        ({"steps": 3, "step_size": 0.8, "fidelity": "paper"}, 100, [0.5, -0.1]),
    ],
)
def test_where_smoothmix_trains(settings, epoch, expected):
    assert training_inputs(SmoothMix(sigma=1.0, **settings), epoch=epoch) == pytest.approx(
        expected, abs=1e-5
    )


def test_the_first_iterate_is_clamped_again_after_its_projection():
    settings = {
        "sigma": 1.0,
        "steps": 2,
        "step_size": 0.2,
        "one_step": True,
        "one_step_radius": 0.1,
    }
    assert training_inputs(SmoothMix(**settings), grey=1.2, mix=0.0)[0] == 1.0
    assert training_inputs(SmoothMix(**settings, fidelity="paper"), grey=1.2, mix=0.0)[0] == 1.15


def test_where_smoothadv_trains():
    assert training_inputs(SmoothAdv(sigma=1.0, epsilon=0.4)) == [0.3]
    assert training_inputs(SmoothAdv(sigma=1.0, epsilon=0.4), epoch=0) == [0.48]
    assert training_inputs(SmoothAdv(sigma=1.0, epsilon=3.0)) == [0.0]
    assert training_inputs(SmoothAdv(sigma=1.0, epsilon=3.0, fidelity="paper")) == [-1.0]
    assert training_inputs(Consistency(sigma=1.0, epsilon=0.4)) == [0.3]
    assert training_inputs(Consistency(sigma=1.0, epsilon=3.0)) == [0.0]
    assert training_inputs(Consistency(sigma=1.0, epsilon=3.0, fidelity="paper")) == [-1.0]
    assert training_inputs(Consistency(sigma=1.0)) == [0.5]


def test_below_the_floor_only_smoothadv_goes_on():
    """The network is almost certain of the wrong class (exp(-80)); brighter, even more so."""
    assert training_inputs(SmoothAdv(sigma=1.0, epsilon=0.4), steepness=-20.0) == [0.7]
    assert training_inputs(SmoothMix(sigma=1.0), steepness=-20.0) == [0.5, 0.5]
    assert training_inputs(Consistency(sigma=1.0, epsilon=0.4), steepness=-20.0) == [0.5]


def test_where_there_is_no_gradient_only_smoothadv_moves():
    (moved,) = training_inputs(SmoothAdv(sigma=1.0, epsilon=0.4), steepness=0.0)
    assert moved != 0.5
    assert training_inputs(SmoothMix(sigma=1.0), steepness=0.0) == [0.5, 0.5]
    assert training_inputs(Consistency(sigma=1.0, epsilon=0.4), steepness=0.0) == [0.5]


def test_smoothadv_radius_of_the_tables_and_of_the_text():
    assert SmoothAdv(sigma=0.5).radius(9) == 255 / 256
    assert SmoothAdv(sigma=0.5, fidelity="paper").radius(9) == 1.0
    assert SmoothAdv(sigma=0.5, epsilon=2.0).radius(4) == 1.0
    assert SmoothAdv(sigma=0.5, epsilon=2.0, warmup_epochs=0).radius(0) == 2.0


@pytest.mark.parametrize(("epoch", "deferred"), [(0, True), (30, True), (31, False)])
def test_macer_defers_its_robustness_term(epoch, deferred):
    loss = PLAIN.loss(build("macer", defer_epochs=31), PLAIN.network(), epoch=epoch)
    assert (float(loss.parts["robustness"]) == 0) == deferred


def test_macer_with_no_image_correct_is_its_classification_term():
    network = PLAIN.network()
    x, _ = PLAIN.images()
    noise, _ = PLAIN.randomness(4, 0.5)
    method = Macer(sigma=0.5, copies=4)
    with torch.no_grad():
        worst = (
            network((x + noise).flatten(0, 1)).softmax(-1).view(4, len(x), -1).mean(0).argmin(-1)
        )
    loss = method.loss(network, x, worst, epoch=0, noise=noise)
    loss.total.backward()
    assert float(loss.parts["robustness"]) == 0
    torch.testing.assert_close(loss.total.detach(), loss.parts["classification"])
    assert all(parameter.grad.isfinite().all() for parameter in network.parameters())


def test_macer_drops_what_has_no_finite_quantile():
    """Two images: of one the sharpened votes are exactly 1 and 0, and it must leave no trace."""
    logits = torch.tensor(
        [[[500.0, 0, 0], [0.2, 0.1, 0.0]]] * 2, dtype=torch.float64, requires_grad=True
    )
    method, y = Macer(sigma=0.5, copies=2), torch.tensor([0, 0])
    hinge = method.hinge(logits, y)
    assert len(hinge) == 1
    hinge.sum().backward()
    assert logits.grad.isfinite().all()
    assert (logits.grad[:, 0] == 0).all()
    assert (logits.grad[:, 1] != 0).any()


def test_macer_hinge_by_hand():
    p1, p2 = 0.8413447460685429, 0.15865525393145707  # Phi(1) and Phi(-1): a radius of 1 sigma.
    votes = torch.tensor([[[math.log(p1), math.log(p2)]]], dtype=torch.float64)
    hinge = Macer(sigma=0.5, copies=1, beta=1.0, gamma=8.0).hinge(votes, torch.tensor([0]))
    assert hinge.tolist() == pytest.approx([0.25 * (-2 + 8)])
    assert len(Macer(sigma=0.5, copies=1, beta=1.0, gamma=1.9).hinge(votes, torch.tensor([0]))) == 0


def test_consistency_of_one_copy_has_no_divergence():
    loss = PLAIN.loss(Consistency(sigma=0.5, copies=1, weight=10.0), PLAIN.network())
    assert float(loss.parts["consistency"]) == pytest.approx(0, abs=1e-12)
    assert float(loss.parts["entropy"]) > 0


def test_stability_without_weight_is_cross_entropy_on_clean_images():
    x, y = PLAIN.images()
    loss = PLAIN.loss(Stability(sigma=0.5, weight=0.0), PLAIN.network())
    torch.testing.assert_close(loss.total, F.cross_entropy(PLAIN.network()(x), y))
