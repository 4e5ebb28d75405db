"""Classifiers that torch does not run: what the sampler has to know about them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import ClassVar, Generic, TypeVar, final

import torch
from torch import Tensor, nn

from smoothmix.errors import UsageError

T = TypeVar("T")


class OutsideModule(nn.Module):
    """A module whose forward pass leaves torch: it is never traced, fused or reordered."""

    engine: ClassVar[str]
    """What computes the outputs, as certificate files record it."""

    gives_labels: ClassVar[bool] = False
    """Whether the outputs are labels, as rows with a single 1, instead of logits."""

    concurrency: int | None = None
    """Forward passes that may run side by side; None for one per thread of torch."""

    source_module: str = ""
    """The Python module whose source file is recorded; empty for none."""

    identity: Tensor

    def __init__(self, identity: bytes) -> None:
        """`identity` is what tells two such classifiers apart, such as the content of a file."""
        super().__init__()
        digest = hashlib.sha256(identity).digest()
        # A buffer, since hashes of networks cover all buffers: a file of certificates is then not
        # resumed with another classifier.
        values = torch.tensor(list(digest), dtype=torch.uint8)
        self.register_buffer("identity", values, persistent=False)

    @property
    def software(self) -> str:
        """The library that computes the outputs, and its version; empty if it is not known."""
        return ""


@final
class Shared(Generic[T]):
    """Holds what all copies of a module use together, such as a function or a session."""

    def __init__(self, value: T) -> None:
        self.value = value

    # Copies of a network are made for each thread; this part of them stays one.
    def __deepcopy__(self, memo: dict[int, object]) -> Shared[T]:
        return self


def require_no_gradient(images: Tensor) -> None:
    """Refuse images whose gradient is wanted: outside of torch there is none."""
    if torch.is_grad_enabled() and images.requires_grad:
        raise UsageError(
            "this classifier gives outputs and no gradients, as ONNX files and functions do: "
            "attacks, their studies and training need a network of torch"
        )


def outside_parts(model: nn.Module) -> Iterator[OutsideModule]:
    """The parts of a network that torch does not run."""
    for module in model.modules():
        if isinstance(module, OutsideModule):
            yield module


def forwards_at_once(model: nn.Module, usual: int) -> int:
    """How many forward passes of a network may run side by side."""
    allowed = [part.concurrency for part in outside_parts(model)]
    # The slowest part decides, as all of them run in each forward pass.
    limits = [limit for limit in allowed if limit is not None]
    return min(limits, default=usual)
