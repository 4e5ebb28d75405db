"""timm in the tests, also beside a torchvision whose compiled part does not fit this torch."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

FOLDER = Path(sys.prefix) / "timm"
"""Where `make install` puts timm and torchvision. With the other packages, transformers would
import a torchvision that does not fit this torch, and fail."""

LACKING = "operator torchvision::nms does not exist"
"""What a wheel of torchvision for GPUs says beside a torch for CPUs."""

_operators: list[torch.library.Library] = []
"""Kept alive: the operators vanish with it."""


def has_timm() -> bool:
    """Whether timm is installed, with the other packages or in its folder."""
    return find_spec("timm") is not None or (FOLDER / "timm").is_dir()


def import_timm() -> Any:
    """The package timm, for a process that imports nothing else which looks for torchvision.

    No network that is tested uses the two operators that torchvision lacks where it does not fit.
    Stubs let the rest of it be imported.
    """
    if FOLDER.is_dir():
        sys.path.append(str(FOLDER))
    try:
        import timm
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
