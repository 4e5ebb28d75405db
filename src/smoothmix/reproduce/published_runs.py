"""A run compared with the published logs of its row, on the images that it was certified on.

No torch.
"""

from __future__ import annotations

import csv
import io
import lzma
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from smoothmix._io.files import atomic_write
from smoothmix._io.unpacking import UNPACK_ERRORS, read_unpacked
from smoothmix.analysis import Estimate, Measured, mean, metrics, paper_rounded
from smoothmix.errors import CertificateError, UsageError, shown

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

ALLOWED_STDS = 3
"""Standard deviations between seeds that a difference may have, besides the choice of images."""

LARGEST_FILE = 64 * 2**20
"""Bytes that a file of published runs may unpack to."""

COLUMNS = ("row", "seed", "idx", "label", "predict", "radius")


LINE = re.compile(
    r"([^\t\r]*)\t(\d{1,9})\t(\d{1,9})\t(\d{1,9})\t(-1|\d{1,9})"
    r"\t(\d{1,9}(?:\.\d{1,9})?(?:e-\d\d)?)",
    re.ASCII,
)
"""One line of such a file, with the radius as `:g` writes it."""

Result = tuple[int, int, int, float]
"""Image, label, prediction and radius."""


@dataclass(frozen=True)
class PublishedRun:
    """The results of some images in a published log."""

    idx: Ints
    label: Ints
    counted: Floats
    """Its radii as printed, 0 where the image is wrong."""

    def on(self, images: Ints, labels: Ints) -> Floats:
        """The counted radii of these images; refused if the log lacks one or has another label."""
        order = np.argsort(self.idx)
        found = np.searchsorted(self.idx, images, sorter=order)
        # An image after the last one of the log would be found behind its end.
        rows = order[np.minimum(found, len(order) - 1)]
        same_images = np.array_equal(self.idx[rows], images)
        same_labels = np.array_equal(self.label[rows], labels)
        if not (same_images and same_labels):
            raise UsageError("the published logs do not hold these images with these labels")
        return self.counted[rows]


@dataclass(frozen=True, kw_only=True)
class PublishedComparison:
    """The ACR of a run and of its row's published seeds on the same images.

    All radii are rounded as in the paper.
    """

    acr: float
    published: float
    """Mean over the seeds."""
    std: float
    """Standard deviation between the seeds, with n - 1 in the denominator."""
    seeds: int
    difference: Estimate
    """Ours minus published, with the paired 95 % interval over images."""
    accuracy: Mapping[float, tuple[float, float]]
    """Certified accuracy at each radius: ours, and the mean over the seeds."""

    @property
    def margin(self) -> float:
        """The largest difference that seeds and the choice of images explain."""
        half_interval = (self.difference.high - self.difference.low) / 2
        return ALLOWED_STDS * self.std + half_interval

    @property
    def stds(self) -> float:
        """The difference in standard deviations of one run from the mean of the published ones."""
        # The mean of the seeds is uncertain too, hence the 1 / seeds.
        spread = self.std * math.sqrt(1 + 1 / self.seeds)
        if spread == 0:
            return math.copysign(math.inf, self.difference.value)
        return self.difference.value / spread

    @property
    def within(self) -> bool:
        """Whether the difference is no larger than the margin."""
        return abs(self.difference.value) <= self.margin


def compare_with_published(
    run: Measured, published: Sequence[PublishedRun], *, at: Sequence[float] = ()
) -> PublishedComparison:
    """One run of ours compared with the published seeds of its row."""
    if len(published) < 2:
        raise UsageError(
            f"{run.name}: a margin needs at least two published seeds, not {len(published)}"
        )
    ours = run.as_in_the_paper()
    theirs = np.stack([log.on(ours.idx, ours.label) for log in published])
    # Paired by image: images differ much more than runs, and their spread cancels out.
    by_image = theirs.mean(axis=0)
    std = metrics.standard_deviation(theirs.mean(axis=1).tolist())
    assert std is not None, "there are two seeds or more"
    accuracy = {}
    pairs = zip(at, ours.accuracy_at(at), _mean_accuracy(theirs, at), strict=True)
    for radius, own_accuracy, their_accuracy in pairs:
        accuracy[radius] = (float(own_accuracy), float(their_accuracy))
    return PublishedComparison(
        acr=float(ours.counted.mean()),
        published=float(theirs.mean()),
        std=std,
        seeds=len(published),
        difference=mean(ours.counted - by_image),
        accuracy=accuracy,
    )


def _mean_accuracy(counted: Floats, at: Sequence[float]) -> Floats:
    """Certified accuracy at each radius, mean over seeds, from radii that are 0 where wrong."""
    by_seed = []
    for radii in counted:
        # -1 for wrong images: at radius 0 they would count as certified.
        radius = np.where(radii > 0, radii, -1.0)
        right = np.ones(len(radii), dtype=bool)
        by_seed.append(metrics.certified_accuracy(radius, right, at=at))
    return np.asarray(np.mean(by_seed, axis=0))


def save_published(path: Path, rows: Mapping[str, Sequence[Measured]], *, skip: int) -> None:
    """Write every skip-th image of published logs, by the preset of their row, to a small file."""
    text = io.StringIO()
    writer = csv.writer(text, delimiter="\t", lineterminator="\n")
    writer.writerow(COLUMNS)
    for row, logs in rows.items():
        for seed, log in enumerate(logs, start=1):
            for i in np.flatnonzero(log.idx % skip == 0):
                radius = f"{log.printed[i]:g}"
                writer.writerow([row, seed, log.idx[i], log.label[i], log.predict[i], radius])
    # Packed: the file is committed to the repository.
    atomic_write(path, lzma.compress(text.getvalue().encode(), preset=9))


def load_published(path: Path) -> dict[str, list[PublishedRun]]:
    """The published runs in such a file, by the preset of their row."""
    by_run: dict[tuple[str, str], list[Result]] = {}
    try:
        header, *lines = read_unpacked(path, LARGEST_FILE).decode().split("\n")
    except (*UNPACK_ERRORS, UnicodeDecodeError) as error:
        raise CertificateError(f"{path}: cannot be read ({shown(error, 200)})") from error
    if tuple(header.split("\t")) != COLUMNS:
        raise CertificateError(f"{path}: the columns must be {', '.join(COLUMNS)}")
    for number, line in enumerate(lines, start=2):
        # After the end of the last line.
        if not line and number == len(lines) + 1:
            break
        match = LINE.fullmatch(line)
        if match is None:
            raise CertificateError(
                f"{path}: line {number}: is no result of a published run: {shown(repr(line), 200)}"
            )
        row, seed, idx, label, predict, radius = match.groups()
        images = by_run.setdefault((row, seed), [])
        images.append((int(idx), int(label), int(predict), float(radius)))
    runs: dict[str, list[PublishedRun]] = {}
    for (row, _), images in by_run.items():
        runs.setdefault(row, []).append(_published_run(images))
    return runs


def _published_run(images: Iterable[Result]) -> PublishedRun:
    idx, label, predict, radius = map(np.array, zip(*images, strict=True))
    return PublishedRun(idx, label, paper_rounded(radius) * (predict == label))
