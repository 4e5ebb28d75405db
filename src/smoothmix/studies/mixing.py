"""How far towards its adversarial example an image keeps its class: the paper's equal-confidence mixing ratios."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import bdtr

from smoothmix._io.text import counted
from smoothmix._process.progress import OnProgress, ignore_progress
from smoothmix.analysis import Estimate, share
from smoothmix.config import require
from smoothmix.plots import style
from smoothmix.studies.base import (
    Attack,
    Case,
    Draws,
    Floats,
    Model,
    Study,
    distance,
    each_case,
    images_of,
    lost,
    noise_notes,
    plain_grid,
    require_comparable,
)
from smoothmix.studies.partial import Begun
from smoothmix.tables import Cell, Column, Grid, Row

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.figure import Figure

    from smoothmix.data import Dataset

ATTACK = Attack(steps=50, epsilon=8.0, copies=16)
"""The paper's steps and distance; it does not say its noises."""

SCAN = 8
"""Evenly spaced ratios that are looked at from 0 on, until the prediction has changed; bisection goes on from there."""

TOLERANCE = 1 / 64
"""Width of what is left of the line when bisection stops. Its middle is the ratio, so that it errs by half of this."""

BINS = 16


@dataclass(frozen=True, eq=False)
class Ratios:
    """What one model says of each image on the way to its adversarial example."""

    model: Model
    ratio: Floats
    """The least mixing ratio at which another class has as many votes as the true one; infinite where none up to 1
    has; not a number where that is so of the image itself."""
    distance: Floats
    """L2 distance of the adversarial example; not a number where there is none, for the same reason."""

    @property
    def right(self) -> Floats:
        """The ratios of the images that are classified right."""
        return self.ratio[~np.isnan(self.ratio)]

    @property
    def length(self) -> Floats:
        """How far away the adversarial examples of those images are."""
        return self.distance[~np.isnan(self.ratio)]

    @property
    def median(self) -> Estimate | None:
        """Of those; None where no image is right."""
        return median(self.right) if len(self.right) else None

    @property
    def wrong(self) -> int:
        """How many images are not."""
        return int(np.isnan(self.ratio).sum())

    @property
    def unchanged(self) -> int:
        """How many images keep their class all the way."""
        return int(np.isinf(self.ratio).sum())


def least_change(
    changed: Callable[[float], bool], *, scan: int = SCAN, tolerance: float = TOLERANCE
) -> float:
    """The least ratio in (0, 1] at which `changed` says so, to within tolerance / 2; infinite if it never does.

    What changes and changes back between two of the `scan` evenly spaced ratios is not seen.

    >>> least_change(lambda ratio: ratio > 0.3)
    0.3046875
    """
    low = 0.0
    for high in (step / scan for step in range(1, scan + 1)):
        if changed(high):
            break
        low = high
    else:
        return math.inf
    while high - low > tolerance:
        middle = (low + high) / 2
        low, high = (low, middle) if changed(middle) else (middle, high)
    return (low + high) / 2


def median(values: ArrayLike, *, confidence: float = 0.95) -> Estimate:
    """The median with its exact interval by order statistics: whatever the distribution, infinite values included.

    The true median lies below the k-th smallest of m values with chance P(Binomial(m, 1/2) < k). With too few values
    the interval is everything.

    >>> median([1, 2, 3, 4, 5, 6, 7, 8, float("inf")])
    Estimate(value=5.0, low=2.0, high=8.0)
    """
    found = np.sort(np.asarray(values, dtype=np.float64))
    require(len(found) > 0, "a median needs at least one image")
    count = len(found)
    tail = (1 - confidence) / 2
    outer = int(sum(bdtr(k, count, 0.5) <= tail for k in range(count // 2)))
    low, high = (found[outer - 1], found[count - outer]) if outer else (0.0, math.inf)
    middle = (float(found[(count - 1) // 2]) + float(found[count // 2])) / 2
    return Estimate(middle, float(low), float(high))


def equal_confidence(case: Case, attack: Attack) -> tuple[float, float]:
    """The least ratio at which the true class has lost its lead, and the L2 distance of the adversarial example."""
    if lost(case.votes(case.image), case.label):
        return math.nan, math.nan
    adversarial = case.attacked(attack)
    ratio = least_change(
        lambda ratio: lost(case.votes(case.image.lerp(adversarial, ratio)), case.label)
    )
    return ratio, distance(adversarial, case.image)


def measure(
    models: Sequence[Model],
    dataset: Dataset,
    indices: Sequence[int],
    *,
    attack: Attack = ATTACK,
    draws: Draws | None = None,
    on_progress: OnProgress = ignore_progress,
    begun: Begun | None = None,
) -> list[Ratios]:
    """The mixing ratio of each image under each model, by bisection on votes; `begun` keeps what is found."""
    require_comparable(models, dataset, indices)
    draws = draws or Draws()
    kept = begun or Begun()
    kept.ask("mixing", dataset, (2,), attack=attack, draws=draws, scan=SCAN, tolerance=TOLERANCE)
    found = each_case(
        models,
        dataset,
        indices,
        draws,
        on_progress,
        lambda case: np.array(equal_confidence(case, attack)),
        kept,
    )
    return [Ratios(model, *numbers.T) for model, numbers in zip(models, found, strict=True)]


def study(
    models: Sequence[Model],
    dataset: Dataset,
    indices: Sequence[int],
    *,
    attack: Attack = ATTACK,
    draws: Draws | None = None,
    figure: bool = True,
    on_progress: OnProgress = ignore_progress,
    begun: Begun | None = None,
) -> Study:
    """The distribution of the mixing ratios at which predictions change, for each model."""
    draws = draws or Draws()
    found = measure(
        models, dataset, indices, attack=attack, draws=draws, on_progress=on_progress, begun=begun
    )
    how = f"{attack.words()}; {images_of(dataset, indices)}; {draws.n:,} votes at a ratio"
    return Study(
        name="mixing",
        title="Equal-confidence mixing ratios",
        text=_text(found, how),
        grid=_grid(found, how),
        figure=draw(found) if figure else None,
        record=_record(found, dataset, indices),
    )


def _text(found: Sequence[Ratios], how: str) -> str:
    seen = [
        f"{r.model.name} {_interval(r.median)}" if r.median else f"{r.model.name} none is right"
        for r in found
    ]
    parts = [
        f"Images were moved to adversarial examples until another class had as many votes as the true one ({how}).",
        f"Half of the images that are classified right change by the mixing ratio: {'; '.join(seen)}.",
        *(_compared(r, found[0]) for r in found[1:]),
    ]
    return " ".join(part for part in parts if part)


def _compared(one: Ratios, other: Ratios) -> str:
    """On how many images the one keeps its class farther than the other, among those that tell them apart."""
    both = ~np.isnan(one.ratio) & ~np.isnan(other.ratio)
    farther, nearer = (
        int(np.sum(order(one.ratio[both], other.ratio[both]))) for order in (np.greater, np.less)
    )
    if not farther + nearer:
        return ""
    found = share(farther, farther + nearer)
    return (
        f"The ratio of {one.model.name} is larger than that of {other.model.name} on {farther} of the "
        f"{counted(farther + nearer, 'image')} where they differ ({100 * found.value:.0f} % "
        f"[{100 * found.low:.0f}, {100 * found.high:.0f}])."
    )


def _interval(estimate: Estimate) -> str:
    return f"{_ratio(estimate.value)} [{_ratio(estimate.low)}, {_ratio(estimate.high)}]"


def _ratio(value: float) -> str:
    return "> 1" if math.isinf(value) else f"{value:.3f}"


NAMES = (
    "model",
    "sigma",
    "images",
    "wrong at 0",
    "changed",
    "never changed",
    "median ratio",
    "low",
    "high",
)
LENGTHS = ("adversarial L2", "change L2")


def _grid(found: Sequence[Ratios], how: str) -> Grid:
    lines = []
    for r in found:
        counts = len(r.ratio), r.wrong, len(r.right) - r.unchanged, r.unchanged
        cells = [Cell(r.model.name), Cell(r.model.sigma, "g")]
        cells += [Cell(count) for count in counts]
        if r.median:
            cells += [
                Cell(v, text=_ratio(v)) for v in (r.median.value, r.median.low, r.median.high)
            ]
            # What never changes does so at no distance, even if the attack has not moved it at all.
            change = np.multiply(
                r.right, r.length, where=np.isfinite(r.right), out=np.full_like(r.length, np.inf)
            )
            lengths = median(r.length), median(change)
            for e in lengths:
                cells.append(Cell(e.value, ".2f", text="never" if math.isinf(e.value) else None))
        else:
            cells += [Cell()] * 5
        lines.append(Row(cells=tuple(cells), sigma=r.model.sigma))
    notes = (
        f"least ratio at which another class has as many votes as the true one: {how}",
        f"a ratio is known to ±{TOLERANCE / 2:.4f}: {SCAN} ratios are looked at in turn, then bisection",
        "images that are wrong at ratio 0 are left out, those that never change count as > 1",
        "low and high: exact 95 % interval of the median over images",
        "L2: median distances from the image of its adversarial example, and of the point where the prediction changes",
        *noise_notes([r.model for r in found]),
    )
    columns = tuple(
        Column(name=name, key=name.replace(" ", "_").lower()) for name in (*NAMES, *LENGTHS)
    )
    return Grid(
        title="Mixing ratio at which the prediction changes",
        columns=columns,
        rows=tuple(lines),
        notes=notes,
    )


def _record(found: Sequence[Ratios], dataset: Dataset, indices: Sequence[int]) -> Grid:
    rows = [
        (
            r.model.name,
            index,
            int(dataset.labels[index]),
            _outcome(ratio),
            *map(_known, (ratio, length)),
        )
        for r in found
        for index, ratio, length in zip(indices, r.ratio, r.distance, strict=True)
    ]
    return plain_grid("Ratios", ("model", "idx", "label", "outcome", "ratio", "distance"), rows)


def _outcome(ratio: float) -> str:
    return "wrong" if math.isnan(ratio) else "unchanged" if math.isinf(ratio) else "changed"


def _known(value: float) -> str:
    return f"{value:.6f}" if math.isfinite(value) else ""


def draw(found: Sequence[Ratios]) -> Figure:
    """A histogram of the ratios for each model, with what never changes in a bin of its own and medians on top."""
    edges = np.linspace(0, 1, BINS + 1)
    beyond = np.array([1 + 1 / BINS, 1 + 3 / BINS])
    with style.our_style():
        looks = style.looks([r.model for r in found])
        made, (ax,) = style.panels(1, runs=len(found), height=2.1)
        entries: dict[str, Artist] = {}
        remarks = {r.model.name: _remark(r) for r in found}
        for r in found:
            if r.median is None:
                entries[r.model.name] = ax.plot([], linestyle="none")[0]
                continue
            look, scale = looks[r.model.name], 100 / len(r.right)
            counted = scale * np.histogram(r.right[np.isfinite(r.right)], edges)[0]
            drawn = ax.stairs(counted, edges, color=look.colour, linestyle=look.dash, linewidth=1.0)
            ax.stairs(counted, edges, fill=True, color=look.colour, alpha=0.1, linewidth=0)
            ax.stairs(
                [scale * r.unchanged], beyond, color=look.colour, linestyle=look.dash, linewidth=1.0
            )
            top = ax.get_xaxis_transform()
            ax.plot(
                [min(r.median.value, 1 + 2 / BINS)],
                [1.0],
                "v",
                color=look.colour,
                transform=top,
                clip_on=False,
            )
            entries[r.model.name] = drawn
        ax.set_xlim(0, 1 + 4 / BINS)
        ax.set_ylim(bottom=0)
        ax.set_xticks(
            [0, 0.25, 0.5, 0.75, 1, 1 + 2 / BINS], ["0", "0.25", "0.5", "0.75", "1", "never"]
        )
        ax.set_xlabel("Mixing ratio at which the prediction changes")
        ax.set_ylabel("Images classified right (%)")
        style.legend_below(made, entries, entries, remarks)
        return style.settle(made)


def _remark(r: Ratios) -> str:
    middle = f"median {_interval(r.median)}" if r.median else "none right"
    return f": {middle}" + (f", {r.wrong} wrong" if r.wrong else "")
