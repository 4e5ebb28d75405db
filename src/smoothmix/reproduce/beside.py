"""A run beside the published logs of its row, on the very images that it was certified on. No torch."""

from __future__ import annotations

import csv
import io
import lzma
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from smoothmix._io.files import atomic_write, read_unpacked
from smoothmix.analysis import Measured, intervals, metrics
from smoothmix.analysis.intervals import Estimate
from smoothmix.analysis.rounding import paper_rounded
from smoothmix.errors import CertificateError, UsageError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

DEVIATIONS = 3
"""So many deviations between seeds are allowed for, beside the chance in which images were drawn."""

LARGEST = 64 * 2**20
"""Bytes that a file of published runs may unpack to."""

COLUMNS = ("row", "seed", "idx", "label", "predict", "radius")


@dataclass(frozen=True)
class PublishedRun:
    """What a published log says of some images."""

    idx: Ints
    label: Ints
    counted: Floats
    """Its radii as printed, 0 where the image is wrong."""

    def on(self, images: Ints, labels: Ints) -> Floats:
        """The counted radii of these images."""
        order = np.argsort(self.idx)
        at = np.minimum(np.searchsorted(self.idx, images, sorter=order), len(order) - 1)
        rows = order[at]
        if not np.array_equal(self.idx[rows], images) or not np.array_equal(
            self.label[rows], labels
        ):
            raise UsageError("the published logs do not hold these images with these labels")
        return self.counted[rows]


@dataclass(frozen=True, kw_only=True)
class Beside:
    """The ACR of a run and that of its row's published seeds on the same images, all rounded as in the paper."""

    acr: float
    published: float
    """Mean over the seeds."""
    deviation: float
    """Between the seeds, with n - 1."""
    seeds: int
    difference: Estimate
    """Ours minus published, with the paired 95 % interval over images."""
    accuracy: Mapping[float, tuple[float, float]]
    """Certified accuracy at each radius, ours and the seeds' mean."""

    @property
    def margin(self) -> float:
        """How far apart both may be: deviations between seeds and half the paired interval."""
        return DEVIATIONS * self.deviation + (self.difference.high - self.difference.low) / 2

    @property
    def deviations(self) -> float:
        """The difference in deviations of a run from the mean of that many others: how unlike one more seed it is."""
        spread = self.deviation * math.sqrt(1 + 1 / self.seeds)
        return (
            self.difference.value / spread
            if spread
            else math.copysign(math.inf, self.difference.value)
        )

    @property
    def within(self) -> bool:
        """Whether they are no further apart than that."""
        return abs(self.difference.value) <= self.margin


def beside(run: Measured, published: Sequence[PublishedRun], *, at: Sequence[float] = ()) -> Beside:
    """One run of ours beside the published seeds of its row."""
    if len(published) < 2:
        raise UsageError(
            f"{run.name}: a margin needs at least two published seeds, not {len(published)}"
        )
    ours = run.as_in_the_paper()
    theirs = np.stack([log.on(ours.idx, ours.label) for log in published])
    deviation = metrics.standard_deviation(theirs.mean(axis=1).tolist())
    assert deviation is not None
    shares = metrics.certified_accuracy
    right = np.ones(len(ours), dtype=bool)
    mean = np.mean([shares(np.where(log > 0, log, -1.0), right, at=at) for log in theirs], axis=0)
    return Beside(
        acr=float(ours.counted.mean()),
        published=float(theirs.mean()),
        deviation=deviation,
        seeds=len(published),
        difference=intervals.mean(ours.counted - theirs.mean(axis=0)),
        accuracy={
            r: (float(a), float(b)) for r, a, b in zip(at, ours.accuracy_at(at), mean, strict=True)
        },
    )


def save_published(path: Path, rows: Mapping[str, Sequence[Measured]], *, skip: int) -> None:
    """Every skip-th image of published logs, by the preset of their row, in one small file."""
    text = io.StringIO()
    writer = csv.writer(text, delimiter="\t", lineterminator="\n")
    writer.writerow(COLUMNS)
    for row, logs in rows.items():
        for seed, log in enumerate(logs, start=1):
            for i in np.flatnonzero(log.idx % skip == 0):
                writer.writerow(
                    [row, seed, log.idx[i], log.label[i], log.predict[i], f"{log.printed[i]:g}"]
                )
    atomic_write(path, lzma.compress(text.getvalue().encode(), preset=9))


def load_published(path: Path) -> dict[str, list[PublishedRun]]:
    """The published runs in such a file, by the preset of their row."""
    try:
        text = read_unpacked(path, LARGEST).decode()
        lines = list(csv.reader(io.StringIO(text), delimiter="\t"))
        if not lines or tuple(lines[0]) != COLUMNS:
            raise CertificateError(f"{path}: the columns must be {', '.join(COLUMNS)}")
        by_run: dict[tuple[str, int], list[tuple[int, int, int, float]]] = {}
        for row, seed, idx, label, predict, radius in lines[1:]:
            by_run.setdefault((row, int(seed)), []).append(
                (int(idx), int(label), int(predict), float(radius))
            )
    except (OSError, EOFError, lzma.LZMAError, ValueError) as error:
        raise CertificateError(f"{path}: cannot be read ({error})") from error
    found: dict[str, list[PublishedRun]] = {}
    for (row, _), images in by_run.items():
        columns = [np.array(column) for column in zip(*images, strict=True)]
        right = columns[2] == columns[1]
        found.setdefault(row, []).append(
            PublishedRun(columns[0], columns[1], paper_rounded(columns[3]) * right)
        )
    return found
