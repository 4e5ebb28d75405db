"""Votes along the line from an image to its adversarial example: the paper's figure of over-confidence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

import numpy as np

from smoothmix._process.progress import OnProgress, ignore_progress
from smoothmix.certificates.row import sparse, votes_text
from smoothmix.config import require
from smoothmix.studies.base import (
    Attack,
    Case,
    Draws,
    Floats,
    Model,
    Study,
    distance,
    each_case,
    examining,
    lost,
    noise_notes,
    off_class,
    plain_grid,
    require_comparable,
)
from smoothmix.studies.partial import Begun
from smoothmix.studies.path_figure import PICTURES, Path, draw
from smoothmix.tables import Cell, Column, Grid, Row

if TYPE_CHECKING:
    from smoothmix.data import Dataset

ATTACK = Attack(steps=16, step_size=0.5, copies=16)
"""Unrestricted: up to an L2 distance of 8, as far as SmoothMix goes in its training on MNIST."""

POINTS, CLASSES = 21, 3


def measure(
    models: Sequence[Model],
    dataset: Dataset,
    indices: Sequence[int],
    *,
    points: int = POINTS,
    attack: Attack = ATTACK,
    draws: Draws | None = None,
    on_progress: OnProgress = ignore_progress,
    begun: Begun | None = None,
) -> list[Path]:
    """The votes of each model on the way from each image to what the attack makes of it.

    `begun` keeps what is found.
    """
    require_comparable(models, dataset, indices)
    require(points >= 2, f"a line needs at least 2 points, got {points}")
    draws, ratios = draws or Draws(), np.linspace(0, 1, points)

    def on_the_way(case: Case) -> Floats:
        """All votes, then the pixels of the adversarial example."""
        adversarial = case.attacked(attack)
        votes = [case.votes(case.image.lerp(adversarial, float(ratio))) for ratio in ratios]
        return np.concatenate([*votes, adversarial.numpy().ravel()], dtype=np.float64)

    size = points * models[0].num_classes + math.prod(dataset.shape)
    kept = begun or Begun()
    kept.ask("path", dataset, (size,), attack=attack, draws=draws, points=points)
    found = each_case(models, dataset, indices, draws, on_progress, on_the_way, kept)
    return [
        _path(model, dataset, index, ratios, numbers)
        for model, every in zip(models, found, strict=True)
        for index, numbers in zip(indices, every, strict=True)
    ]


def _path(model: Model, dataset: Dataset, index: int, ratios: Floats, numbers: Floats) -> Path:
    import torch

    (image,) = dataset.images([index])
    votes, pixels = np.split(numbers, [len(ratios) * model.num_classes])
    adversarial = torch.from_numpy(pixels.astype(np.float32)).reshape(image.shape)
    return Path(
        model=model,
        index=index,
        label=int(dataset.labels[index]),
        ratios=ratios,
        votes=votes.astype(np.int64).reshape(len(ratios), -1),
        distance=distance(adversarial, image),
        pictures=np.stack([image.lerp(adversarial, ratio).numpy() for ratio in PICTURES]).astype(
            np.float64
        ),
    )


def first_right(
    models: Sequence[Model],
    dataset: Dataset,
    indices: Sequence[int],
    count: int,
    *,
    draws: Draws | None = None,
) -> list[int]:
    """The first `count` of these images that every model classifies right, or as many as there are."""
    require_comparable(models, dataset, indices)
    require(count >= 1, f"at least 1 image is needed, got {count}")
    right: list[int] = []
    with ExitStack() as stack:
        every = [
            stack.enter_context(examining(model, dataset, draws or Draws())) for model in models
        ]
        for index in indices:
            asked = (case(index) for case in every)
            if len(right) < count and not any(
                lost(case.votes(case.image), case.label) for case in asked
            ):
                right.append(index)
    require(
        len(right) > 0,
        f"no images are left to study: none of {len(indices)} is classified right by every model",
    )
    return right


def study(
    models: Sequence[Model],
    dataset: Dataset,
    indices: Sequence[int],
    *,
    points: int = POINTS,
    classes: int | None = None,
    attack: Attack = ATTACK,
    draws: Draws | None = None,
    figure: bool = True,
    on_progress: OnProgress = ignore_progress,
    begun: Begun | None = None,
) -> Study:
    """The votes for the true class and its strongest rivals between images and their adversarial examples."""
    draws = draws or Draws()
    require_comparable(models, dataset, indices)
    known = models[0].num_classes
    classes = min(CLASSES, known) if classes is None else classes
    require(classes >= 2, f"classes must be at least 2, the true one and a rival, got {classes}")
    require(
        classes <= known, f"{classes} classes are asked for, where the models tell {known} apart"
    )
    found = measure(
        models,
        dataset,
        indices,
        points=points,
        attack=attack,
        draws=draws,
        on_progress=on_progress,
        begun=begun,
    )
    names = [*dataset.class_names, *(str(c) for c in range(dataset.num_classes, known))]
    how = f"{attack.words()}; {dataset.name} ({dataset.split}); {draws.n:,} votes at a ratio"
    return Study(
        name="path",
        title="Confidence on the way to an adversarial example",
        text=_text(found, models, how),
        grid=_grid(found, names, how),
        figure=draw(found, names, classes) if figure else None,
        record=_record(found),
    )


def _text(found: Sequence[Path], models: Sequence[Model], how: str) -> str:
    seen = []
    for model in models:
        own = [path for path in found if path.model is model]
        true = np.mean([path.votes[0, path.label] / path.votes[0].sum() for path in own])
        seen.append(
            f"{model.name} gives the true class {100 * true:.1f} % of the votes at the images, and another "
            f"{100 * np.mean([_off(path) for path in own]):.1f} % at their adversarial examples"
        )
    count = len(found) // len(models)
    return (
        f"Votes were counted at evenly spaced points between {count} image{'s' * (count > 1)} and what an attack makes "
        f"of {'them' if count > 1 else 'it'} ({how}). On average {'; '.join(seen)}."
    )


def _off(path: Path) -> float:
    """Share of votes of the strongest other class at the adversarial example."""
    return float(path.votes[-1, off_class(path.votes[-1], path.label)] / path.votes[-1].sum())


def _grid(found: Sequence[Path], names: Sequence[str], how: str) -> Grid:
    lines = []
    for path in found:
        first, last = path.votes[0] / path.votes[0].sum(), path.votes[-1] / path.votes[-1].sum()
        words = (
            path.model.name,
            str(path.index),
            names[path.label],
            names[off_class(path.votes[-1], path.label)],
        )
        cells = [Cell(word) for word in words]
        shares = 100 * first[path.label], 100 * last[path.label], 100 * _off(path)
        cells += [Cell(round(float(value), 6), ".1f") for value in shares]
        cells += [Cell(path.change, ".3f", text="never" if path.change is None else None)]
        cells += [Cell(round(path.distance, 6), ".2f")]
        lines.append(Row(cells=tuple(cells), sigma=path.model.sigma))
    notes = (
        f"shares of votes at the image (ratio 0) and at its adversarial example (ratio 1): {how}",
        "changes at: the first of the ratios at which another class has as many votes as the true one",
        *noise_notes(list(dict.fromkeys(path.model for path in found))),
    )
    columns = tuple(Column(name=name, key=key) for key, name in COLUMNS.items())
    return Grid(
        title="From images to their adversarial examples",
        columns=columns,
        rows=tuple(lines),
        notes=notes,
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


def _record(found: Sequence[Path]) -> Grid:
    rows = [
        (path.model.name, path.index, path.label, f"{ratio:.6f}", votes_text(sparse(votes)))
        for path in found
        for ratio, votes in zip(path.ratios, path.votes, strict=True)
    ]
    return plain_grid("Votes", ("model", "idx", "label", "ratio", "counts"), rows)
