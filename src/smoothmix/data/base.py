"""What a data set is once it has been read: labels, and images by position."""

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

from smoothmix.data.augment import check_uniforms, flip_shift
from smoothmix.errors import DataError, UsageError

if TYPE_CHECKING:
    import torch

    Indices = Sequence[int] | NDArray[np.integer[Any]] | torch.Tensor

MAX_CLASSES = 100_000
"""More classes than this are taken for a mistake: a label that is really a pixel, a time or a hash."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Dataset(ABC):
    """Labelled images of one shape, read by position. Either held in memory or streamed from files."""

    name: str
    """As the user gave it: `mnist`, `npz:my.npz`."""

    split: str
    """`train` or `test`."""

    class_names: tuple[str, ...]
    """One name for each class, in the order of the labels."""

    labels: NDArray[np.int64]
    """The true class of every image."""

    augmentation: str = "none"
    """What `training_images` does: `none`, `flip-shift` or `resized-crop`."""

    note: str | None = None
    """What a reader of results should know about this data, such as that a part is missing."""

    def __post_init__(self) -> None:
        if len(self.labels) == 0:
            raise DataError(f"{self.name} ({self.split}): there are no images")
        labels = self.labels.copy()  # the caller may go on writing into its own array
        labels.setflags(write=False)
        object.__setattr__(self, "labels", labels)

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of every image."""

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """16 hexadecimal digits: the same for the same data, wherever they were read from, and others for others.

        Of very many pictures in files, the sizes of all and the content of some are looked at.
        """

    @abstractmethod
    def images(self, indices: Indices) -> torch.Tensor:
        """The images at these positions as certification sees them: float32 [B, C, H, W] in [0, 1]."""

    @abstractmethod
    def training_images(
        self, indices: Indices, uniforms: NDArray[np.floating[Any]]
    ) -> torch.Tensor:
        """The images at these positions, augmented by one row of `uniforms` (numbers in [0, 1)) each.

        `uniforms` has the shape [B, AUGMENTATION_NUMBERS]; the same rows give the same images.
        """

    @property
    def num_classes(self) -> int:
        """How many classes there are, also where this split has no image of some."""
        return len(self.class_names)

    def __len__(self) -> int:
        return len(self.labels)


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class MemoryDataset(Dataset):
    """Images held in memory as they were stored: bytes stay bytes until a batch is asked for."""

    pixels: NDArray[np.uint8] | NDArray[np.float32]
    """[N, C, H, W], either uint8 or float32 in [0, 1]."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.augmentation not in ("none", "flip-shift"):
            raise UsageError(
                f"images in memory have the augmentations none and flip-shift, not {self.augmentation!r}"
            )
        if self.pixels.ndim != 4 or self.pixels.dtype not in (np.uint8, np.float32):
            raise DataError(
                f"{self.name} ({self.split}): pixels must be uint8 or float32 [N, C, H, W], but they are "
                f"{self.pixels.dtype} of shape {self.pixels.shape}"
            )
        if len(self.pixels) != len(self.labels):
            raise DataError(
                f"{self.name} ({self.split}): {len(self.pixels)} images do not go with {len(self.labels)} labels"
            )

    @property
    def shape(self) -> tuple[int, int, int]:
        _, channels, height, width = self.pixels.shape
        return channels, height, width

    @cached_property
    def fingerprint(self) -> str:
        pixels = np.ascontiguousarray(self.pixels, dtype=self.pixels.dtype.newbyteorder("<"))
        content = hashlib.sha256(f"{pixels.dtype.name} {pixels.shape}".encode())
        content.update(pixels.data)
        content.update(np.ascontiguousarray(self.labels, dtype="<i8").data)
        return content.hexdigest()[:16]

    def images(self, indices: Indices) -> torch.Tensor:
        return to_float(self.pixels[positions(indices, len(self))])

    def training_images(
        self, indices: Indices, uniforms: NDArray[np.floating[Any]]
    ) -> torch.Tensor:
        chosen = self.pixels[positions(indices, len(self))]
        check_uniforms(uniforms, len(chosen))
        return to_float(
            flip_shift(chosen, uniforms) if self.augmentation == "flip-shift" else chosen
        )


def to_float(pixels: NDArray[Any]) -> torch.Tensor:
    """A batch as float32 in [0, 1]: bytes are divided by 255, floats are taken as they are."""
    import torch

    batch = torch.from_numpy(np.ascontiguousarray(pixels))
    return batch.to(torch.float32).div_(255) if pixels.dtype == np.uint8 else batch


def positions(indices: Indices, count: int) -> NDArray[np.int64]:
    """`indices` as an array, each within [0, count): a negative one would silently mean another image."""
    found = np.asarray(indices)
    if found.ndim != 1 or (found.size and found.dtype.kind not in "iu"):
        raise TypeError(
            f"indices must be a list of whole numbers, got {found.dtype} of shape {found.shape}"
        )
    if found.size and not (found.min() >= 0 and found.max() < count):
        raise IndexError(
            f"there are {count} images: no position {found.max() if found.min() >= 0 else found.min()}"
        )
    return found.astype(np.int64)


def class_labels(values: NDArray[Any], classes: int, source: Path | str) -> NDArray[np.int64]:
    """The labels read from `source` as int64, once they are known to be one class number an image."""
    if values.ndim != 1 or values.dtype.kind not in "iu":
        raise DataError(
            f"{source}: labels must be whole numbers, one an image, but these are {values.dtype} "
            f"of shape {values.shape}"
        )
    wrong = np.flatnonzero((values < 0) | (values >= classes))
    if wrong.size:
        raise DataError(
            f"{source}: label {values[wrong[0]]} of image {wrong[0]} is not one of the classes 0 to {classes - 1}"
        )
    return values.astype(np.int64)
