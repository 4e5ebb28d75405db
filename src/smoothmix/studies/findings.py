"""What a study has measured so far, in a file beside its results: it resumes after the last image.

No torch at import.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from smoothmix.certificates.settings import software_versions
from smoothmix.noise import GAUSSIAN, streams

if TYPE_CHECKING:
    from smoothmix.certify.smoothed import Smoothed
    from smoothmix.data import Dataset
    from smoothmix.studies.case import VoteSettings
    from smoothmix.studies.study import Study

LONGEST_LINE = 2**26
"""Characters that are read at once. A longer line is damaged: its image is measured again."""

Floats = NDArray[np.float64]

Key = tuple[str, float, int]
"""Fingerprint of the network, sigma and position of the image."""


class Findings:
    """The numbers found for one classifier by the position of the image, in an append-only file.

    The file is named by everything that decides the numbers except the classifier and the image,
    which stand in each line. Noise is addressed: a number found earlier is the one that would be
    found now.
    """

    def __init__(
        self,
        folder: Path | None,
        study: Study,
        smoothed: Smoothed,
        dataset: Dataset,
        votes: VoteSettings,
    ) -> None:
        """Findings in a folder; None keeps nothing."""
        self.path: Path | None = None
        self._sigma = smoothed.sigma
        self._fingerprint = ""
        self._found: dict[Key, Floats] = {}
        if folder is None:
            return
        digest = _settings_digest(study, smoothed, dataset, votes)
        self.path = _existing(folder, study.name, digest)
        if self.path is None:
            self.path = folder / f"{study.name}-partial-{digest}.jsonl"
        # Computed now and not once per network: the caller may have trained it further since.
        self._fingerprint = _fingerprint(smoothed, dataset.shape)
        self._found = _read(self.path, study.shape(smoothed.num_classes, dataset.shape))

    def recall(self, image: int) -> Floats | None:
        """The numbers of this image, if they were found earlier."""
        return self._found.get((self._fingerprint, self._sigma, image))

    def keep(self, image: int, numbers: Floats) -> None:
        """Append the numbers of this image."""
        if self.path is None:
            return
        line = json.dumps(
            {
                "model": self._fingerprint,
                "sigma": self._sigma,
                "image": image,
                "found": numbers.tolist(),
            }
        )
        # Only now: a study that is refused must not leave an empty folder.
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            # The break comes first as well: if the line before was cut off, this one stays whole.
            file.write(f"\n{line}\n")


def _settings_digest(
    study: Study, smoothed: Smoothed, dataset: Dataset, votes: VoteSettings
) -> str:
    # The keys and their order-free JSON are those of earlier versions, whose findings still resume.
    settings: dict[str, object] = {
        **study.settings,
        "draws": {
            "n": votes.n,
            "seed": votes.seed,
            "block": smoothed.batch,
            "precision": smoothed.precision,
        },
        "data": dataset.fingerprint,
        "noise": streams.SCHEME,
        # Another version of torch or numpy may round differently.
        "versions": software_versions(),
    }
    # Earlier versions knew Gaussian noise only and did not name it.
    if smoothed.distribution != GAUSSIAN:
        settings["distribution"] = smoothed.distribution.description
    text = json.dumps(settings, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _existing(folder: Path, study: str, digest: str) -> Path | None:
    """The file of these findings; an earlier version had another word in the middle of its name."""
    return next(iter(sorted(folder.glob(f"{study}-*-{digest}.jsonl"))), None)


def _fingerprint(smoothed: Smoothed, shape: tuple[int, ...]) -> str:
    """A text that differs between networks that may vote differently."""
    from smoothmix.certificates.probes import Probe, short_probe_text
    from smoothmix.inference import prepare_network
    from smoothmix.networks.modes import device_of
    from smoothmix.networks.weights import state_hash

    # Two networks of the same weights may compute different logits, so some logits are hashed too;
    # and another kind of device rounds differently.
    prepared = prepare_network(smoothed.model, shape, batch=2, engine="eager")
    logits = Probe(prepared.probe).logits
    probe = short_probe_text(logits) if logits.size else ""
    device = device_of(smoothed.model).type
    return f"{state_hash(smoothed.model)} on {device}, {probe}"


def _read(path: Path, shape: tuple[int, ...]) -> dict[Key, Floats]:
    """The findings in the whole lines of a file; lines that make no sense are measured again."""
    if not path.is_file():
        return {}
    found = {}
    with path.open(errors="replace") as file:
        while line := file.readline(LONGEST_LINE):
            parsed = _parse(line)
            if parsed is None:
                continue
            key, numbers = parsed
            if numbers.shape == shape:
                found[key] = numbers
    return found


def _parse(line: str) -> tuple[Key, Floats] | None:
    try:
        row: Mapping[str, object] = json.loads(line)
        sigma = float(row["sigma"])  # type: ignore[arg-type]
        image = int(row["image"])  # type: ignore[call-overload]
        key = (str(row["model"]), sigma, image)
        return key, np.asarray(row["found"], dtype=np.float64)
    # Whatever a damaged line contains, its image is simply measured again.
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None
