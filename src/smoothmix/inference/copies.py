"""Networks that several threads can call at once.

A network may keep on itself what it computes during a forward. Threads that run one network at the
same time would mix that up, so that each thread gets a copy, or they take turns.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from typing import final

from torch import Tensor, nn

from smoothmix._process.forks import ForkSafeLock
from smoothmix.networks.modes import eval_mode


def copy_sharing_weights(model: nn.Module) -> nn.Module | None:
    """A copy in eval mode whose weights use the memory of the network; None if it has no copy."""
    parameters = list(model.parameters())
    tensors = _other_tensors(model)
    # deepcopy takes what it finds under an object's id instead of copying it. Both lists above
    # live until it ends, so that no id can be reused for another object.
    memo: dict[int, object] = {}
    try:
        for parameter in parameters:
            memo[id(parameter)] = nn.Parameter(parameter.detach(), requires_grad=False)
        for tensor in tensors:
            # Computed tensors, such as those of weight_norm, would refuse an ordinary deepcopy.
            memo[id(tensor)] = tensor.detach().clone()
        copied = copy.deepcopy(model, memo)
        for module in copied.modules():
            if getattr(module, "training", False):
                module.training = False
    except Exception:  # noqa: BLE001 - networks are anyone's code, and may hold what has no copy
        return None
    return copied


def _other_tensors(model: nn.Module) -> list[Tensor]:
    """Buffers, and the tensors that modules hold as plain attributes."""
    tensors = list(model.buffers())
    for module in model.modules():
        tensors.extend(value for value in vars(module).values() if isinstance(value, Tensor))
    return tensors


@final
class OnePerThread:
    """A network of which every thread that calls it has a copy."""

    def __init__(self, network: nn.Module) -> None:
        self.network = network
        self._local = threading.local()

    def __call__(self, images: Tensor) -> Tensor:
        if not hasattr(self._local, "network"):
            self._local.network = copy_sharing_weights(self.network)
        logits: Tensor = self._local.network(images)
        return logits


@final
class OneAtATime:
    """A network that threads take turns to run.

    For networks that have no copy, and for devices whose memory has no room for several forwards.
    """

    # One lock for all instances: two of them may hold the same network.
    _turn = ForkSafeLock()

    def __init__(self, network: nn.Module) -> None:
        self.network = network

    def __call__(self, images: Tensor) -> Tensor:
        with self._turn, eval_mode(self.network):
            logits: Tensor = self.network(images)
        return logits


def for_threads(network: nn.Module) -> Callable[[Tensor], Tensor]:
    """The network for calls from several threads: at the same time if it has copies."""
    if copy_sharing_weights(network) is None:
        return OneAtATime(network)
    return OnePerThread(network)
