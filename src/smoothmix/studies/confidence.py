"""How sure a smoothed classifier is of adversarial examples: the paper's table of true- and off-class confidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from smoothmix._io.text import counted
from smoothmix._process.progress import OnProgress, ignore_progress
from smoothmix.analysis import Estimate, means
from smoothmix.analysis.compare import TOO_FEW_IMAGES
from smoothmix.certificates.row import sparse, votes_text
from smoothmix.config import require
from smoothmix.plots import style
from smoothmix.studies.base import (
    Attack,
    Case,
    Draws,
    Floats,
    Ints,
    Model,
    Study,
    distance,
    each_case,
    images_of,
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

EPSILONS = (0.0, 1.0, 2.0, 3.0, 4.0, 5.0)
"""Those of the paper."""

ATTACK = Attack(steps=20, epsilon=1.0, copies=16)
"""The paper says PGD and no more; its epsilon is replaced by each that is asked for."""

PUBLISHED = dict(
    zip(
        EPSILONS,
        zip(
            (66.4, 47.1, 24.3, 14.2, 11.3, 10.7), (24.2, 37.8, 59.5, 71.8, 78.5, 82.0), strict=True
        ),
        strict=True,
    )
)
"""By epsilon: true-class and off-class confidence in percent (Table `confidence`)."""

PUBLISHED_DATA, PUBLISHED_SIGMA, PUBLISHED_NAME = "cifar10", 0.5, "published (ResNet-110)"


@dataclass(frozen=True, eq=False)
class Confidences:
    """The votes of one model at the adversarial examples of each image and epsilon."""

    model: Model
    votes: Ints
    """[epsilons, images, classes]"""
    labels: Ints
    distances: Floats
    """[epsilons, images]: how far the attack went."""

    @property
    def true(self) -> Floats:
        """Share of votes for the true class, [epsilons, images]."""
        found = np.take_along_axis(self.votes, self.labels[None, :, None], axis=2)[..., 0]
        return np.asarray(found / self.votes.sum(axis=2))

    @property
    def off(self) -> Floats:
        """Share of votes for the strongest other class, [epsilons, images]."""
        others = self.votes.copy()
        np.put_along_axis(others, self.labels[None, :, None], -1, axis=2)
        return np.asarray(others.max(axis=2) / self.votes.sum(axis=2))


def measure(
    models: Sequence[Model],
    dataset: Dataset,
    indices: Sequence[int],
    *,
    epsilons: Sequence[float] = EPSILONS,
    attack: Attack = ATTACK,
    draws: Draws | None = None,
    on_progress: OnProgress = ignore_progress,
    begun: Begun | None = None,
) -> list[Confidences]:
    """The votes of each model at what the attack makes of each image within each epsilon.

    `begun` keeps what is found.
    """
    require_comparable(models, dataset, indices)
    require(len(epsilons) > 0, "at least one eps is needed")
    require(len(set(epsilons)) == len(epsilons), "an eps is asked for twice")
    attacks, draws = [replace(attack, epsilon=epsilon) for epsilon in epsilons], draws or Draws()

    def attacked(case: Case) -> Floats:
        """The votes and the distance for each epsilon, [epsilons, classes + 1]."""
        points = [case.attacked(settings) for settings in attacks]
        return np.array([[*case.votes(point), distance(point, case.image)] for point in points])

    kept = begun or Begun()
    kept.ask(
        "confidence",
        dataset,
        (len(epsilons), models[0].num_classes + 1),
        attacks=attacks,
        draws=draws,
    )
    found = each_case(models, dataset, indices, draws, on_progress, attacked, kept).swapaxes(1, 2)
    votes, distances, labels = (
        found[..., :-1].astype(np.int64),
        found[..., -1],
        dataset.labels[list(indices)],
    )
    return [Confidences(model, votes[i], labels, distances[i]) for i, model in enumerate(models)]


def study(
    models: Sequence[Model],
    dataset: Dataset,
    indices: Sequence[int],
    *,
    epsilons: Sequence[float] = EPSILONS,
    attack: Attack = ATTACK,
    draws: Draws | None = None,
    figure: bool = True,
    on_progress: OnProgress = ignore_progress,
    begun: Begun | None = None,
) -> Study:
    """Mean true-class and off-class confidence of adversarial examples against the distance they may have."""
    draws = draws or Draws()
    found = measure(
        models,
        dataset,
        indices,
        epsilons=epsilons,
        attack=attack,
        draws=draws,
        on_progress=on_progress,
        begun=begun,
    )
    published = PUBLISHED if dataset.name == PUBLISHED_DATA and _of_the_paper(models) else {}
    how = f"{attack.words('within L2 distance eps')}; {images_of(dataset, indices)}; {draws.n:,} votes each"
    return Study(
        name="confidence",
        title="Confidence of adversarial examples",
        text=_text(found, epsilons, how),
        grid=_grid(found, epsilons, how, published=bool(published)),
        figure=draw(found, epsilons, published) if figure else None,
        record=_record(found, epsilons, indices),
    )


def _of_the_paper(models: Sequence[Model]) -> bool:
    return any(model.sigma == PUBLISHED_SIGMA for model in models)


def _text(found: Sequence[Confidences], epsilons: Sequence[float], how: str) -> str:
    last = int(np.argmax(epsilons))
    seen = [
        f"{f.model.name} gives their true class {100 * f.true[last].mean():.1f} % of the votes and the strongest other "
        f"class {100 * f.off[last].mean():.1f} %"
        for f in found
    ]
    compared = [
        f"the off-class confidence of {f.model.name}, beside that of {found[0].model.name}, "
        f"is {_verdicts(_gaps(f, found[0]), epsilons, len(f.labels))}"
        for f in found[1:]
    ]
    parts = [
        f"Adversarial examples of the smoothed classifier were classified by noisy votes ({how}).",
        f"At eps {epsilons[last]:g}, {'; '.join(seen)}.",
    ]
    return " ".join(
        [*parts, f"On the same images, {'; '.join(compared)}." if compared else ""]
    ).strip()


def _gaps(one: Confidences, other: Confidences) -> list[Estimate]:
    """By how much the off-class confidence of the one lies above the other's at each epsilon, in points, paired."""
    return means(100 * (one.off - other.off))


def _verdicts(gaps: Sequence[Estimate], epsilons: Sequence[float], images: int) -> str:
    """At which epsilons it is lower and higher, as far as the intervals tell."""
    if images < TOO_FEW_IMAGES:
        return f"not told apart: {counted(images, 'image')} are too few for that"
    signs = [-1 if gap.high < 0 else 1 if gap.low > 0 else 0 for gap in gaps]
    told = {
        word: ", ".join(f"{e:g}" for e, found in zip(epsilons, signs, strict=True) if found == sign)
        for sign, word in ((-1, "lower"), (1, "higher"), (0, "not told apart"))
    }
    return ", ".join(f"{word} at eps {where}" for word, where in told.items() if where)


def _points(gap: Estimate) -> str:
    return f"{gap.value:+.1f} [{gap.low:+.1f}, {gap.high:+.1f}]"


def _grid(
    found: Sequence[Confidences], epsilons: Sequence[float], how: str, *, published: bool
) -> Grid:
    columns = [Column(name=name, key=name) for name in ("model", "sigma", "eps", "images")]
    for name, key in (("true class %", "true"), ("off class %", "off")):
        columns += [
            Column(name=name, key=key),
            *(Column(name=end, key=f"{key}_{end}") for end in ("low", "high")),
        ]
    if published:
        columns += [
            Column(name=f"published {key} %", key=f"published_{key}") for key in ("true", "off")
        ]
    lines = []
    for f in found:
        for epsilon, true, off in zip(epsilons, means(f.true), means(f.off), strict=True):
            cells = [
                Cell(f.model.name),
                _number(f.model.sigma, "g"),
                _number(epsilon, "g"),
            ]
            cells += [_number(len(f.labels), "d")]
            cells += [
                _number(100 * v, ".1f") for e in (true, off) for v in (e.value, e.low, e.high)
            ]
            if published:
                row = PUBLISHED.get(epsilon) if f.model.sigma == PUBLISHED_SIGMA else None
                cells += [_number(v, ".1f") for v in row] if row else [Cell(), Cell()]
            lines.append(Row(cells=tuple(cells), sigma=f.model.sigma))
    notes = [
        f"mean share of votes for the true class, and for the strongest other class: {how}",
        "low and high: 95 % intervals over images (bootstrap)",
        *noise_notes([f.model for f in found]),
    ]
    for f in found[1:]:
        gaps = zip(epsilons, _gaps(f, found[0]), strict=True)
        each = ", ".join(f"{_points(gap)} at eps {epsilon:g}" for epsilon, gap in gaps)
        notes.append(
            f"off class of {f.model.name} less that of {found[0].model.name}, on the same images: {each}"
        )
    if published:
        notes.append(
            "published: CIFAR-10, ResNet-110, sigma 0.5; the paper does not say how it was trained or attacked"
        )
    title = "Confidence of adversarial examples within L2 distance eps"
    return Grid(title=title, columns=tuple(columns), rows=tuple(lines), notes=tuple(notes))


def _number(value: float, form: str) -> Cell:
    return Cell(round(value, 6), form)


def _record(
    found: Sequence[Confidences], epsilons: Sequence[float], indices: Sequence[int]
) -> Grid:
    rows = [
        (
            f.model.name,
            f"{epsilon:g}",
            index,
            int(f.labels[column]),
            f"{f.distances[row, column]:.6f}",
            votes_text(sparse(f.votes[row, column])),
        )
        for f in found
        for row, epsilon in enumerate(epsilons)
        for column, index in enumerate(indices)
    ]
    return plain_grid("Votes", ("model", "eps", "idx", "label", "distance", "counts"), rows)


def draw(
    found: Sequence[Confidences],
    epsilons: Sequence[float],
    published: dict[float, tuple[float, float]],
) -> Figure:
    """True-class and off-class confidence against epsilon, a line for each model with its interval."""
    order = np.argsort(epsilons)
    x = np.array(epsilons)[order]
    with style.our_style():
        looks = style.looks([f.model for f in found])
        made, axes = style.panels(2, runs=len(found), height=2.1)
        entries: dict[str, Artist] = {}
        for side, (ax, title) in enumerate(
            zip(axes, ("True class", "Strongest other class"), strict=True)
        ):
            for f in found:
                look, shares = looks[f.model.name], means(f.off if side else f.true)
                mid, low, high = (
                    100 * np.array([getattr(e, a) for e in shares])[order] for a in _ENDS
                )
                ax.fill_between(x, low, high, color=look.colour, alpha=0.13, linewidth=0)
                (line,) = ax.plot(
                    x, mid, color=look.colour, linestyle=look.dash, marker=look.marker, markersize=3
                )
                entries.setdefault(f.model.name, line)
            known = [e for e in sorted(published) if x[0] <= e <= x[-1]]
            if known:
                values = [published[e][side] for e in known]
                (line,) = ax.plot(
                    known, values, color=style.FAINT, linestyle=":", marker="x", markersize=3.5
                )
                entries.setdefault(PUBLISHED_NAME, line)
            ax.set_title(title)
            ax.set_xlabel("Largest ℓ₂ distance ε of the attack")
            style.percent_axis(ax)
        axes[0].set_ylabel("Mean share of votes (%)")
        style.legend_below(made, entries, entries)
        return style.settle(made)


_ENDS = ("value", "low", "high")
