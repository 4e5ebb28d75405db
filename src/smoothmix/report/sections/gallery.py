"""Test images with the prediction of every model: where they fail, abstain or disagree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from smoothmix.analysis import Measured, shared_images
from smoothmix.errors import UsageError
from smoothmix.report.comparison import Comparison
from smoothmix.report.images import Thumbnail, certified_dataset, thumbnail
from smoothmix.report.section import Section
from smoothmix.stats.binomial import ABSTAIN, NOBODY
from smoothmix.tables.numbers import radius

if TYPE_CHECKING:
    from smoothmix.data import Dataset

IMAGES_PER_KIND = 16
VERDICTS_PER_KIND = 64
LEAST_PER_KIND = 4
"""With many models an image takes a screen, so that there are fewer of each kind."""

MOST_RUNS = 12
"""Models whose predictions the gallery shows: more would not fit beside an image."""

VOTES_SHOWN = 4

MISCLASSIFIED = "wrong"
ABSTAINED = "abstained"
SMALLEST_RADIUS = "smallest radius"
DISAGREE = "models disagree"
KINDS = (MISCLASSIFIED, ABSTAINED, SMALLEST_RADIUS, DISAGREE)


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What one run predicts for one image."""

    run: int
    """Position of the run in the comparison."""
    predict: str | None
    """Name of the predicted class; None where the run abstains."""
    correct: bool
    radius: float
    votes: Sequence[tuple[str, int]]
    """The classes with most votes; empty where the file has none."""
    n: int | None


@dataclass(frozen=True, kw_only=True)
class GalleryImage:
    """A test image with the verdict of every run."""

    idx: int
    label: str
    thumbnail: Thumbnail
    kinds: Sequence[str]
    """Those of KINDS that it belongs to."""
    verdicts: Sequence[Verdict]


@dataclass(frozen=True)
class Gallery:
    """Images, and a sentence on how they were selected."""

    images: tuple[GalleryImage, ...] = ()
    note: str = ""


def gallery(comparison: Comparison) -> Section | None:
    """The gallery of the test images that all runs certified."""
    if not comparison.measured:
        return None
    shown = comparison.measured[:MOST_RUNS]
    made = make_gallery(shown, data_dir=comparison.data_dir)
    if len(comparison.measured) > MOST_RUNS and made.images:
        made = replace(made, note=f"{made.note}; of the first {MOST_RUNS} models")
    # Numbers of images alone show nobody anything.
    has_votes = any(image.verdicts and image.verdicts[0].votes for image in made.images)
    has_pictures = any(image.thumbnail.source for image in made.images)
    if made.images and not has_votes and not has_pictures:
        return None
    return gallery_section(made)


def gallery_section(made: Gallery) -> Section | None:
    """The section that shows a gallery; None where there is nothing to say."""
    # A note alone explains why there are no images.
    if not made.images and not made.note:
        return None
    counts = Counter(dict.fromkeys(KINDS, 0))
    payload = []
    for image in made.images:
        counts.update(image.kinds)
        payload.append(_payload(image))
    return Section(
        id="gallery",
        title="Test images",
        short_title="Images" if made.images else "",
        text=made.note,
        template="gallery.html",
        values={"total": len(made.images), "counts": counts},
        data=payload,
        needs_scripts=True,
    )


def _payload(image: GalleryImage) -> dict[str, Any]:
    """An image as the script reads it. Verdicts are plain lists, since there are many."""
    verdicts = []
    for verdict in image.verdicts:
        votes = list(map(list, verdict.votes))
        shown_radius = radius(verdict.radius)
        correct = int(verdict.correct)
        verdicts.append([verdict.run, verdict.predict, correct, shown_radius, votes, verdict.n])
    return {
        "idx": image.idx,
        "label": image.label,
        "source": image.thumbnail.source,
        "size": [image.thumbnail.width, image.thumbnail.height],
        "tags": list(image.kinds),
        "verdicts": verdicts,
    }


def make_gallery(every: Sequence[Measured], *, data_dir: Path | None = None) -> Gallery:
    """Images where the models fail, abstain, have the smallest radii or disagree."""
    try:
        shared = shared_images(*every)
    except UsageError as error:
        return Gallery(note=f"No images are shown: {error}.")
    if not len(shared):
        return Gallery(note="No images are shown: the files have no image in common.")
    on_shared = [measured.only(shared) for measured in every]
    per_kind = _images_per_kind(len(every))
    kinds = _kinds(on_shared, per_kind)
    dataset, why_hidden = certified_dataset(every, data_dir)
    images = []
    for row in _selected_rows(kinds, len(shared), per_kind):
        images.append(_gallery_image(row, on_shared, kinds, dataset))
    return Gallery(tuple(images), _note(len(images), len(shared), len(every), why_hidden))


def _images_per_kind(models: int) -> int:
    """How many images of each kind are shown.

    >>> list(map(_images_per_kind, (1, 4, 8, 12, 40)))
    [16, 16, 8, 5, 4]
    """
    return min(IMAGES_PER_KIND, max(LEAST_PER_KIND, VERDICTS_PER_KIND // models))


def _note(shown: int, shared: int, files: int, why_hidden: str) -> str:
    whose = "images"
    if files > 1:
        whose = "images that all files have"
    if shown < shared:
        note = f"{shown} of the {shared:,} {whose}"
    else:
        note = f"all {whose}"
    if why_hidden:
        note += f"; {why_hidden}"
    return note


Mask = NDArray[np.bool_]


def _kinds(every: Sequence[Measured], per_kind: int) -> dict[str, Mask]:
    """Which images are of which kind.

    The smallest radii are those of images that every model classifies correctly.
    """
    predict = np.array(list(map(attrgetter("predict"), every)))
    counted = np.array(list(map(attrgetter("counted"), every)))
    label = every[0].label
    # An image that some model gets wrong has a radius of 0, which is no small radius.
    least = np.where((counted > 0).all(axis=0), counted.min(axis=0), np.inf)
    smallest = np.zeros(len(least), dtype=bool)
    smallest[np.argsort(least, kind="stable")[:per_kind]] = True
    return {
        MISCLASSIFIED: ((predict != label) & (predict != ABSTAIN)).any(axis=0),
        ABSTAINED: (predict == ABSTAIN).any(axis=0),
        SMALLEST_RADIUS: smallest & np.isfinite(least),
        DISAGREE: (predict != predict[0]).any(axis=0),
    }


def _selected_rows(kinds: dict[str, Mask], count: int, per_kind: int) -> list[int]:
    """Some images of every kind, or of all images where there is none of any kind."""
    # An image may be of several kinds: it is shown once.
    selected: set[int] = set()
    for mask in kinds.values():
        selected.update(_evenly_spread(np.flatnonzero(mask), per_kind))
    return sorted(selected or _evenly_spread(np.arange(count), per_kind))


def _evenly_spread(rows: NDArray[np.int64], most: int) -> list[int]:
    count = min(most, len(rows))
    positions = np.linspace(0, len(rows) - 1, count).astype(int)
    return list(map(int, rows[positions]))


def _gallery_image(
    row: int, every: Sequence[Measured], kinds: dict[str, Mask], dataset: Dataset | None
) -> GalleryImage:
    idx = int(every[0].idx[row])
    label = int(every[0].label[row])
    verdicts = []
    for position, measured in enumerate(every):
        verdicts.append(_verdict(position, measured, row, dataset))
    return GalleryImage(
        idx=idx,
        label=_class_name(label, dataset),
        thumbnail=thumbnail(dataset, idx),
        kinds=[kind for kind, mask in kinds.items() if mask[row]],
        verdicts=verdicts,
    )


def _verdict(run: int, measured: Measured, row: int, dataset: Dataset | None) -> Verdict:
    certificate = measured.file.rows[row]
    counts = dict(certificate.counts or {})
    # Ambiguous draws voted for no class, so there is no name to show.
    counts.pop(NOBODY, None)
    most_voted = sorted(counts.items(), key=lambda pair: -pair[1])[:VOTES_SHOWN]
    votes = []
    for class_index, count in most_voted:
        votes.append((_class_name(class_index, dataset), count))
    predict = int(measured.predict[row])
    return Verdict(
        run=run,
        predict=None if predict == ABSTAIN else _class_name(predict, dataset),
        correct=bool(measured.correct[row]),
        radius=float(measured.radius[row]),
        votes=votes,
        n=certificate.n,
    )


def _class_name(index: int, dataset: Dataset | None) -> str:
    # The files may have classes that this data set does not name.
    if dataset is None or index >= len(dataset.class_names):
        return str(index)
    return dataset.class_names[index]
