"""Training of a denoiser in front of a classifier that does not change (Salman et al., 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, final, get_args

import torch
from torch.nn import functional as F

from smoothmix.errors import UsageError, unknown_name
from smoothmix.methods.base import Batch, Method, require_int
from smoothmix.networks.denoised import Denoised
from smoothmix.networks.modes import eval_mode

if TYPE_CHECKING:
    from torch import Tensor, nn

Objective = Literal["mse", "stability"]


@final
@dataclass(frozen=True, kw_only=True)
class Denoiser(Method):
    """Trains the denoiser of a `Denoised` network; labels are not used."""

    objective: Objective = "mse"
    """`mse`: the original pixels; `stability`: the class that the classifier gives the original."""

    mse_epochs: int = 0
    """With objective stability, first epochs with objective mse."""

    def __post_init__(self) -> None:
        super().__post_init__()
        objectives = get_args(Objective)
        if self.objective not in objectives:
            raise unknown_name("objective", str(self.objective), objectives)
        require_int(self, "mse_epochs")
        if self.mse_epochs and self.objective == "mse":
            raise UsageError("mse_epochs has an effect only with objective stability")

    def terms(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """`mse`: the squared error, mean over pixels; `stability`: the cross-entropy."""
        if not isinstance(model, Denoised):
            raise UsageError(
                "the method denoiser trains the denoiser of a smoothmix.Denoised network, not a "
                f"{type(model).__name__}: give --classifier, or put a denoiser before yours"
            )
        denoised = model.denoiser((batch.x + batch.noise).flatten(0, 1))
        originals = batch.x.repeat(self.copies, 1, 1, 1)
        if self.objective == "mse":
            return {"mse": _squared_error(denoised, originals)}
        # Both terms in every epoch, so that logs have the same names throughout.
        zero = denoised.new_zeros((), dtype=torch.float32)
        if batch.epoch < self.mse_epochs:
            return {"mse": _squared_error(denoised, originals), "stability": zero}
        return {"mse": zero, "stability": _instability(model.classifier, denoised, originals)}


def _squared_error(denoised: Tensor, originals: Tensor) -> Tensor:
    # In float32 or better also if the network runs in bf16.
    precise = denoised.to(torch.promote_types(denoised.dtype, torch.float32))
    return F.mse_loss(precise, originals)


def _instability(classifier: nn.Module, denoised: Tensor, originals: Tensor) -> Tensor:
    """Cross-entropy of what the classifier says of denoised images to its class of the originals.

    The classifier stays as it is: gradients pass through it, in eval mode.
    """
    with eval_mode(classifier):
        with torch.no_grad():
            classes = classifier(originals).argmax(-1)
        logits = classifier(denoised)
    precise = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return F.cross_entropy(precise, classes)
