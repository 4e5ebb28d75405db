"""A network from anywhere, and what is known about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from torch import nn


@final
@dataclass(frozen=True, kw_only=True)
class LoadedModel:
    """A network that maps images in [0, 1] to logits, and what its source says about it."""

    module: nn.Module
    """The network, in eval mode."""
    name: str
    """Where it came from, with its revision where there is one."""
    num_classes: int | None = None
    """Its outputs, where their number is known."""
    class_names: tuple[str, ...] = ()
    """The names of its classes, where they are known."""
    shape: tuple[int, ...] = ()
    """Channels, height and width of the images it is made for, where they are known."""
    removed_prefix: str = ""
    """What the names in its file of weights are read without."""
