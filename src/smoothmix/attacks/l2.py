"""Adversarial examples of the smoothed classifier by normalised gradient ascent.

The network is attacked in eval mode, so that BatchNorm uses its statistics and does not update
them. Gradients are taken with respect to the images alone: weights get no `.grad`, and no
`requires_grad` is changed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn

from smoothmix.attacks.gradients import fast_gradients
from smoothmix.networks.modes import eval_mode
from smoothmix.networks.noisy import noisy_forward

FLOOR = 1e-20
"""A smoothed probability below this is not pushed further down by attacks that use a floor."""

Objective = Callable[[Tensor], Tensor]
"""What an attack maximises: logits [copies, batch, classes] -> a number per image, [batch]."""

Direction = Callable[[Tensor], Tensor]
"""Turns the gradient at each image into the direction of a step."""

Constraint = Callable[[Tensor], Tensor]
"""Moves images to the nearest ones that are allowed."""

Clamp = Literal["before", "after", "never"]
"""When pixels are clamped to [0, 1]: before or after the projection to the ball, or not at all."""


def smoothed_cross_entropy(labels: Tensor, *, floor: float = 0.0) -> Objective:
    """The objective -log max(mean_i softmax F(x + noise_i)_y, floor).

    This is J of eq. (adv_step) and eq. (smoothadv_train_approx). With one copy and no floor it is
    the cross-entropy.
    """

    def objective(logits: Tensor) -> Tensor:
        # In logarithms, a probability that underflows still has a gradient.
        smoothed = logits.log_softmax(-1).logsumexp(0) - math.log(len(logits))
        true_class = smoothed.gather(-1, labels[:, None])[:, 0]
        if floor > 0:
            true_class = true_class.clamp_min(math.log(floor))
        return -true_class

    return objective


def l2_norm(images: Tensor) -> Tensor:
    """The L2 norm of each image, as [batch, 1, ...]."""
    norm: Tensor = torch.linalg.vector_norm(images, dim=tuple(range(1, images.ndim)), keepdim=True)
    return norm


def damped_unit_l2(gradient: Tensor) -> Tensor:
    """Each image's gradient over (its norm + 1e-8), as in the released code."""
    return gradient / (l2_norm(gradient) + 1e-8)


def unit_l2(gradient: Tensor) -> Tensor:
    """Each image's gradient scaled to length 1; a zero gradient stays zero."""
    norm = l2_norm(gradient)
    return gradient / torch.where(norm > 0, norm, 1)


def unit_l2_or_random(gradient: Tensor) -> Tensor:
    """Each image's gradient scaled to length 1; a zero gradient becomes standard normal numbers."""
    unit = unit_l2(gradient)
    zero = l2_norm(gradient) == 0
    # No random number is drawn in the usual case, so that runs with a seed stay as they are.
    if not bool(zero.any()):
        return unit
    return torch.where(zero, torch.randn_like(unit), unit)


def project_l2(x: Tensor, centre: Tensor, radius: float) -> Tensor:
    """The nearest point to x within `radius` of the centre."""
    offset = x - centre
    norm = l2_norm(offset)
    return torch.where(norm > radius, centre + offset * (radius / norm), x)


def clamp_pixels(x: Tensor) -> Tensor:
    """x with every pixel in [0, 1]."""
    return x.clamp(0, 1)


def ball(centre: Tensor, radius: float) -> Constraint:
    """The constraint to lie within `radius` of each image of `centre`."""
    return partial(project_l2, centre=centre, radius=radius)


def objective_gradient(
    model: nn.Module,
    forward: Callable[[Tensor], Tensor],
    x: Tensor,
    objective: Objective,
) -> tuple[Tensor, Tensor]:
    """Gradient of the objective at x, and the logits there; `forward` is `noisy_forward(model)`."""
    with eval_mode(model), torch.enable_grad(), fast_gradients(frozen_weights=True):
        x = x.detach().requires_grad_()
        logits = forward(x)
        # Summed, so that the gradient at an image does not depend on the size of the batch.
        (gradient,) = torch.autograd.grad(objective(logits).sum(), [x])
    return gradient, logits.detach()


def l2_ascent(
    model: nn.Module,
    x: Tensor,
    noise: Tensor,
    *,
    objective: Objective,
    steps: int,
    step_size: float,
    constraints: Sequence[Constraint] = (),
    direction: Direction = damped_unit_l2,
) -> Iterator[Tensor]:
    """The iterates of normalised gradient ascent (eq. adv_step), x first: `steps` + 1 of them.

    The constraints are applied after each step in the order given. To clamp and then project
    differs from projecting and then clamping, and published attacks differ in it.
    """
    point = x.detach()
    yield point
    # One for all steps: what depends on the noise alone is computed once.
    forward = noisy_forward(model, noise)
    for _ in range(steps):
        gradient, _ = objective_gradient(model, forward, point, objective)
        point = point + step_size * direction(gradient)
        for constrain in constraints:
            point = constrain(point)
        yield point


def pgd(
    model: nn.Module,
    x: Tensor,
    noise: Tensor,
    *,
    objective: Objective,
    radius: float,
    steps: int,
    direction: Direction = damped_unit_l2,
    clamp: Clamp = "after",
) -> Tensor:
    """The last of `steps` iterates of projected gradient ascent, within `radius` of x.

    Each step has the length 2 radius / steps, so that the other side of the ball can be reached.
    """
    constraints: list[Constraint] = [ball(x, radius)]
    if clamp == "before":
        constraints = [clamp_pixels, *constraints]
    if clamp == "after":
        constraints = [*constraints, clamp_pixels]
    *_, last = l2_ascent(
        model,
        x,
        noise,
        objective=objective,
        steps=steps,
        step_size=2 * radius / steps,
        constraints=constraints,
        direction=direction,
    )
    return last
