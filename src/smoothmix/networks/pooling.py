"""LeNet's first pooling in an attack, on CPUs: the same numbers in faster passes over memory.

In an attack, the first convolution maps x + d to z + e, where z belongs to an image, and e to one
of its copies. What is pooled is their sum. `SMOOTHMIX_PLAIN_GRADIENTS=1` in the environment leaves
it to PyTorch, which computes the same bits in more than twice the time.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple, final

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

PLAIN = "SMOOTHMIX_PLAIN_GRADIENTS"
"""The environment variable that leaves gradients to PyTorch."""


IN_ORDER = 16
"""So many numbers torch.sum adds one after the other; of more, it adds partial sums."""


def plain_gradients() -> bool:
    """Whether gradients are to be computed by PyTorch alone."""
    return os.environ.get(PLAIN, "0") not in ("", "0")


class Quarters(NamedTuple):
    """The four pixels of every 2x2 square, each as a tensor [..., rows, columns, channels]."""

    first: Tensor
    right: Tensor
    below: Tensor
    diagonal: Tensor


def quarters(maps: Tensor) -> Quarters:
    """The quarters of maps [..., channels, rows, columns], whose sides are even."""
    pixels = maps.movedim(-3, -1)
    return Quarters(
        pixels[..., ::2, ::2, :].contiguous(),
        pixels[..., ::2, 1::2, :].contiguous(),
        pixels[..., 1::2, ::2, :].contiguous(),
        pixels[..., 1::2, 1::2, :].contiguous(),
    )


def can_pool(maps: Tensor, copies: int) -> bool:
    """Whether `pooled_sum` is faster for such maps, and its sums over copies have torch's bits.

    That is so on a CPU, with channels last and even sides.
    """
    if plain_gradients() or copies > IN_ORDER:
        return False
    if maps.device.type != "cpu" or maps.dim() != 4:
        return False
    even = maps.shape[2] % 2 == 0 and maps.shape[3] % 2 == 0
    return even and maps.is_contiguous(memory_format=torch.channels_last)


def pooled_sum(maps: Tensor, offsets: Quarters) -> Tensor:
    """ReLU of the 2x2 maxima of maps + offsets, as [copies, batch, channels, rows, columns].

    `maps` is [batch, ...], the offsets are the quarters of maps [copies, batch, ...] and get no
    gradient.
    """
    pooled: Tensor = _PooledSum.apply(maps, *offsets)  # type: ignore[no-untyped-call]
    return pooled


@final
class _PooledSum(torch.autograd.Function):
    """max_pool2d(maps + offsets, 2).relu(), on whole vectors instead of windows.

    Masks are numbers, 0 or 1, in the type of the maps: multiplying by them is several times as fast
    as selecting by truth values.
    """

    @staticmethod
    def forward(ctx: Any, maps: Tensor, *offsets: Tensor) -> Tensor:
        first, right, below, diagonal = (
            torch.add(offset, part) for offset, part in zip(offsets, quarters(maps), strict=True)
        )
        # As in max_pool2d, the first of equal maxima gets the gradient: hence `greater`.
        in_right = _greater(right, first)
        in_diagonal = _greater(diagonal, below)
        above = torch.maximum(first, right, out=first)
        under = torch.maximum(below, diagonal, out=below)
        in_under = _greater(under, above)
        pooled = torch.maximum(above, under, out=right).relu_()
        ctx.save_for_backward(pooled, in_right, in_diagonal, in_under)
        ctx.shape = maps.shape
        return pooled.movedim(-1, -3)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        pooled, in_right, in_diagonal, in_under = ctx.saved_tensors
        above = torch.ops.aten.threshold_backward(gradient.movedim(-3, -1), pooled, 0)
        below = above * in_under
        above -= below
        right = above * in_right
        above -= right
        diagonal = below * in_diagonal
        below -= diagonal
        batch, channels, rows, columns = ctx.shape
        pixels = above.new_empty(batch, rows, columns, channels)
        pixels[:, ::2, ::2] = _sum_of_copies(above)
        pixels[:, ::2, 1::2] = _sum_of_copies(right)
        pixels[:, 1::2, ::2] = _sum_of_copies(below)
        pixels[:, 1::2, 1::2] = _sum_of_copies(diagonal)
        return pixels.movedim(-1, -3), None, None, None, None


def _greater(one: Tensor, other: Tensor) -> Tensor:
    """1 where `one` is greater than `other`, else 0."""
    return torch.gt(one, other, out=torch.empty_like(one))


def _sum_of_copies(gradient: Tensor) -> Tensor:
    """The sum over the first dimension, in float32 or better; the caller rounds it, once."""
    precise = torch.promote_types(gradient.dtype, torch.float32)
    # The order of torch.sum, which takes several times as long for bf16.
    total = gradient[0].to(precise, copy=True)
    for copy in gradient[1:]:
        total += copy
    return total
