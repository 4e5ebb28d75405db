"""A data set whose pictures stay in their files until they are asked for."""

from __future__ import annotations

import hashlib
import math
import os
import struct
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np
from numpy.typing import NDArray

from smoothmix.data.augment import check_uniforms, crop_box, flips
from smoothmix.data.base import Dataset, positions, to_float
from smoothmix.errors import DataError, UsageError, shown

if TYPE_CHECKING:
    import torch
    from PIL import Image

    from smoothmix.data.base import Indices

FORMATS = ("BMP", "JPEG", "PNG", "PPM", "WEBP")
SUFFIXES = (".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".webp")
MOST_PIXELS = 2**26
"""Of one picture: a small file may unpack to any number, and ImageNet's largest has 61 million."""

READ_WHOLE = 2**28
"""Bytes of files up to which all of them are read for the fingerprint, which takes a second."""

SAMPLED = 2000
"""Of more, this many are read, evenly chosen, besides the names and sizes of all."""

GREY = ("1", "L", "LA")
COLOUR = ("RGB", "RGBA", "P", "CMYK", "YCbCr")


DECODING_ERRORS = (
    OSError, EOFError, SyntaxError, ValueError, TypeError, IndexError, KeyError, OverflowError, MemoryError,
    struct.error, zlib.error,
)  # fmt: skip
"""What PIL's decoders raise for damaged files."""


def open_picture(path: Path) -> Image.Image:
    """The picture in a file, of which only the header has been read."""
    from PIL import Image

    if not path.is_file():  # a pipe would be waited for without end
        raise DataError(f"{path}: not a readable picture (no plain file): replace or remove it")
    try:
        picture = Image.open(path, formats=FORMATS)
    except (
        *DECODING_ERRORS,
        Image.DecompressionBombError,
        Image.DecompressionBombWarning,
    ) as error:
        raise DataError(
            f"{path}: not a readable picture ({shown(error, 200)}): replace or remove it"
        ) from error
    if not 0 < math.prod(picture.size) <= MOST_PIXELS:
        picture.close()
        raise DataError(f"{path}: {picture.size[0]}x{picture.size[1]} pixels: resize or remove it")
    if picture.mode not in (*GREY, *COLOUR):
        picture.close()
        raise DataError(
            f"{path}: pixels of mode {picture.mode} instead of 8 bits a channel: convert or remove it"
        )
    return picture


def decode(path: Path, channels: int) -> Image.Image:
    """The picture in a file, as grey (1 channel) or RGB (3)."""
    with open_picture(path) as picture:
        try:
            if "transparency" in picture.info:
                return picture.convert("RGBA").convert("L" if channels == 1 else "RGB")
            return picture.convert("L" if channels == 1 else "RGB")
        except DECODING_ERRORS as error:
            raise DataError(
                f"{path}: damaged ({shown(error, 200)}): replace or remove it"
            ) from error


def centre(picture: Image.Image, short_side: int, size: tuple[int, int]) -> Image.Image:
    """The middle of a picture, of `size` (height, width), once its short side has been scaled to `short_side`."""
    from PIL import Image

    width, height = (side * short_side // min(picture.size) for side in picture.size)
    if width * height > MOST_PIXELS:
        raise DataError(
            f"a picture of {picture.width}x{picture.height} pixels is too long to be scaled: cut or remove it"
        )
    if picture.size != (width, height):
        picture = picture.resize((width, height), Image.Resampling.BILINEAR)
    left, top = round((width - size[1]) / 2), round((height - size[0]) / 2)
    return picture.crop((left, top, left + size[1], top + size[0]))


def resized_crop(
    picture: Image.Image, size: tuple[int, int], uniforms: NDArray[np.floating[Any]]
) -> Image.Image:
    """A random part of a picture, scaled to `size` (height, width) and perhaps mirrored."""
    from PIL import Image

    # Cut first: `resize(box=...)` would let pixels from outside the box shine in at its border.
    part = picture.crop(crop_box(*picture.size, uniforms)).resize(
        size[::-1], Image.Resampling.BILINEAR
    )
    return part.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if flips(uniforms) else part


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class FolderDataset(Dataset):
    """Pictures in files, decoded when they are asked for by as many threads as there are processors."""

    root: Path
    """The folder that `files` are relative to."""

    files: tuple[str, ...]
    """Path of each picture, with forward slashes."""

    channels: int
    """1 for grey, 3 for colour, whatever a file has."""

    size: tuple[int, int]
    """Height and width of what `images` gives."""

    short_side: int | None = None
    """To what the short side is scaled before the middle is taken; None where files have the size already."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.augmentation not in ("none", "resized-crop"):
            raise UsageError(
                f"pictures in files have the augmentations none and resized-crop, not {self.augmentation!r}"
            )

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.channels, *self.size

    @cached_property
    def fingerprint(self) -> str:
        sizes = [(self.root / file).stat().st_size for file in self.files]
        content = hashlib.sha256()
        for file, size, label in zip(self.files, sizes, self.labels, strict=True):
            content.update(f"{file}\0{size}\0{label}\n".encode())
        step = 1 if sum(sizes) <= READ_WHOLE else -(-len(self.files) // SAMPLED)
        for path in (self.root / file for file in self.files[::step]):
            if path.is_file():  # a pipe would be waited for without end
                content.update(hashlib.sha256(path.read_bytes()).digest())
        return content.hexdigest()[:16]

    def images(self, indices: Indices) -> torch.Tensor:
        return self._batch([partial(self._image, index) for index in positions(indices, len(self))])

    def training_images(
        self, indices: Indices, uniforms: NDArray[np.floating[Any]]
    ) -> torch.Tensor:
        chosen = positions(indices, len(self))
        check_uniforms(uniforms, len(chosen))
        if self.augmentation == "none":
            return self.images(chosen)
        pairs = zip(chosen, uniforms, strict=True)
        return self._batch([partial(self._augmented, index, numbers) for index, numbers in pairs])

    def _image(self, index: int) -> Image.Image:
        path = self.root / self.files[index]
        picture = decode(path, self.channels)
        if self.short_side is not None:
            try:
                return centre(picture, self.short_side, self.size)
            except DataError as error:
                raise DataError(f"{path}: {error}") from None
        if picture.size[::-1] != self.size:
            raise DataError(f"{path}: has changed since the data set was loaded: load it again")
        return picture

    def _augmented(self, index: int, uniforms: NDArray[np.floating[Any]]) -> Image.Image:
        return resized_crop(
            decode(self.root / self.files[index], self.channels), self.size, uniforms
        )

    def _batch(self, pictures: Sequence[Callable[[], Image.Image]]) -> torch.Tensor:
        from torch.utils.data import get_worker_info

        batch = np.empty((len(pictures), *self.size, self.channels), dtype=np.uint8)

        def fill(at: int) -> None:
            batch[at] = np.asarray(pictures[at]()).reshape(batch.shape[1:])

        # A process that reads for a training run is one of as many as there are cores.
        with ThreadPoolExecutor(os.cpu_count() if get_worker_info() is None else 1) as pool:
            list(pool.map(fill, range(len(pictures))))
        return to_float(batch.transpose(0, 3, 1, 2))
