"""Noisy logits and votes: the only place that runs a network on noise."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor, nn


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """The network in eval mode, each of its parts put back into its own mode afterwards."""
    training = [module for module in model.modules() if module.training]
    try:
        for module in training:
            module.training = False
        yield
    finally:
        for module in training:
            module.training = True


def noisy_logits(model: nn.Module, x: Tensor, noise: Tensor) -> Tensor:
    """Logits [copies, batch, classes] of x + noise, where noise is [copies, batch, ...]: one forward for all."""
    logits: Tensor = model((x + noise).flatten(0, 1))
    return logits.view(*noise.shape[:2], -1)
