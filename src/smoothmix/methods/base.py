"""What every training method is: hyperparameters as fields, and one verb, `loss`."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal

import torch

from smoothmix.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor, nn

Fidelity = Literal["official", "paper"]
FIDELITIES: tuple[Fidelity, ...] = ("official", "paper")


@dataclass(frozen=True)
class Loss:
    """A loss to step on, and the detached terms it is the sum of, by name."""

    total: Tensor
    parts: Mapping[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Method(ABC):
    """A way to train a network that will be smoothed with Gaussian noise."""

    sigma: float
    """Deviation of the noise, in the [0, 1] scale of the pixels."""

    fidelity: Fidelity = "official"
    """`official` does what made the published tables, `paper` what the paper's text says."""

    copies: int = field(default=1, init=False, repr=False)
    """Noisy copies of each image in one step; a setting only of the methods that declare it anew."""

    chunked: ClassVar[bool] = False
    """Whether the training loop cuts a batch into `copies` chunks and takes a step on each."""

    def __post_init__(self) -> None:
        require_positive(self, "sigma")
        if self.fidelity not in FIDELITIES:
            raise UsageError(f"fidelity must be one of {', '.join(FIDELITIES)}, got {self.fidelity!r}")
        if self.copies < 1:
            raise UsageError(f"copies must be at least 1, got {self.copies}")

    @property
    def official(self) -> bool:
        """Whether to do what the released code did where the text says otherwise."""
        return self.fidelity == "official"

    @abstractmethod
    def loss(
        self,
        model: nn.Module,
        x: Tensor,
        y: Tensor,
        *,
        epoch: int,
        noise: Tensor | None = None,
        mix: Tensor | None = None,
    ) -> Loss:
        """The loss of one step on images x in [0, 1] with labels y, in epoch `epoch` counted from 0.

        `noise` [copies, batch, ...] is already multiplied by sigma, `mix` [batch] already lies in [0, 1/2]; both
        are drawn from torch's global generator where not given, and `mix` is read by SmoothMix alone.
        """

    def draw_noise(self, x: Tensor) -> Tensor:
        """Fresh noise for a batch, [copies, *x.shape]."""
        return self.sigma * torch.randn((self.copies, *x.shape), dtype=x.dtype, device=x.device)

    def noise_or_draw(self, x: Tensor, noise: Tensor | None) -> Tensor:
        """The noise given, checked, or fresh noise."""
        if noise is None:
            return self.draw_noise(x)
        if noise.shape != (self.copies, *x.shape):
            wanted = [self.copies, *x.shape]
            raise UsageError(f"noise must have the shape [copies, batch, ...] = {wanted}, got {list(noise.shape)}")
        return noise


def require_positive(method: Method, *names: str) -> None:
    """Refuse a method whose field is not a finite number above zero."""
    for name in names:
        value = getattr(method, name)
        if not (math.isfinite(value) and value > 0):
            raise UsageError(f"{name} must be a positive number, got {value}")


def require_not_negative(method: Method, *names: str) -> None:
    """Refuse a method whose field is not a finite number of zero or more."""
    for name in names:
        value = getattr(method, name)
        if not (math.isfinite(value) and value >= 0):
            raise UsageError(f"{name} must be zero or more, got {value}")


def warmup(epoch: int, epochs: int) -> float:
    """The share of a quantity in `epoch`, that grows linearly over the first `epochs`: (epoch + 1) / epochs up to 1."""
    return min(1.0, (epoch + 1) / epochs) if epochs > 0 else 1.0
