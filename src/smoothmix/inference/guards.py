"""What people get wrong with smoothing: what cannot be meant is refused, and what is rarely meant is asked about."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torch import Tensor

from smoothmix.config import require
from smoothmix.errors import UsageError

if TYPE_CHECKING:
    from smoothmix.data import Dataset


def check_images(images: Tensor, *, any_range: bool = False) -> None:
    """Refuse what is not a batch of finite images in [0, 1] (or any range), with a guess at what went wrong."""
    require(
        isinstance(images, Tensor),
        f"images must be a torch tensor [B, ...], got {type(images).__name__}",
    )
    require(
        images.dim() >= 2 and images.shape[0] > 0,
        f"images must be a batch [B, ...], got {list(images.shape)}",
    )
    require(
        images.is_floating_point(),
        f"images must be floating point in [0, 1], got {images.dtype}: divide 8-bit pixels by 255",
    )
    low, high = map(float, images.detach().aminmax())  # which pass on what is not a number
    require(
        math.isfinite(low) and math.isfinite(high), "the images hold values that are not finite"
    )
    if any_range or (low >= 0 and high <= 1):
        return
    hint = f"they {LOOK_NORMALISED}" if low < 0 else "divide by 255 if they are 8-bit pixels"
    raise UsageError(f"the images must lie in [0, 1], but run from {low:.3g} to {high:.3g}; {hint}")


LOOK_NORMALISED = (
    "look normalised already: give pixels in [0, 1] and make normalisation the first layer of the network, "
    "or sigma and the radius will be in another scale"
)


def doubts(sigma: float, images: Tensor) -> Iterator[str]:
    """Sentences about what is allowed but rarely meant."""
    if sigma > 2:
        yield (
            f"sigma {sigma:g} is very large for pixels in [0, 1]: was it meant for the scale of 0 to 255 "
            f"({sigma / 255:.4g} here)?"
        )
    images = images.detach()
    low, high = float(images.min()), float(images.max())
    if low >= 0 and 0 < high <= 1 / 64:
        yield "the images are nearly black: were the pixels divided by 255 twice?"
    if low < 0 and abs(float(images.mean())) < 0.5 and 0.5 < float(images.std()) < 2:
        yield f"the images {LOOK_NORMALISED}"


def say_doubts(sigma: float, dataset: Dataset) -> None:
    """Warn of what is allowed but rarely meant."""
    for doubt in doubts(sigma, dataset.images([0])):
        warnings.warn(doubt, stacklevel=3)
