"""A data set whose images stay in their files until they are needed."""

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
from typing import TYPE_CHECKING, Any, BinaryIO, final

import numpy as np
from numpy.typing import NDArray

from smoothmix.data.augment import check_uniforms
from smoothmix.data.content_hash import content_hash
from smoothmix.data.dataset import Dataset, positions, to_float
from smoothmix.data.resizing import MAX_PIXELS, centre_crop, middle, resized_crop
from smoothmix.errors import DataError, UsageError, shown

if TYPE_CHECKING:
    import torch
    from PIL import Image

    from smoothmix.data.dataset import Indices

# PIL knows more formats, some of which call other programs, such as EPS.
FORMATS = ("BMP", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
SUFFIXES = (".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
HASH_ALL_BYTES = 2**28
"""Up to this total size, the fingerprint covers the content of all files, which takes a second."""

HASH_SAMPLE_FILES = 2000
"""Beyond it, it covers the content of this many files, besides all names and sizes."""

LARGEST_FILE = 8 * MAX_PIXELS
"""Bytes of one file: all pixels of the largest image, uncompressed. Some decoders read it whole."""

GREY_MODES = ("1", "L", "LA")
COLOUR_MODES = ("RGB", "RGBA", "P", "CMYK", "YCbCr")
DEEP_GREY_MODES = ("I;16", "I;16B", "I;16L")
"""Grey of 16 bits per pixel."""

ORIENTATION = 0x0112
"""The EXIF tag that says how a camera was held."""

TO_UPRIGHT = {
    2: "FLIP_LEFT_RIGHT",
    3: "ROTATE_180",
    4: "FLIP_TOP_BOTTOM",
    5: "TRANSPOSE",
    6: "ROTATE_270",
    7: "TRANSVERSE",
    8: "ROTATE_90",
}
"""What turns an image of each orientation upright."""

DECODING_ERRORS = (
    OSError,
    EOFError,
    SyntaxError,
    ValueError,
    TypeError,
    IndexError,
    KeyError,
    OverflowError,
    MemoryError,
    struct.error,
    zlib.error,
)
"""What PIL's decoders raise for damaged files."""


class TooManyPixelsError(DataError):
    """An image is larger than allowed, by its header: nothing has been unpacked."""


def open_image(path: Path) -> Image.Image:
    """The image in a file, of which only the header has been read."""
    # Opening a pipe would block forever.
    if not path.is_file():
        raise DataError(f"{path}: not a readable image (not a file): replace or remove it")
    size = path.stat().st_size
    if size > LARGEST_FILE:
        raise DataError(
            f"{path}: {size:,} bytes, more than any image that is read: replace or remove it"
        )
    return _opened(path, str(path), FORMATS, MAX_PIXELS)


def _opened(
    source: Path | BinaryIO, name: str, formats: tuple[str, ...], most_pixels: int
) -> Image.Image:
    """The image in a file or a stream, of which only the header has been read."""
    from PIL import Image

    try:
        image = Image.open(source, formats=formats)
    except (
        *DECODING_ERRORS,
        Image.DecompressionBombError,
        Image.DecompressionBombWarning,
    ) as error:
        raise DataError(
            f"{name}: not a readable image ({shown(error, 200)}): replace or remove it"
        ) from error
    if not 0 < math.prod(image.size) <= most_pixels:
        image.close()
        raise TooManyPixelsError(
            f"{name}: {image.width}x{image.height} pixels: resize or remove it"
        )
    problem = _why_not_exact(image)
    if problem:
        image.close()
        raise DataError(f"{name}: {problem}")
    return image


def _why_not_exact(image: Image.Image) -> str:
    """Why the pixels of an image would not be read as they are stored; empty if they would be."""
    if is_deep(image):
        return ""
    if image.mode not in (*GREY_MODES, *COLOUR_MODES):
        return (
            f"pixels of mode {image.mode} instead of 8 bits per channel or 16 bits of grey: "
            "convert or remove it"
        )
    # PIL reads colour of 16 bits as 8 bits, without a word.
    tiles: Sequence[Any] = getattr(image, "tile", ())
    for tile in tiles:
        arguments = tile.args
        if isinstance(arguments, str):
            arguments = (arguments,)
        halved = any(";16" in str(value) for value in arguments or ())
        if halved or (tile.codec_name.startswith("ppm") and _exceeds_a_byte(arguments[-1])):
            return (
                "colour of 16 bits per channel, of which an image file would give 8: convert it to "
                "8 bits, or save all images as uint16 arrays in an .npz file"
            )
    return ""


def is_deep(image: Image.Image) -> bool:
    """Whether an image is grey of 16 bits."""
    # PIL's 32-bit integers are 16-bit values in this format alone.
    return image.mode in DEEP_GREY_MODES or (image.mode == "I" and image.format == "PPM")


def _exceeds_a_byte(largest: object) -> bool:
    # Bitmaps of black and white have no largest value, but a mode in its place.
    return isinstance(largest, int) and largest > 255


def orientation(image: Image.Image) -> int:
    """How the camera was held: 1 for upright, up to 8; PIL turns TIFF files itself."""
    # PIL would decode the whole of a PNG to look for what stands behind the pixels.
    if image.format == "TIFF" or "exif" not in image.info:
        return 1
    try:
        value = image.getexif().get(ORIENTATION, 1)
    except DECODING_ERRORS:
        return 1
    if value not in TO_UPRIGHT:
        return 1
    return int(value)


def upright_size(image: Image.Image) -> tuple[int, int]:
    """Width and height of an image, once it is turned upright."""
    if orientation(image) >= 5:
        return image.height, image.width
    return image.width, image.height


def turned_upright(image: Image.Image, found: int) -> Image.Image:
    """The image as the camera saw it, from its `orientation`."""
    from PIL import Image

    if found not in TO_UPRIGHT:
        return image
    return image.transpose(Image.Transpose[TO_UPRIGHT[found]])


def decode(path: Path, channels: int, *, upright: bool = False, deep: bool = False) -> Image.Image:
    """The image in a file, as grey (1 channel) or RGB (3); `deep` if it must have 16 bits."""
    return _decoded(open_image(path), str(path), channels, upright=upright, deep=deep)


def decode_stream(
    stream: BinaryIO, name: str, channels: int, *, formats: tuple[str, ...], most_pixels: int
) -> Image.Image:
    """The upright image of 8 bits in a stream that errors call `name`."""
    image = _opened(stream, name, formats, most_pixels)
    return _decoded(image, name, channels, upright=True, deep=False)


def _decoded(
    opened: Image.Image, name: str, channels: int, *, upright: bool, deep: bool
) -> Image.Image:
    mode = "RGB"
    if channels == 1:
        mode = "L"
    with opened as image:
        if is_deep(image) != deep:
            raise DataError(f"{name}: images must all have 8 bits or all 16 bits: convert it")
        found = 1
        if upright:
            found = orientation(image)
        try:
            if deep:
                return turned_upright(image.copy(), found)
            # PIL warns of transparency in a palette unless it is converted in two steps.
            if "transparency" in image.info:
                return turned_upright(image.convert("RGBA").convert(mode), found)
            return turned_upright(image.convert(mode), found)
        except DECODING_ERRORS as error:
            raise DataError(
                f"{name}: damaged ({shown(error, 200)}): replace or remove it"
            ) from error


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class FolderDataset(Dataset):
    """Image files, decoded when needed, by as many threads as there are processors."""

    root: Path
    """The folder that `files` are relative to."""

    files: tuple[str, ...]
    """Path of each image, with forward slashes."""

    channels: int
    """1 for grey, 3 for colour, whatever a file has."""

    size: tuple[int, int]
    """Height and width of the images."""

    short_side: int | None = None
    """Length to which the short side is scaled before cropping; None if it is not scaled."""

    cropped: bool = False
    """Whether the middle is cropped; always, if the short side is scaled."""

    upright: bool = False
    """Whether images are turned as their EXIF orientation says; ImageNet's are not."""

    deep: bool = False
    """Whether all images are grey of 16 bits instead of 8."""

    left_out: tuple[str, ...] = ()
    """What the class folders hold besides: other formats, hidden files, folders."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.augmentation not in ("none", "resized-crop"):
            raise UsageError(
                "image files have the augmentations none and resized-crop, "
                f"not {self.augmentation!r}"
            )

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.channels, *self.size

    @property
    def levels(self) -> int:
        if self.deep:
            return 65_535
        # Files are decoded, scaled and cropped in bytes.
        return 255

    @cached_property
    def fingerprint(self) -> str:
        sizes = [(self.root / file).stat().st_size for file in self.files]
        # Names, sizes and labels of all files, even if only some are read below.
        content = hashlib.sha256()
        for file, size, label in zip(self.files, sizes, self.labels, strict=True):
            content.update(f"{file}\0{size}\0{label}\n".encode())
        # Earlier versions did not turn images: files of theirs are about other pixels.
        if self.upright:
            content.update(b"upright\n")
        # Nor did they resize: the same files are other images then.
        if self.preparation is not None:
            way = self.preparation
            values = f"resize {way.resize} crop {way.crop} channels {way.channels}\n"
            content.update(values.encode())
        step = 1
        # Files of earlier versions record this: `content_hash` covers the rest.
        if sum(sizes) > HASH_ALL_BYTES:
            step = math.ceil(len(self.files) / HASH_SAMPLE_FILES)
        for file in self.files[::step]:
            path = self.root / file
            # Reading a pipe would block forever.
            if path.is_file():
                content.update(hashlib.sha256(path.read_bytes()).digest())
        return content.hexdigest()[:16]

    @cached_property
    def content_hash(self) -> str:
        total = sum((self.root / file).stat().st_size for file in self.files)
        if total <= HASH_ALL_BYTES:
            return ""
        return content_hash(self.root, self.files)

    def images(self, indices: Indices) -> torch.Tensor:
        chosen = positions(indices, len(self))
        return self._batch([partial(self._image, index) for index in chosen])

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
        image = self._decoded(index)
        try:
            if self.short_side is not None:
                return centre_crop(image, self.short_side, self.size)
            if self.cropped:
                return middle(image, self.size)
        except DataError as error:
            raise DataError(f"{path}: {error}") from None
        # Loading checked the size, but the file may have been replaced since.
        if (image.height, image.width) != self.size:
            raise DataError(f"{path}: has changed since the data set was loaded: load it again")
        return image

    def _augmented(self, index: int, uniforms: NDArray[np.floating[Any]]) -> Image.Image:
        return resized_crop(self._decoded(index), self.size, uniforms)

    def _decoded(self, index: int) -> Image.Image:
        path = self.root / self.files[index]
        return decode(path, self.channels, upright=self.upright, deep=self.deep)

    def _batch(self, readers: Sequence[Callable[[], Image.Image]]) -> torch.Tensor:
        from torch.utils.data import get_worker_info

        dtype = np.uint16 if self.deep else np.uint8
        batch = np.empty((len(readers), *self.size, self.channels), dtype=dtype)

        def fill(position: int) -> None:
            image = readers[position]()
            batch[position] = np.asarray(image).reshape(batch.shape[1:])

        threads = os.cpu_count()
        # A worker process of a training run is one of as many as there are cores.
        if get_worker_info() is not None:
            threads = 1
        # Threads suffice: PIL decodes without holding the interpreter's lock.
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(fill, range(len(readers))))
        return to_float(batch.transpose(0, 3, 1, 2))
