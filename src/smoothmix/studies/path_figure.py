"""The figure of the path study: votes as curves, with the images under them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from smoothmix.analysis import share
from smoothmix.plots import style
from smoothmix.studies.case import label_lost, strongest_other_class
from smoothmix.studies.study import Floats, Ints, PerClassifier, percent_band

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHOWN_RATIOS = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Mixing ratios whose images are shown."""

SHOWN_LABELS = ("0", "0.25", "0.5", "0.75", "1")

LEGEND_ROW = 9.5
"""Height of a row of a panel's legend, in points."""

PANELS_IN_A_ROW = 3
LEGEND_WIDTH = 40
"""Characters of all labels up to which the legend of a panel fits into one row."""


@dataclass(frozen=True, eq=False)
class VotePath(PerClassifier):
    """The votes of one classifier between one image and its adversarial example."""

    index: int
    label: int
    ratios: Floats
    votes: Ints
    """[ratios, classes]"""
    distance: float
    """L2 length of the line."""
    images: Floats
    """The images at the shown ratios, [len(SHOWN_RATIOS), C, H, W]."""

    def leading(self, count: int) -> list[int]:
        """The true class, then the classes with the most votes anywhere on the line."""
        peaks = self.votes.max(axis=0)
        # The true class comes first, even if it has no vote anywhere.
        peaks[self.label] = self.votes.sum() + 1
        # Stable: of classes with equal votes the first is taken, on every machine.
        by_peak: list[int] = np.argsort(-peaks, kind="stable").tolist()
        return by_peak[:count]

    def true_share(self, point: int) -> float:
        """The share of votes for the true class at a point of the line."""
        votes = self.votes[point]
        return float(votes[self.label] / votes.sum())

    def off_share(self, point: int) -> float:
        """The share of votes for the strongest other class at a point of the line."""
        votes = self.votes[point]
        return float(votes[strongest_other_class(votes, self.label)] / votes.sum())

    @property
    def change(self) -> float | None:
        """The first ratio at which another class has as many votes as the true one, if any."""
        for ratio, votes in zip(self.ratios, self.votes, strict=True):
            if label_lost(votes, self.label):
                return float(ratio)
        return None


def draw(paths: Sequence[VotePath], class_names: Sequence[str], classes: int) -> Figure:
    """A panel per classifier and image: shares of votes by mixing ratio, and images below."""
    labels = [_legend_labels(path, class_names, classes) for path in paths]
    # The labels stand side by side if all panels have room for that, else one below the other.
    legend_columns = 1
    if max(map(_legend_width, labels)) <= LEGEND_WIDTH:
        legend_columns = classes
    legend_rows = classes // legend_columns
    with style.our_style():
        figure, axes, side = _panels(paths, legend_rows=legend_rows)
        for ax, path, panel_labels in zip(axes, paths, labels, strict=True):
            _curves(ax, path, panel_labels)
            ax.legend(
                loc="lower center",
                bbox_to_anchor=(0.5, 0.98),
                ncols=legend_columns,
                fontsize=style.SMALL,
                handlelength=1.8,
            )
            ax.set_title(_panel_title(path), pad=5 + LEGEND_ROW * legend_rows)
            _images_below(ax, path, side)
            # Wider than 0 to 1: the first and the last image are centred under their ratios.
            ax.set_xlim(-0.1, 1.1)
            ax.set_xticks(SHOWN_RATIOS, SHOWN_LABELS)
            style.percent_axis(ax)
            if style.leftmost(ax):
                ax.set_ylabel("Share of votes (%)")
        # One label for all panels: under each panel there are images, right below their ratios.
        figure.supxlabel(
            "Mixing ratio, from the image to its adversarial example",
            fontsize=style.STYLE["axes.labelsize"],
        )
        return style.settle(figure)


def _legend_labels(path: VotePath, class_names: Sequence[str], classes: int) -> list[str]:
    true, *others = path.leading(classes)
    labels = [_shortened(f"true: {class_names[true]}")]
    for number in others:
        labels.append(_shortened(class_names[number]))
    return labels


def _shortened(label: str) -> str:
    if len(label) <= 30:
        return label
    return f"{label[:29]}…"


def _legend_width(labels: Sequence[str]) -> int:
    """The width of a legend in one row, in characters, with five for each line sample."""
    return sum(len(label) + 5 for label in labels)


def _panel_title(path: VotePath) -> str:
    # A long name gets a line of its own, or the titles of neighbours would overlap.
    separator = "\n"
    if len(path.name) <= 18:
        separator = ", "
    name = style.fitted(path.name, width=28, lines=1)
    return f"{name}{separator}image {path.index}"


def _panels(paths: Sequence[VotePath], *, legend_rows: int) -> tuple[Figure, list[Axes], float]:
    """Empty panels, no row with two classifiers; and the side of an image below, in inches."""
    from matplotlib.figure import Figure

    classifiers = len({path.name for path in paths})
    images = len(paths) // classifiers
    columns = min(PANELS_IN_A_ROW, images)
    rows = classifiers * math.ceil(images / columns)
    width = style.FULL_WIDTH
    if columns == 1:
        width = style.COLUMN_WIDTH
    # Five images fit side by side under a panel, with a little space between them.
    side = 0.17 * width / columns
    height = 1.9 + side + legend_rows * LEGEND_ROW / 72
    figure = Figure(figsize=(width, rows * height), dpi=style.DPI, layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, sharey=True).reshape(classifiers, -1)
    for unused in axes[:, images:].ravel():
        unused.remove()
    return figure, axes[:, :images].ravel().tolist(), side


def _curves(ax: Axes, path: VotePath, labels: Sequence[str]) -> None:
    total = int(path.votes[0].sum())
    for position, number in enumerate(path.leading(len(labels))):
        estimates = [share(int(count), total) for count in path.votes[:, number]]
        low, middle, high = percent_band(estimates)
        # Colour and dash by rank and not by class: the true class looks the same in all panels.
        colour = style.COLOURS[position % len(style.COLOURS)]
        dash = style.DASHES[position % len(style.DASHES)]
        ax.fill_between(path.ratios, low, high, color=colour, alpha=0.13, linewidth=0)
        ax.plot(path.ratios, middle, color=colour, linestyle=dash, label=labels[position])


def _images_below(ax: Axes, path: VotePath, side: float) -> None:
    from matplotlib.transforms import ScaledTranslation, blended_transform_factory

    # Horizontally the images follow the axis; vertically they are placed in inches below it, so
    # that they keep their size whatever the layout makes of the panel.
    figure = ax.get_figure(root=True)
    assert figure is not None
    axis_bottom = ScaledTranslation(0, 0, ax.transAxes)  # type: ignore[arg-type]
    inches_below = figure.dpi_scale_trans + axis_bottom
    placement = blended_transform_factory(ax.transAxes, inches_below)
    width = 0.2
    for ratio, image in zip(SHOWN_RATIOS, path.images, strict=True):
        middle = (ratio + 0.1) / 1.2  # in an axis from -0.1 to 1.1
        bounds = (middle - width / 2, -0.2 - side, width, side)
        small = ax.inset_axes(bounds, transform=placement)
        # matplotlib wants channels last, and grey images without channels.
        pixels = image.transpose(1, 2, 0)
        if len(image) == 1:
            pixels = image[0]
        small.imshow(pixels, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        small.set_anchor("N")
        small.set(xticks=[], yticks=[])
        small.spines[:].set(visible=True, color=style.FAINT)
