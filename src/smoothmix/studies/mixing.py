"""How far an image moves towards its adversarial example before its class changes.

The paper calls these points equal-confidence mixing ratios.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar, final

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import bdtr

from smoothmix._io.text import counted
from smoothmix.analysis import Estimate, share
from smoothmix.config import require
from smoothmix.plots import style
from smoothmix.studies.case import Case, SmoothedAttack, distance, label_lost
from smoothmix.studies.study import (
    Floats,
    PerClassifier,
    Results,
    Study,
    StudyReport,
    columns_of,
    noise_notes,
    plain_grid,
)
from smoothmix.tables import Cell, Grid, Row

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ATTACK = SmoothedAttack(steps=50, epsilon=8.0, copies=16)
"""The paper's steps and distance; it does not state the number of noise samples."""

SCAN = 8
"""Evenly spaced ratios that are checked in turn until the class has changed; then bisection."""

TOLERANCE = 1 / 64
"""Bisection stops at an interval of this width. Its middle is the ratio, off by at most half."""

BINS = 16
"""Bars of the histogram."""


@dataclass(frozen=True, eq=False)
class MixingRatios(PerClassifier):
    """The mixing ratio of each image under one classifier."""

    ratio: Floats
    """The least mixing ratio at which another class has as many votes as the true one; infinite if
    there is none up to 1; NaN if the image itself is misclassified."""
    distance: Floats
    """L2 distance of the adversarial example; NaN if the image itself is misclassified."""

    @property
    def right(self) -> Floats:
        """The ratios of the correctly classified images."""
        return self.ratio[~np.isnan(self.ratio)]

    @property
    def length(self) -> Floats:
        """The L2 distances of the adversarial examples of the correctly classified images."""
        return self.distance[~np.isnan(self.ratio)]

    @property
    def median(self) -> Estimate | None:
        """The median ratio of the correctly classified images; None if there are none."""
        if len(self.right) == 0:
            return None
        return median(self.right)

    @property
    def wrong(self) -> int:
        """Number of misclassified images."""
        return int(np.isnan(self.ratio).sum())

    @property
    def unchanged(self) -> int:
        """Number of images that keep their class all the way."""
        return int(np.isinf(self.ratio).sum())


@final
@dataclass(frozen=True, kw_only=True)
class MixingStudy(Study):
    """The least mixing ratio at which the class changes, by bisection on votes."""

    name: ClassVar[str] = "mixing"

    attack: SmoothedAttack = ATTACK

    @property
    def settings(self) -> Mapping[str, object]:
        """The attack and the search."""
        return {"attack": asdict(self.attack), "scan": SCAN, "tolerance": TOLERANCE}

    def shape(self, num_classes: int, image_shape: tuple[int, ...]) -> tuple[int, ...]:
        """The ratio and the distance."""
        return (2,)

    def one(self, case: Case) -> Floats:
        """The least ratio at which the class changes, and the adversarial example's distance."""
        # The way to an adversarial example of a misclassified image says nothing about robustness.
        if label_lost(case.votes(case.image), case.label):
            return np.array([math.nan, math.nan])
        adversarial = case.adversarial(self.attack)

        def changed(ratio: float) -> bool:
            mixed = case.image.lerp(adversarial, ratio)
            return label_lost(case.votes(mixed), case.label)

        return np.array([least_change(changed), distance(adversarial, case.image)])

    def ratios(self, results: Results) -> list[MixingRatios]:
        """The results of each classifier."""
        found = []
        for classifier, numbers in zip(results.classifiers, results.numbers, strict=True):
            found.append(MixingRatios(classifier, numbers[:, 0], numbers[:, 1]))
        return found

    def summarise(self, results: Results) -> StudyReport:
        """The distribution of the mixing ratios at which predictions change, per classifier."""
        found = self.ratios(results)
        votes = f"{results.votes.n:,} votes per ratio"
        setup = f"{self.attack.describe()}; {results.images}; {votes}"
        return StudyReport(
            name=self.name,
            title="Equal-confidence mixing ratios",
            text=_text(found, setup),
            grid=_grid(found, setup),
            draw=partial(draw, found),
            record=_record(found, results),
        )


def least_change(
    changed: Callable[[float], bool], *, scan: int = SCAN, tolerance: float = TOLERANCE
) -> float:
    """The least ratio in (0, 1] where `changed` is true, to within tolerance / 2; else infinite.

    A change that is undone between two of the `scan` evenly spaced ratios is not found.

    >>> least_change(lambda ratio: ratio > 0.3)
    0.3046875
    """
    # A scan before the bisection: the class may change and change back, and between the two ends
    # alone bisection would see neither.
    low = 0.0
    for step in range(1, scan + 1):
        high = step / scan
        if changed(high):
            break
        low = high
    else:
        return math.inf
    while high - low > tolerance:
        middle = (low + high) / 2
        if changed(middle):
            high = middle
        else:
            low = middle
    return (low + high) / 2


def median(values: ArrayLike, *, confidence: float = 0.95) -> Estimate:
    """The median with its exact interval by order statistics, for any distribution.

    Values may be infinite. The true median lies below the k-th smallest of m values with
    probability P(Binomial(m, 1/2) < k). With too few values the interval is unbounded.

    >>> median([1, 2, 3, 4, 5, 6, 7, 8, float("inf")])
    Estimate(value=5.0, low=2.0, high=8.0)
    """
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    count = len(ordered)
    require(count > 0, "a median needs at least one image")
    middle = (float(ordered[(count - 1) // 2]) + float(ordered[count // 2])) / 2
    tail = (1 - confidence) / 2
    ranks = np.arange(count // 2)
    # How many values may be dropped at either end: their binomial tails stay below `tail`.
    dropped = int((bdtr(ranks, count, 0.5) <= tail).sum())
    if dropped == 0:
        return Estimate(middle, 0.0, math.inf)
    return Estimate(middle, float(ordered[dropped - 1]), float(ordered[count - dropped]))


def _text(found: Sequence[MixingRatios], setup: str) -> str:
    medians = []
    for one in found:
        if one.median is None:
            medians.append(f"{one.name} classifies no image correctly")
        else:
            medians.append(f"{one.name} {_interval(one.median)}")
    text = (
        "Images were moved towards adversarial examples until another class had as many votes as "
        f"the true one ({setup}). Half of the correctly classified images change by the mixing "
        f"ratio: {'; '.join(medians)}."
    )
    for one in found[1:]:
        comparison = _comparison(one, found[0])
        if comparison:
            text += f" {comparison}"
    return text


def _comparison(one: MixingRatios, baseline: MixingRatios) -> str:
    """On how many images the ratio is larger than the baseline's, of those where they differ."""
    # Paired by image, and only where both classifiers have a ratio.
    both_right = ~np.isnan(one.ratio) & ~np.isnan(baseline.ratio)
    larger = int((one.ratio[both_right] > baseline.ratio[both_right]).sum())
    smaller = int((one.ratio[both_right] < baseline.ratio[both_right]).sum())
    different = larger + smaller
    if different == 0:
        return ""
    estimate = share(larger, different)
    percent = f"{100 * estimate.value:.0f} %"
    interval = f"[{100 * estimate.low:.0f}, {100 * estimate.high:.0f}]"
    return (
        f"The ratio of {one.name} is larger than that of {baseline.name} on "
        f"{larger} of the {counted(different, 'image')} where they differ ({percent} {interval})."
    )


def _interval(estimate: Estimate) -> str:
    ends = f"[{_ratio_text(estimate.low)}, {_ratio_text(estimate.high)}]"
    return f"{_ratio_text(estimate.value)} {ends}"


def _ratio_text(value: float) -> str:
    if math.isinf(value):
        return "> 1"
    return f"{value:.3f}"


COLUMNS = {
    "model": "model",
    "sigma": "sigma",
    "images": "images",
    "wrong_at_0": "wrong at 0",
    "changed": "changed",
    "never_changed": "never changed",
    "median_ratio": "median ratio",
    "low": "low",
    "high": "high",
    "adversarial_l2": "adversarial L2",
    "change_l2": "change L2",
}
"""Names of the table's columns by their keys."""


def _grid(found: Sequence[MixingRatios], setup: str) -> Grid:
    accuracy = f"±{TOLERANCE / 2:.4f}"
    notes = (
        f"least ratio at which another class has as many votes as the true one: {setup}",
        f"ratios are accurate to {accuracy}: {SCAN} ratios are checked in turn, then bisection",
        "images that are wrong at ratio 0 are left out, those that never change count as > 1",
        "low and high: exact 95 % interval of the median over images",
        "L2: median distances from the image to its adversarial example, and to the change",
        *noise_notes(found),
    )
    return Grid(
        title="Mixing ratio at which the prediction changes",
        columns=columns_of(COLUMNS),
        rows=tuple(_line(one) for one in found),
        notes=notes,
    )


def _line(one: MixingRatios) -> Row:
    changed = len(one.right) - one.unchanged
    cells = [
        Cell(one.name),
        Cell(one.sigma, "g"),
        Cell(len(one.ratio)),
        Cell(one.wrong),
        Cell(changed),
        Cell(one.unchanged),
    ]
    if one.median is None:
        cells += [Cell()] * 5
    else:
        # CSV files get inf for what people read as "> 1".
        for value in (one.median.value, one.median.low, one.median.high):
            cells.append(Cell(value, text=_ratio_text(value)))
        cells.append(_length_cell(one.length))
        cells.append(_length_cell(_change_lengths(one)))
    return Row(cells=tuple(cells), sigma=one.sigma)


def _change_lengths(one: MixingRatios) -> Floats:
    """The L2 distance at which each correctly classified image changes its class."""
    lengths = np.full_like(one.length, np.inf)
    # An infinite ratio times a distance of 0 would be NaN: images that an attack cannot move at
    # all never change either.
    np.multiply(one.right, one.length, where=np.isfinite(one.right), out=lengths)
    return lengths


def _length_cell(lengths: Floats) -> Cell:
    value = median(lengths).value
    if math.isinf(value):
        return Cell(value, text="never")
    return Cell(value, ".2f")


def _record(found: Sequence[MixingRatios], results: Results) -> Grid:
    rows = []
    for one in found:
        images = zip(results.indices, results.labels, one.ratio, one.distance, strict=True)
        for index, label, ratio, length in images:
            measured = (_outcome(ratio), _finite_text(ratio), _finite_text(length))
            rows.append((one.name, index, int(label), *measured))
    return plain_grid("Ratios", ("model", "idx", "label", "outcome", "ratio", "distance"), rows)


def _outcome(ratio: float) -> str:
    if math.isnan(ratio):
        return "wrong"
    if math.isinf(ratio):
        return "unchanged"
    return "changed"


def _finite_text(value: float) -> str:
    if not math.isfinite(value):
        return ""
    return f"{value:.6f}"


def draw(found: Sequence[MixingRatios]) -> Figure:
    """A histogram of the ratios per classifier, with a bar for `never` and medians on top."""
    with style.our_style():
        looks = style.looks(found)
        figure, (ax,) = style.panels(1, runs=len(found), height=2.1)
        entries: dict[str, Artist] = {}
        remarks = {}
        for one in found:
            name = one.name
            entries[name] = _histogram(ax, one, looks[name])
            remarks[name] = _legend_remark(one)
        ax.set_xlim(0, 1 + 4 / BINS)
        ax.set_ylim(bottom=0)
        ticks = [0, 0.25, 0.5, 0.75, 1, 1 + 2 / BINS]
        ax.set_xticks(ticks, ["0", "0.25", "0.5", "0.75", "1", "never"])
        ax.set_xlabel("Mixing ratio at which the prediction changes")
        ax.set_ylabel("Correctly classified images (%)")
        style.legend_below(figure, entries, entries, remarks)
        return style.settle(figure)


def _histogram(ax: Axes, one: MixingRatios, look: style.Look) -> Artist:
    """Draw the bars and the median of one classifier; returns the entry for the legend."""
    if one.median is None:
        # An invisible line: the legend names the classifier all the same.
        (invisible,) = ax.plot([], linestyle="none")
        return invisible
    edges = np.linspace(0, 1, BINS + 1)
    never_edges = [1 + 1 / BINS, 1 + 3 / BINS]
    percent_per_image = 100 / len(one.right)
    # Each classifier has its own number of correctly classified images, so bars are percentages.
    counts, _ = np.histogram(one.right[np.isfinite(one.right)], edges)
    heights = percent_per_image * counts
    outline = ax.stairs(heights, edges, color=look.colour, linestyle=look.dash, linewidth=1.0)
    ax.stairs(heights, edges, fill=True, color=look.colour, alpha=0.1, linewidth=0)
    never = [percent_per_image * one.unchanged]
    ax.stairs(never, never_edges, color=look.colour, linestyle=look.dash, linewidth=1.0)
    # An infinite median is marked over the bar of the images that never change.
    middle = min(one.median.value, 1 + 2 / BINS)
    top = ax.get_xaxis_transform()
    ax.plot([middle], [1.0], "v", color=look.colour, transform=top, clip_on=False)
    return outline


def _legend_remark(one: MixingRatios) -> str:
    remark = ": none right"
    if one.median is not None:
        remark = f": median {_interval(one.median)}"
    if one.wrong:
        remark += f", {one.wrong} wrong"
    return remark
