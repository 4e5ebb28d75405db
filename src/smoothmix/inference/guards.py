"""Mistakes that users of smoothing make: the certain ones are refused, the likely ones reported."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from smoothmix._io.text import counted
from smoothmix.config import require
from smoothmix.errors import SmoothmixError, UsageError, shown
from smoothmix.networks.modes import has_own_mode

if TYPE_CHECKING:
    from smoothmix.data import Dataset
    from smoothmix.noise import Noise

LARGE_SIGMA = 2
"""Noise with a larger standard deviation hides any image with pixels in [0, 1]."""

NEARLY_BLACK = 1 / 64
"""An image whose brightest pixel is darker has probably been divided by 255 twice."""

LOOK_NORMALISED = (
    "look normalised already: give pixels in [0, 1] and make normalisation the first layer of the "
    "network, or sigma and the radius will be in another scale"
)


def check_images(images: Tensor, *, any_range: bool = False) -> None:
    """Refuse what is not a batch of finite images in [0, 1], with a guess at the mistake.

    With `any_range`, finite pixels of any size pass.
    """
    require(
        isinstance(images, Tensor),
        f"images must be a torch tensor [B, ...], got {type(images).__name__}",
    )
    require_plain_tensor(images)
    require(
        images.dim() >= 2 and images.shape[0] > 0,
        f"images must be a batch [B, ...], got {list(images.shape)}",
    )
    require(
        images.is_floating_point(),
        f"images must be floating point in [0, 1], got {images.dtype}: divide 8-bit pixels by 255",
    )
    low, high = _range(images)
    require(
        math.isfinite(low) and math.isfinite(high), "the images hold values that are not finite"
    )
    if any_range or (low >= 0 and high <= 1):
        return
    hint = "divide by 255 if they are 8-bit pixels"
    if low < 0:
        hint = f"they {LOOK_NORMALISED}"
    raise UsageError(f"the images must lie in [0, 1], but run from {low:.3g} to {high:.3g}; {hint}")


def require_plain_tensor(images: Tensor) -> None:
    """Refuse tensors that hold their pixels in another way than one number after the other."""
    how = "images must be a dense tensor of real numbers"
    require(not images.is_nested, f"{how}, not a nested one: stack images of one shape")
    is_dense = images.layout == torch.strided
    require(is_dense, f"{how}, got the layout {images.layout}: call to_dense()")
    require(not images.is_quantized, f"{how}, got {images.dtype}: call dequantize()")
    require(not images.is_complex(), f"{how}, got {images.dtype}: take their real part")
    require(not images.is_meta, f"{how}, but those on the device meta have no pixels")
    # Newer versions of torch have no named dimensions.
    names = getattr(images, "names", ())
    require(not any(names), f"{how}, without named dimensions: call rename(None)")


def _range(images: Tensor) -> tuple[float, float]:
    """The least and the largest pixel."""
    try:
        # aminmax passes on NaN, which comparisons in Python would lose.
        low, high = map(float, images.detach().aminmax())
    except Exception as error:
        # A subclass of Tensor is anyone's code; and some types have no such function.
        kind = type(images).__name__
        raise UsageError(
            f"the pixels of this {kind} of {images.dtype} cannot be read ({type(error).__name__}): "
            "give a torch.Tensor of float32"
        ) from error
    return low, high


def check_noise(images: Tensor, noise: Noise, numbers: Iterable[int]) -> None:
    """Refuse images that the noise cannot be added to, by their numbers."""
    for number, image in zip(numbers, images, strict=True):
        try:
            # force: images may want a gradient, be a view, or lie on another device.
            noise.require_image(image.to(torch.float32).numpy(force=True))
        except UsageError as error:
            raise UsageError(f"image {number}: {error}") from None


def check_network(model: nn.Module) -> None:
    """Refuse a network whose answers for an image cannot be certified."""
    require(
        isinstance(model, nn.Module),
        f"a network is a torch.nn.Module, not {type(model).__name__}",
    )
    for name, module in model.named_modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.running_mean is None:
            raise UsageError(
                f"the BatchNorm {name!r} keeps no running statistics, so that an image's class "
                "would depend on the others in its batch: such a network cannot be certified"
            )
        # Only its owner can switch such a module: a copy may write into the weights that it shares.
        if has_own_mode(module):
            raise UsageError(
                f"{type(module).__name__} is in training mode and has an own way to leave it "
                "(it overrides train() or eval()): call the network's eval() first"
            )


def check_logits(logits: object, count: int, *, num_classes: int) -> None:
    """Refuse what is not one row of finite logits per image, with a guess at the mistake."""
    if not isinstance(logits, Tensor):
        raise UsageError(
            "the network must return a tensor of logits, one for each class, "
            f"not {type(logits).__name__}{_output_hint(logits)}"
        )
    require(
        logits.is_floating_point(),
        f"the network must return a tensor of logits, one for each class, not {logits.dtype}",
    )
    if logits.shape != (count, num_classes):
        raise UsageError(
            f"the network gives outputs of shape {list(logits.shape)} for "
            f"{counted(count, 'image')}, where {num_classes} classes need {[count, num_classes]}"
            f"{_shape_hint(logits, count, num_classes)}"
        )
    if not torch.isfinite(logits).all():
        raise SmoothmixError(
            "the network gives logits that are not finite: its weights may be broken"
        )


def _output_hint(returned: object) -> str:
    """How to name the logits in what a network returns; empty if that is not plain to see."""
    if hasattr(returned, "logits") or (isinstance(returned, Mapping) and "logits" in returned):
        return ': name them by output="logits" (--output logits)'
    if isinstance(returned, Mapping):
        keys = ", ".join(shown(key) for key in list(returned)[:5])
        return f': name the key that holds them by output="..." (--output); it has {keys}'
    if isinstance(returned, list | tuple):
        return ": name their position by output=0 (--output 0)"
    return ""


def _shape_hint(logits: Tensor, count: int, num_classes: int) -> str:
    if count == 1 and logits.shape == (num_classes,):
        return ": a squeeze() in it drops the batch of a single image; flatten(1) would keep it"
    if logits.ndim == 2 and len(logits) == count and logits.shape[1] > 1:
        classes = logits.shape[1]
        return f": set the number of classes to {classes} (--num-classes {classes})"
    return ""


def doubts(sigma: float, images: Tensor) -> Iterator[str]:
    """Sentences about settings that are allowed but are usually a mistake."""
    if sigma > LARGE_SIGMA:
        yield (
            f"sigma {sigma:g} is very large for pixels in [0, 1]: "
            f"was it meant for the scale of 0 to 255 ({sigma / 255:.4g} here)?"
        )
    images = images.detach()
    low = float(images.min())
    high = float(images.max())
    if low >= 0 and 0 < high <= NEARLY_BLACK:
        yield "the images are nearly black: were the pixels divided by 255 twice?"
    # Negative pixels with a mean near 0 and a standard deviation near 1 come from a normalisation.
    if low < 0 and abs(float(images.mean())) < 0.5 and 0.5 < float(images.std()) < 2:
        yield f"the images {LOOK_NORMALISED}"


def warn_of_doubts(sigma: float, dataset: Dataset) -> None:
    """Warn of settings that are allowed but are usually a mistake, judged by the first image."""
    for doubt in doubts(sigma, dataset.images([0])):
        warnings.warn(doubt, stacklevel=3)
