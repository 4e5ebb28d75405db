"""What a study is: a measurement of one case, and a summary of all of them. No torch at import."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from smoothmix._io.text import counted
from smoothmix.analysis import Estimate
from smoothmix.studies.case import Case, VoteSettings
from smoothmix.tables import Cell, Column, Grid, Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from smoothmix.certify.smoothed import Smoothed
    from smoothmix.data import Dataset

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class NamedClassifier:
    """A smoothed classifier, and its name in tables and legends."""

    name: str
    smoothed: Smoothed

    @property
    def sigma(self) -> float:
        """Standard deviation of its noise."""
        return self.smoothed.sigma

    @property
    def num_classes(self) -> int:
        """Number of classes that it predicts."""
        return self.smoothed.num_classes


# Compared by identity, like all results here: arrays have no truth value to compare them by.
@dataclass(frozen=True, eq=False)
class PerClassifier:
    """Base of what a study found for one classifier."""

    classifier: NamedClassifier

    @property
    def name(self) -> str:
        """Its name in tables and legends."""
        return self.classifier.name

    @property
    def sigma(self) -> float:
        """Standard deviation of its noise."""
        return self.classifier.sigma


@dataclass(frozen=True, kw_only=True, eq=False)
class Results:
    """The numbers that a study measured for each classifier and image, and what it measured."""

    classifiers: tuple[NamedClassifier, ...]
    dataset: Dataset
    indices: tuple[int, ...]
    """Positions of the images in the data set."""
    votes: VoteSettings
    numbers: Floats
    """What `Study.one` returned, [classifiers, images, ...]."""
    findings: frozenset[Path] = frozenset()
    """Files that keep the numbers until the results are saved."""

    @property
    def labels(self) -> Ints:
        """The true class of each image."""
        return self.dataset.labels[list(self.indices)]

    @property
    def images(self) -> str:
        """How many images, of what data set."""
        data = f"{self.dataset.name} ({self.dataset.split})"
        return f"{counted(len(self.indices), 'image')} of {data}"


@dataclass(frozen=True, kw_only=True)
class StudyReport:
    """What a study found, ready to be shown in a terminal, in files and on the report page."""

    name: str
    """Stem of its files, such as `confidence`."""
    title: str
    text: str
    """What was measured and what came out, in two or three plain sentences."""
    grid: Grid
    """The numbers."""
    # A function and not a figure: matplotlib is optional, and the saver knows whether it is there.
    draw: Callable[[], Figure] | None = None
    """Draws the figure, which needs matplotlib; None if the study has no figure."""
    record: Grid | None = None
    """The raw measurements behind the numbers, so that others can analyse them."""


class Study(ABC):
    """A measurement on trained classifiers.

    A subclass measures one image under one classifier and summarises all of these results. The
    runner does the rest: it opens classifiers and images, resumes, reports progress and saves.
    """

    name: ClassVar[str]
    """Stem of its files."""

    @property
    @abstractmethod
    def settings(self) -> Mapping[str, object]:
        """What decides the numbers of a case: findings are reused under the same settings."""

    @abstractmethod
    def shape(self, num_classes: int, image_shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of what `one` returns."""

    @abstractmethod
    def one(self, case: Case) -> Floats:
        """The numbers for one image under one classifier."""

    @abstractmethod
    def summarise(self, results: Results) -> StudyReport:
        """The table, text, figure and record of all results."""

    def check(self, num_classes: int) -> None:  # noqa: B027 - most studies fit all classifiers
        """Refuse settings that do not fit the classifiers, before anything is measured."""


def noise_notes(found: Sequence[PerClassifier]) -> tuple[str, ...]:
    """A sentence for the table where the classifiers are smoothed with different noise."""
    sigmas = {one.name: one.sigma for one in found}
    if len(set(sigmas.values())) == 1:
        return ()
    each = ", ".join(f"{name} {sigma:g}" for name, sigma in sigmas.items())
    return (f"the models differ in noise, and each is smoothed with its own: {each}",)


def percent_band(estimates: Sequence[Estimate]) -> Floats:
    """The low ends, values and high ends of estimated shares in percent, [3, estimates]."""
    ends = [(estimate.low, estimate.value, estimate.high) for estimate in estimates]
    return 100 * np.array(ends).T


def columns_of(names: Mapping[str, str]) -> tuple[Column, ...]:
    """The columns of a table from their names by their keys."""
    return tuple(Column(name=name, key=key) for key, name in names.items())


def plain_grid(title: str, names: Sequence[str], rows: Sequence[Sequence[object]]) -> Grid:
    """A table whose cells are the values as text, without rounding."""
    lines = []
    for values in rows:
        cells = [Cell(str(value)) for value in values]
        lines.append(Row(cells=tuple(cells)))
    columns = columns_of(dict(zip(names, names, strict=True)))
    return Grid(title=title, columns=columns, rows=tuple(lines))
