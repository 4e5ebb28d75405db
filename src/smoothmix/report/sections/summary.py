"""The table of all runs, with bounds for the whole data set and the published numbers below it."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from smoothmix._io.text import counted
from smoothmix.analysis import Estimate
from smoothmix.analysis.draws import Origin
from smoothmix.report.comparison import Comparison
from smoothmix.report.section import Section, Table
from smoothmix.report.summary_grid import names_by_text
from smoothmix.report.views import PublishedRow, RunView, base_name
from smoothmix.tables import Cell, Column, Grid, Row
from smoothmix.tables.numbers import DASH, number, percent, radius

TEXT = (
    "ACR is the average certified radius; certified accuracy is the share of images, in percent, "
    "that are classified correctly and certified at the radius or a larger one."
)
MOST_SIGMAS = 5
"""No log of unknown n reaches further than this, in sigmas: a million draws reach 4.5."""

ROUNDED = " Radii are rounded as in the paper's logs, which may round them up."


@dataclass(frozen=True, kw_only=True)
class Block:
    """The rows of one sigma, with what is marked among them."""

    runs: Sequence[tuple[int, RunView]]
    """Positions in the comparison, and the runs."""
    reached: Sequence[bool]
    """Whether any run of the block certified an image at each radius, or could have."""
    best_acr: Collection[int]
    """Positions of the runs with the highest ACR among those certified alike."""
    best: Sequence[Collection[int]]
    """The same for certified accuracy at each radius."""
    names_baselines: bool
    """Whether each difference says what it is from: not if one row of the block is the baseline."""


def blocks(comparison: Comparison) -> list[Block]:
    """The table's blocks, one per sigma."""
    found = []
    for sigma in comparison.by_sigma:
        runs = [(at, run) for at, run in enumerate(comparison.runs) if run.sigma == sigma]
        best = []
        reached = []
        for column in range(len(comparison.radii)):
            shares = {at: percent(run.accuracy[column].value) for at, run in runs}
            best.append(_best(runs, {at: float(text) for at, text in shares.items()}))
            reached.append(_is_reached(runs, comparison.radii, column))
        acrs = {at: round(run.acr.value, 3) for at, run in runs}
        block = Block(
            runs=runs,
            reached=reached,
            best_acr=_best(runs, acrs),
            best=best,
            names_baselines=_has_several_baselines(runs),
        )
        found.append(block)
    return found


def _has_several_baselines(runs: Sequence[tuple[int, RunView]]) -> bool:
    """Whether the runs of a block are compared with several others, or one of another block."""
    names = {run.name for _, run in runs}
    baselines = {run.difference.versus for _, run in runs if run.difference is not None}
    return len(baselines) > 1 or not baselines <= names


def _best(runs: Sequence[tuple[int, RunView]], values: Mapping[int, float]) -> set[int]:
    """The positions with the highest value, as printed, of each group of several runs."""
    groups: dict[int, list[int]] = {}
    for at, run in runs:
        groups.setdefault(run.group, []).append(at)
    best = set()
    for members in groups.values():
        highest = max(values[at] for at in members)
        # What nobody certified, and what all share, distinguishes nobody.
        leaders = [at for at in members if values[at] == highest > 0]
        if len(leaders) < len(members):
            best.update(leaders)
    return best


def _has_dashes(made: Sequence[Block], radii: Sequence[float]) -> bool:
    """Whether a run cannot reach a radius that another one of its sigma reaches."""
    for block in made:
        for _, run in block.runs:
            shares = run.accuracy_within_reach(radii)
            for share, reached in zip(shares, block.reached, strict=True):
                if reached and share is None:
                    return True
    return False


def _is_reached(runs: Sequence[tuple[int, RunView]], radii: Sequence[float], column: int) -> bool:
    certified = any(run.accuracy[column].value > 0 for _, run in runs)
    return certified or any(radii[column] <= _furthest(run) for _, run in runs)


def _furthest(run: RunView) -> float:
    """The largest radius that the run could have certified."""
    if run.largest_radius is not None:
        return run.largest_radius
    if run.sigma is None:
        return math.inf
    return MOST_SIGMAS * run.sigma


def summary(comparison: Comparison) -> Section:
    """The summary section; assets/summary.html lays out its main table, which can be sorted."""
    tables = []
    # Cohen-style logs do not record alpha, which the bounds need.
    bounds_known = any(run.accuracy_bound for run in comparison.runs)
    if comparison.radii and bounds_known:
        tables.append(_bounds(comparison))
    if comparison.published:
        tables.append(_published(comparison))
    text = TEXT + _images_sentence(comparison.runs) + _noise_sentence(comparison.runs)
    if comparison.paper_rounding:
        text += ROUNDED
    return Section(
        id="summary",
        title="Summary",
        text=text,
        template="summary.html",
        values=_values(comparison),
        tables=tables,
    )


def _values(comparison: Comparison) -> dict[str, Any]:
    acrs = []
    differences = []
    baselines = set()
    short_baselines = set()
    cautions = []
    distances_known = False
    for run in comparison.runs:
        acrs.append(run.acr)
        if run.difference is not None:
            differences.append(run.difference.acr)
            baselines.add(run.difference.versus)
            short_baselines.add(base_name(run.difference.versus, run.sigma))
        if run.published is not None:
            cautions.append((run.name, run.published.caution))
            distances_known = distances_known or run.published.deviations_away is not None
    made = blocks(comparison)
    return {
        "radii": comparison.radii,
        "blocks": made,
        "marked": any(block.best_acr for block in made),
        "out_of_reach": _has_dashes(made, comparison.radii),
        "blanks": any(False in block.reached for block in made),
        "baselines": baselines,
        # Usually one method at every sigma, which is then named once.
        "short_baselines": short_baselines,
        # One number for all stands in the text.
        "images_differ": len({run.images for run in comparison.runs}) > 1,
        "abstention_known": comparison.abstention_known,
        "published": bool(comparison.published),
        "distances_known": distances_known,
        # Runs with the same caution share its footnote.
        "cautions": names_by_text(cautions),
        "differing": _differing_settings(comparison.runs),
        # 0 belongs on the scale of differences: which side of it an interval lies is the question.
        "acr_scale": scale(acrs),
        "difference_scale": scale(differences, including=[0.0]),
    }


def _differing_settings(runs: Sequence[RunView]) -> list[str]:
    """Those of n and alpha that have a column: runs differ in them, or do not record them."""
    differing = []
    for name in ("n", "alpha"):
        # One value may be recorded here and inferred there, which a reader must see.
        known = {(getattr(run, name), run.origin) for run in runs}
        if len(known) > 1 or runs_are_logs(runs):
            differing.append(name)
    return differing


def runs_are_logs(runs: Sequence[RunView]) -> bool:
    """Whether n and alpha of some run are no more than a guess, or not even that."""
    return any(run.origin in (Origin.INFERRED, Origin.UNKNOWN) for run in runs)


def _images_sentence(runs: Sequence[RunView]) -> str:
    """How many images all runs have; where it differs, the table has a column for it."""
    counts = {run.images for run in runs}
    if len(counts) != 1:
        return ""
    whose = "Each run has" if len(runs) > 1 else "The run has"
    return f" {whose} {counted(counts.pop(), 'image')}."


def _noise_sentence(runs: Sequence[RunView]) -> str:
    """Which noise certified which run."""
    names = names_by_text((run.name, run.noise) for run in runs)
    texts = []
    for noise, files in names.items():
        whose = "" if len(names) == 1 else f" for {', '.join(files)}"
        texts.append(f"{noise}{whose}")
    if not texts:
        return ""
    return f" Certified with {'; '.join(texts)}."


def scale(estimates: Iterable[Estimate], *, including: Iterable[float] = ()) -> tuple[float, float]:
    """The range that holds these intervals and numbers, for the small bars of a column."""
    ends = list(including)
    for estimate in estimates:
        ends += filter(math.isfinite, (estimate.low, estimate.high))
    if not ends:
        return 0.0, 1.0
    low = min(ends)
    high = max(ends)
    # Equal numbers may differ by rounding, which is nothing to draw.
    if high - low <= 1e-9 * max(abs(low), abs(high)):
        return low - 0.5, low + 0.5
    return low, high


def _radius_columns(comparison: Comparison) -> list[Column]:
    return [Column(name=f"{at:g}", key=f"accuracy_{at:g}") for at in comparison.radii]


def _bounds(comparison: Comparison) -> Table:
    """Lower bounds of certified accuracy that allow for wrong certificates."""
    rows = []
    notes = []
    for run in comparison.runs:
        if run.accuracy_bound is None:
            cells = [Cell(text=DASH)] * len(comparison.radii)
            notes = [f"A dash ({DASH}): alpha is not recorded."]
        else:
            # A bound must still hold as printed, so it is cut like a radius.
            cells = [Cell(share, text=radius(100 * share, 1)) for share in run.accuracy_bound]
        rows.append(Row(cells=(Cell(run.name), *cells)))
    columns = (Column(name="Model", key="model"), *_radius_columns(comparison))
    confidence = f"{100 * (1 - comparison.rho):g}%"
    return Table(
        grid=Grid(title="Lower bounds", columns=columns, rows=tuple(rows), notes=tuple(notes)),
        heading="Bounds for all of these images",
        text="A certificate may be wrong with a small probability alpha. Even so, with confidence "
        f"{confidence} the share of these images that are truly robust at the radius is at least "
        "(in percent; Cohen et al., 2019):",
        runs=range(len(rows)),
    )


def _published(comparison: Comparison) -> Table:
    """Each run above the paper's row for its preset."""
    rows = []
    runs = []
    for position, run in enumerate(comparison.runs):
        if run.published is None:
            continue
        rows += _run_and_published(comparison, run, run.published)
        runs += [position, position]
    columns = (
        Column(name="Model", key="model"),
        Column(name="Source", key="source"),
        Column(name="ACR", key="acr"),
        *_radius_columns(comparison),
    )
    return Table(
        grid=Grid(title="Published numbers", columns=columns, rows=tuple(rows)),
        heading="Beside the published numbers",
        runs=runs,
    )


def _run_and_published(comparison: Comparison, run: RunView, paper: PublishedRow) -> list[Row]:
    ours = [Cell(run.name), Cell("this run")]
    ours.append(Cell(run.acr.value, text=number(run.acr.value, 4)))
    for share in run.accuracy_within_reach(comparison.radii):
        value = None if share is None else share.value
        ours.append(Cell(value, text=percent(value)))
    source = paper.source
    if paper.note:
        source += f": {paper.note}"
    # The name stands once for both rows.
    theirs = [Cell(), Cell(source)]
    theirs.append(Cell(paper.acr, text=number(paper.acr, paper.digits)))
    for at in comparison.radii:
        value = paper.accuracy_at(at)
        theirs.append(Cell(value, text=percent(value)))
    return [Row(cells=tuple(ours)), Row(cells=tuple(theirs))]
