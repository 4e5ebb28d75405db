"""The mode that a network runs in, and the device that it runs on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain

import torch
from torch import nn


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """The network in eval mode, each of its parts put back into its own mode afterwards."""
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
    """Whether a part in training mode does more on `eval()` than torch does: then only its owner can switch it.

    To call it on a copy is no way out: it may write into the weights, which copies share.
    """
    kind = type(module)
    return getattr(module, "training", False) and (kind.train, kind.eval) != (
        nn.Module.train,
        nn.Module.eval,
    )


def device_of(model: nn.Module) -> torch.device:
    """Where the network's weights are."""
    tensor = next(chain(model.parameters(), model.buffers()), None)
    return torch.device("cpu") if tensor is None else tensor.device
