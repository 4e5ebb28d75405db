"""timm in the tests, also beside a torchvision whose compiled part does not fit this torch."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch

LACKING = "operator torchvision::nms does not exist"
"""What a wheel of torchvision for GPUs says beside a torch for CPUs."""

_operators: list[torch.library.Library] = []
"""Kept alive: the operators vanish with it."""


def import_timm() -> Any:
    """The package timm; skips the test where it cannot be imported.

    No network that is tested uses the two operators that torchvision lacks then. Stubs let the rest
    of it be imported.
    """
    try:
        import timm
    except ImportError as error:
        pytest.skip(f"needs timm and torchvision: {error}")
    except RuntimeError as error:
        if LACKING not in str(error):
            raise
        _define_operators()
        import timm
    return timm


def _define_operators() -> None:
    for name in list(sys.modules):
        if name.partition(".")[0] in ("timm", "torchvision"):
            del sys.modules[name]
    library = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _operators.append(library)
