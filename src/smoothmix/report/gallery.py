"""A choice of test images with what every model says of them."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from smoothmix.analysis import Measured, shared_images
from smoothmix.errors import SmoothmixError, UsageError
from smoothmix.report.data import Picture, Vote
from smoothmix.stats.binomial import ABSTAIN

if TYPE_CHECKING:
    from smoothmix.data import Dataset

OF_EACH = 16
"""How many images of each kind are shown."""
LONGEST_SIDE = 96
"""Larger pictures are scaled down: the page must stay small."""
VOTES_SHOWN = 4

WRONG, ABSTAINED, SMALLEST, DISAGREE = "wrong", "abstained", "smallest radius", "models disagree"


@dataclass(frozen=True)
class Gallery:
    """Pictures, and what is to be said about the choice."""

    pictures: tuple[Picture, ...] = ()
    note: str = ""


def make_gallery(every: Sequence[Measured], *, data_dir: Path | None = None) -> Gallery:
    """The pictures of the page: where the models are wrong, abstain, are least sure or disagree."""
    try:
        images = shared_images(*every)
    except UsageError as error:
        return Gallery(note=f"No pictures: {error}.")
    if not len(images):
        return Gallery(note="No pictures: the files have no image in common.")
    rows = [{int(i): row for row, i in enumerate(m.idx)} for m in every]
    kinds = _kinds([m.only(images) for m in every])
    shown = {int(i) for which in kinds.values() for i in _spread(images[which])} or set(
        map(int, _spread(images))
    )
    tags = {
        idx: [tag for tag, which in kinds.items() if which[np.searchsorted(images, idx)]]
        for idx in shown
    }
    dataset, note = _dataset(every, data_dir)
    pictures = [
        Picture(
            idx=idx,
            label=_class_name(int(every[0].label[rows[0][idx]]), dataset),
            **_drawn(dataset, idx),  # type: ignore[arg-type]
            tags=tags[idx],
            verdicts=[
                _verdict(position, m, rows[position][idx], dataset)
                for position, m in enumerate(every)
            ],
        )
        for idx in sorted(tags)
    ]
    whose = "images" if len(every) == 1 else "images that all files have"
    what = (
        f"{len(pictures)} of the {len(images):,} {whose}"
        if len(pictures) < len(images)
        else f"all {whose}"
    )
    what += f"; {note}" if note else ""
    return Gallery(tuple(pictures), what)


def _kinds(every: Sequence[Measured]) -> dict[str, NDArray[np.bool_]]:
    """Which images are of which kind; the smallest radii are those of the images that every model gets right."""
    predict = np.array([m.predict for m in every])
    counted = np.array([m.counted for m in every])
    least = np.where((counted > 0).all(axis=0), counted.min(axis=0), np.inf)
    smallest = np.zeros(len(least), dtype=bool)
    smallest[np.argsort(least, kind="stable")[:OF_EACH]] = True
    return {
        WRONG: ((predict != every[0].label) & (predict != ABSTAIN)).any(axis=0),
        ABSTAINED: (predict == ABSTAIN).any(axis=0),
        SMALLEST: smallest & np.isfinite(least),
        DISAGREE: (predict != predict[0]).any(axis=0),
    }


def _spread(images: NDArray[np.int64]) -> NDArray[np.int64]:
    """Some of the images, evenly spread over them."""
    return np.asarray(
        images[np.linspace(0, len(images) - 1, min(OF_EACH, len(images))).astype(int)]
    )


def _verdict(run: int, measured: Measured, row: int, dataset: Dataset | None) -> Vote:
    certificate = measured.file.rows[row]
    votes = sorted((certificate.counts or {}).items(), key=lambda pair: -pair[1])[:VOTES_SHOWN]
    predict = int(measured.predict[row])
    return Vote(
        run=run,
        predict=None if predict == ABSTAIN else _class_name(predict, dataset),
        correct=bool(measured.correct[row]),
        radius=float(measured.radius[row]),
        votes=[(_class_name(c, dataset), count) for c, count in votes],
        n=certificate.n,
    )


def _dataset(every: Sequence[Measured], data_dir: Path | None) -> tuple[Dataset | None, str]:
    """The data set that the files were made on, if it is here, or why it is not shown."""
    from smoothmix import data

    known = {(m.settings.data, m.settings.split, m.settings.data_hash) for m in every if m.settings}
    if len(known) != 1:
        why = (
            "were made on different data"
            if known
            else "do not say which data set they were made on"
        )
        return None, f"pictures are not shown, since the files {why}"
    ((name, split, fingerprint),) = known
    try:
        dataset = data.load(name, split, data_dir=data_dir)
    except SmoothmixError:
        way = "" if ":" in name else " (--data-dir says where it is)"
        return None, f"the data set {name} is not here, so its pictures are not shown{way}"
    if dataset.fingerprint != fingerprint:
        return (
            None,
            f"the data set {name} here is not the one that was certified, so its pictures are not shown",
        )
    return dataset, ""


def _class_name(number: int, dataset: Dataset | None) -> str:
    return (
        dataset.class_names[number]
        if dataset and number < len(dataset.class_names)
        else str(number)
    )


def _drawn(dataset: Dataset | None, idx: int) -> dict[str, object]:
    if dataset is None:
        return {"source": "", "width": 0, "height": 0}
    from PIL import Image

    pixels = _pixels(dataset, idx)
    picture = Image.fromarray(
        pixels[0] if len(pixels) == 1 else np.ascontiguousarray(pixels.transpose(1, 2, 0))
    )
    small = max(picture.size) <= LONGEST_SIDE
    picture.thumbnail((LONGEST_SIDE, LONGEST_SIDE))
    stream = io.BytesIO()
    kind = "png" if small else "jpeg"
    picture.save(stream, format=kind, optimize=True, quality=80)
    source = f"data:image/{kind};base64,{base64.b64encode(stream.getvalue()).decode()}"
    return {"source": source, "width": picture.width, "height": picture.height}


def _pixels(dataset: Dataset, idx: int) -> NDArray[np.uint8]:
    from smoothmix.data import MemoryDataset

    # Images in memory need no torch.
    image = np.asarray(
        dataset.pixels[idx]
        if isinstance(dataset, MemoryDataset)
        else dataset.images([idx])[0].numpy()
    )
    return image if image.dtype == np.uint8 else np.rint(255 * image).astype(np.uint8)
