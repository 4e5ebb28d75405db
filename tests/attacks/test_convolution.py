"""The faster input gradients are the gradients."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import smoothmix as sm
from smoothmix.attacks import fast_gradients
from smoothmix.attacks._convolution import FastConvolutions, input_gradient
from smoothmix.networks import build


def gradients(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: int,
    padding: int,
    mode: FastConvolutions | None,
) -> list[Tensor | None]:
    """Of a loss that weights every output differently, by input, weight and bias."""
    leaves = [None if t is None else t.clone().requires_grad_() for t in (x, weight, bias)]
    if mode:
        with mode:
            out = torch.nn.functional.conv2d(*leaves, stride=stride, padding=padding)
    else:
        out = torch.nn.functional.conv2d(*leaves, stride=stride, padding=padding)
    steps = torch.linspace(-1, 1, out.numel()).view_as(out)
    (out * steps).sum().backward()
    return [None if leaf is None else leaf.grad for leaf in leaves]


@given(
    inputs=st.sampled_from([1, 2, 3, 4, 16, 20, 33]),
    outputs=st.integers(1, 20),
    kernel=st.integers(1, 5),
    stride=st.integers(1, 2),
    padding=st.integers(0, 2),
    size=st.tuples(st.integers(5, 9), st.integers(5, 9)),
    biased=st.booleans(),
    channels_last=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_all_gradients_are_torchs_own(
    inputs, outputs, kernel, stride, padding, size, biased, channels_last
):
    torch.manual_seed(inputs * outputs)
    x, weight = torch.randn(3, inputs, *size), torch.randn(outputs, inputs, kernel, kernel)
    if channels_last:
        x, weight = (t.contiguous(memory_format=torch.channels_last) for t in (x, weight))
    bias = torch.randn(outputs) if biased else None
    expected = gradients(x, weight, bias, stride, padding, None)
    for found, right in zip(
        gradients(x, weight, bias, stride, padding, FastConvolutions()), expected, strict=True
    ):
        assert (found is None) == (right is None)
        if found is not None and right is not None:
            torch.testing.assert_close(found, right, rtol=1e-4, atol=1e-4)


def test_the_input_gradient_in_double_precision_is_exact():
    """Slow and obvious: each output's gradient, carried back through each weight of the kernel."""
    torch.manual_seed(0)
    weight, gradient = (
        torch.randn(4, 2, 3, 3, dtype=torch.float64),
        torch.randn(2, 4, 5, 6, dtype=torch.float64),
    )
    slow = torch.zeros(2, 2, 7, 8, dtype=torch.float64)
    for row in range(5):
        for column in range(6):
            carried = torch.einsum("bo,oikl->bikl", gradient[:, :, row, column], weight)
            slow[:, :, row : row + 3, column : column + 3] += carried
    torch.testing.assert_close(input_gradient(gradient, weight, (2, 2, 7, 8), (1, 1), (0, 0)), slow)


def test_frozen_weights_get_no_gradient_and_the_input_gets_the_same():
    torch.manual_seed(0)
    x, weight, bias = torch.randn(2, 20, 6, 6), torch.randn(5, 20, 3, 3), torch.randn(5)
    by_input, by_weight, by_bias = gradients(
        x, weight, bias, 1, 0, FastConvolutions(frozen_weights=True)
    )
    assert by_weight is None
    assert by_bias is None
    torch.testing.assert_close(
        by_input, gradients(x, weight, bias, 1, 0, None)[0], rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("channels", [(20, 50), (5, 16), (40, 7)])
def test_in_bf16_padded_channels_give_the_same_bits(channels, stride):
    """A run that began with PyTorch's own gradients resumes with these."""
    torch.manual_seed(0)
    inputs, outputs = channels
    x = torch.randn(9, inputs, 12, 12).contiguous(memory_format=torch.channels_last)
    weight = torch.randn(outputs, inputs, 5, 5).contiguous(memory_format=torch.channels_last)
    bias = torch.randn(outputs)
    found = []
    for mode in (FastConvolutions(frozen_weights=True), None):
        with torch.autocast("cpu", torch.bfloat16):
            found.append(gradients(x, weight, bias, stride, 1, mode))
    (padded, frozen, _), (plain, _, _) = found
    assert frozen is None
    assert torch.equal(padded, plain)


def test_in_bf16_an_attack_is_faster_and_weights_that_learn_stay_with_pytorch():
    x = torch.randn(2, 20, 8, 8, requires_grad=True)
    weight = torch.randn(5, 20, 3, 3, requires_grad=True)
    names = []
    for frozen in (True, False):
        mode = FastConvolutions(frozen_weights=frozen)
        with mode, torch.autocast("cpu", torch.bfloat16):
            out = torch.nn.functional.conv2d(x, weight)
        assert out.dtype == torch.bfloat16
        names.append(type(out.grad_fn).__name__)
    assert "_Convolution" in names[0]
    assert "_Convolution" not in names[1]


@pytest.mark.parametrize(
    "change", ["groups", "dilation", "same", "double", "no gradient", "autocast"]
)
def test_what_it_is_not_made_for_stays_as_it_was(change):
    torch.manual_seed(0)
    x, weight = (
        torch.randn(2, 20, 8, 8, requires_grad=change != "no gradient"),
        torch.randn(20, 20, 3, 3),
    )
    options = {
        "groups": {"groups": 20},
        "dilation": {"dilation": 2},
        "same": {"padding": "same"},
    }.get(change, {})
    weight = weight[:, :1] if change == "groups" else weight
    if change == "double":
        x, weight = x.double(), weight.double()
    with FastConvolutions(), torch.autocast("cpu", torch.bfloat16, enabled=change == "autocast"):
        out = torch.nn.functional.conv2d(x, weight, **options)
    assert "_Convolution" not in type(out.grad_fn).__name__


def test_a_slow_one_is_replaced():
    with FastConvolutions():
        out = torch.nn.functional.conv2d(
            torch.randn(2, 20, 8, 8, requires_grad=True), torch.randn(5, 20, 3, 3)
        )
    assert "_Convolution" in type(out.grad_fn).__name__


def test_the_switch_leaves_convolutions_to_pytorch(monkeypatch):
    """A whole method, attack and all, with and without: the same gradients but for rounding."""
    torch.manual_seed(0)
    model = build("lenet")
    x, y = torch.rand(3, 1, 28, 28), torch.tensor([3, 1, 4])
    method = sm.SmoothMix(sigma=0.5, copies=2, steps=2)
    noise, mix = 0.5 * torch.randn(2, *x.shape), torch.tensor([0.1, 0.2, 0.3])
    found = {}
    for plain in ("0", "1"):
        monkeypatch.setenv("SMOOTHMIX_PLAIN_GRADIENTS", plain)
        with fast_gradients() as context:
            assert isinstance(context, FastConvolutions) == (plain == "0")
        loss = method.loss(model, x, y, epoch=20, noise=noise, mix=mix).total
        found[plain] = torch.autograd.grad(loss, list(model.parameters()))
    for fast, plain in zip(found["0"], found["1"], strict=True):
        torch.testing.assert_close(fast, plain, rtol=1e-3, atol=1e-4)


def test_in_bf16_the_switch_changes_no_bit(monkeypatch):
    torch.manual_seed(0)
    model = build("lenet").to(memory_format=torch.channels_last)
    x, y = torch.rand(8, 1, 28, 28), torch.arange(8)
    method = sm.SmoothMix(sigma=0.5, copies=2, steps=2)
    noise, mix = 0.5 * torch.randn(2, *x.shape), torch.linspace(0, 0.5, 8)
    found = {}
    for plain in ("0", "1"):
        monkeypatch.setenv("SMOOTHMIX_PLAIN_GRADIENTS", plain)
        with torch.autocast("cpu", torch.bfloat16):
            loss = method.loss(model, x, y, epoch=20, noise=noise, mix=mix).total
        found[plain] = torch.autograd.grad(loss, list(model.parameters()))
    for fast, plain in zip(found["0"], found["1"], strict=True):
        assert torch.equal(fast, plain)
