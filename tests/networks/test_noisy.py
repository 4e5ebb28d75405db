"""Logits of many images with one noise: the fast path gives what the plain path gives."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from smoothmix import networks
from smoothmix.networks.noisy import noisy_forward, noisy_logits
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
