"""What a study has found so far, kept beside its results: being stopped costs it one image. No torch at import."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from smoothmix._io.files import read_limited
from smoothmix.certificates.settings import software_versions
from smoothmix.noise import addresses as randomness

if TYPE_CHECKING:
    from smoothmix.data import Dataset
    from smoothmix.studies.base import Model

LARGEST_FILE = 2**28
"""Bytes that are read back; of a larger file, what comes first."""

Key = tuple[str, float, int]
"""Model (by its weights, some logits and where it runs), sigma and image."""


class Begun:
    """Numbers by model and image, a line each, in a file of their own for each question that a study asks.

    Noise is addressed, so that what was found in an earlier sitting is what this one would find.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        """Where the file is; None: nothing is kept."""
        self.path: Path | None = None
        self._found: dict[Key, NDArray[np.float64]] = {}
        self._fingerprints: dict[str, str] = {}
        self._shape: tuple[int, int, int] = (0, 0, 0)

    def ask(self, study: str, dataset: Dataset, shape: tuple[int, ...], **settings: object) -> None:
        """Take up what was found for this question, of which every answer has this shape."""
        question = {
            **settings,
            "data": dataset.fingerprint,
            "noise": randomness.SCHEME,
            "versions": software_versions(),
        }
        digest = hashlib.sha256(
            json.dumps(question, sort_keys=True, default=vars).encode()
        ).hexdigest()
        self._found, self._fingerprints, self._shape = {}, {}, dataset.shape
        if self.folder is not None:
            self.path = self.folder / f"{study}-begun-{digest[:12]}.jsonl"
            self._found = _read(self.path, shape)

    def recall(self, model: Model, image: int) -> NDArray[np.float64] | None:
        """What was found for this model and image, if anything was."""
        return self._found.get(self._key(model, image))

    def keep(self, model: Model, image: int, numbers: NDArray[np.float64]) -> None:
        """Add what was found for it."""
        if self.path:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a") as file:
                file.write(_line(self._key(model, image), numbers))

    def remove(self) -> None:
        """Forget it: the results are there."""
        if self.path:
            self.path.unlink(missing_ok=True)

    def _key(self, model: Model, image: int) -> Key:
        # Once for a question and not once for all: whoever asks again may have trained the network further.
        if model.name not in self._fingerprints:
            from smoothmix.inference.prepare import prepared
            from smoothmix.networks.modes import device_of
            from smoothmix.networks.weights import state_hash

            # Weights say nothing of code, so some logits on trial images do; and another device rounds otherwise.
            trial = prepared(model.network, self._shape, block=2, engine="eager").trial
            device = device_of(model.network).type
            self._fingerprints[model.name] = f"{state_hash(model.network)} on {device}, {trial}"
        return self._fingerprints[model.name], model.sigma, image


def _line(key: Key, numbers: NDArray[np.float64]) -> str:
    model, sigma, image = key
    # The break comes first: should the line before have been cut off, this one is whole all the same.
    return (
        "\n"
        + json.dumps({"model": model, "sigma": sigma, "image": image, "found": numbers.tolist()})
        + "\n"
    )


def _read(path: Path, shape: tuple[int, ...]) -> dict[Key, NDArray[np.float64]]:
    """What the whole lines of a file say."""
    if not path.is_file():
        return {}
    lines = read_limited(path, LARGEST_FILE).decode(errors="replace").split("\n")
    found = dict(filter(None, map(_parsed, lines)))
    return {key: numbers for key, numbers in found.items() if numbers.shape == shape}


def _parsed(line: str) -> tuple[Key, NDArray[np.float64]] | None:
    try:
        row: Mapping[str, object] = json.loads(line)
        key = str(row["model"]), float(row["sigma"]), int(row["image"])  # type: ignore[arg-type, call-overload]
        return key, np.asarray(row["found"], dtype=np.float64)
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None
