"""What every training method is: hyperparameters as fields, and `terms`, which makes its loss."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
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
    """The loss of one step, and the detached terms it is the sum of (each weighted), by name."""

    total: Tensor
    parts: Mapping[str, Tensor] = field(default_factory=dict)


@final
@dataclass(frozen=True, kw_only=True)
class Batch:
    """What the loss of one step depends on, besides the network and the method's settings."""

    x: Tensor
    """Images in [0, 1], [batch, ...]."""

    y: Tensor
    """Their labels, [batch]."""

    noise: Tensor
    """The noise samples of every image, [copies, batch, ...], already multiplied by sigma."""

    epoch: int
    """Counted from 0."""

    mix: Tensor | None = None
    """Mixing ratios, [batch], already in [0, 1/2]; None where they are to be drawn."""

    def mixing_ratios(self) -> Tensor:
        """The mixing ratio of each image: the one given, or a fresh one from U[0, 1/2]."""
        if self.mix is None:
            return torch.rand(self.y.shape, dtype=self.x.dtype, device=self.x.device) / 2
        return self.mix

    def to(self, device: torch.device) -> Batch:
        """The batch on a device, its images in the memory format that convolutions prefer."""
        mix = self.mix
        if mix is not None:
            mix = mix.to(device)
        return replace(
            self,
            x=self.x.to(device, memory_format=torch.channels_last),
            y=self.y.to(device),
            noise=self.noise.to(device),
            mix=mix,
        )


@dataclass(frozen=True, kw_only=True)
class Method(ABC):
    """A way to train a network that will be smoothed with Gaussian noise."""

    sigma: float
    """Standard deviation of the noise, in the [0, 1] scale of the pixels."""

    fidelity: Fidelity = "official"
    """`official` does what made the published tables, `paper` what the paper's text says."""

    copies: int = field(default=1, init=False, repr=False)
    """Noise samples per image in one step; a setting only of methods that declare it again."""

    chunked: ClassVar[bool] = False
    """Whether the training loop cuts a batch into `copies` chunks and takes a step on each."""

    epoch_settings: ClassVar[tuple[str, ...]] = ()
    """Settings that count epochs, besides those whose names end in `_epochs`.

    `--epochs-scale` multiplies them with the rest of the schedule.
    """

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
        """The loss of one step on images x in [0, 1] with labels y, in `epoch` counted from 0.

        `noise` [copies, batch, ...] is already multiplied by sigma, `mix` [batch] already lies in
        [0, 1/2]. Both are drawn from torch's global generator where not given; only SmoothMix
        reads `mix`.
        """
        # Before noise of its shape is drawn, so that the message is about the images.
        check_images(x)
        if noise is None:
            noise = self.draw_noise(x)
        return self.batch_loss(model, Batch(x=x, y=y, noise=noise, epoch=epoch, mix=mix))

    @final
    def batch_loss(self, model: nn.Module, batch: Batch) -> Loss:
        """The loss on a batch.

        The forwards whose gradient reaches the weights run in the mode that the caller left the
        network in (a training loop: train mode); attacks run in eval mode. Afterwards modes and
        requires_grad are as before.
        """
        check_batch(batch, self.copies)
        batch = replace(batch, y=batch.y.long(), noise=in_format_of(batch.x, batch.noise))
        with fast_gradients():
            terms = self.terms(model, batch)
        # The parts are for logs: they must not keep the graph of a step alive.
        parts = {name: term.detach() for name, term in terms.items()}
        return Loss(torch.stack(tuple(terms.values())).sum(), parts)

    @abstractmethod
    def terms(self, model: nn.Module, batch: Batch) -> Mapping[str, Tensor]:
        """The weighted terms whose sum is the loss; the names are the same in every step."""

    def draw_noise(self, x: Tensor) -> Tensor:
        """Fresh noise for a batch, [copies, *x.shape]."""
        return self.sigma * torch.randn((self.copies, *x.shape), dtype=x.dtype, device=x.device)


def check_batch(batch: Batch, copies: int) -> None:
    """Refuse a batch whose tensors do not fit one another, or are not what they should be."""
    check_images(batch.x)
    _check_labels(batch.x, batch.y)
    if batch.mix is not None:
        _check_mix(batch.mix, batch.y)
    if not is_number(batch.epoch, Integral) or batch.epoch < 0:
        raise UsageError(f"epoch must be a whole number from 0 on, got {batch.epoch!r}")
    wanted = [copies, *batch.x.shape]
    if list(batch.noise.shape) != wanted:
        raise UsageError(
            f"noise must have the shape [copies, batch, ...] = {wanted}, "
            f"got {list(batch.noise.shape)}"
        )


def _check_labels(x: Tensor, y: Tensor) -> None:
    if y.shape != x.shape[:1]:
        raise UsageError(
            f"{x.shape[0]} images need as many labels, got labels of shape {list(y.shape)}"
        )
    if y.is_floating_point() or y.is_complex() or int(y.min()) < 0:
        raise UsageError(
            f"labels must be whole numbers from 0 on, got {y.dtype} from {y.min().item()}"
        )


def _check_mix(mix: Tensor, y: Tensor) -> None:
    if mix.shape != y.shape:
        raise UsageError(
            f"mix must have the shape [batch] = {list(y.shape)}, got {list(mix.shape)}"
        )
    if not bool(((mix >= 0) & (mix <= 0.5)).all()):
        raise UsageError(
            f"mix must lie in [0, 1/2], got {mix.min().item():g} to {mix.max().item():g}"
        )


def in_format_of(x: Tensor, noise: Tensor) -> Tensor:
    """The noise [copies, *x.shape] in the memory format of x."""
    if x.ndim == 4 and x.is_contiguous(memory_format=torch.channels_last):
        # Noise is added to images many times, and adding tensors of different formats takes three
        # times as long.
        images = noise.flatten(0, 1).contiguous(memory_format=torch.channels_last)
        return images.view(noise.shape)
    return noise


def is_number(value: object, kind: type = Real) -> bool:
    """Whether a setting is a finite number of that kind; True and False are not numbers here."""
    # bool is a subclass of int, and no setting that is a number is a bool.
    if isinstance(value, bool) or not isinstance(value, kind):
        return False
    return math.isfinite(value)  # type: ignore[arg-type]


def given(method: Method, *names: str) -> list[str]:
    """Those of the fields that are not None."""
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
    # No epochs of warm-up: the quantity has its full value from the start.
    if epochs <= 0:
        return 1.0
    return min(1.0, (epoch + 1) / epochs)
