"""Test images of the certified data set as small pictures inside the page."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from smoothmix.analysis import Measured
from smoothmix.config import Preparation
from smoothmix.errors import SmoothmixError

if TYPE_CHECKING:
    from smoothmix.data import Dataset

LONGEST_SIDE = 96
"""Larger images are scaled down: the page must stay small."""


@dataclass(frozen=True)
class Thumbnail:
    """A small image inside the page."""

    source: str
    """A `data:` address; empty where the data set is not available."""
    width: int
    height: int


NO_THUMBNAIL = Thumbnail("", 0, 0)


@dataclass(frozen=True)
class _Recorded:
    """What a file records about its data set."""

    name: str
    split: str = "test"
    fingerprint: str = ""
    class_numbers: tuple[int, ...] = ()
    preparation: Preparation | None = None


def certified_dataset(
    every: Sequence[Measured], data_dir: Path | None
) -> tuple[Dataset | None, str]:
    """The data set that the files were made on, or None and why its images are not shown."""
    # Data sets need torch, which nothing but the gallery of the page needs here.
    from smoothmix import data

    recorded = set()
    stated = set()
    for measured in every:
        if measured.settings is not None:
            settings = measured.settings
            recorded.add(
                _Recorded(
                    settings.data,
                    settings.split,
                    settings.data_hash,
                    settings.class_numbers,
                    settings.preparation,
                )
            )
        elif measured.source.data:
            stated.add(measured.source.data)
    if not recorded and not stated:
        return None, "they are not drawn, since the files do not record their data set"
    if len(recorded) > 1 or len(stated) > 1:
        return None, "they are not drawn, since the files were made on different data"
    found = _one_of(recorded, stated)
    name = found.name
    try:
        dataset = data.load(name, found.split, data_dir=data_dir, preparation=found.preparation)
        if found.class_numbers:
            dataset = data.renumbered(dataset, found.class_numbers)
    except SmoothmixError:
        # A data set of one's own, such as npz:file.npz, is found by its path alone.
        hint = "" if ":" in name else " (--data-dir names its folder)"
        return None, f"they are not drawn, since the data set {name} was not found{hint}"
    # Other images under the same numbers would be worse than none.
    reason = _why_other_images(every, dataset, name, found.fingerprint)
    if reason:
        return None, f"they are not drawn, since {reason}"
    return dataset, ""


def _why_other_images(
    every: Sequence[Measured], dataset: Dataset, name: str, fingerprint: str
) -> str:
    """Why these are not the images that the files certify; empty if they may be."""
    if fingerprint and dataset.fingerprint != fingerprint:
        return f"the data set {name} found here is not the one that was certified"
    # A file names images by their numbers, and may name any.
    highest = max(int(measured.idx.max(initial=0)) for measured in every)
    if highest >= len(dataset):
        return f"the files name image {highest:,}, and the data set {name} has {len(dataset):,}"
    for measured in every:
        # A log has no fingerprint; its labels are the best evidence.
        if measured.settings is None and not _has_labels_of(measured, dataset):
            return f"{measured.name} has other labels than the data set {name}"
    return ""


def _one_of(recorded: set[_Recorded], stated: set[str]) -> _Recorded:
    """The data set of the files; what is recorded comes before what is stated."""
    if recorded:
        (found,) = recorded
        return found
    (name,) = stated
    # A log does not tell the content of its data set.
    return _Recorded(name)


def _has_labels_of(measured: Measured, dataset: Dataset) -> bool:
    """Whether a file has the labels that the data set has for its images."""
    if measured.idx.max() >= len(dataset.labels):
        return False
    return np.array_equal(dataset.labels[measured.idx], measured.label)


def thumbnail(dataset: Dataset | None, idx: int) -> Thumbnail:
    """A test image, scaled down if it is large; empty without the data set."""
    if dataset is None:
        return NO_THUMBNAIL
    # Only a page with images needs it.
    from PIL import Image

    # Channels first, as networks have them.
    pixels = _pixels(dataset, idx)
    if len(pixels) == 1:
        image = Image.fromarray(pixels[0])
    else:
        image = Image.fromarray(np.ascontiguousarray(pixels.transpose(1, 2, 0)))
    # Small images stay exact; large ones are photographs, for which JPEG is far smaller.
    encoding = "png" if max(image.size) <= LONGEST_SIDE else "jpeg"
    image.thumbnail((LONGEST_SIDE, LONGEST_SIDE))
    stream = io.BytesIO()
    image.save(stream, format=encoding, optimize=True, quality=80)
    content = base64.b64encode(stream.getvalue()).decode()
    return Thumbnail(f"data:image/{encoding};base64,{content}", image.width, image.height)


def _pixels(dataset: Dataset, idx: int) -> NDArray[np.uint8]:
    # Here, not at the top: this module is imported where torch is not.
    from smoothmix.data import MemoryDataset

    if isinstance(dataset, MemoryDataset):
        image = np.asarray(dataset.pixels[idx])
    else:
        image = np.asarray(dataset.images([idx])[0].numpy())
    if image.dtype != np.uint8:
        image = np.rint(255 * image)
    return np.asarray(image, dtype=np.uint8)
