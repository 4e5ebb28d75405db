"""What a study has found so far, kept beside its results: being stopped costs it one image. No torch at import."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from smoothmix import randomness
from smoothmix.certificates.settings import software_versions
from smoothmix.files import atomic_write, read_limited

if TYPE_CHECKING:
    from smoothmix.data import Dataset
    from smoothmix.studies.base import Model

LARGEST_FILE = 2**28
"""Bytes that are read back; of a larger file, what comes first."""


def begun_path(folder: Path, study: str) -> Path:
    """Where a study keeps what it has found, until its results are there.

    >>> begun_path(Path("studies"), "mixing").name
    'mixing-begun.jsonl'
    """
    return folder / f"{study}-begun.jsonl"


class Begun:
    """Numbers by model and image, a line each, under what they were asked for: other questions begin anew.

    Noise is addressed, so that what was found in an earlier sitting is what this one would find.
    """

    def __init__(self, path: Path | None, dataset: Dataset, shape: tuple[int, ...], **asked: object) -> None:
        question = {
            **asked,
            "data": dataset.fingerprint,
            "noise": randomness.SCHEME,
            "versions": software_versions(),
        }
        self._path = path
        self._head = json.dumps(question, sort_keys=True, default=vars)
        self._found = _read(path, self._head, shape) if path else {}
        if path:
            # A line that was cut off must not become the beginning of the next.
            atomic_write(path, "".join([self._head + "\n", *map(_line, self._found.items())]).encode())

    def recall(self, model: Model, image: int) -> NDArray[np.float64] | None:
        """What was found for this model and image, if anything was."""
        return self._found.get(_key(model, image))

    def keep(self, model: Model, image: int, numbers: NDArray[np.float64]) -> None:
        """Add what was found for it."""
        if self._path:
            with self._path.open("a") as file:
                file.write(_line((_key(model, image), numbers)))


Key = tuple[str, float, int]


def _key(model: Model, image: int) -> Key:
    return model.fingerprint, model.sigma, image


def _line(found: tuple[Key, NDArray[np.float64]]) -> str:
    (model, sigma, image), numbers = found
    return json.dumps({"model": model, "sigma": sigma, "image": image, "found": numbers.tolist()}) + "\n"


def _read(path: Path, head: str, shape: tuple[int, ...]) -> dict[Key, NDArray[np.float64]]:
    """The whole lines of a file with this head; nothing of any other."""
    if not path.is_file():
        return {}
    first, *lines = read_limited(path, LARGEST_FILE).decode(errors="replace").split("\n")[:-1] or [""]
    found = dict(filter(None, map(_parsed, lines))) if first == head else {}
    return {key: numbers for key, numbers in found.items() if numbers.shape == shape}


def _parsed(line: str) -> tuple[Key, NDArray[np.float64]] | None:
    try:
        row: Mapping[str, object] = json.loads(line)
        key = str(row["model"]), float(row["sigma"]), int(row["image"])  # type: ignore[arg-type, call-overload]
        return key, np.asarray(row["found"], dtype=np.float64)
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None
