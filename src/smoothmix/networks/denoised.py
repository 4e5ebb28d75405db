"""A denoiser in front of a classifier: denoised smoothing (Salman et al., 2020)."""

from __future__ import annotations

from typing import final

from torch import Tensor, nn

from smoothmix.errors import UsageError


@final
class Denoised(nn.Module):
    """A classifier that sees what a denoiser makes of an image: `classifier(denoiser(image))`.

    Both take images with noise in the [0, 1] scale of the pixels, and the denoiser returns images
    in that scale. To a certificate the two are one classifier: its guarantee assumes nothing about
    the denoiser.
    """

    def __init__(self, denoiser: nn.Module, classifier: nn.Module) -> None:
        super().__init__()
        for role, part in (("denoiser", denoiser), ("classifier", classifier)):
            if not isinstance(part, nn.Module):
                raise UsageError(f"the {role} must be a torch.nn.Module, not {type(part).__name__}")
        self.denoiser = denoiser
        self.classifier = classifier
        # Two networks in eval mode become one that is: a new module would be in training mode.
        self.training = denoiser.training or classifier.training

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.classifier(self.denoiser(images))
        return logits
