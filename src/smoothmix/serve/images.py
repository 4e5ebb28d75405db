"""From the bytes of a request to the image that the network gets, within limits."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from torch import Tensor

from smoothmix.config import Preparation
from smoothmix.data.image_files import TooManyPixelsError, decode_stream
from smoothmix.data.photos import prepared
from smoothmix.errors import DataError
from smoothmix.serve.errors import Refused

FORMATS = ("PNG", "JPEG")
"""What a service decodes: each decoder is code that strangers can reach."""

NAME = "the image"


@final
@dataclass(frozen=True, kw_only=True)
class PreparedImage:
    """An image as the network gets it."""

    pixels: Tensor
    """Floats [C, H, W] on the grid of 8-bit images."""
    size: tuple[int, int]
    """Width and height as it was sent."""
    note: str
    """What was done to it: certificates are about the image so prepared."""


def prepare_image(
    body: bytes,
    *,
    shape: Sequence[int],
    trained_on: str,
    max_pixels: int,
    preparation: Preparation | None = None,
) -> PreparedImage:
    """The image in a body, turned upright, scaled and cropped in 8 bits as for training."""
    if not body:
        raise Refused(400, "the request has no image: send the bytes of a PNG or JPEG file")
    channels = shape[0]
    try:
        image = decode_stream(
            io.BytesIO(body), NAME, channels, formats=FORMATS, most_pixels=max_pixels
        )
        size = image.size
        image, note = prepared(image, shape=shape, trained_on=trained_on, preparation=preparation)
    except TooManyPixelsError as error:
        raise Refused(413, f"{error}: {max_pixels:,} pixels are allowed") from None
    except DataError as error:
        raise Refused(415, str(error)) from None
    # A copy: what Pillow gives is read-only.
    array = np.array(image, dtype=np.uint8).reshape(*shape[1:], channels)
    pixels = torch.from_numpy(array.transpose(2, 0, 1).copy()).to(torch.float32) / 255
    return PreparedImage(pixels=pixels, size=size, note=note)
