"""LeNet, for MNIST. Layers have the names that published weights use."""

from __future__ import annotations

from collections import OrderedDict
from typing import final

import torch
from torch import Tensor, nn


@final
class MaxPool(nn.Module):
    """Maxima of 2x2 pixels, for even sizes. Without a gradient it overwrites its input."""

    def forward(self, x: Tensor) -> Tensor:
        # Other engines have a layer for it, and their compilers take no memory of a view.
        others = torch._C._get_tracing_state() is not None or torch.compiler.is_compiling()
        if others or (x.requires_grad and torch.is_grad_enabled()):
            return nn.functional.max_pool2d(x, 2)
        # max_pool2d also records where each maximum was, which only a gradient needs. Maxima of
        # neighbours are the same numbers in less than half the time. The first ones go into the
        # convolution's output, to halve the memory.
        rows = torch.maximum(x[:, :, ::2], x[:, :, 1::2], out=x[:, :, ::2])
        return torch.maximum(rows[..., ::2], rows[..., 1::2])


def lenet(channels: int, num_classes: int) -> nn.Sequential:
    """LeNet for 28x28 images, with PyTorch's own initialisation."""
    layers = {
        "conv1": nn.Conv2d(channels, 20, 5),
        # Pooling stands before ReLU: as ReLU is monotone, this is the same function with the same
        # gradient, on a quarter of the values.
        "pool1": MaxPool(),
        "relu1": nn.ReLU(inplace=True),
        "conv2": nn.Conv2d(20, 50, 5),
        "pool2": MaxPool(),
        "relu2": nn.ReLU(inplace=True),
        # By channel, row, column in any memory format, as published weights expect.
        "flatten": nn.Flatten(),
        "fc1": nn.Linear(50 * 4 * 4, 500),
        "relu3": nn.ReLU(inplace=True),
        "fc2": nn.Linear(500, num_classes),
    }
    return nn.Sequential(OrderedDict(layers))
