"""Augmentation as a pure function of its random numbers: one row of uniform numbers per image.

As for the published results: CIFAR-10 is padded by four zeros, cropped at random and flipped at
random; ImageNet is cropped to a random area and ratio (Szegedy et al., 2015), resized and flipped.
"""

from __future__ import annotations

import math
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Pixel = TypeVar("Pixel", bound=np.generic)

CROP_TRIES = 10
"""Areas and ratios tried before an image that none of them fits is cropped in the middle."""

AUGMENTATION_NUMBERS = 3 + 2 * CROP_TRIES
"""Uniform numbers per image: flip, top, left, then an area and a ratio for each try."""

PADDING = 4
AREA = (0.08, 1.0)
RATIO = (3 / 4, 4 / 3)


def check_uniforms(uniforms: NDArray[np.floating[Any]], images: int) -> None:
    """Refuse random numbers of the wrong shape or outside [0, 1)."""
    if uniforms.shape != (images, AUGMENTATION_NUMBERS):
        raise ValueError(
            f"uniforms must have the shape ({images}, {AUGMENTATION_NUMBERS}), got {uniforms.shape}"
        )
    if uniforms.size and not (uniforms.min() >= 0 and uniforms.max() < 1):
        raise ValueError("uniforms must lie in [0, 1)")


def flips(uniforms: NDArray[np.floating[Any]]) -> NDArray[np.bool_]:
    """Whether each image is mirrored: every second one, on average."""
    return np.asarray(uniforms[..., 0] < 0.5)


def choose(uniform: NDArray[np.floating[Any]], choices: int) -> NDArray[np.int64]:
    """Whole numbers below `choices`, each equally likely.

    >>> choose(np.array([0.0, 0.49, 0.51, 0.99]), 2)
    array([0, 0, 1, 1])
    """
    # In double precision and capped, so that a number just below 1 is not rounded up to `choices`.
    scaled = np.asarray(uniform, dtype=np.float64) * choices
    return np.minimum(scaled, choices - 1).astype(np.int64)


def flip_shift(images: NDArray[Pixel], uniforms: NDArray[np.floating[Any]]) -> NDArray[Pixel]:
    """[B, C, H, W] images, each shifted by up to four pixels both ways and perhaps mirrored."""
    padding = ((0, 0), (0, 0), (PADDING, PADDING), (PADDING, PADDING))
    # Windows are views: only the chosen ones are copied.
    padded = np.pad(images, padding)
    windows = np.lib.stride_tricks.sliding_window_view(padded, images.shape[2:], axis=(2, 3))
    top = choose(uniforms[:, 1], 2 * PADDING + 1)
    left = choose(uniforms[:, 2], 2 * PADDING + 1)
    shifted = windows[np.arange(len(images)), :, top, left]
    mirrored = flips(uniforms)
    shifted[mirrored] = shifted[mirrored, :, :, ::-1]
    return shifted


def crop_box(
    width: int, height: int, uniforms: NDArray[np.floating[Any]]
) -> tuple[int, int, int, int]:
    """The (left, top, right, bottom) that one row of numbers crops from an image of this size.

    >>> crop_box(400, 300, np.full(AUGMENTATION_NUMBERS, 0.5))
    (73, 23, 328, 278)
    """
    for area_number, ratio_number in uniforms[3:].reshape(CROP_TRIES, 2).astype(np.float64):
        area = width * height * (AREA[0] + area_number * (AREA[1] - AREA[0]))
        # The ratio is drawn on a log scale, so that wide and tall crops are equally likely.
        ratio = math.exp(math.log(RATIO[0]) + ratio_number * math.log(RATIO[1] / RATIO[0]))
        crop_width = round(math.sqrt(area * ratio))
        crop_height = round(math.sqrt(area / ratio))
        if 0 < crop_width <= width and 0 < crop_height <= height:
            top = int(choose(uniforms[1], height - crop_height + 1))
            left = int(choose(uniforms[2], width - crop_width + 1))
            return left, top, left + crop_width, top + crop_height
    crop_width, crop_height = largest_within_ratio(width, height)
    left = (width - crop_width) // 2
    top = (height - crop_height) // 2
    return left, top, left + crop_width, top + crop_height


def largest_within_ratio(width: int, height: int) -> tuple[int, int]:
    """Width and height of the largest part of an image whose ratio of sides is allowed.

    >>> largest_within_ratio(300, 90), largest_within_ratio(90, 300), largest_within_ratio(100, 100)
    ((120, 90), (90, 120), (100, 100))
    """
    widest = max(1, round(height * RATIO[1]))
    highest = max(1, round(width / RATIO[0]))
    return min(width, widest), min(height, highest)
