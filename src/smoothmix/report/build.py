"""From certificate files to what the page and the tables show."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from smoothmix.analysis import (
    Estimate,
    Measured,
    accuracy_bound,
    means_of,
    paired_by_image,
    same_data,
    warnings_about,
    what_differs,
)
from smoothmix.analysis.intervals import CONFIDENCE, require_confidence
from smoothmix.config import require
from smoothmix.report.commands import commands
from smoothmix.report.data import Curve, Difference, Page, PublishedRow, RunView, Section, Training
from smoothmix.report.gallery import make_gallery
from smoothmix.report.published import cuts, paper_acr, preset_of
from smoothmix.version import __version__

BINS = 40
FINEST = 100_000
"""Draws behind a log that does not say how many: the field's usual number."""
COLUMNS = 8
"""Radii in a table, unless others are asked for."""


@dataclass(frozen=True, kw_only=True)
class Choices:
    """What the reader of a comparison wants to see."""

    radii: Sequence[float] = ()
    """At which certified accuracy stands in the table; none means round ones up to the largest."""
    baseline: str = ""
    """Name of the model that others are compared with; by default Gaussian training at the same sigma."""
    confidence: float = CONFIDENCE
    """Of the intervals over images."""
    rho: float = 0.001
    """Chance that the data set's bound on certified accuracy is too high."""

    def __post_init__(self) -> None:
        require_confidence(self.confidence)
        require(0 < self.rho < 1, f"rho must lie strictly between 0 and 1, got {self.rho}")
        require(all(math.isfinite(r) and r >= 0 for r in self.radii), "radii must be zero or more")


def make_page(
    every: Sequence[Measured],
    choices: Choices,
    *,
    title: str,
    data_dir: Path | None = None,
    sections: Sequence[Section] = (),
) -> Page:
    """Everything that the page shows of these files."""
    every = _told_apart(every)
    radii = table_radii(every, choices)
    runs = _views(every, radii, choices)
    levels = {
        sigma: [m for m in every if m.sigma == sigma]
        for sigma in dict.fromkeys(m.sigma for m in every)
    }
    gallery = make_gallery(every, data_dir=data_dir)
    return Page(
        title=title,
        made=f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, smoothmix {__version__}",
        radii=radii,
        confidence=choices.confidence,
        rho=choices.rho,
        paper_rounding=any(m.paper_rounding for m in every),
        warnings=warnings_about(every),
        runs=runs,
        unlike=[sigma for sigma, files in levels.items() if what_differs(files)],
        runners_up={
            sigma: found for sigma, files in levels.items() if (found := _runner_up(files, choices))
        },
        pictures=gallery.pictures,
        pictures_note=gallery.note,
        sections=sections,
    )


def _told_apart(every: Sequence[Measured]) -> list[Measured]:
    """The files under names that tell them apart: with their sigma where a method is there at several."""
    names = [m.name for m in every]
    return [
        replace(m, name=f"{m.name}, sigma {m.sigma:g}")
        if names.count(m.name) > 1 and m.sigma
        else m
        for m in every
    ]


def table_radii(every: Sequence[Measured], choices: Choices) -> list[float]:
    """The radii of the table: those asked for, or round ones up to the largest that any image has."""
    if choices.radii:
        return sorted(set(choices.radii))
    largest = max(float(m.counted.max()) for m in every)
    if not largest:
        return [0.0]
    ones = [float(f"{m}e{k}") for k in range(-6, 7) for m in (1, 2, 5)]
    # Quarters, as in the paper, unless radii are far smaller.
    steps = ones if largest < 0.5 else [0.25, *(s for s in ones if s >= 0.5)]
    step = next((s for s in steps if largest / s < COLUMNS), largest / COLUMNS)
    return [round(step * k, 9) for k in range(int(largest / step) + 1)]


def baseline_of(measured: Measured, every: Sequence[Measured], choices: Choices) -> Measured | None:
    """The model that this one is compared with; None where it is the baseline itself."""
    if choices.baseline:
        named = [m for m in every if m.name == choices.baseline]
        require(
            bool(named),
            f"no model is called {choices.baseline!r}: there are {', '.join(m.name for m in every)}",
        )
        return named[0] if named[0] is not measured else None
    rivals = [m for m in every if m.sigma == measured.sigma and same_data(m, measured)]
    chosen = next((m for m in rivals if m.method == "gaussian"), rivals[0])
    return chosen if chosen is not measured else None


def _views(every: Sequence[Measured], radii: Sequence[float], choices: Choices) -> list[RunView]:
    """All files as the page shows them; their intervals come from the same resamples of the images."""
    baselines = [baseline_of(m, every, choices) for m in every]
    gaps = {
        i: paired_by_image(m, b) for i, (m, b) in enumerate(zip(every, baselines, strict=True)) if b
    }
    compared = {i: gap for i, gap in gaps.items() if gap is not None}
    arrays = [m.counted for m in every] + list(compared.values())
    estimates = means_of(arrays, confidence=choices.confidence)
    acrs, gap_estimates = (
        estimates[: len(every)],
        dict(zip(compared, estimates[len(every) :], strict=True)),
    )
    views = []
    for i, (measured, baseline) in enumerate(zip(every, baselines, strict=True)):
        gap = gap_estimates.get(i)
        versus = (
            Difference(versus=baseline.name, images=len(compared[i]), acr=gap)
            if baseline and gap
            else None
        )
        views.append(view(measured, every, radii, choices, acr=acrs[i], difference=versus))
    return views


def _runner_up(every: Sequence[Measured], choices: Choices) -> Difference | None:
    """How far the best run is ahead of the next, on the images of both."""
    if len(every) < 2:
        return None
    best, second = sorted(every, key=lambda m: float(m.counted.mean()), reverse=True)[:2]
    gaps = paired_by_image(best, second)
    if gaps is None:
        return None
    (gap,) = means_of([gaps], confidence=choices.confidence)
    return Difference(versus=second.name, images=len(gaps), acr=gap)


def view(
    measured: Measured,
    every: Sequence[Measured],
    radii: Sequence[float],
    choices: Choices,
    *,
    acr: Estimate,
    difference: Difference | None,
) -> RunView:
    """One file as the page shows it."""
    how = measured.settings.certification if measured.settings else None
    accuracy = measured.accuracy(radii, confidence=choices.confidence)
    shares = [a.value for a in accuracy]
    # Radii that were rounded up bound nothing.
    sound = how if how and not measured.paper_rounding else None
    bound = (
        accuracy_bound(shares, len(measured), alpha=sound.alpha, rho=choices.rho).tolist()
        if sound
        else None
    )
    return RunView(
        name=measured.name,
        method=measured.method,
        sigma=measured.sigma,
        data=f"{measured.settings.data}, {measured.settings.split}" if measured.settings else "",
        images=len(measured),
        n=how.n if how else None,
        alpha=how.alpha if how else None,
        mode=measured.settings.mode if measured.settings else "",
        acr=acr,
        accuracy=accuracy,
        accuracy_bound=bound,
        abstention=measured.abstention(confidence=choices.confidence),
        difference=difference,
        published=published(measured),
        largest_radius=measured.largest_radius,
        curve=radius_curve(measured, every, radii),
        probabilities=probability_curve(measured),
        histogram=histogram(measured, every),
        training=training(measured),
        settings=settings_shown(measured),
        commands=commands(measured),
        notes=[*(measured.config.notes if measured.config else ()), *measured.notes],
    )


def published(measured: Measured) -> PublishedRow | None:
    """The paper's row beside the run, if it is one of its presets."""
    preset = preset_of(measured)
    if preset is None or preset.published is None:
        return None
    row, cut = preset.published, cuts(measured, preset)
    # One set of runs: the mean over seeds where the paper has it, or else the run of the main table.
    acr, shares = (
        (row.acr, row.accuracy) if row.acr_mean is None else (row.acr_mean, row.accuracy_mean)
    )
    # On some of the images, which ones they are moves the ACR far more than a seed does.
    spread = row.acr_deviation if cut.comparable and not cut.images else None
    away = (paper_acr((measured,)) - acr) / spread if spread else None
    return PublishedRow(
        acr=acr,
        deviation=row.acr_deviation,
        digits=3 if row.acr_mean is None else 4,
        note=preset.note,
        accuracy={radius: percent / 100 for radius, percent in shares.items()},
        deviations_away=away,
        source=row.source,
        caution=", ".join(cut.every),
    )


def _longest(every: Sequence[Measured]) -> float:
    return max(max(m.largest_radius or 0.0, float(m.counted.max())) for m in every) or 1.0


def radius_curve(
    measured: Measured, every: Sequence[Measured], radii: Sequence[float] = ()
) -> Curve:
    """Certified accuracy at every radius that the page's slider can be put to, and at those of the table."""
    longest = _longest(every)
    step = 10.0 ** (math.floor(math.log10(longest)) - 2)
    grid = [round(step * k, 9) for k in range(math.ceil(longest / step) + 2)]
    x = sorted({*grid, *(round(r, 9) for r in radii)})
    return Curve(x=x, y=measured.accuracy_at(x).tolist())


def probability_curve(measured: Measured) -> Curve | None:
    """Share of images that are right with a p_A of at least x; None where no file says."""
    if not np.isfinite(measured.probability[measured.correct]).any():
        return None
    most = 1 - 1 / max((row.n for row in measured.file.rows if row.n), default=FINEST)
    x = [*(1 - np.logspace(math.log10(0.5), math.log10(1 - most), 90)[:-1]).tolist(), most]
    return Curve(x=x, y=measured.probabilities_at(x).tolist())


def histogram(measured: Measured, every: Sequence[Measured]) -> Curve:
    """Shares of all images by radius, wrong ones in no bin."""
    edges = np.linspace(0, _longest(every) * (1 + 1e-9), BINS + 1)
    counts, _ = np.histogram(measured.radius[measured.correct], bins=edges)
    return Curve(x=edges[:-1].tolist(), y=(counts / len(measured)).tolist())


def training(measured: Measured) -> Training | None:
    """The training's course, if the file lies in a run folder."""
    lines = measured.training
    if not lines:
        return None
    parts = sorted({name for line in lines for name in line.get("parts", {})})
    return Training(
        epochs=[int(line.get("epoch", number)) for number, line in enumerate(lines, start=1)],
        **{
            name: [_float(line.get(name)) for line in lines]
            for name in ("loss", "accuracy", "learning_rate")
        },
        parts={name: [_float(line.get("parts", {}).get(name)) for line in lines] for name in parts},
    )


def _float(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) else math.nan


def settings_shown(measured: Measured) -> dict[str, str]:
    """Everything that decided the run and its certificates, as words."""
    shown: dict[str, str] = {"file": str(measured.path)}
    if measured.config:
        config = measured.config
        plain = {k: v for k, v in asdict(config).items() if k not in ("method", "recipe", "notes")}
        every = {
            **plain,
            **{f"method {k}": v for k, v in config.method.items()},
            **asdict(config.recipe),
        }
        shown |= {
            f"training: {k.replace('_', ' ')}": _words(v)
            for k, v in every.items()
            if v not in ("", (), None)
        }
    if measured.settings:
        flat = asdict(measured.settings)
        how, versions = flat.pop("certification"), flat.pop("versions")
        every = {
            **how,
            **flat,
            **{f"{name} version": version for name, version in versions.items()},
        }
        shown |= {
            f"certification: {k.replace('_', ' ')}": _words(v)
            for k, v in every.items()
            if v not in ("", None)
        }
    elif measured.sigma is not None:
        shown["certification: sigma"] = (
            f"{measured.sigma:g} (read off the name of the file or folder)"
        )
    return shown


def _words(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, (tuple, list)) else str(value)
