"""What every training method is: hyperparameters as fields, and one verb, `loss`."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import TYPE_CHECKING, ClassVar, final

import torch

from smoothmix.attacks import fast_gradients
from smoothmix.config import FIDELITIES, Fidelity
from smoothmix.errors import UsageError
from smoothmix.inference.guards import check_images

if TYPE_CHECKING:
    from torch import Tensor, nn


@final
@dataclass(frozen=True)
class Loss:
    """A loss to step on, and the detached terms it is the sum of (each with its weight), by name."""

    total: Tensor
    parts: Mapping[str, Tensor] = field(default_factory=dict)


@final
@dataclass(frozen=True)
class Step:
    """What the loss of one step is a function of, besides the network and the method's own settings."""

    x: Tensor
    """Images in [0, 1], [batch, ...]."""
    y: Tensor
    """Their labels, [batch]."""
    noise: Tensor
    """The noise of every copy, [copies, batch, ...], already multiplied by sigma."""
    epoch: int
    """Counted from 0."""
    mix: Tensor | None
    """The caller's mixing ratios, [batch], already in [0, 1/2]; None where they are to be drawn."""

    def mixing_ratios(self) -> Tensor:
        """The mixing ratio of each image: the one given, or a fresh one from U[0, 1/2]."""
        if self.mix is None:
            return torch.rand(self.y.shape, dtype=self.x.dtype, device=self.x.device) / 2
        return self.mix


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
        require_int(self, "copies", least=1)
        if self.fidelity not in FIDELITIES:
            raise UsageError(
                f"fidelity must be one of {', '.join(FIDELITIES)}, got {self.fidelity!r}"
            )

    @property
    def official(self) -> bool:
        """Whether to do what the released code did where the text says otherwise."""
        return self.fidelity == "official"

    @final
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
        The forwards whose gradient reaches the weights run in the mode that the caller left the network in (a
        training loop: train mode); attacks run in eval mode. Afterwards modes and requires_grad are as before.
        """
        check_images(x)
        if y.shape != x.shape[:1]:
            raise UsageError(
                f"{x.shape[0]} images need as many labels, got labels of shape {list(y.shape)}"
            )
        if y.is_floating_point() or y.is_complex() or int(y.min()) < 0:
            raise UsageError(
                f"labels must be whole numbers from 0 on, got {y.dtype} from {y.min().item()}"
            )
        if mix is not None and mix.shape != y.shape:
            raise UsageError(
                f"mix must have the shape [batch] = {list(y.shape)}, got {list(mix.shape)}"
            )
        if mix is not None and not bool(((mix >= 0) & (mix <= 0.5)).all()):
            raise UsageError(
                f"mix must lie in [0, 1/2], got {mix.min().item():g} to {mix.max().item():g}"
            )
        if not is_number(epoch, Integral) or epoch < 0:
            raise UsageError(f"epoch must be a whole number from 0 on, got {epoch!r}")
        with fast_gradients():
            terms = self.terms(model, Step(x, y.long(), self.noise_or_draw(x, noise), epoch, mix))
        parts = {name: term.detach() for name, term in terms.items()}
        return Loss(torch.stack(tuple(terms.values())).sum(), parts)

    @abstractmethod
    def terms(self, model: nn.Module, step: Step) -> Mapping[str, Tensor]:
        """The terms, each with its weight, whose sum is the loss; the names are the same in every step."""

    def draw_noise(self, x: Tensor) -> Tensor:
        """Fresh noise for a batch, [copies, *x.shape]."""
        return self.sigma * torch.randn((self.copies, *x.shape), dtype=x.dtype, device=x.device)

    def noise_or_draw(self, x: Tensor, noise: Tensor | None) -> Tensor:
        """The noise given, checked, or fresh noise; in x's memory format, since it is added to x many times."""
        noise = self.draw_noise(x) if noise is None else noise
        if noise.shape != (self.copies, *x.shape):
            wanted = [self.copies, *x.shape]
            raise UsageError(
                f"noise must have the shape [copies, batch, ...] = {wanted}, got {list(noise.shape)}"
            )
        if x.ndim == 4 and x.is_contiguous(memory_format=torch.channels_last):
            # To add tensors of different formats takes three times as long.
            images = noise.flatten(0, 1).contiguous(memory_format=torch.channels_last)
            return images.view(noise.shape)
        return noise


def is_number(value: object, kind: type = Real) -> bool:
    """Whether a setting is a finite number of that kind (True and False are none)."""
    return isinstance(value, kind) and not isinstance(value, bool) and math.isfinite(value)  # type: ignore[arg-type]


def given(method: Method, *names: str) -> list[str]:
    """Those of the fields that are not left out."""
    return [name for name in names if getattr(method, name) is not None]


def require_positive(method: Method, *names: str) -> None:
    """Refuse a method whose field is not a finite number above zero."""
    for name in names:
        value = getattr(method, name)
        if not (is_number(value) and value > 0):
            raise UsageError(f"{name} must be a positive number, got {value!r}")


def require_not_negative(method: Method, *names: str) -> None:
    """Refuse a method whose field is not a finite number of zero or more."""
    for name in names:
        value = getattr(method, name)
        if not (is_number(value) and value >= 0):
            raise UsageError(f"{name} must be a number of zero or more, got {value!r}")


def require_int(method: Method, *names: str, least: int = 0) -> None:
    """Refuse a method whose field is not a whole number of `least` or more."""
    for name in names:
        value = getattr(method, name)
        if not (is_number(value, Integral) and value >= least):
            raise UsageError(f"{name} must be a whole number, at least {least}, got {value!r}")


def warmup(epoch: int, epochs: int) -> float:
    """The share of a quantity in `epoch` when it grows linearly over the first `epochs`, then 1.

    >>> [warmup(epoch, 4) for epoch in range(5)]
    [0.25, 0.5, 0.75, 1.0, 1.0]
    """
    return min(1.0, (epoch + 1) / epochs) if epochs > 0 else 1.0
