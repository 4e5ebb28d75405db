"""Images of one size from images of any size: scaled, and cropped in the middle or at random.

PIL scales 8-bit images with whole numbers, so that all machines get the same pixels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from smoothmix.config import Preparation
from smoothmix.data.augment import crop_box, flips
from smoothmix.errors import DataError

if TYPE_CHECKING:
    from PIL import Image

MAX_PIXELS = 2**26
"""Of one image: a small file may unpack to any number, and ImageNet's largest has 61 million."""


def scaled_size(size: tuple[int, int], short_side: int) -> tuple[int, int]:
    """Width and height of an image of this size, once its short side is scaled.

    >>> scaled_size((400, 300), 32)
    (42, 32)
    """
    width = size[0] * short_side // min(size)
    height = size[1] * short_side // min(size)
    if width * height > MAX_PIXELS:
        raise DataError(
            f"an image of {_text(size)} pixels is too long to be scaled: crop or remove it"
        )
    return width, height


def prepared_size(size: tuple[int, int], preparation: Preparation | None) -> tuple[int, int]:
    """Width and height of an image of this size, once it is prepared.

    >>> prepared_size((400, 300), Preparation(resize=32, crop=28))
    (28, 28)
    """
    if preparation is None:
        return size
    if preparation.resize is not None:
        size = scaled_size(size, preparation.resize)
    if preparation.crop is None:
        return size
    cropped = (preparation.crop, preparation.crop)
    require_room(size, cropped)
    return cropped


def require_room(size: tuple[int, int], part: tuple[int, int]) -> None:
    """Refuse an image that is smaller than the part to be cropped from it, (width, height) both."""
    if size[0] < part[0] or size[1] < part[1]:
        raise DataError(
            f"{_text(size)} pixels are too few to crop {_text(part)} from them: remove the image, "
            "or scale images first (--resize)"
        )


def scaled(image: Image.Image, short_side: int) -> Image.Image:
    """An image with a short side of so many pixels."""
    from PIL import Image

    size = scaled_size(image.size, short_side)
    if image.size == size:
        return image
    return image.resize(size, Image.Resampling.BILINEAR)


def middle(image: Image.Image, size: tuple[int, int]) -> Image.Image:
    """The middle of an image, of `size` (height, width)."""
    height, width = size
    # PIL would add black pixels.
    require_room(image.size, (width, height))
    left = round((image.width - width) / 2)
    top = round((image.height - height) / 2)
    return image.crop((left, top, left + width, top + height))


def centre_crop(image: Image.Image, short_side: int, size: tuple[int, int]) -> Image.Image:
    """The middle of an image, of `size` (height, width), after scaling its short side."""
    return middle(scaled(image, short_side), size)


def resized_crop(
    image: Image.Image, size: tuple[int, int], uniforms: NDArray[np.floating[Any]]
) -> Image.Image:
    """A random part of an image, scaled to `size` (height, width) and perhaps mirrored."""
    from PIL import Image

    # Cropped first: `resize(box=...)` would blend in pixels from outside the box at its border.
    part = image.crop(crop_box(*image.size, uniforms))
    part = part.resize(size[::-1], Image.Resampling.BILINEAR)
    if flips(uniforms):
        return part.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return part


def _text(size: tuple[int, int]) -> str:
    width, height = size
    return f"{width}x{height}"
