"""Certificate files side by side: the numbers that the table, the headline and the page share."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from smoothmix.analysis import (
    Estimate,
    Measured,
    accuracy_bound,
    comparable_groups,
    means_of,
    paired_by_image,
    same_data,
    warnings_about,
)
from smoothmix.analysis.draws import Origin
from smoothmix.analysis.intervals import CONFIDENCE, require_confidence
from smoothmix.config import require
from smoothmix.noise import GAUSSIAN, Noise
from smoothmix.report.commands import commands
from smoothmix.report.curves import (
    histogram,
    multiples,
    probability_curve,
    radius_curve,
    training_curves,
)
from smoothmix.report.published import published_row
from smoothmix.report.settings import settings_by_group
from smoothmix.report.views import (
    Difference,
    PublishedRow,
    RunView,
    series_name,
    sigma_suffix,
)

GAUSSIAN_TRAINING = "gaussian"

MOST_COLUMNS = 8
"""Radii in a table, unless others are requested."""


@dataclass(frozen=True, kw_only=True)
class Choices:
    """What a comparison shows."""

    radii: Sequence[float] = ()
    """Radii of the table's columns; empty for round ones up to the largest certified radius."""
    baseline: str = ""
    """Name of the run that others are compared with, at each sigma the one of that name; by default
    Gaussian training at that sigma."""
    gaussian: Sequence[str] = ()
    """Names of logs that are Gaussian training, which logs do not record."""
    confidence: float = CONFIDENCE
    """Of the intervals over images."""
    rho: float = 0.001
    """Probability that a lower bound on certified accuracy is too high."""

    def __post_init__(self) -> None:
        require_confidence(self.confidence)
        require(0 < self.rho < 1, f"rho must lie strictly between 0 and 1, got {self.rho}")
        valid = all(math.isfinite(radius) and radius >= 0 for radius in self.radii)
        require(valid, "radii must be zero or more")


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Runs with all numbers that are shown of them."""

    title: str
    radii: Sequence[float]
    """Radii of the table's columns."""
    confidence: float
    """Of the intervals over images."""
    rho: float
    """Probability that a run's `accuracy_bound` is too high."""
    paper_rounding: bool
    """Whether radii were rounded to nearest, as in the paper's logs."""
    warnings: Sequence[str]
    """What a reader must know before the numbers."""
    runs: Sequence[RunView]
    measured: Sequence[Measured] = ()
    """The certificate files behind `runs`, in the same order."""
    data_dir: Path | None = None
    """Folder of the data set, for sections that show images."""
    runners_up: Mapping[int, Difference] = field(default_factory=dict)
    """By group: the lead of the highest ACR over the second, where the two share images."""

    @property
    def comparable(self) -> bool:
        """Whether the runs of each noise level were certified alike on the same images."""
        return all(len(self.ranked(sigma)) == len(runs) for sigma, runs in self.by_sigma.items())

    def ranked(self, sigma: float | None) -> list[RunView]:
        """The largest group of runs of a noise level that may be ranked, the best first."""
        groups: dict[int, list[RunView]] = {}
        for run in self.by_sigma[sigma]:
            groups.setdefault(run.group, []).append(run)
        # Groups are numbered by their size.
        largest = groups[min(groups)]
        return sorted(largest, key=lambda run: run.acr.value, reverse=True)

    @property
    def norm(self) -> str:
        """The norm of the radii, for axes: L2, or several where runs differ."""
        norms = dict.fromkeys(run.norm for run in self.runs)
        return " or ".join(norms)

    @property
    def styles(self) -> list[tuple[int, int]]:
        """The number of each run's colour and marker, and that of its dash.

        A method has one colour and marker at every sigma, whose lines differ by their dash.
        """
        looks: dict[str, int] = {}
        sigmas = list(self.by_sigma)
        found = []
        for run in self.runs:
            look = looks.setdefault(series_name(run.name, run.sigma), len(looks))
            # At one sigma the dash distinguishes methods, too.
            dash = look if len(sigmas) == 1 else sigmas.index(run.sigma)
            found.append((look, dash))
        return found

    @property
    def differences(self) -> list[Difference]:
        """The differences from baselines, of the runs that have one."""
        return [run.difference for run in self.runs if run.difference]

    @property
    def published(self) -> list[PublishedRow]:
        """The paper's rows, of the runs that have one."""
        return [run.published for run in self.runs if run.published]

    @property
    def abstention_known(self) -> bool:
        """Whether any run measured how often it abstains."""
        return any(run.abstention for run in self.runs)

    @property
    def out_of_reach(self) -> bool:
        """Whether a column has a radius that some run could not have certified for any image."""
        return any(None in run.accuracy_within_reach(self.radii) for run in self.runs)

    @property
    def by_sigma(self) -> dict[float | None, list[RunView]]:
        """The runs of each noise level, in the order of their first run."""
        levels: dict[float | None, list[RunView]] = {}
        for run in self.runs:
            levels.setdefault(run.sigma, []).append(run)
        return levels


def compare_runs(
    every: Sequence[Measured],
    choices: Choices | None = None,
    *,
    title: str,
    data_dir: Path | None = None,
) -> Comparison:
    """Everything that is shown of these certificate files."""
    choices = choices or Choices()
    # By name across sigmas, and so before the sigma becomes a part of the name.
    every = _with_roles(every, choices)
    every = _with_unique_names(every)
    radii = table_radii(every, choices)

    groups = comparable_groups(every)
    runners_up = _leads_over_second(groups, choices)

    return Comparison(
        title=title,
        radii=radii,
        confidence=choices.confidence,
        rho=choices.rho,
        paper_rounding=any(measured.paper_rounding for measured in every),
        warnings=warnings_about(every),
        runs=_views(every, groups, radii, choices),
        measured=every,
        data_dir=data_dir,
        runners_up=runners_up,
    )


def _name(measured: Measured) -> str:
    return measured.name


def _with_unique_names(every: Sequence[Measured]) -> list[Measured]:
    """The files with their sigma in the name where several share a name."""
    counts = Counter(map(_name, every))
    renamed = []
    for measured in every:
        if counts[measured.name] > 1 and measured.sigma:
            measured = replace(measured, name=measured.name + sigma_suffix(measured.sigma))
        renamed.append(measured)
    return renamed


def table_radii(every: Sequence[Measured], choices: Choices) -> list[float]:
    """The radii of the table: the requested ones, or round ones up to the largest of any image."""
    if choices.radii:
        return sorted(set(choices.radii))
    largest = max(float(measured.counted.max()) for measured in every)
    # Nothing is certified at any radius beyond 0.
    if not largest:
        return [0.0]
    return multiples(_round_step(largest), up_to=largest)


def _round_step(largest: float) -> float:
    """The smallest of 1, 2, 5 times a power of ten that gives few enough columns."""
    # Quarters come first, as in the paper.
    if 0.5 <= largest < 0.25 * MOST_COLUMNS:
        return 0.25
    for power in range(-6, 7):
        for digit in (1, 2, 5):
            # From text, since 1e-3 is no exact product of 10s.
            step = float(f"{digit}e{power}")
            if largest / step < MOST_COLUMNS:
                return step
    return largest / MOST_COLUMNS


def _with_roles(every: Sequence[Measured], choices: Choices) -> list[Measured]:
    """The files with what the choices say of them: which are baselines, and which Gaussian."""
    # Each once, in the order of the files.
    names = dict.fromkeys(map(_name, every))
    for name in filter(None, (choices.baseline, *choices.gaussian)):
        require(name in names, f"no model is called {name!r}: there are {', '.join(names)}")
    found = []
    for measured in every:
        source = measured.source
        # Chosen baselines replace those that a file of runs states.
        if choices.baseline:
            source = replace(source, baseline=measured.name == choices.baseline)
        if measured.name in choices.gaussian:
            source = replace(source, method=GAUSSIAN_TRAINING)
        found.append(replace(measured, source=source))
    return found


def baseline_of(measured: Measured, every: Sequence[Measured]) -> Measured | None:
    """The run that this one is compared with; None where it is the baseline itself."""
    chosen = [other for other in every if other.source.baseline]
    baseline = _at_same_sigma(measured, chosen)
    # A single chosen baseline stands for all sigmas.
    if baseline is None and len(chosen) == 1:
        baseline = chosen[0]
    if baseline is None and not chosen:
        baseline = _default_baseline(measured, every)
    if baseline is measured:
        return None
    return baseline


def _at_same_sigma(measured: Measured, chosen: Sequence[Measured]) -> Measured | None:
    for other in chosen:
        if other.sigma == measured.sigma:
            return other
    return None


def _default_baseline(measured: Measured, every: Sequence[Measured]) -> Measured:
    """Gaussian training at the same sigma on the same data, or else the first such run."""
    rivals = []
    for other in every:
        if other.sigma == measured.sigma and same_data(other, measured):
            rivals.append(other)
    for rival in rivals:
        if rival.method == GAUSSIAN_TRAINING:
            return rival
    return rivals[0]


def _views(
    every: Sequence[Measured],
    groups: Sequence[Sequence[Measured]],
    radii: Sequence[float],
    choices: Choices,
) -> list[RunView]:
    arrays = []
    baselines = {}
    gaps = {}
    for position, measured in enumerate(every):
        arrays.append(measured.counted)
        baseline = baseline_of(measured, every)
        if baseline is None:
            continue
        by_image = paired_by_image(measured, baseline)
        # Too few images in common say nothing about the difference.
        if by_image is not None:
            baselines[position] = baseline
            gaps[position] = by_image

    # One call for all of them: arrays of one length share their bootstrap resamples.
    estimates = means_of([*arrays, *gaps.values()], confidence=choices.confidence)
    acrs = estimates[: len(every)]
    differences: dict[int, Difference] = {}
    for position, gap in zip(gaps, estimates[len(every) :], strict=True):
        versus = baselines[position].name
        differences[position] = Difference(versus=versus, images=len(gaps[position]), acr=gap)

    group_of = {}
    for number, files in enumerate(groups):
        for measured in files:
            group_of[id(measured)] = number
    views = []
    for position, measured in enumerate(every):
        difference = differences.get(position)
        view = _view(measured, every, radii, choices, acr=acrs[position], difference=difference)
        views.append(replace(view, group=group_of[id(measured)]))
    return views


def _leads_over_second(
    groups: Sequence[Sequence[Measured]], choices: Choices
) -> dict[int, Difference]:
    """By group: how far the highest ACR lies above the second, on the images of both."""
    seconds = {}
    gaps = {}
    for number, files in enumerate(groups):
        if len(files) < 2:
            continue
        ranked = sorted(files, key=lambda measured: float(measured.counted.mean()), reverse=True)
        # The baseline need not be the second, which is the rival that matters most.
        best, second = ranked[:2]
        by_image = paired_by_image(best, second)
        if by_image is not None:
            seconds[number] = second
            gaps[number] = by_image
    # One call for all groups: most have the same number of images, and share their resamples.
    estimates = means_of(list(gaps.values()), confidence=choices.confidence)
    leads = {}
    for number, gap in zip(gaps, estimates, strict=True):
        images = len(gaps[number])
        leads[number] = Difference(versus=seconds[number].name, images=images, acr=gap)
    return leads


def _view(
    measured: Measured,
    every: Sequence[Measured],
    radii: Sequence[float],
    choices: Choices,
    *,
    acr: Estimate,
    difference: Difference | None,
) -> RunView:
    accuracy = measured.accuracy(radii, confidence=choices.confidence)
    notes = list(measured.notes)
    if measured.config:
        notes = [*measured.config.notes, *notes]
    # Cohen-style logs do not record how they were made.
    data = measured.source.data
    mode = ""
    draws_vary = False
    noise: Noise = GAUSSIAN
    if measured.settings:
        settings = measured.settings
        data = f"{settings.data}, {settings.split}"
        mode = settings.guarantee.mode
        draws_vary = settings.guarantee.holds_at_any_time
        noise = settings.certification.noise
    return RunView(
        name=measured.name,
        method=measured.method,
        sigma=measured.sigma,
        data=data,
        images=len(measured),
        n=measured.draws.n,
        alpha=measured.draws.alpha,
        origin=measured.draws.origin,
        mode=mode,
        draws_vary=draws_vary,
        norm=noise.norm,
        noise=noise.description,
        acr=acr,
        accuracy=accuracy,
        accuracy_bound=_accuracy_bound(measured, accuracy, rho=choices.rho),
        abstention=measured.abstention(confidence=choices.confidence),
        difference=difference,
        published=published_row(measured),
        largest_radius=measured.largest_radius,
        curve=radius_curve(measured, every, radii),
        probabilities=probability_curve(measured),
        histogram=histogram(measured, every),
        training=training_curves(measured),
        settings=settings_by_group(measured),
        commands=commands(measured),
        notes=notes,
    )


def _accuracy_bound(
    measured: Measured, accuracy: Sequence[Estimate], *, rho: float
) -> list[float] | None:
    # Radii that were rounded up bound nothing, and neither does a guess at alpha.
    alpha = measured.draws.alpha
    guessed = measured.draws.origin not in (Origin.RECORDED, Origin.STATED)
    if alpha is None or guessed or measured.paper_rounding:
        return None
    shares = [share.value for share in accuracy]
    return list(map(float, accuracy_bound(shares, len(measured), alpha=alpha, rho=rho)))
