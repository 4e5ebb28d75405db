"""The attack loops on hand-made networks whose gradient is known."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from smoothmix.attacks.l2 import (
    FLOOR,
    ball,
    clamp_pixels,
    damped_unit_l2,
    l2_ascent,
    l2_norm,
    objective_gradient,
    pgd,
    project_l2,
    smoothed_cross_entropy,
    unit_l2,
    unit_l2_or_random,
)
from smoothmix.networks.noisy import noisy_forward

DOUBLE = torch.float64


class Plane(nn.Module):
    """Class 0 on one side of a plane, 1 on the other; from label 0 the way up is `ascent`."""

    def __init__(self, ascent, offset=0.0):
        super().__init__()
        self.ascent = nn.Parameter(torch.tensor(ascent, dtype=DOUBLE))
        self.offset = offset

    def forward(self, x):
        height = x.flatten(1) @ self.ascent - self.offset
        return torch.stack([-height, height], dim=1)


def points(*rows):
    """Images of one row of pixels: [batch, 1, 1, pixels]."""
    return torch.tensor(rows, dtype=DOUBLE)[:, None, None, :]


def zeros(x, copies=1):
    return torch.zeros(copies, *x.shape, dtype=x.dtype)


def labels(x, label=0):
    return torch.full((len(x),), label)


def walk(model, x, *, floor=FLOOR, **options):
    settings = {"steps": 1, "step_size": 1.0, **options}
    objective = smoothed_cross_entropy(labels(x), floor=floor)
    return list(l2_ascent(model, x, zeros(x), objective=objective, **settings))


def test_norm_is_by_image():
    assert l2_norm(points([3, 4], [0, 2])).flatten().tolist() == [5, 2]
    assert l2_norm(torch.ones(2, 3, 4, 5)).shape == (2, 1, 1, 1)


def test_damped_gradient_divides_by_norm_plus_1e_8():
    gradient = points([3, 4], [0, 0], [0, 1e-8])
    expected = points([0.6, 0.8], [0, 0], [0, 0.5])
    torch.testing.assert_close(damped_unit_l2(gradient), expected, atol=1e-8, rtol=0)


def test_unit_gradient_has_length_1_however_short_it_was():
    gradient = points([3, 4], [0, 0], [0, 1e-30])
    torch.testing.assert_close(unit_l2(gradient), points([0.6, 0.8], [0, 0], [0, 1]))


def test_zero_gradient_becomes_normal_numbers_and_only_it():
    gradient = torch.zeros(3, 1, 100, 100, dtype=DOUBLE)
    gradient[0, 0, 0, 0], gradient[2, 0, 0, 0] = 1e-30, 7
    unit = unit_l2_or_random(gradient)
    assert torch.equal(unit[[0, 2]], gradient.sign()[[0, 2]])
    assert abs(unit[1].mean()) < 0.05
    assert abs(unit[1].std() - 1) < 0.05


def test_no_random_number_is_drawn_where_no_gradient_is_zero():
    before = torch.get_rng_state()
    unit_l2_or_random(points([3, 4]))
    assert torch.equal(before, torch.get_rng_state())


def test_projection():
    centre = points([0.1, 0.1], [0.1, 0.1], [0.1, 0.1])
    x = points([0.3, 0.1], [3.1, 4.1], [0.1, 0.1])
    projected = project_l2(x, centre, 0.5)
    assert torch.equal(projected[[0, 2]], x[[0, 2]])
    torch.testing.assert_close(projected[1], points([0.4, 0.5])[0])
    assert torch.equal(project_l2(x, centre, 0.0), centre)


def test_iterates_go_straight_up_a_plane_by_the_step_size():
    x = points([0.5, 0.5], [0.2, 0.9])
    path = walk(Plane([3.0, 4.0]), x, steps=3, step_size=0.25)
    assert len(path) == 4
    assert torch.equal(path[0], x)
    for t, z in enumerate(path):
        torch.testing.assert_close(z, x + t * 0.25 * points([0.6, 0.8]), atol=1e-6, rtol=0)


def test_no_step_gives_the_image_itself():
    x = points([0.5, 0.5])
    assert torch.equal(*walk(Plane([1.0, 0.0]), x, steps=0), x)


def test_every_iterate_is_clamped_but_the_first():
    x = points([0.9, 0.5], [1.2, 0.5])
    path = walk(Plane([0.8, 0.6]), x, steps=2, step_size=0.5, constraints=[clamp_pixels])
    torch.testing.assert_close(path[1], points([1, 0.8], [1, 0.8]), atol=1e-6, rtol=0)
    torch.testing.assert_close(path[2], points([1, 1], [1, 1]), atol=1e-6, rtol=0)
    assert torch.equal(path[0], x)


def test_order_of_clamp_and_projection():
    x, model = points([0.9, 0.5]), Plane([0.8, 0.6])
    inside = ball(x, 0.26**0.5 / 2)
    clamped_first = walk(model, x, constraints=[clamp_pixels, inside])[-1]
    projected_first = walk(model, x, constraints=[inside, clamp_pixels])[-1]
    torch.testing.assert_close(clamped_first, points([0.95, 0.75]), atol=1e-6, rtol=0)
    torch.testing.assert_close(
        projected_first, points([1.0, 0.5 + 0.3 * 0.26**0.5]), atol=1e-6, rtol=0
    )


def test_limit_holds_every_iterate_and_is_round_the_start():
    x = points([0.5, 0.5])
    path = walk(Plane([0.6, 0.8]), x, steps=5, step_size=0.2, constraints=[ball(x, 0.3)])
    distances = [float(l2_norm(z - x)) for z in path]
    assert distances == pytest.approx([0, 0.2, 0.3, 0.3, 0.3, 0.3], abs=1e-6)


def test_zero_gradient_stays_or_jumps():
    flat, x = Plane([0.0, 0.0]), points([0.5, 0.5])
    assert torch.equal(walk(flat, x)[-1], x)
    jumped = walk(flat, x, constraints=[ball(x, 0.1)], direction=unit_l2_or_random)[-1]
    assert 0 < float(l2_norm(jumped - x)) <= 0.1 + 1e-9


def test_below_the_floor_there_is_no_gradient():
    steep = Plane([100.0, 0.0])  # At x the true class has probability exp(-100).
    x = points([0.5, 0.5])
    assert torch.equal(walk(steep, x, floor=1e-20)[-1], x)
    torch.testing.assert_close(walk(steep, x, floor=0.0)[-1], points([1.5, 0.5]))


def test_without_floor_probabilities_that_underflow_still_have_a_gradient():
    steep = Plane([1000.0, 0.0]).float()
    x = points([0.5, 0.5]).float()
    torch.testing.assert_close(walk(steep, x, floor=0.0)[-1], points([1.5, 0.5]).float())


def test_one_copy_without_floor_is_cross_entropy():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))
    x, noise, y = torch.rand(4, 1, 2, 3), torch.randn(1, 4, 1, 2, 3), torch.tensor([0, 1, 2, 1])
    objective = smoothed_cross_entropy(y)
    gradient, found = objective_gradient(model, noisy_forward(model, noise), x, objective)
    x = x.requires_grad_()
    logits = model(x + noise[0])
    (expected,) = torch.autograd.grad(F.cross_entropy(logits, y, reduction="sum"), [x])
    torch.testing.assert_close(gradient, expected)
    torch.testing.assert_close(found[0], logits.detach())
    assert not found.requires_grad


def test_gradient_is_that_of_the_averaged_probability():
    """By differences, so that no derivative is trusted: it is log of a mean, not mean of logs."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)).double()
    x, noise, y = (
        torch.rand(2, 1, 2, 2, dtype=DOUBLE),
        torch.randn(3, 2, 1, 2, 2, dtype=DOUBLE),
        torch.tensor([2, 0]),
    )
    forward = noisy_forward(model, noise)
    gradient, _ = objective_gradient(model, forward, x, smoothed_cross_entropy(y))

    def objective(x):
        probs = model((x + noise).flatten(0, 1)).softmax(-1).view(3, 2, 3).mean(0)
        return -float(probs[torch.arange(2), y].log().sum().detach())

    for at in range(x.numel()):
        nudge = torch.zeros(x.numel(), dtype=DOUBLE)
        nudge[at] = 1e-6
        slope = (objective(x + nudge.view_as(x)) - objective(x - nudge.view_as(x))) / 2e-6
        assert slope == pytest.approx(float(gradient.flatten()[at]), abs=1e-7)


def test_the_network_is_untouched_even_when_the_walk_is_left_early():
    model = nn.Sequential(
        nn.Conv2d(1, 2, 2), nn.BatchNorm2d(2), nn.Dropout(0.5), nn.Flatten(), nn.Linear(8, 2)
    )
    model[2].eval()
    modes = [module.training for module in model.modules()]
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    x = torch.rand(4, 1, 3, 3)
    objective = smoothed_cross_entropy(labels(x))
    path = l2_ascent(model, x, zeros(x, 2), objective=objective, steps=5, step_size=1.0)
    next(path)
    for _ in range(2):
        next(path)
        assert [module.training for module in model.modules()] == modes
    del path
    assert all(torch.equal(state[name], tensor) for name, tensor in model.state_dict().items())
    assert all(p.grad is None and p.requires_grad for p in model.parameters())
    assert not x.requires_grad


def test_attacks_inside_no_grad():
    x = points([0.5, 0.5])
    with torch.no_grad():
        moved = walk(Plane([1.0, 0.0]), x)[-1]
    torch.testing.assert_close(moved, points([1.5, 0.5]))
    assert not moved.requires_grad


def test_the_objective_is_the_callers():
    """Another objective than cross-entropy, with the opposite direction: towards class 0."""
    x = points([0.5, 0.5])

    def towards_class_0(logits):
        return logits.log_softmax(-1)[..., 0].mean(0)

    path = l2_ascent(
        Plane([3.0, 4.0]), x, zeros(x), objective=towards_class_0, steps=1, step_size=1.0
    )
    torch.testing.assert_close(list(path)[-1], x - points([0.6, 0.8]), atol=1e-6, rtol=0)


@pytest.mark.parametrize("clamp", ["before", "after", "never"])
def test_pgd_is_the_last_iterate_within_the_ball(clamp):
    x = points([0.9, 0.5])
    model = Plane([0.8, 0.6])
    objective = smoothed_cross_entropy(labels(x))
    found = pgd(model, x, zeros(x), objective=objective, radius=0.2, steps=2, clamp=clamp)
    inside = ball(x, 0.2)
    constraints = {
        "before": [clamp_pixels, inside],
        "after": [inside, clamp_pixels],
        "never": [inside],
    }[clamp]
    path = walk(model, x, steps=2, step_size=0.2, constraints=constraints, floor=0.0)
    assert torch.equal(found, path[-1])
    assert float(l2_norm(found - x)) <= 0.2 + 1e-9
    assert (float(found.max()) > 1) == (clamp == "never")
