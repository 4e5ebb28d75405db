"""What every engine provides: a network as it runs it, in a precision."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from importlib.util import find_spec
from typing import ClassVar, final

from torch import Tensor, nn

from smoothmix.config import RECORDED_ENGINES, EngineName, Precision
from smoothmix.errors import UsageError
from smoothmix.inference.copies import copy_sharing_weights
from smoothmix.inference.prepared import PreparedNetwork


class UnfitError(Exception):
    """An engine cannot run a network; the text says why, as the end of a sentence."""


@final
@dataclass(frozen=True, kw_only=True)
class WrittenNetwork:
    """A network in float32 on a processor, as it was written: what engines start from."""

    base: nn.Module
    """A copy in eval mode that shares the weights."""
    plain: PreparedNetwork
    """The same, ready to run without any change."""
    images: Tensor
    """Images of the shape that it gets, to trace it with."""

    def copy(self) -> nn.Module:
        """A copy that an engine may change, except for the values of the weights."""
        copied = copy_sharing_weights(self.base)
        if copied is None:
            raise UnfitError("the network cannot be copied")
        return copied


class Engine(ABC):
    """A way to compute the logits of a network on a processor, one thread per forward pass."""

    name: ClassVar[EngineName]
    """Its name for `--engine`."""

    needs: ClassVar[tuple[str, ...]] = ()
    """The modules that it imports and smoothmix does not depend on."""

    extra: ClassVar[str] = ""
    """The extra of smoothmix that installs them."""

    seconds: ClassVar[float] = 0.0
    """About how long preparing a network takes: `auto` tries it only for much longer jobs."""

    precisions: ClassVar[tuple[Precision, ...]] = ("fp32", "bf16")
    """The arithmetic that it can do."""

    @property
    def recorded(self) -> str:
        """Its name in certificate files."""
        return RECORDED_ENGINES[self.name]

    @property
    def installed(self) -> bool:
        """Whether everything that it needs can be imported."""
        return all(find_spec(module) is not None for module in self.needs)

    @property
    def software(self) -> str:
        """The library that computes the logits, with its version; empty where it is torch."""
        return ""

    def require_installed(self) -> None:
        """Refuse an engine that is not installed, and say how to install it."""
        if self.installed:
            return
        missing = [module for module in self.needs if find_spec(module) is None]
        raise UsageError(
            f"the engine {self.name} needs {' and '.join(missing)}, which is not installed here: "
            f"pip install 'smoothmix[{self.extra}]'"
        )

    @abstractmethod
    def build(self, network: WrittenNetwork, precision: Precision) -> PreparedNetwork:
        """The network as this engine runs it; raises `UnfitError` where it cannot.

        The caller compares its logits with those of the network as written.
        """
