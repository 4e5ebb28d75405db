"""DDN on hand-made networks, and beside a slow reference."""

import pytest
import torch
from torch import nn

from smoothmix.attacks import ddn, smoothed_cross_entropy
from smoothmix.attacks.ddn import most_frequent_prediction
from smoothmix.attacks.l2 import l2_norm
from tests.attacks.test_l2 import Plane, labels, points, zeros
from tests.helpers.reference_losses import ddn_example


def run_ddn(model, x, **options):
    settings = {"steps": 10, "radius": 0.4, **options}
    objective = smoothed_cross_entropy(labels(x))
    return ddn(model, x, labels(x), zeros(x), objective=objective, **settings)


def test_ddn_finds_the_near_side_of_a_plane_on_256_levels():
    model, x = Plane([6.0, 8.0], offset=9.0), points([0.51, 0.52])  # The plane is 0.178 away.
    found = run_ddn(model, x, steps=40)
    assert int(model(found).argmax()) == 1
    assert 0.178 <= float(l2_norm(found - x)) < 0.2
    # The perturbation is quantised, not the image.
    moved = found - x
    torch.testing.assert_close((moved * 255).round() / 255, moved, atol=1e-12, rtol=0)


def test_ddn_leaves_what_it_cannot_fool_or_need_not():
    model = Plane([1.0, 0.0], offset=0.75)
    beyond, wrong_already, within = [0.123, 0.5], [0.8004, 0.5], [0.7, 0.5]
    x = points(beyond, wrong_already, within)
    found = run_ddn(model, x, radius=0.2)
    assert torch.equal(found[:2], x[:2])
    assert float(model(found)[2].argmax()) == 1


def test_ddn_brings_back_to_the_radius_what_it_finds_beyond():
    model, x = (
        Plane([1.0, 0.0], offset=0.75),
        points([0.2, 0.0]),
    )  # Fooled at 0.55, reached as the norm grows.
    found = run_ddn(model, x, radius=0.401, steps=12)
    assert float(l2_norm(found - x)) == pytest.approx(0.401, abs=0.5 / 255)
    torch.testing.assert_close((found * 255).round() / 255, found, atol=1e-12, rtol=0)


def test_ddn_clamps_unless_told_not_to():
    model, x = (
        Plane([1.0, 0.0], offset=1.1),
        points([0.9, 0.5]),
    )  # No image in [0, 1] lies beyond the plane.
    assert torch.equal(run_ddn(model, x), x)
    assert float(run_ddn(model, x, clamp=False).max()) > 1.1


def test_ddn_survives_a_flat_network():
    x = points([0.5, 0.5])
    assert torch.equal(run_ddn(Plane([0.0, 0.0]), x), x)


def test_the_most_frequent_prediction_decides_and_not_the_mean():
    logits = torch.tensor([[[1.0, 0.0]], [[1.0, 0.0]], [[0.0, 9.0]]])
    assert int(logits.softmax(-1).mean(0).argmax()) == 1
    assert most_frequent_prediction(logits).tolist() == [0]


@pytest.mark.parametrize("radius", [0.2, 0.6, 3.0])
@pytest.mark.parametrize("clamp", [True, False])
def test_ddn_is_the_slow_reference(radius, clamp):
    """In double precision, so that no rounding decides to which of 256 values a pixel goes."""
    torch.manual_seed(3)
    model = nn.Sequential(nn.Flatten(), nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 3)).double()
    x = torch.rand(12, 1, 2, 4, dtype=torch.float64)
    noise = 0.25 * torch.randn(5, *x.shape, dtype=torch.float64)
    y = model(x).argmax(1)
    y[::4] = (y[::4] + 1) % 3
    found = ddn(
        model,
        x,
        y,
        noise,
        objective=smoothed_cross_entropy(y),
        steps=12,
        radius=radius,
        clamp=clamp,
    )
    expected = [
        ddn_example(model, x[b], y[b], noise[:, b], epsilon=radius, steps=12, official=clamp)
        for b in range(len(x))
    ]
    torch.testing.assert_close(found, torch.stack(expected), rtol=0, atol=1e-9)
    moved = l2_norm(found - x).flatten() > 0
    assert bool(moved.any())
    assert not bool(moved.all())
