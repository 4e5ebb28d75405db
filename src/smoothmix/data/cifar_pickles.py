"""Reading CIFAR-10's Python 2 pickles without running anything that a pickle asks for.

A pickle is a program. These files need three names of numpy to describe an array of bytes. Any
other name is refused, and the three are replaced by classes of our own that do nothing else.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from typing import final

import numpy as np
from numpy.typing import NDArray

from smoothmix.errors import DataError, shown

IMAGE_SHAPE = (3, 32, 32)
PIXELS = 3 * 32 * 32


@final
class _ByteType:
    """Stands for `numpy.dtype`, of which these files use just one: a byte."""

    def __init__(self, kind: bytes, *_: object) -> None:
        if kind != b"u1":
            raise ValueError(f"numbers of type {kind!r} instead of bytes")

    def __setstate__(self, state: object) -> None:
        """The details of a byte do not matter."""


@final
class _Array:
    """Stands for the array that numpy's `_reconstruct` makes: empty until its state is set."""

    def __init__(self, *_: object) -> None:
        self.values: NDArray[np.uint8] = np.empty(0, dtype=np.uint8)

    def __setstate__(self, state: tuple[int, tuple[int, ...], _ByteType, bool, bytes]) -> None:
        _, shape, dtype, column_major, content = state
        if not isinstance(dtype, _ByteType) or column_major:
            raise ValueError("an array that is not made of rows of bytes")
        self.values = np.frombuffer(content, dtype=np.uint8).reshape(shape)


# The names as Python 2 and numpy 1 wrote them.
ALLOWED: dict[tuple[str, str], object] = {
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy", "ndarray"): None,  # only an argument of _reconstruct
    ("numpy", "dtype"): _ByteType,
}


@final
class _ForbiddenNameError(Exception):
    """A pickle asked for something that no CIFAR-10 file needs."""


@final
class _RestrictedUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> object:
        if (module, name) not in ALLOWED:
            raise _ForbiddenNameError(f"{module}.{name}")
        return ALLOWED[module, name]


def read_batch(content: bytes, source: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Images [N, 3, 32, 32] and labels of one batch of CIFAR-10; `source` names it in errors."""
    try:
        _refuse_huge_memo(content)
        # Text of Python 2 is bytes; decoding the pixels as text would fail.
        batch = _RestrictedUnpickler(io.BytesIO(content), encoding="bytes").load()
    except _ForbiddenNameError as error:
        raise DataError(
            f"{source}: refused, since it asks to run {shown(error)}, which no CIFAR-10 file does"
        ) from None
    # A damaged pickle can raise anything.
    except Exception as error:
        raise _not_a_batch(source, f"{type(error).__name__}: {shown(error, 200)}") from error
    if not isinstance(batch, dict):
        raise _not_a_batch(source, f"a {type(batch).__name__} instead of a dict")
    images = batch.get(b"data")
    labels = batch.get(b"labels")
    if not isinstance(images, _Array) or images.values.shape[1:] != (PIXELS,):
        raise _not_a_batch(source, f"no array `data` with {PIXELS} bytes per image")
    if not _are_labels(labels, len(images.values)):
        raise _not_a_batch(source, "no list `labels` with a small number for each image")
    return images.values.reshape(-1, *IMAGE_SHAPE), np.array(labels, dtype=np.int64)


def _not_a_batch(source: str, reason: str) -> DataError:
    return DataError(f"{source}: not a CIFAR-10 batch ({reason})")


def _refuse_huge_memo(content: bytes) -> None:
    """Refuse a pickle that numbers its objects beyond its own length.

    Unpickling would allocate memory for all the numbers in between.
    """
    for opcode, argument, _ in pickletools.genops(content):
        if "PUT" in opcode.name and int(argument or 0) > len(content):
            raise ValueError(f"an object numbered {argument}")


def _are_labels(labels: object, count: int) -> bool:
    if not isinstance(labels, list) or len(labels) != count:
        return False
    # By type, since True and False are integers to isinstance.
    return all(type(label) is int and 0 <= label < 256 for label in labels)
