"""Confidence in adversarial examples: the paper's table of true-class and off-class confidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar, final

import numpy as np

from smoothmix._io.text import counted
from smoothmix.analysis import Estimate, means
from smoothmix.analysis.compare import TOO_FEW_IMAGES
from smoothmix.certificates.row import sparse, votes_text
from smoothmix.config import require
from smoothmix.plots import style
from smoothmix.studies.case import Case, SmoothedAttack, distance
from smoothmix.studies.study import (
    Floats,
    Ints,
    PerClassifier,
    Results,
    Study,
    StudyReport,
    columns_of,
    noise_notes,
    percent_band,
    plain_grid,
)
from smoothmix.tables import Cell, Column, Grid, Row

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PUBLISHED = {
    0.0: (66.4, 24.2),
    1.0: (47.1, 37.8),
    2.0: (24.3, 59.5),
    3.0: (14.2, 71.8),
    4.0: (11.3, 78.5),
    5.0: (10.7, 82.0),
}
"""True-class and off-class confidence in percent by epsilon (Table `confidence`)."""

EPSILONS = tuple(PUBLISHED)
"""Those of the paper."""

PUBLISHED_DATA = "cifar10"
PUBLISHED_SIGMA = 0.5
PUBLISHED_NAME = "published (ResNet-110)"

# The paper says PGD and no more. Each epsilon of the study replaces the one here.
ATTACK = SmoothedAttack(steps=20, epsilon=1.0, copies=16)


@dataclass(frozen=True, eq=False)
class Confidences(PerClassifier):
    """The votes of one classifier at the adversarial examples of each image and epsilon."""

    votes: Ints
    """[epsilons, images, classes]"""
    labels: Ints
    distances: Floats
    """L2 distances from the images to their adversarial examples, [epsilons, images]."""

    @property
    def true(self) -> Floats:
        """Share of votes for the true class, [epsilons, images]."""
        true_votes = np.take_along_axis(self.votes, self.labels[None, :, None], axis=2)[..., 0]
        return np.asarray(true_votes / self.votes.sum(axis=2))

    @property
    def off(self) -> Floats:
        """Share of votes for the strongest other class, [epsilons, images]."""
        # -1 for the true class: it is never the largest, even where no class has a vote.
        others = self.votes.copy()
        np.put_along_axis(others, self.labels[None, :, None], -1, axis=2)
        return np.asarray(others.max(axis=2) / self.votes.sum(axis=2))


@final
@dataclass(frozen=True, kw_only=True)
class ConfidenceStudy(Study):
    """Votes at adversarial examples within several L2 distances."""

    name: ClassVar[str] = "confidence"

    epsilons: Sequence[float] = EPSILONS
    """Largest L2 distances of the attack."""
    attack: SmoothedAttack = ATTACK
    """The attack; its epsilon is replaced by each of `epsilons`."""

    def __post_init__(self) -> None:
        require(len(self.epsilons) > 0, "at least one eps is needed")
        require(len(set(self.epsilons)) == len(self.epsilons), "an eps is requested twice")
        # An epsilon that makes no sense is refused here, not after the networks were loaded.
        assert len(self.attacks) == len(self.epsilons)

    @property
    def attacks(self) -> list[SmoothedAttack]:
        """The attack within each epsilon."""
        return [replace(self.attack, epsilon=epsilon) for epsilon in self.epsilons]

    @property
    def settings(self) -> Mapping[str, object]:
        """The attacks."""
        return {"attacks": [asdict(attack) for attack in self.attacks]}

    def shape(self, num_classes: int, image_shape: tuple[int, ...]) -> tuple[int, ...]:
        """For each epsilon the votes of all classes, and the distance."""
        return len(self.epsilons), num_classes + 1

    def one(self, case: Case) -> Floats:
        """The votes and the L2 distance of the adversarial example within each epsilon."""
        rows = []
        for attack in self.attacks:
            adversarial = case.adversarial(attack)
            rows.append([*case.votes(adversarial), distance(adversarial, case.image)])
        return np.array(rows, dtype=np.float64)

    def confidences(self, results: Results) -> list[Confidences]:
        """The results of each classifier."""
        found = []
        for classifier, numbers in zip(results.classifiers, results.numbers, strict=True):
            # Images come first in the results, but every number of the report is by epsilon.
            by_epsilon = numbers.swapaxes(0, 1)
            votes = by_epsilon[..., :-1].astype(np.int64)
            distances = by_epsilon[..., -1]
            found.append(Confidences(classifier, votes, results.labels, distances))
        return found

    def summarise(self, results: Results) -> StudyReport:
        """Mean true-class and off-class confidence against the largest distance of the attack."""
        found = self.confidences(results)
        attack = self.attack.describe("within L2 distance eps")
        setup = f"{attack}; {results.images}; {results.votes.n:,} votes each"
        published = results.dataset.name == PUBLISHED_DATA and any(
            classifier.sigma == PUBLISHED_SIGMA for classifier in results.classifiers
        )
        return StudyReport(
            name=self.name,
            title="Confidence of adversarial examples",
            text=_text(found, self.epsilons, setup),
            grid=_grid(found, self.epsilons, setup, published=published),
            draw=partial(draw, found, self.epsilons, published=published),
            record=_record(found, self.epsilons, results.indices),
        )


def _text(found: Sequence[Confidences], epsilons: Sequence[float], setup: str) -> str:
    # The largest epsilon shows the effect best; it need not be the last that was requested.
    last = int(np.argmax(epsilons))
    shares = []
    for one in found:
        true = 100 * one.true[last].mean()
        off = 100 * one.off[last].mean()
        shares.append(
            f"{one.name} gives their true class {true:.1f} % of the votes and the "
            f"strongest other class {off:.1f} %"
        )
    text = (
        "Adversarial examples of the smoothed classifier were classified by noisy votes "
        f"({setup}). At eps {epsilons[last]:g}, {'; '.join(shares)}."
    )
    if len(found) == 1:
        return text
    comparisons = [_comparison(one, found[0], epsilons) for one in found[1:]]
    return f"{text} On the same images, {'; '.join(comparisons)}."


def _comparison(one: Confidences, baseline: Confidences, epsilons: Sequence[float]) -> str:
    """At which epsilons the off-class confidence is lower and higher, by the paired intervals."""
    subject = f"the off-class confidence of {one.name}, compared with {baseline.name},"
    # A bootstrap over a handful of images would claim differences that do not exist.
    if len(one.labels) < TOO_FEW_IMAGES:
        return f"{subject} is not known to differ: {counted(len(one.labels), 'image')} are too few"
    where: dict[str, list[str]] = {"lower": [], "higher": [], "not known to differ": []}
    for epsilon, gap in zip(epsilons, _gaps(one, baseline), strict=True):
        if gap.high < 0:
            verdict = "lower"
        elif gap.low > 0:
            verdict = "higher"
        else:
            verdict = "not known to differ"
        where[verdict].append(f"{epsilon:g}")
    parts = [f"{verdict} at eps {', '.join(at)}" for verdict, at in where.items() if at]
    return f"{subject} is {', '.join(parts)}"


def _gaps(one: Confidences, baseline: Confidences) -> list[Estimate]:
    """The difference in off-class confidence at each epsilon in points, paired by image."""
    return means(100 * (one.off - baseline.off))


def _grid(
    found: Sequence[Confidences], epsilons: Sequence[float], setup: str, *, published: bool
) -> Grid:
    lines = []
    for one in found:
        estimates = zip(epsilons, means(one.true), means(one.off), strict=True)
        for epsilon, true, off in estimates:
            cells = [
                Cell(one.name),
                _number(one.sigma, "g"),
                _number(epsilon, "g"),
                _number(len(one.labels), "d"),
                *_percentages(true),
                *_percentages(off),
            ]
            if published:
                cells += _published_cells(one.sigma, epsilon)
            lines.append(Row(cells=tuple(cells), sigma=one.sigma))
    return Grid(
        title="Confidence of adversarial examples within L2 distance eps",
        columns=_columns(published=published),
        rows=tuple(lines),
        notes=_notes(found, epsilons, setup, published=published),
    )


def _columns(*, published: bool) -> tuple[Column, ...]:
    names = {
        "model": "model",
        "sigma": "sigma",
        "eps": "eps",
        "images": "images",
        "true": "true class %",
        "true_low": "low",
        "true_high": "high",
        "off": "off class %",
        "off_low": "low",
        "off_high": "high",
    }
    if published:
        names["published_true"] = "published true %"
        names["published_off"] = "published off %"
    return columns_of(names)


def _percentages(estimate: Estimate) -> list[Cell]:
    return [
        _number(100 * estimate.value, ".1f"),
        _number(100 * estimate.low, ".1f"),
        _number(100 * estimate.high, ".1f"),
    ]


def _published_cells(sigma: float, epsilon: float) -> list[Cell]:
    # Models at another noise stand in the same table, but the paper has no numbers for them.
    if sigma != PUBLISHED_SIGMA or epsilon not in PUBLISHED:
        return [Cell(), Cell()]
    true, off = PUBLISHED[epsilon]
    return [_number(true, ".1f"), _number(off, ".1f")]


def _number(value: float, form: str) -> Cell:
    return Cell(round(value, 6), form)


def _notes(
    found: Sequence[Confidences], epsilons: Sequence[float], setup: str, *, published: bool
) -> tuple[str, ...]:
    notes = [
        f"mean share of votes for the true class, and for the strongest other class: {setup}",
        "low and high: 95 % intervals over images (bootstrap)",
        *noise_notes(found),
    ]
    baseline = found[0]
    for one in found[1:]:
        differences = []
        for epsilon, gap in zip(epsilons, _gaps(one, baseline), strict=True):
            interval = f"[{gap.low:+.1f}, {gap.high:+.1f}]"
            differences.append(f"{gap.value:+.1f} {interval} at eps {epsilon:g}")
        names = f"{one.name} minus that of {baseline.name}"
        notes.append(f"off class of {names}, on the same images: {', '.join(differences)}")
    if published:
        notes.append(
            "published: CIFAR-10, ResNet-110, sigma 0.5; the paper does not say how it was trained "
            "or attacked"
        )
    return tuple(notes)


def _record(
    found: Sequence[Confidences], epsilons: Sequence[float], indices: Sequence[int]
) -> Grid:
    rows = []
    for one in found:
        for row, epsilon in enumerate(epsilons):
            for column, index in enumerate(indices):
                label = int(one.labels[column])
                moved = f"{one.distances[row, column]:.6f}"
                counts = votes_text(sparse(one.votes[row, column]))
                rows.append((one.name, f"{epsilon:g}", index, label, moved, counts))
    return plain_grid("Votes", ("model", "eps", "idx", "label", "distance", "counts"), rows)


def draw(found: Sequence[Confidences], epsilons: Sequence[float], *, published: bool) -> Figure:
    """True-class and off-class confidence against epsilon: per classifier a line with intervals."""
    with style.our_style():
        figure, (left, right) = style.panels(2, runs=len(found), height=2.1)
        looks = style.looks(found)
        entries: dict[str, Artist] = {}
        for one in found:
            name = one.name
            entries[name] = _curve(left, epsilons, means(one.true), looks[name])
            _curve(right, epsilons, means(one.off), looks[name])
        # The axis must not grow for published points that were not measured here.
        known = []
        if published:
            known = [e for e in PUBLISHED if min(epsilons) <= e <= max(epsilons)]
        if known:
            entries[PUBLISHED_NAME] = _published_curve(left, known, 0)
            _published_curve(right, known, 1)
        left.set_title("True class")
        right.set_title("Strongest other class")
        for ax in (left, right):
            ax.set_xlabel("Largest ℓ₂ distance ε of the attack")
            style.percent_axis(ax)
        left.set_ylabel("Mean share of votes (%)")
        style.legend_below(figure, entries, entries)
        return style.settle(figure)


def _curve(
    ax: Axes, epsilons: Sequence[float], shares: Sequence[Estimate], look: style.Look
) -> Artist:
    """Draw a line with its interval; returns the line, for the legend."""
    # The epsilons may be requested in any order, but a line runs from left to right.
    order = np.argsort(epsilons)
    x = np.array(epsilons)[order]
    low, middle, high = percent_band(shares)[:, order]
    ax.fill_between(x, low, high, color=look.colour, alpha=0.13, linewidth=0)
    (line,) = ax.plot(
        x, middle, color=look.colour, linestyle=look.dash, marker=look.marker, markersize=3
    )
    return line


def _published_curve(ax: Axes, epsilons: Sequence[float], column: int) -> Artist:
    values = [PUBLISHED[epsilon][column] for epsilon in epsilons]
    (line,) = ax.plot(
        epsilons, values, color=style.FAINT, linestyle=":", marker="x", markersize=3.5
    )
    return line
