"""Votes along the line from an image to its adversarial example: the paper's figure of over-confidence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from smoothmix.analysis import share
from smoothmix.certificates.row import sparse, votes_text
from smoothmix.config import require
from smoothmix.plots import style
from smoothmix.report.tables import Cell, Column, Grid, Line
from smoothmix.studies.base import (
    Attack,
    Case,
    Draws,
    Floats,
    Ints,
    Model,
    Study,
    Track,
    cases,
    distance,
    examining,
    lost,
    noise_notes,
    off_class,
    plain_grid,
    require_comparable,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from smoothmix.data import Dataset

ATTACK = Attack(steps=16, step_size=0.5, copies=16)
"""Unrestricted: up to an L2 distance of 8, as far as SmoothMix goes in its training on MNIST."""

POINTS, CLASSES = 21, 3
PICTURES = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Mixing ratios whose pictures are shown."""


@dataclass(frozen=True, eq=False)
class Path:
    """The votes of one model between one image and its adversarial example."""

    model: Model
    index: int
    label: int
    ratios: Floats
    votes: Ints
    """[ratios, classes]"""
    distance: float
    """L2 length of the line."""
    pictures: Floats
    """[len(PICTURES), C, H, W]"""

    def leading(self, count: int) -> list[int]:
        """The true class, and of the others those that get most votes anywhere on the line."""
        peaks = self.votes.max(axis=0)
        peaks[self.label] = self.votes.sum() + 1
        return [int(c) for c in np.argsort(-peaks, kind="stable")[:count]]

    @property
    def change(self) -> float | None:
        """The first of the ratios at which another class has as many votes as the true one; None if there is none."""
        changed = [lost(votes, self.label) for votes in self.votes]
        return float(self.ratios[changed.index(True)]) if any(changed) else None


def measure(
    models: Sequence[Model],
    dataset: Dataset,
    indices: Sequence[int],
    *,
    points: int = POINTS,
    attack: Attack = ATTACK,
    draws: Draws | None = None,
    track: Track = lambda done, total: None,
) -> list[Path]:
    """The votes of each model on the way from each image to what the attack makes of it."""
    require_comparable(models, dataset, indices)
    require(points >= 2, f"a line needs at least 2 points, got {points}")
    ratios = np.linspace(0, 1, points)
    return [_path(case, ratios, attack) for _, case in cases(models, dataset, indices, draws or Draws(), track)]


def _path(case: Case, ratios: Floats, attack: Attack) -> Path:
    adversarial = case.attacked(attack)
    return Path(
        model=case.model,
        index=case.index,
        label=case.label,
        ratios=ratios,
        votes=np.stack([case.votes(case.image.lerp(adversarial, float(ratio))) for ratio in ratios]),
        distance=distance(adversarial, case.image),
        pictures=np.stack([case.image.lerp(adversarial, ratio).numpy() for ratio in PICTURES]).astype(np.float64),
    )


def first_right(
    models: Sequence[Model], dataset: Dataset, indices: Sequence[int], count: int, *, draws: Draws | None = None
) -> list[int]:
    """The first `count` of these images that every model classifies right, or as many as there are."""
    require_comparable(models, dataset, indices)
    require(count >= 1, f"at least 1 image is needed, got {count}")
    right: list[int] = []
    with ExitStack() as stack:
        every = [stack.enter_context(examining(model, dataset, draws or Draws())) for model in models]
        for index in indices:
            asked = (case(index) for case in every)
            if len(right) < count and not any(lost(case.votes(case.image), case.label) for case in asked):
                right.append(index)
    require(len(right) > 0, f"no images are left to study: none of {len(indices)} is classified right by every model")
    return right


def study(
    models: Sequence[Model],
    dataset: Dataset,
    indices: Sequence[int],
    *,
    points: int = POINTS,
    classes: int = CLASSES,
    attack: Attack = ATTACK,
    draws: Draws | None = None,
    figure: bool = True,
    track: Track = lambda done, total: None,
) -> Study:
    """The votes for the true class and its strongest rivals between images and their adversarial examples."""
    draws = draws or Draws()
    require_comparable(models, dataset, indices)
    require(classes >= 2, f"classes must be at least 2, the true one and a rival, got {classes}")
    known = models[0].num_classes
    require(classes <= known, f"{classes} classes are asked for, where the models tell {known} apart")
    found = measure(models, dataset, indices, points=points, attack=attack, draws=draws, track=track)
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
        words = path.model.name, str(path.index), names[path.label], names[off_class(path.votes[-1], path.label)]
        cells = [Cell(word, word) for word in words]
        shares = 100 * first[path.label], 100 * last[path.label], 100 * _off(path)
        cells += [Cell(f"{value:.1f}", round(float(value), 6)) for value in shares]
        cells += [Cell("never") if path.change is None else Cell(f"{path.change:.3f}", path.change)]
        cells += [Cell(f"{path.distance:.2f}", round(path.distance, 6))]
        lines.append(Line(cells=tuple(cells), sigma=path.model.sigma))
    notes = (
        f"shares of votes at the image (ratio 0) and at its adversarial example (ratio 1): {how}",
        "changes at: the first of the ratios at which another class has as many votes as the true one",
        *noise_notes(list(dict.fromkeys(path.model for path in found))),
    )
    columns = tuple(Column(name=name, key=key) for key, name in COLUMNS.items())
    return Grid(title="From images to their adversarial examples", columns=columns, lines=tuple(lines), notes=notes)


COLUMNS = {
    "model": "model",
    "idx": "image",
    "label": "true class",
    "rival": "becomes",
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


def draw(found: Sequence[Path], names: Sequence[str], classes: int) -> Figure:
    """A panel for each model and image: shares of votes against the mixing ratio, and pictures under the curve."""
    labels = [_labels(path, names, classes) for path in found]
    # Names above a panel stand side by side where all of them fit, else one below the other.
    columns = classes if max(sum(len(label) + 5 for label in every) for every in labels) <= 40 else 1
    rows = classes // columns
    with style.our_style():
        made, axes, side = _panels(found, legend_rows=rows)
        for ax, path, every in zip(axes, found, labels, strict=True):
            _curves(ax, path, every)
            ax.legend(
                loc="lower center", bbox_to_anchor=(0.5, 0.98), ncols=columns, fontsize=style.SMALL, handlelength=1.8
            )
            name = style.fitted(path.model.name, width=28, lines=1) + (", " if len(path.model.name) <= 18 else "\n")
            ax.set_title(f"{name}image {path.index}", pad=5 + LEGEND_ROW * rows)
            _pictures(ax, path, side)
            ax.set_xlim(-0.1, 1.1)
            ax.set_xticks(PICTURES, [f"{ratio:g}" for ratio in PICTURES])
            style.percent_axis(ax)
            if style.leftmost(ax):
                ax.set_ylabel("Share of votes (%)")
        # Once for all, so that the pictures stand right under the ratios they belong to.
        made.supxlabel(
            "Mixing ratio, from the image to its adversarial example", fontsize=style.STYLE["axes.labelsize"]
        )
        return style.settle(made)


LEGEND_ROW = 9.5
"""Points that a row of a panel's legend takes."""


def _labels(path: Path, names: Sequence[str], classes: int) -> list[str]:
    words = [names[number] for number in path.leading(classes)]
    words[0] = f"true: {words[0]}"
    return [word if len(word) <= 30 else f"{word[:29]}…" for word in words]


def _panels(found: Sequence[Path], *, legend_rows: int) -> tuple[Figure, list[Axes], float]:
    """Empty panels, at most three in a row and no two models in one; and the side of a picture that fits, in inches."""
    from matplotlib.figure import Figure

    models = len({path.model.name for path in found})
    images = len(found) // models
    columns = min(3, images)
    width, rows = (style.COLUMN_WIDTH if columns == 1 else style.FULL_WIDTH), models * math.ceil(images / columns)
    side = 0.17 * width / columns
    height = 1.9 + side + legend_rows * LEGEND_ROW / 72
    made = Figure(figsize=(width, rows * height), dpi=style.DPI, layout="constrained")
    axes = made.subplots(rows, columns, squeeze=False, sharey=True).reshape(models, -1)
    for spare in axes[:, images:].ravel():
        spare.remove()
    return made, axes[:, :images].ravel().tolist(), side


def _curves(ax: Axes, path: Path, labels: Sequence[str]) -> None:
    total = int(path.votes[0].sum())
    for role, (number, label) in enumerate(zip(path.leading(len(labels)), labels, strict=True)):
        shares = [share(int(count), total) for count in path.votes[:, number]]
        low, mid, high = (100 * np.array([getattr(e, end) for e in shares]) for end in ("low", "value", "high"))
        colour, dash = style.COLOURS[role % len(style.COLOURS)], style.DASHES[role % len(style.DASHES)]
        ax.fill_between(path.ratios, low, high, color=colour, alpha=0.13, linewidth=0)
        ax.plot(path.ratios, mid, color=colour, linestyle=dash, label=label)


def _pictures(ax: Axes, path: Path, side: float) -> None:
    from matplotlib.transforms import ScaledTranslation, blended_transform_factory

    # Across they follow the axis; down they are measured in inches from it, so that the layout need not guess.
    below = ScaledTranslation(0, 0, ax.transAxes)  # type: ignore[arg-type]
    place = blended_transform_factory(ax.transAxes, ax.get_figure(root=True).dpi_scale_trans + below)  # type: ignore[union-attr]
    for ratio, picture in zip(PICTURES, path.pictures, strict=True):
        middle, width = (ratio + 0.1) / 1.2, 0.2  # of an axis from -0.1 to 1.1
        small = ax.inset_axes((middle - width / 2, -0.2 - side, width, side), transform=place)
        shown = picture[0] if len(picture) == 1 else picture.transpose(1, 2, 0)
        small.imshow(shown, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        small.set_anchor("N")
        small.set(xticks=[], yticks=[])
        small.spines[:].set(visible=True, color=style.FAINT)
