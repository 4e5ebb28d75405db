"""The mode that a network runs in, and the device that it runs on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain

import torch
from torch import nn


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """The network in eval mode; afterwards each of its modules is in the mode it was in before."""
    # A frozen TorchScript network has no mode.
    training = [module for module in model.modules() if getattr(module, "training", False)]
    try:
        for module in training:
            module.training = False
        yield
    finally:
        for module in training:
            module.training = True


def has_own_mode(module: nn.Module) -> bool:
    """Whether a module in training mode overrides `train` or `eval`: only its owner can switch it.

    To call them on a copy is no way out: they may write into the weights, which copies share.
    """
    if not getattr(module, "training", False):
        return False
    kind = type(module)
    return kind.train is not nn.Module.train or kind.eval is not nn.Module.eval


def has_hooks(module: nn.Module) -> bool:
    """Whether code of others runs when the module does, or when its gradient is computed."""
    return any(
        (
            module._forward_pre_hooks,
            module._forward_hooks,
            module._backward_pre_hooks,
            module._backward_hooks,
        )
    )


def device_of(model: nn.Module) -> torch.device:
    """The device that the network's weights are on; the CPU for a network without any."""
    for tensor in chain(model.parameters(), model.buffers()):
        return tensor.device
    return torch.device("cpu")
