"""The network as a TorchScript graph, which engines outside of torch read."""

from __future__ import annotations

import warnings
from typing import Any

import torch

from smoothmix._process.forks import ForkSafeLock
from smoothmix.errors import shown
from smoothmix.inference.engines.base import UnfitError, WrittenNetwork

_tracing = ForkSafeLock()
"""Tracing has state of the whole process."""


def traced(network: WrittenNetwork) -> Any:
    """The graph of the network's forward pass, with its weights inside.

    A network whose code decides something by the values of its input is refused: the graph would
    hold only what it decided for the images here.
    """
    model = network.copy()
    # Torch's own functions have no types.
    jit: Any = torch.jit
    with _tracing, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", jit.TracerWarning)
        try:
            return jit.freeze(jit.trace(model, network.images, check_trace=False).eval())
        except Exception as error:
            # Networks are anyone's code, and tracing fails in many ways.
            raise UnfitError(f"it cannot be traced ({shown(error, 200)})") from error
