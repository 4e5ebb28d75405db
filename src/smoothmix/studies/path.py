"""Votes on the line from an image to its adversarial example (the over-confidence figure)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar, final

import numpy as np

from smoothmix.certificates.row import sparse, votes_text
from smoothmix.config import require
from smoothmix.studies.case import (
    Case,
    SmoothedAttack,
    VoteSettings,
    distance,
    label_lost,
    open_cases,
    strongest_other_class,
)
from smoothmix.studies.path_figure import SHOWN_RATIOS, VotePath, draw
from smoothmix.studies.runner import VOTES, require_comparable
from smoothmix.studies.study import (
    Floats,
    NamedClassifier,
    Results,
    Study,
    StudyReport,
    columns_of,
    noise_notes,
    plain_grid,
)
from smoothmix.tables import Cell, Grid, Row

if TYPE_CHECKING:
    from smoothmix.data import Dataset

ATTACK = SmoothedAttack(steps=16, step_size=0.5, copies=16)
"""Up to an L2 distance of 8, as far as SmoothMix's own attack goes in training on MNIST."""

POINTS = 21
DRAWN_CLASSES = 3


@final
@dataclass(frozen=True, kw_only=True)
class PathStudy(Study):
    """Votes at evenly spaced points between an image and its adversarial example."""

    name: ClassVar[str] = "path"

    points: int = POINTS
    """Evenly spaced mixing ratios from 0 to 1."""
    classes: int | None = None
    """Classes in the figure: the true one and the strongest others; None for at most three."""
    attack: SmoothedAttack = ATTACK

    def __post_init__(self) -> None:
        require(self.points >= 2, f"a line needs at least 2 points, got {self.points}")
        if self.classes is not None:
            require(
                self.classes >= 2,
                f"classes must be at least 2, the true one and another, got {self.classes}",
            )

    @property
    def ratios(self) -> Floats:
        """The mixing ratios."""
        return np.linspace(0, 1, self.points)

    @property
    def settings(self) -> Mapping[str, object]:
        """The attack and the number of points."""
        return {"attack": asdict(self.attack), "points": self.points}

    def check(self, num_classes: int) -> None:
        """Refuse to draw more classes than there are."""
        if self.classes is not None:
            require(
                self.classes <= num_classes,
                f"{self.classes} classes are requested, but the models have only {num_classes}",
            )

    def shape(self, num_classes: int, image_shape: tuple[int, ...]) -> tuple[int, ...]:
        """The votes at all points, then the pixels of the adversarial example."""
        return (self.points * num_classes + math.prod(image_shape),)

    def one(self, case: Case) -> Floats:
        """The votes at all points, then the pixels of the adversarial example."""
        # The pixels are kept for the figure: a resumed study must not attack again.
        adversarial = case.adversarial(self.attack)
        votes = []
        for ratio in self.ratios:
            mixed = case.image.lerp(adversarial, float(ratio))
            votes.append(case.votes(mixed))
        return np.concatenate([*votes, adversarial.numpy().ravel()], dtype=np.float64)

    def paths(self, results: Results) -> list[VotePath]:
        """The results of each classifier and image."""
        paths = []
        for classifier, by_image in zip(results.classifiers, results.numbers, strict=True):
            for index, numbers in zip(results.indices, by_image, strict=True):
                paths.append(_path(classifier, results.dataset, index, self.ratios, numbers))
        return paths

    def summarise(self, results: Results) -> StudyReport:
        """The votes for the true class and its strongest rivals along the lines."""
        paths = self.paths(results)
        dataset = results.dataset
        votes = f"{results.votes.n:,} votes per ratio"
        setup = f"{self.attack.describe()}; {dataset.name} ({dataset.split}); {votes}"
        num_classes = results.classifiers[0].num_classes
        # A classifier may have more classes than the data set: those are called by their number.
        unnamed = [str(number) for number in range(dataset.num_classes, num_classes)]
        class_names = [*dataset.class_names, *unnamed]
        drawn_classes = self.classes or min(DRAWN_CLASSES, num_classes)
        return StudyReport(
            name=self.name,
            title="Confidence on the way to an adversarial example",
            text=_text(paths, results.classifiers, setup),
            grid=_grid(paths, class_names, setup),
            draw=partial(draw, paths, class_names, drawn_classes),
            record=_record(paths),
        )


def first_right(
    classifiers: Sequence[NamedClassifier],
    dataset: Dataset,
    indices: Sequence[int],
    count: int,
    *,
    votes: VoteSettings = VOTES,
) -> list[int]:
    """The first `count` of these images that every classifier gets right, or as many as exist."""
    require_comparable(classifiers, dataset, indices)
    require(count >= 1, f"at least 1 image is needed, got {count}")
    right: list[int] = []
    with ExitStack() as stack:
        cases = []
        for classifier in classifiers:
            opened = open_cases(classifier.smoothed, dataset, votes)
            cases.append(stack.enter_context(opened))
        for index in indices:
            # In turn and not for all images at once: the first few are usually enough.
            if all(_is_right(case(index)) for case in cases):
                right.append(index)
            if len(right) == count:
                break
    require(
        len(right) > 0,
        f"no images are left to study: none of {len(indices)} is classified right by every model",
    )
    return right


def _is_right(case: Case) -> bool:
    return not label_lost(case.votes(case.image), case.label)


def _path(
    classifier: NamedClassifier, dataset: Dataset, index: int, ratios: Floats, numbers: Floats
) -> VotePath:
    import torch

    (image,) = dataset.images([index])
    votes, pixels = np.split(numbers, [len(ratios) * classifier.num_classes])
    # Numbers are kept in float64, which holds votes and float32 pixels exactly.
    adversarial = torch.from_numpy(pixels.astype(np.float32)).reshape(image.shape)
    shown = [image.lerp(adversarial, ratio).numpy() for ratio in SHOWN_RATIOS]
    return VotePath(
        classifier=classifier,
        index=index,
        label=int(dataset.labels[index]),
        ratios=ratios,
        votes=votes.astype(np.int64).reshape(len(ratios), -1),
        distance=distance(adversarial, image),
        images=np.stack(shown).astype(np.float64),
    )


def _text(paths: Sequence[VotePath], classifiers: Sequence[NamedClassifier], setup: str) -> str:
    averages = []
    for classifier in classifiers:
        shares = []
        for path in paths:
            if path.classifier is classifier:
                shares.append((path.true_share(0), path.off_share(-1)))
        true, off = 100 * np.mean(shares, axis=0)
        averages.append(
            f"{classifier.name} gives the true class {true:.1f} % of the votes at the images, and "
            f"another {off:.1f} % at their adversarial examples"
        )
    count = len(paths) // len(classifiers)
    if count == 1:
        between = "an image and its adversarial example"
    else:
        between = f"{count} images and their adversarial examples"
    return (
        f"Votes were counted at evenly spaced points between {between} ({setup}). "
        f"On average {'; '.join(averages)}."
    )


COLUMNS = {
    "model": "model",
    "idx": "image",
    "label": "true class",
    "rival": "strongest other class",
    "true_at_0": "true class % at 0",
    "true_at_1": "true class % at 1",
    "off_at_1": "other class % at 1",
    "changes_at": "changes at",
    "distance": "L2 distance",
}
"""Names of the table's columns by their keys."""


def _grid(paths: Sequence[VotePath], class_names: Sequence[str], setup: str) -> Grid:
    notes = (
        f"shares of votes at the image (ratio 0) and at its adversarial example (ratio 1): {setup}",
        "changes at: the first ratio at which another class has as many votes as the true one",
        *noise_notes(paths),
    )
    return Grid(
        title="From images to their adversarial examples",
        columns=columns_of(COLUMNS),
        rows=tuple(_line(path, class_names) for path in paths),
        notes=notes,
    )


def _line(path: VotePath, class_names: Sequence[str]) -> Row:
    # Of the adversarial example: the class that the attack found.
    rival = strongest_other_class(path.votes[-1], path.label)
    cells = [
        Cell(path.name),
        Cell(str(path.index)),
        Cell(class_names[path.label]),
        Cell(class_names[rival]),
    ]
    for share in (path.true_share(0), path.true_share(-1), path.off_share(-1)):
        cells.append(Cell(round(100 * share, 6), ".1f"))
    if path.change is None:
        cells.append(Cell(text="never"))
    else:
        cells.append(Cell(path.change, ".3f"))
    cells.append(Cell(round(path.distance, 6), ".2f"))
    return Row(cells=tuple(cells), sigma=path.sigma)


def _record(paths: Sequence[VotePath]) -> Grid:
    rows = []
    for path in paths:
        for ratio, votes in zip(path.ratios, path.votes, strict=True):
            counts = votes_text(sparse(votes))
            rows.append((path.name, path.index, path.label, f"{ratio:.6f}", counts))
    return plain_grid("Votes", ("model", "idx", "label", "ratio", "counts"), rows)
