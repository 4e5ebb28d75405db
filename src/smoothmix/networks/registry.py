"""Networks by name: images in [0, 1] go in, logits come out, and normalisation is the first layer.

Noise is added before normalisation, so that a network which normalises by itself can be smoothed as it is.
The layers bear the names that the field's published weights bear (`conv1`, `layer1.0.bn1`, `fc`, ...).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import final

import torch
from torch import Tensor, nn

from smoothmix.errors import UsageError, unknown_name

Statistics = tuple[Sequence[float], Sequence[float]]
"""Mean and standard deviation of each channel."""

NORMALISATION: dict[str, Statistics | None] = {
    "none": None,
    "mnist": None,
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
}
"""Mean and deviation of each data set's pixels; None where the pixels are taken as they are."""


@final
class Normalise(nn.Module):
    """(x - mean) / std for each channel; both are buffers, so that a file of weights is complete."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        if len(mean) != len(std) or min(std) <= 0:
            raise UsageError(
                f"normalisation needs as many means as positive deviations, got {mean} and {std}"
            )
        for name, values in ("mean", mean), ("std", std):
            # Means such as (0, 0, 0) would else become integers.
            floats = torch.tensor(values, dtype=torch.get_default_dtype())
            self.register_buffer(name, floats.view(-1, 1, 1))

    def forward(self, images: Tensor) -> Tensor:
        return (images - self.mean) / self.std


@final
class Network(nn.Module):
    """A normalise layer (`Identity` if there is none) and the body that sees what it gives."""

    def __init__(self, normalise: nn.Module, body: nn.Module) -> None:
        super().__init__()
        self.normalise = normalise
        self.body = body

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.body(self.normalise(images))
        return logits

    def front(
        self,
    ) -> tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor], nn.Module] | None:
        """The affine map that the network begins with, its linear part, and the rest: normalise and a convolution."""
        body, normalise = self.body, self.normalise
        # Exactly these: a subclass, or another way to pad, need not be affine in the way that is used here.
        if type(body) is not nn.Sequential or type(normalise) not in (nn.Identity, Normalise):
            return None
        first = body[0]
        if type(first) is not nn.Conv2d or first.padding_mode != "zeros":
            return None

        def affine(images: Tensor) -> Tensor:
            mapped: Tensor = first(normalise(images))
            return mapped

        def linear(noise: Tensor) -> Tensor:
            scaled = noise / normalise.std if isinstance(normalise, Normalise) else noise
            # Detached: autocast before torch 2.11 keeps its bf16 weights, and would hand them on without a gradient.
            return nn.functional.conv2d(
                scaled,
                first.weight.detach(),
                None,
                first.stride,
                first.padding,
                first.dilation,
                first.groups,
            )

        return affine, linear, body[1:]


@final
class MaxPool(nn.Module):
    """The largest of each 2x2 pixels, of an even number of rows and columns. Without a gradient it writes into x."""

    def forward(self, x: Tensor) -> Tensor:
        if x.requires_grad and torch.is_grad_enabled():
            return nn.functional.max_pool2d(x, 2)
        # Only a gradient needs to know where the maxima stood. Without, the maxima of neighbours are the same numbers
        # in less than half the time; rows go into what was the convolution's output, to spare half the memory.
        rows = torch.maximum(x[:, :, ::2], x[:, :, 1::2], out=x[:, :, ::2])
        return torch.maximum(rows[..., ::2], rows[..., 1::2])


def lenet(channels: int, num_classes: int) -> nn.Sequential:
    """LeNet for 28x28 images, with PyTorch's own initialisation."""
    # ReLU is monotone, so that pooling first is the same function (and has the same gradient) on a quarter of
    # the values. Flatten goes by channel, row, column whatever the memory format, as published weights expect.
    layers = {
        "conv1": nn.Conv2d(channels, 20, 5),
        "pool1": MaxPool(),
        "relu1": nn.ReLU(inplace=True),
        "conv2": nn.Conv2d(20, 50, 5),
        "pool2": MaxPool(),
        "relu2": nn.ReLU(inplace=True),
        "flatten": nn.Flatten(),
        "fc1": nn.Linear(50 * 4 * 4, 500),
        "relu3": nn.ReLU(inplace=True),
        "fc2": nn.Linear(500, num_classes),
    }
    return nn.Sequential(OrderedDict(layers))


def convolution(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    """A convolution that keeps the size (over stride) and leaves the bias to the BatchNorm after it."""
    return nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)


def shortcut(inputs: int, outputs: int, stride: int) -> nn.Module:
    """What carries a block's input past it: itself, or a 1x1 convolution where the shape changes."""
    if stride == 1 and inputs == outputs:
        return nn.Identity()
    return nn.Sequential(convolution(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))


@final
class BasicBlock(nn.Module):
    """Two 3x3 convolutions round which the input is carried (He et al., 2016)."""

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
    """1x1, 3x3 and 1x1 convolutions; the stride is in the 3x3, as in the usual "v1.5" weights."""

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


Block = type[BasicBlock] | type[Bottleneck]
Layers = Mapping[str, nn.Module]
"""Layers one after the other, by the name that their weights have in a file."""


def stage(block: Block, inputs: int, width: int, count: int, stride: int) -> nn.Module:
    """`count` blocks of one width, the first of which changes the size."""
    outputs = width * block.expansion
    return nn.Sequential(
        block(inputs, width, stride), *(block(outputs, width, 1) for _ in range(count - 1))
    )


def resnet(
    stem: Layers, block: Block, counts: Sequence[int], width: int, num_classes: int
) -> nn.Sequential:
    """A stem, stages each of twice the width and half the size of the one before, mean over the image, linear."""
    layers, inputs = dict(stem), width
    for number, count in enumerate(counts, start=1):
        layers[f"layer{number}"] = stage(
            block, inputs, width, count, stride=1 if number == 1 else 2
        )
        inputs, width = width * block.expansion, width * 2
    # The mean over all that is left is the 8x8 (7x7) pooling at the usual image size, and works at others.
    layers |= {
        "pool": nn.AdaptiveAvgPool2d(1),
        "flatten": nn.Flatten(),
        "fc": nn.Linear(inputs, num_classes),
    }
    body = nn.Sequential(OrderedDict(layers))
    for module in body.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return body


def cifar_resnet(blocks: int, channels: int, num_classes: int) -> nn.Sequential:
    """The CIFAR form of He et al. (2016): three stages of 16, 32 and 64 channels, depth 6 * blocks + 2."""
    stem = {
        "conv1": convolution(channels, 16, 3),
        "bn1": nn.BatchNorm2d(16),
        "relu": nn.ReLU(inplace=True),
    }
    return resnet(stem, BasicBlock, [blocks] * 3, width=16, num_classes=num_classes)


def resnet50(channels: int, num_classes: int) -> nn.Sequential:
    """ResNet-50 as torchvision has it: the names and shapes of its weights are the same."""
    stem = {
        "conv1": convolution(channels, 64, 7, stride=2),
        "bn1": nn.BatchNorm2d(64),
        "relu": nn.ReLU(inplace=True),
        "maxpool": nn.MaxPool2d(3, stride=2, padding=1),
    }
    return resnet(stem, Bottleneck, [3, 4, 6, 3], width=64, num_classes=num_classes)


@final
@dataclass(frozen=True)
class Architecture:
    """One line of the table of networks: how to build it, and the data that it is made for."""

    body: Callable[[int, int], nn.Module]
    """Channels and number of classes -> network without its normalise layer."""
    channels: int
    size: int
    """Side of the images in pixels."""
    num_classes: int
    normalisation: str
    description: str
    """What it is, and its number of parameters."""
    any_size: bool = True
    """Whether images of another size will do."""


NETWORKS: dict[str, Architecture] = {
    "lenet": Architecture(lenet, 1, 28, 10, "none", "LeNet for MNIST, 0.43 M", any_size=False),
    "cifar_resnet20": Architecture(
        partial(cifar_resnet, 3), 3, 32, 10, "cifar10", "CIFAR ResNet-20, 0.27 M"
    ),
    "cifar_resnet110": Architecture(
        partial(cifar_resnet, 18), 3, 32, 10, "cifar10", "CIFAR ResNet-110, 1.73 M"
    ),
    "resnet50": Architecture(resnet50, 3, 224, 1000, "imagenet", "ResNet-50 for ImageNet, 25.6 M"),
}


def architecture(name: str) -> Architecture:
    """The line of the table, or an error with the nearest name."""
    if ":" in name:
        raise UsageError(
            f"{name}: a network of your own is trained in a loop of your own, with a method's loss (docs/library.md); "
            f"then it is certified with --model {name}"
        )
    if name not in NETWORKS:
        raise unknown_name("network", name, NETWORKS)
    return NETWORKS[name]


def build(
    name: str,
    *,
    num_classes: int | None = None,
    channels: int | None = None,
    size: int | None = None,
    normalisation: str | Statistics | None = None,
) -> Network:
    """The network of that name with fresh weights; what is not said is as its own data set has it.

    >>> build("lenet", num_classes=3)(torch.zeros(5, 1, 28, 28)).shape
    torch.Size([5, 3])
    """
    network = architecture(name)
    num_classes = network.num_classes if num_classes is None else num_classes
    channels = network.channels if channels is None else channels
    if num_classes < 2 or channels < 1:
        raise UsageError(
            f"a network needs 2 classes and 1 channel or more, got {num_classes} and {channels}"
        )
    if size not in (None, network.size) and not network.any_size:
        raise UsageError(
            f"{name} takes images of {network.size}x{network.size} pixels, not {size}x{size}"
        )
    normalise = normalise_layer(
        network.normalisation if normalisation is None else normalisation, channels
    )
    return Network(normalise, network.body(channels, num_classes))


def normalise_layer(normalisation: str | Statistics, channels: int) -> nn.Module:
    """The first layer of a network; where there is nothing to normalise it does and costs nothing."""
    if isinstance(normalisation, str) and normalisation not in NORMALISATION:
        raise unknown_name("normalisation", normalisation, NORMALISATION)
    statistics = NORMALISATION[normalisation] if isinstance(normalisation, str) else normalisation
    if statistics is None:
        return nn.Identity()
    if len(statistics[0]) != channels:
        raise UsageError(
            f"normalisation {normalisation!r} is for {len(statistics[0])} channels, the images have {channels}: "
            "give a mean and a deviation for each, or 'none'"
        )
    return Normalise(*statistics)
