"""Residual networks (He et al., 2016). Layers have the names that published weights use."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import final

from torch import Tensor, nn


def convolution(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    """A convolution that keeps the size (over stride), without bias."""
    # The BatchNorm after it has a bias of its own.
    return nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)


def shortcut(inputs: int, outputs: int, stride: int) -> nn.Module:
    """The connection past a block: the identity, or a 1x1 convolution where the shape changes."""
    if stride == 1 and inputs == outputs:
        return nn.Identity()
    return nn.Sequential(convolution(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))


@final
class BasicBlock(nn.Module):
    """Two 3x3 convolutions with a shortcut."""

    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = convolution(inputs, width, 3, stride)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = convolution(width, width, 3)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = shortcut(inputs, width, stride)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.bn1(self.conv1(x)).relu_()
        outer: Tensor = self.bn2(self.conv2(inner))
        return outer.add_(self.downsample(x)).relu_()


@final
class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions with a shortcut; the 3x3 strides, as in "v1.5" weights."""

    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = width * self.expansion
        self.conv1 = convolution(inputs, width, 1)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = convolution(width, width, 3, stride)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = convolution(width, outputs, 1)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.downsample = shortcut(inputs, outputs, stride)

    def forward(self, x: Tensor) -> Tensor:
        narrow = self.bn1(self.conv1(x)).relu_()
        narrow = self.bn2(self.conv2(narrow)).relu_()
        wide: Tensor = self.bn3(self.conv3(narrow))
        return wide.add_(self.downsample(x)).relu_()


SMALL_IMAGE = 64
"""Height and width up to which `resnet18` has the stem for small images."""

Block = type[BasicBlock] | type[Bottleneck]


def stage(block: Block, inputs: int, width: int, count: int, stride: int) -> nn.Sequential:
    """`count` blocks of one width, the first of which changes the size."""
    first = block(inputs, width, stride)
    outputs = width * block.expansion
    others = [block(outputs, width, 1) for _ in range(count - 1)]
    return nn.Sequential(first, *others)


def resnet(
    stem: Mapping[str, nn.Module],
    block: Block,
    counts: Sequence[int],
    *,
    width: int,
    num_classes: int,
) -> nn.Sequential:
    """A stem, stages with `counts` blocks each, the mean over the image, and a linear layer.

    Each stage has twice the width and half the size of the one before.
    """
    layers = dict(stem)
    inputs = width
    stride = 1
    for number, count in enumerate(counts, start=1):
        layers[f"layer{number}"] = stage(block, inputs, width, count, stride)
        inputs = width * block.expansion
        width *= 2
        stride = 2
    # At the usual image size this is the 8x8 (7x7) average pooling; it works at other sizes too.
    layers["pool"] = nn.AdaptiveAvgPool2d(1)
    layers["flatten"] = nn.Flatten()
    layers["fc"] = nn.Linear(inputs, num_classes)
    body = nn.Sequential(OrderedDict(layers))
    for module in body.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return body


def cifar_resnet(blocks: int, channels: int, num_classes: int) -> nn.Sequential:
    """The CIFAR form: three stages of 16, 32 and 64 channels, depth 6 * blocks + 2."""
    stem = {
        "conv1": convolution(channels, 16, 3),
        "bn1": nn.BatchNorm2d(16),
        "relu": nn.ReLU(inplace=True),
    }
    return resnet(stem, BasicBlock, [blocks] * 3, width=16, num_classes=num_classes)


def cifar_resnet20(channels: int, num_classes: int) -> nn.Sequential:
    """ResNet-20 in the CIFAR form."""
    return cifar_resnet(3, channels, num_classes)


def cifar_resnet110(channels: int, num_classes: int) -> nn.Sequential:
    """ResNet-110 in the CIFAR form."""
    return cifar_resnet(18, channels, num_classes)


def resnet18(channels: int, num_classes: int, size: int | None = None) -> nn.Sequential:
    """ResNet-18 with the names and shapes of torchvision's weights.

    For images of up to 64 pixels it has the stem that is usual there: one 3x3 convolution, and no
    pooling, so that they are not scaled down to a point.
    """
    small = size is not None and size <= SMALL_IMAGE
    stem: dict[str, nn.Module] = {
        "conv1": convolution(channels, 64, 3 if small else 7, stride=1 if small else 2),
        "bn1": nn.BatchNorm2d(64),
        "relu": nn.ReLU(inplace=True),
    }
    if not small:
        stem["maxpool"] = nn.MaxPool2d(3, stride=2, padding=1)
    return resnet(stem, BasicBlock, [2, 2, 2, 2], width=64, num_classes=num_classes)


def resnet50(channels: int, num_classes: int) -> nn.Sequential:
    """ResNet-50 with the names and shapes of torchvision's weights."""
    stem = {
        "conv1": convolution(channels, 64, 7, stride=2),
        "bn1": nn.BatchNorm2d(64),
        "relu": nn.ReLU(inplace=True),
        "maxpool": nn.MaxPool2d(3, stride=2, padding=1),
    }
    return resnet(stem, Bottleneck, [3, 4, 6, 3], width=64, num_classes=num_classes)
