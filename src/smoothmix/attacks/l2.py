"""Adversarial examples of the smoothed classifier: the only attack loops.

The network is attacked in eval mode, so that BatchNorm statistics are used and never updated, and gradients are
taken with respect to the images alone: none is computed for the weights, no flag is touched, no `.grad` is left.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from smoothmix.attacks._convolution import FastConvolutions
from smoothmix.networks.modes import eval_mode
from smoothmix.networks.noisy import noisy_forward

FLOOR = 1e-20
"""A smoothed probability below this is not pushed further down by attacks that take a floor."""


def l2_norm(images: Tensor) -> Tensor:
    """The L2 norm of each image, as [batch, 1, ...]."""
    norm: Tensor = torch.linalg.vector_norm(images, dim=tuple(range(1, images.ndim)), keepdim=True)
    return norm


def damped_unit_l2(gradient: Tensor) -> Tensor:
    """Each image's gradient at nearly length 1, as the released code has it: one as short as 1e-8 stays shorter."""
    return gradient / (l2_norm(gradient) + 1e-8)


def unit_l2(gradient: Tensor) -> Tensor:
    """Each image's gradient at length 1, however short it was; a zero gradient stays zero."""
    norm = l2_norm(gradient)
    return gradient / torch.where(norm > 0, norm, 1)


def unit_l2_or_random(gradient: Tensor) -> Tensor:
    """Each image's gradient at length 1; a zero gradient is replaced by standard normal numbers."""
    zero, unit = l2_norm(gradient) == 0, unit_l2(gradient)
    return torch.where(zero, torch.randn_like(unit), unit) if bool(zero.any()) else unit


def project_l2(x: Tensor, centre: Tensor, radius: float) -> Tensor:
    """x where it lies within `radius` of the centre, else the nearest point that does."""
    offset = x - centre
    norm = l2_norm(offset)
    return torch.where(norm > radius, centre + offset * (radius / norm), x)


def clamp_pixels(x: Tensor) -> Tensor:
    """x with every pixel in [0, 1]."""
    return x.clamp(0, 1)


Constraint = Callable[[Tensor], Tensor]


def ball(centre: Tensor, radius: float) -> Constraint:
    """The constraint to lie within `radius` of each image of `centre`."""
    return partial(project_l2, centre=centre, radius=radius)


def smoothed_gradient(
    model: nn.Module,
    forward: Callable[[Tensor], Tensor],
    x: Tensor,
    y: Tensor,
    *,
    floor: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Gradient of the attack's objective at x, and the smoothed prediction there as log-probabilities.

    The objective is the sum over images of -log max(mean_i softmax F(x + noise_i)_y, floor): J of eq. (adv_step),
    eq. (smoothadv_train_approx). With one copy and no floor it is the cross-entropy. `forward` is the model's
    `noisy_forward`.
    """
    with eval_mode(model), torch.enable_grad(), FastConvolutions(frozen=True):
        x = x.detach().requires_grad_()
        copies = forward(x).log_softmax(-1)
        smoothed = copies.logsumexp(0) - math.log(len(copies))
        true_class = smoothed.gather(-1, y[:, None])
        objective = -true_class.clamp_min(math.log(floor) if floor > 0 else -math.inf).sum()
        (gradient,) = torch.autograd.grad(objective, [x])
    return gradient, smoothed.detach()


def l2_ascent(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    noise: Tensor,
    *,
    steps: int,
    step_size: float,
    constraints: Sequence[Constraint] = (),
    direction: Callable[[Tensor], Tensor] = damped_unit_l2,
    floor: float = FLOOR,
) -> Iterator[Tensor]:
    """The iterates of normalised gradient ascent (eq. adv_step), x itself first: `steps` + 1 of them.

    After each step the constraints are applied in the order given: to clamp and then project is not to project
    and then clamp, and published attacks differ in it.
    """
    point = x.detach()
    yield point
    forward = noisy_forward(model, noise)
    for _ in range(steps):
        gradient, _ = smoothed_gradient(model, forward, point, y, floor=floor)
        point = point + step_size * direction(gradient)
        for constrain in constraints:
            point = constrain(point)
        yield point


def ddn(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    noise: Tensor,
    *,
    steps: int,
    radius: float,
    clamp: bool = True,
    gamma: float = 0.05,
    levels: int = 256,
) -> Tensor:
    """The nearest misclassified images that decoupled direction and norm (Rony et al., 2019) finds; else x itself.

    The norm starts at `radius`, shrinks by gamma where the iterate fools the smoothed classifier and grows by it
    where not; the direction moves by cosine-annealed steps from 1 to 0.01. Iterates have `levels` values a pixel.
    x is the first iterate, so that an image already misclassified stays; what is found beyond `radius` is brought
    back to it.
    """

    def quantise(point: Tensor) -> Tensor:
        rounded = (point * (levels - 1)).round() / (levels - 1)
        return clamp_pixels(rounded) if clamp else rounded

    x = x.detach()
    forward = noisy_forward(model, noise)
    point = best = x
    norm = torch.full_like(l2_norm(x), radius)
    best_norm = torch.full_like(norm, math.inf)
    for k in range(steps):
        gradient, smoothed = smoothed_gradient(model, forward, point, y)
        fooled = (smoothed.argmax(-1) != y).view_as(norm)
        offset = point - x
        length = l2_norm(offset)
        nearer = fooled & (length < best_norm)
        best, best_norm = torch.where(nearer, point, best), torch.where(nearer, length, best_norm)
        offset = offset + (0.505 + 0.495 * math.cos(math.pi * k / steps)) * unit_l2_or_random(
            gradient
        )
        norm = norm * torch.where(fooled, 1 - gamma, 1 + gamma)
        point = quantise(x + offset * (norm / l2_norm(offset).clamp_min(1e-12)))
    return torch.where(l2_norm(best - x) > radius, quantise(project_l2(best, x, radius)), best)
