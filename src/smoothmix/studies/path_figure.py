"""The way from an image to its adversarial example, drawn: votes as curves, and pictures under them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from smoothmix.analysis import share
from smoothmix.plots import style
from smoothmix.studies.base import Floats, Ints, Model, lost

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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


def draw(found: Sequence[Path], names: Sequence[str], classes: int) -> Figure:
    """A panel for each model and image: shares of votes against the mixing ratio, and pictures under the curve."""
    labels = [_labels(path, names, classes) for path in found]
    # Names above a panel stand side by side where all of them fit, else one below the other.
    columns = (
        classes if max(sum(len(label) + 5 for label in every) for every in labels) <= 40 else 1
    )
    rows = classes // columns
    with style.our_style():
        made, axes, side = _panels(found, legend_rows=rows)
        for ax, path, every in zip(axes, found, labels, strict=True):
            _curves(ax, path, every)
            ax.legend(
                loc="lower center",
                bbox_to_anchor=(0.5, 0.98),
                ncols=columns,
                fontsize=style.SMALL,
                handlelength=1.8,
            )
            name = style.fitted(path.model.name, width=28, lines=1) + (
                ", " if len(path.model.name) <= 18 else "\n"
            )
            ax.set_title(f"{name}image {path.index}", pad=5 + LEGEND_ROW * rows)
            _pictures(ax, path, side)
            ax.set_xlim(-0.1, 1.1)
            ax.set_xticks(PICTURES, [f"{ratio:g}" for ratio in PICTURES])
            style.percent_axis(ax)
            if style.leftmost(ax):
                ax.set_ylabel("Share of votes (%)")
        # Once for all, so that the pictures stand right under the ratios they belong to.
        made.supxlabel(
            "Mixing ratio, from the image to its adversarial example",
            fontsize=style.STYLE["axes.labelsize"],
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
    width, rows = (
        (style.COLUMN_WIDTH if columns == 1 else style.FULL_WIDTH),
        models * math.ceil(images / columns),
    )
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
        low, mid, high = (
            100 * np.array([getattr(e, end) for e in shares]) for end in ("low", "value", "high")
        )
        colour, dash = (
            style.COLOURS[role % len(style.COLOURS)],
            style.DASHES[role % len(style.DASHES)],
        )
        ax.fill_between(path.ratios, low, high, color=colour, alpha=0.13, linewidth=0)
        ax.plot(path.ratios, mid, color=colour, linestyle=dash, label=label)


def _pictures(ax: Axes, path: Path, side: float) -> None:
    from matplotlib.transforms import ScaledTranslation, blended_transform_factory

    # Across they follow the axis; down they are measured in inches from it, so that the layout need not guess.
    below = ScaledTranslation(0, 0, ax.transAxes)  # type: ignore[arg-type]
    place = blended_transform_factory(
        ax.transAxes, ax.get_figure(root=True).dpi_scale_trans + below
    )  # type: ignore[union-attr]
    for ratio, picture in zip(PICTURES, path.pictures, strict=True):
        middle, width = (ratio + 0.1) / 1.2, 0.2  # of an axis from -0.1 to 1.1
        small = ax.inset_axes((middle - width / 2, -0.2 - side, width, side), transform=place)
        shown = picture[0] if len(picture) == 1 else picture.transpose(1, 2, 0)
        small.imshow(shown, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        small.set_anchor("N")
        small.set(xticks=[], yticks=[])
        small.spines[:].set(visible=True, color=style.FAINT)
