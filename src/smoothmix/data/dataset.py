"""A data set that has been read: labels, and images by position."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np
from numpy.typing import NDArray

from smoothmix.config import UNLABELLED, Preparation
from smoothmix.data.augment import check_uniforms, flip_shift
from smoothmix.errors import DataError, UsageError

if TYPE_CHECKING:
    import torch

    Indices = Sequence[int] | NDArray[np.integer[Any]] | torch.Tensor

LEVELS = {"uint8": 255, "uint16": 65_535}
"""The largest value of each type of whole numbers that pixels may have."""

MAX_CLASSES = 100_000
"""More classes than this are taken for a mistake: labels that are really times or hashes."""


# Compared by identity: fingerprints show whether two hold the same data.
@dataclass(frozen=True, kw_only=True, eq=False)
class Dataset(ABC):
    """Labelled images of one shape, read by position, from memory or from files."""

    name: str
    """As the user gave it: `mnist`, `npz:my.npz`."""

    split: str
    """`train`, `test` or `val`."""

    class_names: tuple[str, ...]
    """The name of each class, in the order of the labels."""

    labels: NDArray[np.int64]
    """The true class of each image."""

    augmentation: str = "none"
    """How `training_images` augments: `none`, `flip-shift` or `resized-crop`."""

    note: str | None = None
    """What a reader of results should know about this data, such as a missing part."""

    class_numbers: tuple[int, ...] = ()
    """The label of each of its own classes, where a network numbers them otherwise."""

    preparation: Preparation | None = None
    """How its image files are resized and cropped, where the user or a run has said so."""

    def __post_init__(self) -> None:
        if len(self.labels) == 0:
            raise DataError(f"{self.name} ({self.split}): there are no images")
        # A copy, since the caller may continue to write into its own array.
        labels = self.labels.copy()
        labels.setflags(write=False)
        object.__setattr__(self, "labels", labels)

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of each image."""

    @property
    def levels(self) -> int | None:
        """Steps between 0 and 1 of its pixel values: 255 for 8-bit images, None if not known."""
        return None

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """16 hexadecimal digits that depend on the images and labels, not on their location.

        Of very many image files, all sizes but only some contents are hashed.
        """

    @property
    def content_hash(self) -> str:
        """SHA-256 of everything, if `fingerprint` covers only a part; else empty."""
        return ""

    @abstractmethod
    def images(self, indices: Indices) -> torch.Tensor:
        """The images at these positions for certification: float32 [B, C, H, W] in [0, 1]."""

    @abstractmethod
    def training_images(
        self, indices: Indices, uniforms: NDArray[np.floating[Any]]
    ) -> torch.Tensor:
        """The images at these positions, each augmented by its row of `uniforms`.

        `uniforms` are numbers in [0, 1) of the shape [B, AUGMENTATION_NUMBERS]; the same rows
        give the same images.
        """

    @property
    def num_classes(self) -> int:
        """Number of classes, including those without images in this split."""
        return len(self.class_names)

    @property
    def labelled(self) -> bool:
        """Whether the true classes are known."""
        return bool((self.labels != UNLABELLED).any())

    def __len__(self) -> int:
        return len(self.labels)


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class MemoryDataset(Dataset):
    """Images held in memory as they were stored: bytes stay bytes until a batch is needed."""

    pixels: NDArray[np.uint8] | NDArray[np.uint16] | NDArray[np.float32]
    """[N, C, H, W]: uint8, uint16 or float32 in [0, 1]."""

    def __post_init__(self) -> None:
        super().__post_init__()
        # A resized crop needs images larger than the result, which arrays do not hold.
        if self.augmentation not in ("none", "flip-shift"):
            raise UsageError(
                "images in memory have the augmentations none and flip-shift, "
                f"not {self.augmentation!r}"
            )
        if self.pixels.ndim != 4 or self.pixels.dtype not in (np.uint8, np.uint16, np.float32):
            raise DataError(
                f"{self.name} ({self.split}): pixels must be uint8, uint16 or float32 "
                "[N, C, H, W], "
                f"but they are {self.pixels.dtype} of shape {self.pixels.shape}"
            )
        if len(self.pixels) != len(self.labels):
            raise DataError(
                f"{self.name} ({self.split}): {len(self.pixels)} images do not match "
                f"{len(self.labels)} labels"
            )

    @property
    def shape(self) -> tuple[int, int, int]:
        _, channels, height, width = self.pixels.shape
        return channels, height, width

    @property
    def levels(self) -> int | None:
        # Floats may be anything, also 8-bit pixels that were divided already.
        return LEVELS.get(self.pixels.dtype.name)

    @cached_property
    def fingerprint(self) -> str:
        # In one byte order, so that all machines agree.
        pixels = np.ascontiguousarray(self.pixels, dtype=self.pixels.dtype.newbyteorder("<"))
        # Type and shape as well: the same bytes could be other images.
        content = hashlib.sha256(f"{pixels.dtype.name} {pixels.shape}".encode())
        content.update(pixels.data)
        content.update(np.ascontiguousarray(self.labels, dtype="<i8").data)
        return content.hexdigest()[:16]

    def images(self, indices: Indices) -> torch.Tensor:
        return to_float(self.pixels[positions(indices, len(self))])

    def training_images(
        self, indices: Indices, uniforms: NDArray[np.floating[Any]]
    ) -> torch.Tensor:
        chosen: NDArray[Any] = self.pixels[positions(indices, len(self))]
        check_uniforms(uniforms, len(chosen))
        if self.augmentation == "flip-shift":
            chosen = flip_shift(chosen, uniforms)
        return to_float(chosen)


def to_float(pixels: NDArray[Any]) -> torch.Tensor:
    """A batch as float32 in [0, 1]: whole numbers are divided by the largest, floats stay."""
    import torch

    # Every value of 16 bits is a float32 of its own, and so is its quotient.
    if pixels.dtype == np.uint16:
        pixels = pixels.astype(np.float32) / np.float32(LEVELS["uint16"])
    batch = torch.from_numpy(np.ascontiguousarray(pixels))
    # In place, so that the batch is not held twice.
    if pixels.dtype == np.uint8:
        return batch.to(torch.float32).div_(255)
    return batch


def positions(indices: Indices, count: int) -> NDArray[np.int64]:
    """`indices` as an array, each within [0, count)."""
    found = np.asarray(indices)
    if found.ndim != 1 or (found.size and found.dtype.kind not in "iu"):
        raise TypeError(
            f"indices must be a list of whole numbers, got {found.dtype} of shape {found.shape}"
        )
    # numpy would take a negative position for one counted from the end.
    outside = found[(found < 0) | (found >= count)]
    if outside.size:
        raise IndexError(f"there are {count} images: no position {outside[0]}")
    return found.astype(np.int64)


def class_labels(values: NDArray[Any], classes: int, source: Path | str) -> NDArray[np.int64]:
    """The labels read from `source` as int64, once each is known to be a class number."""
    if values.ndim != 1 or values.dtype.kind not in "iu":
        raise DataError(
            f"{source}: labels must be one whole number per image, "
            f"but these are {values.dtype} of shape {values.shape}"
        )
    # Before the conversion, which would wrap numbers beyond 63 bits into valid ones.
    wrong = np.flatnonzero((values < 0) | (values >= classes))
    if wrong.size:
        raise DataError(
            f"{source}: label {values[wrong[0]]} of image {wrong[0]} is not one of the classes "
            f"0 to {classes - 1}"
        )
    return values.astype(np.int64)
