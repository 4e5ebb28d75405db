"""Logits of many images with one noise: the fast path gives what the plain path gives."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from smoothmix import networks
from smoothmix.methods.base import in_format_of
from smoothmix.networks.noisy import noisy_forward, noisy_logits
from smoothmix.networks.pooling import PLAIN, can_pool, pooled_sum, quarters
from tests.conftest import small_convnet

IMAGES = torch.rand(3, 1, 28, 28, generator=torch.Generator().manual_seed(5))


@pytest.mark.parametrize(
    ("name", "size"), [("lenet", 28), ("cifar_resnet20", 32), ("resnet50", 64)]
)
def test_a_network_of_ours_sees_the_noise_once_and_gives_the_same_logits_and_gradient(
    name: str, size: int
) -> None:
    torch.manual_seed(0)
    model = networks.build(name).double().eval()
    x = torch.rand(
        2, networks.NETWORKS[name].channels, size, size, dtype=torch.float64, requires_grad=True
    )
    noise = 0.5 * torch.randn(3, *x.shape, dtype=torch.float64)
    quick, plain = noisy_forward(model, noise)(x), noisy_logits(model, x, noise)
    torch.testing.assert_close(quick, plain, rtol=1e-9, atol=1e-9)
    gradients = [
        torch.autograd.grad(logits.log_softmax(-1)[..., 1].sum(), x)[0] for logits in (quick, plain)
    ]
    torch.testing.assert_close(*gradients, rtol=1e-8, atol=1e-9)


def test_any_other_network_takes_the_plain_way() -> None:
    model, noise = small_convnet().eval(), torch.randn(2, *IMAGES.shape)
    torch.testing.assert_close(
        noisy_forward(model, noise)(IMAGES), noisy_logits(model, IMAGES, noise)
    )


class Doubled(nn.Conv2d):
    """A subclass that is no plain convolution."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(x)


@pytest.mark.parametrize(
    "network",
    [
        networks.Network(
            nn.Identity(),
            nn.Sequential(nn.Conv2d(1, 4, 3, padding=1, padding_mode="reflect"), nn.Flatten()),
        ),
        networks.Network(
            nn.Identity(), nn.Sequential(nn.Conv2d(1, 4, 3, dilation=2), nn.Flatten())
        ),
        networks.Network(nn.Identity(), nn.Sequential(Doubled(1, 4, 3), nn.Flatten())),
        networks.Network(nn.Sigmoid(), nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten())),
        networks.Network(
            nn.Sequential(networks.Normalise([0.5], [0.3])),
            nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten()),
        ),
    ],
    ids=["reflect", "dilation", "subclass", "own normalise", "wrapped normalise"],
)
def test_the_quick_way_is_taken_only_where_it_is_the_same(network: nn.Module) -> None:
    noise = torch.randn(2, *IMAGES.shape)
    torch.testing.assert_close(
        noisy_forward(network, noise)(IMAGES), noisy_logits(network, IMAGES, noise)
    )


@pytest.mark.parametrize("copies", [1, 2, 4, 16])
@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16, torch.float64])
def test_pooling_of_all_copies_is_torchs_own_bit_for_bit(
    precision: torch.dtype, copies: int
) -> None:
    torch.manual_seed(0)
    # Few values, so that many maxima are reached twice, and some squares are not positive.
    maps = torch.randint(-3, 3, (3, 20, 8, 6)).to(precision)
    offsets = torch.randint(-3, 3, (copies, 3, 20, 8, 6)).to(precision)
    weights = torch.randn(copies, 3, 20, 4, 3).to(precision)
    maps = maps.contiguous(memory_format=torch.channels_last).requires_grad_()
    offsets = in_format_of(maps, offsets)

    expected = F.max_pool2d((maps + offsets).flatten(0, 1), 2).relu().view_as(weights)
    found = pooled_sum(maps, quarters(offsets))
    assert torch.equal(found, expected)
    gradients = [torch.autograd.grad(pooled, maps, weights)[0] for pooled in (found, expected)]
    assert gradients[0].dtype == precision
    assert torch.equal(*gradients)


@pytest.mark.parametrize("bf16", [False, True])
def test_the_switch_leaves_pooling_to_pytorch_with_the_same_bits(
    bf16: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    model = networks.build("lenet").to(memory_format=torch.channels_last).eval()
    noise = 0.5 * torch.randn(2, *IMAGES.shape)
    x = IMAGES.clone().requires_grad_()
    found = {}
    for plain in ("0", "1"):
        monkeypatch.setenv(PLAIN, plain)
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            logits = noisy_forward(model, noise)(x)
        names = _functions(logits)
        assert ("_PooledSumBackward" in names) == (plain == "0")
        found[plain] = [logits, *torch.autograd.grad(logits[..., 1].sum(), x)]
    for fast, plain_one in zip(found["0"], found["1"], strict=True):
        assert torch.equal(fast, plain_one)


def _functions(result: Tensor) -> set[str]:
    """Names of the functions that a result was computed with, from its graph."""
    seen = set()
    ahead = [result.grad_fn]
    while ahead:
        function = ahead.pop()
        if function is not None and function not in seen:
            seen.add(function)
            ahead.extend(following for following, _ in function.next_functions)
    return {function.name() for function in seen}


def test_more_copies_than_torch_adds_in_order_are_left_to_it() -> None:
    maps = torch.zeros(2, 3, 4, 4).contiguous(memory_format=torch.channels_last)
    assert can_pool(maps, 16)
    assert not can_pool(maps, 17)
    assert not can_pool(maps[:, :, 1:], 16)


def test_a_hook_on_the_first_pooling_is_called() -> None:
    model = networks.build("lenet").to(memory_format=torch.channels_last).eval()
    called = []
    model.get_submodule("body.pool1").register_forward_hook(lambda *_: called.append(1))
    noisy_forward(model, torch.randn(2, *IMAGES.shape))(IMAGES)
    assert called == [1]
