"""Reading CIFAR-10's Python-2 pickles without running anything that a pickle asks for.

A pickle is a program. These files need three names of numpy to say "an array of bytes"; whoever asks for any
other name is refused, and the three get stand-ins of our own that can do nothing but that.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from typing import final

import numpy as np
from numpy.typing import NDArray

from smoothmix.errors import DataError, shown

PIXELS = 3 * 32 * 32


@final
class _ByteType:
    """Stands for `numpy.dtype`, of which these files know one: a byte."""

    def __init__(self, kind: bytes, *_: object) -> None:
        if kind != b"u1":
            raise ValueError(f"numbers of type {kind!r} instead of bytes")

    def __setstate__(self, state: object) -> None:
        """A byte has no details that matter."""


@final
class _Array:
    """Stands for the array that numpy's `_reconstruct` makes: empty until it is given its state."""

    def __init__(self, *_: object) -> None:
        self.values: NDArray[np.uint8] = np.empty(0, dtype=np.uint8)

    def __setstate__(self, state: tuple[int, tuple[int, ...], _ByteType, bool, bytes]) -> None:
        _, shape, kind, column_major, content = state
        if not isinstance(kind, _ByteType) or column_major:
            raise ValueError("an array that is not made of rows of bytes")
        self.values = np.frombuffer(content, dtype=np.uint8).reshape(shape)


ALLOWED: dict[tuple[str, str], object] = {
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy", "ndarray"): None,  # only ever handed to _reconstruct
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
        batch = _RestrictedUnpickler(io.BytesIO(content), encoding="bytes").load()
    except _ForbiddenNameError as error:
        raise DataError(
            f"{source}: refused, since it asks to run {shown(error)}, which no CIFAR-10 file does"
        ) from None
    except Exception as error:  # a damaged pickle can raise anything at all
        raise DataError(
            f"{source}: not a CIFAR-10 batch ({type(error).__name__}: {shown(error, 200)})"
        ) from error
    if not isinstance(batch, dict):
        raise DataError(
            f"{source}: not a CIFAR-10 batch (a {type(batch).__name__} instead of a dict)"
        )
    images, labels = batch.get(b"data"), batch.get(b"labels")
    if not isinstance(images, _Array) or images.values.shape[1:] != (PIXELS,):
        raise DataError(
            f"{source}: not a CIFAR-10 batch (no array `data` with {PIXELS} bytes an image)"
        )
    if (
        not isinstance(labels, list)
        or len(labels) != len(images.values)
        or not all(map(_small, labels))
    ):
        raise DataError(
            f"{source}: not a CIFAR-10 batch (no list `labels` with a small number for each image)"
        )
    return images.values.reshape(-1, 3, 32, 32), np.array(labels, dtype=np.int64)


def _refuse_huge_memo(content: bytes) -> None:
    """Refuse a pickle that numbers its objects beyond its own length: unpickling would make room for all of them."""
    for opcode, argument, _ in pickletools.genops(content):
        if "PUT" in opcode.name and int(argument or 0) > len(content):
            raise ValueError(f"an object numbered {argument}")


def _small(label: object) -> bool:
    return type(label) is int and 0 <= label < 256
