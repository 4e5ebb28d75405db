"""Gradients of convolutions with respect to their input, faster than the processor's library has them.

Attacks spend most of their time there. Two cases are slow in oneDNN: few input channels, where its vectors stay nearly
empty, and a number of input channels that is no multiple of its vectors' length.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.overrides import TorchFunctionMode

from smoothmix.inference.fusion import LANES

FEW_CHANNELS = 3
"""At most so many input channels are done as one matrix product and a shifted sum for each weight of the kernel."""


@final
class FastConvolutions(TorchFunctionMode):
    """Within it, convolutions whose input gradient is slow get the faster one; all others stay as they are.

    With `frozen` their weights get no gradient, as in an attack, which could otherwise not be known in time.
    """

    def __init__(self, *, frozen: bool = False) -> None:
        super().__init__()
        self.frozen = frozen

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        call = _Call(*args, **kwargs) if func is torch.conv2d else None
        if call is None or not call.slow:
            return func(*args, **kwargs)
        weight, bias = call.weight, call.bias
        if self.frozen:
            weight, bias = weight.detach(), None if bias is None else bias.detach()
        how = _pair(call.stride), _pair(call.padding)
        return _Convolution.apply(call.input, weight, bias, *how)  # type: ignore[no-untyped-call]


@final
@dataclass(frozen=True)
class _Call:
    """The arguments of conv2d, by torch's names."""

    input: Tensor
    weight: Tensor
    bias: Tensor | None = None
    stride: int | Sequence[int] = 1
    padding: str | int | Sequence[int] = 0
    dilation: int | Sequence[int] = 1
    groups: int = 1

    @property
    def slow(self) -> bool:
        """Whether it will need a gradient that is worth the trouble."""
        x, weight = self.input, self.weight
        plain = (
            self.groups == 1
            and _pair(self.dilation) == (1, 1)
            and not isinstance(self.padding, str)
        )
        wanted = (
            torch.is_grad_enabled() and x.requires_grad and not torch.is_autocast_enabled("cpu")
        )
        fits = x.device.type == "cpu" and x.dim() == 4 and x.dtype == weight.dtype == torch.float32
        channels = weight.shape[1]
        return (
            plain
            and wanted
            and fits
            and (_few(channels, _pair(self.stride)) or channels % LANES > 0)
        )


def _pair(value: Any) -> tuple[int, int]:
    """What torch takes a number for, in rows and columns."""
    pair = (value,) if isinstance(value, int) else tuple(value)
    return (pair[0], pair[-1])


def _few(channels: int, stride: Sequence[int]) -> bool:
    return channels <= FEW_CHANNELS and tuple(stride) == (1, 1)


@final
class _Convolution(torch.autograd.Function):
    """conv2d without dilation and groups."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        stride: tuple[int, int],
        padding: tuple[int, int],
    ) -> Tensor:
        # Without a gradient for the weights (in an attack) only the shape of x is needed, not its values.
        ctx.save_for_backward(weight, x if ctx.needs_input_grad[1] else None)
        ctx.shape, ctx.stride, ctx.padding = x.shape, stride, padding
        return torch.conv2d(x, weight, bias, stride, padding)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        weight, x = ctx.saved_tensors
        by_weight = by_bias = None
        if ctx.needs_input_grad[1]:
            mask = [False, True, ctx.needs_input_grad[2]]
            _, by_weight, by_bias = _backward(gradient, x, weight, ctx.stride, ctx.padding, mask)
        elif ctx.needs_input_grad[2]:
            by_bias = gradient.sum((0, 2, 3))
        by_input = input_gradient(gradient, weight, ctx.shape, ctx.stride, ctx.padding)
        return by_input, by_weight, by_bias, None, None


def input_gradient(
    gradient: Tensor,
    weight: Tensor,
    shape: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
) -> Tensor:
    """What a convolution's output gradient is to its input, which has the given shape."""
    if _few(shape[1], stride):
        return _by_shifts(gradient, weight, shape, padding)
    more = -shape[1] % LANES
    wide = torch.nn.functional.pad(weight, (0, 0, 0, 0, 0, more))
    batch, channels, *size = shape
    # Its values are not read.
    like = torch.empty((batch, channels + more, *size), memory_format=torch.channels_last)
    padded, _, _ = _backward(gradient, like, wide, stride, padding, [True, False, False])
    return padded[:, :channels]


def _by_shifts(
    gradient: Tensor, weight: Tensor, shape: Sequence[int], padding: Sequence[int]
) -> Tensor:
    """Each weight of the kernel carries the output's gradient, mixed over channels, to the place that it reads from."""
    batch, channels, height, width = shape
    outputs, _, rows, columns = weight.shape
    tall, broad = gradient.shape[2:]
    pixels = gradient.permute(0, 2, 3, 1).reshape(-1, outputs)
    # [channels * rows * columns, outputs] @ [outputs, pixels]: each shift's numbers lie together.
    shifted = (weight.reshape(outputs, -1).t() @ pixels.t()).view(
        channels, rows, columns, batch, tall, broad
    )
    total = gradient.new_zeros(channels, batch, height + 2 * padding[0], width + 2 * padding[1])
    for row in range(rows):
        for column in range(columns):
            total[..., row : row + tall, column : column + broad] += shifted[:, row, column]
    inner = total[..., padding[0] : padding[0] + height, padding[1] : padding[1] + width]
    return inner.transpose(0, 1)


def _backward(
    gradient: Tensor,
    x: Tensor,
    weight: Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    mask: list[bool],
) -> tuple[Tensor, Tensor, Tensor]:
    by_input, by_weight, by_bias = torch.ops.aten.convolution_backward(
        gradient, x, weight, [weight.shape[0]], stride, padding, [1, 1], False, [0, 0], 1, mask
    )
    return by_input, by_weight, by_bias
