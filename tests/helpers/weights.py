"""A small network, and files with weights, for the tests of weights and checkpoints."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from smoothmix.errors import CheckpointError
from smoothmix.networks import Network, build
from smoothmix.networks.resnet import cifar_resnet

LAYOUTS = [pytest.param(True, id="zip"), pytest.param(False, id="legacy")]
IMAGES = torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))


def small() -> Network:
    """A ResNet-8 with BatchNorm statistics that are not those of a fresh network."""
    network = Network(build("cifar_resnet20").normalise, cifar_resnet(1, 3, 10)).eval()
    for name, value in network.body.named_buffers():
        if name.endswith(("running_mean", "running_var")):
            value.uniform_(0.5, 1.5)
    return network


def prefixed(state: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return OrderedDict((prefix + name, value) for name, value in state.items())


def save(content: object, path: Path, zipped: bool) -> Path:
    torch.save(content, path, _use_new_zipfile_serialization=zipped)
    return path


def refusal(function: Callable[..., object], *args: object) -> str:
    with pytest.raises(CheckpointError) as caught:
        function(*args)
    sentence = str(caught.value)
    assert "\n" not in sentence
    return sentence
