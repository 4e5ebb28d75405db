"""Small denoisers: noisy images in the [0, 1] scale go in, images of the same shape come out."""

from __future__ import annotations

from collections import OrderedDict
from typing import final

import torch
from torch import Tensor, nn

from smoothmix.errors import UsageError


@final
class Residual(nn.Module):
    """Adds what its body computes to the images: the body learns the negative of the noise."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, images: Tensor) -> Tensor:
        change: Tensor = self.body(images)
        return images + change


def dncnn(channels: int) -> nn.Module:
    """DnCNN (Zhang et al., 2017) with 17 layers of 64 channels."""
    return _dncnn(channels, width=64, depth=17)


def _dncnn(channels: int, *, width: int, depth: int) -> nn.Module:
    layers: dict[str, nn.Module] = {
        "conv1": nn.Conv2d(channels, width, 3, padding=1),
        "relu1": nn.ReLU(inplace=True),
    }
    for number in range(2, depth):
        # The BatchNorm after it has a bias of its own.
        layers[f"conv{number}"] = nn.Conv2d(width, width, 3, padding=1, bias=False)
        layers[f"bn{number}"] = nn.BatchNorm2d(width)
        layers[f"relu{number}"] = nn.ReLU(inplace=True)
    layers[f"conv{depth}"] = nn.Conv2d(width, channels, 3, padding=1)
    return Residual(nn.Sequential(OrderedDict(layers)))


@final
class UNet(nn.Module):
    """Two levels of half the size each, whose features are joined with those on the way down."""

    SCALE = 4
    """Images must have sides that this divides."""

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.top = _block(channels, width)
        self.middle = _block(width, 2 * width, stride=2)
        self.bottom = _block(2 * width, 4 * width, stride=2)
        self.up_middle = nn.ConvTranspose2d(4 * width, 2 * width, 2, stride=2)
        self.join_middle = _block(4 * width, 2 * width)
        self.up_top = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.join_top = _block(2 * width, width)
        self.last = nn.Conv2d(width, channels, 3, padding=1)

    def forward(self, images: Tensor) -> Tensor:
        top = self.top(images)
        middle = self.middle(top)
        bottom = self.bottom(middle)
        middle = self.join_middle(torch.cat([self.up_middle(bottom), middle], 1))
        top = self.join_top(torch.cat([self.up_top(middle), top], 1))
        noise: Tensor = self.last(top)
        return noise


def _block(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    )


def unet(channels: int, size: int | None = None) -> nn.Module:
    """A small U-Net (Ronneberger et al., 2015) with 16, 32 and 64 channels."""
    if size is not None and size % UNet.SCALE:
        raise UsageError(
            f"the denoiser unet takes images whose sides are multiples of {UNet.SCALE}, "
            f"not {size}: use dncnn"
        )
    return Residual(UNet(channels, width=16))
