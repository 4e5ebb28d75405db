"""Faster gradients of convolutions with respect to their input, on CPUs.

Attacks spend most of their time there. oneDNN is slow in two cases: few input channels, which
leave its vectors nearly empty, and a number of input channels that is no multiple of the length
of its vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.overrides import TorchFunctionMode

LANES = 16
"""Numbers of float32 in a vector of AVX512: oneDNN works on whole vectors of channels."""

FEW_CHANNELS = 3
"""Up to so many input channels, one matrix product and a few shifted sums are faster."""


@final
class FastConvolutions(TorchFunctionMode):
    """Within it, convolutions with a slow input gradient get a faster one; others do not change.

    With `frozen_weights` the weights of those get no gradient.
    """

    # Whether an attack wants gradients of the weights is not known when a convolution runs, so
    # that the attack has to say it in advance.
    def __init__(self, *, frozen_weights: bool = False) -> None:
        super().__init__()
        self.frozen_weights = frozen_weights

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func is not torch.conv2d:
            return func(*args, **kwargs)
        call = _Call(*args, **kwargs)
        if self.frozen_weights:
            call = call.with_frozen_weights()
        if not call.has_slow_gradient:
            return func(*args, **kwargs)
        return call.run()


@final
@dataclass(frozen=True)
class _Call:
    """The arguments of conv2d, with torch's names, and what the mode knows about it."""

    input: Tensor
    weight: Tensor
    bias: Tensor | None = None
    stride: int | Sequence[int] = 1
    padding: str | int | Sequence[int] = 0
    dilation: int | Sequence[int] = 1
    groups: int = 1
    is_frozen: bool = False
    """Whether weight and bias get no gradient."""

    def with_frozen_weights(self) -> _Call:
        """The same without gradients for weight and bias."""
        bias = self.bias
        if bias is not None:
            bias = bias.detach()
        return replace(self, weight=self.weight.detach(), bias=bias, is_frozen=True)

    @property
    def precision(self) -> torch.dtype | None:
        """What it computes in: float32, or bf16 under autocast; None where it stays with torch."""
        tensors = [self.input, self.weight]
        if self.bias is not None:
            tensors.append(self.bias)
        dtypes = {tensor.dtype for tensor in tensors}
        casts = torch.is_autocast_enabled("cpu")
        if not casts and dtypes == {torch.float32}:
            return torch.float32
        # Inside of torch, autocast sums the gradients of several forwards for one weight in bf16.
        to_bf16 = casts and torch.get_autocast_dtype("cpu") == torch.bfloat16
        if to_bf16 and self.is_frozen and dtypes <= {torch.float32, torch.bfloat16}:
            return torch.bfloat16
        return None

    @property
    def has_slow_gradient(self) -> bool:
        """Whether an input gradient is needed, and computed faster here."""
        return self._needs_gradient and self._is_supported and self._is_slow

    def run(self) -> Tensor:
        """The convolution, with the faster gradient."""
        # The casts of autocast; in float32 they return the tensors themselves.
        x = self.input.to(self.precision)
        weight = self.weight.to(self.precision)
        bias = self.bias
        if bias is not None:
            bias = bias.to(self.precision)
        result: Tensor = _Convolution.apply(  # type: ignore[no-untyped-call]
            x, weight, bias, _pair(self.stride), _pair(self.padding)
        )
        return result

    @property
    def _needs_gradient(self) -> bool:
        return torch.is_grad_enabled() and self.input.requires_grad

    @property
    def _is_supported(self) -> bool:
        x = self.input
        # Only what was measured: elsewhere the usual gradient may be the faster one.
        if x.device.type != "cpu" or x.dim() != 4 or self.precision is None:
            return False
        if isinstance(self.padding, str):
            return False
        return self.groups == 1 and _pair(self.dilation) == (1, 1)

    @property
    def _is_slow(self) -> bool:
        channels = self.weight.shape[1]
        if _has_few_channels(channels, _pair(self.stride)):
            # In bf16, shifted sums would round otherwise, and padding gains nothing.
            return self.precision == torch.float32
        return channels % LANES > 0


def _pair(value: Any) -> tuple[int, int]:
    """Rows and columns, for which torch also takes one number."""
    if isinstance(value, int):
        return (value, value)
    return (value[0], value[-1])


def _has_few_channels(channels: int, stride: Sequence[int]) -> bool:
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
        # Without a gradient for the weights, the shape of x is enough: its memory can be freed.
        kept_input = x if ctx.needs_input_grad[1] else None
        ctx.save_for_backward(weight, kept_input)
        ctx.shape = x.shape
        ctx.stride = stride
        ctx.padding = padding
        return torch.conv2d(x, weight, bias, stride, padding)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        weight, x = ctx.saved_tensors
        _, needs_weight, needs_bias, _, _ = ctx.needs_input_grad
        weight_gradient = None
        bias_gradient = None
        if needs_weight:
            mask = [False, True, needs_bias]
            _, weight_gradient, bias_gradient = _backward(
                gradient, x, weight, ctx.stride, ctx.padding, mask
            )
        elif needs_bias:
            bias_gradient = gradient.sum((0, 2, 3))
        # In every case: without this gradient the usual convolution would have run.
        gradient_of_input = input_gradient(gradient, weight, ctx.shape, ctx.stride, ctx.padding)
        return gradient_of_input, weight_gradient, bias_gradient, None, None


def input_gradient(
    gradient: Tensor,
    weight: Tensor,
    shape: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
) -> Tensor:
    """Gradient with respect to the input, of the given shape, from that of the output."""
    batch, channels, *size = shape
    if _has_few_channels(channels, stride):
        return _by_shifts(gradient, weight, shape, padding)
    # Channels of zeros fill the last vector.
    added = -channels % LANES
    wide_weight = torch.nn.functional.pad(weight, (0, 0, 0, 0, 0, added))
    # The operator wants the input too, but reads no more than its shape.
    wide_input = torch.empty(
        (batch, channels + added, *size),
        dtype=gradient.dtype,
        memory_format=torch.channels_last,
    )
    wide_gradient, _, _ = _backward(
        gradient, wide_input, wide_weight, stride, padding, [True, False, False]
    )
    # Without the gaps, what comes next takes half the time.
    return wide_gradient[:, :channels].contiguous(memory_format=torch.channels_last)


def _by_shifts(
    gradient: Tensor, weight: Tensor, shape: Sequence[int], padding: Sequence[int]
) -> Tensor:
    """The sum over the kernel's weights of the output's gradient, moved to where each one reads."""
    batch, channels, height, width = shape
    outputs, _, rows, columns = weight.shape
    out_height, out_width = gradient.shape[2:]
    pixels = gradient.permute(0, 2, 3, 1).reshape(-1, outputs)
    # [channels * rows * columns, outputs] @ [outputs, pixels]: each shift's numbers are adjacent.
    products = weight.reshape(outputs, -1).t() @ pixels.t()
    shifted = products.view(channels, rows, columns, batch, out_height, out_width)
    top, left = padding
    total = gradient.new_zeros(channels, batch, height + 2 * top, width + 2 * left)
    for row in range(rows):
        for column in range(columns):
            target = total[..., row : row + out_height, column : column + out_width]
            target += shifted[:, row, column]
    return total[..., top : top + height, left : left + width].transpose(0, 1)


def _backward(
    gradient: Tensor,
    x: Tensor,
    weight: Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    mask: list[bool],
) -> tuple[Tensor, Tensor, Tensor]:
    """PyTorch's gradients for input, weight and bias; `mask` selects which are computed."""
    input_gradient, weight_gradient, bias_gradient = torch.ops.aten.convolution_backward(
        gradient, x, weight, [weight.shape[0]], stride, padding, [1, 1], False, [0, 0], 1, mask
    )
    return input_gradient, weight_gradient, bias_gradient
