"""The table of a reproduction: what we have beside what the paper prints, with a verdict for each row. No torch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from smoothmix.analysis import Measured, mean, over_seeds, what_differs
from smoothmix.presets import Preset
from smoothmix.tables import Cell, Column, Grid, Row, mark_improvements, radius_text, rounded
from smoothmix.tables.numbers import DASH

SURE = 3.0
"""A difference counts from so many deviations on."""

PUBLISHED_SEEDS = 5
"""Runs behind the paper's means."""

USUAL_RADII = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Where nothing is published for any row."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Reproduced:
    """One row of the paper and what we have of it."""

    preset: Preset

    runs: tuple[Measured, ...] = ()
    """One a seed; empty if there is none."""

    cuts: tuple[str, ...] = ()
    """What was cut, in words: "30 of 90 epochs", "n 10,000 instead of 100,000", "every 20th image (500)"."""

    judged: bool = True
    """False where a cut (epochs, n) makes a comparison with the published number meaningless."""

    all_images: bool = True
    """Whether every run holds the whole test set; otherwise the choice of images moves the ACR too."""

    main_table: bool = False
    """Compare with the single run of the main table, also where the paper has a mean over seeds."""

    notes: tuple[str, ...] = ()
    """What else a reader of this row must know."""

    @property
    def sigma(self) -> float:
        """The noise that the row was trained with."""
        return float(self.preset.config.method["sigma"])

    @property
    def called(self) -> str:
        """The preset's name without its group, such as `1.00/gaussian`."""
        return self.preset.name.partition("/")[2] + (" (main table)" if self.main_table else "")

    @property
    def word(self) -> str:
        """The same without the noise, which has a column of its own."""
        return self.called.removeprefix(f"{self.sigma:.2f}/")


@dataclass(frozen=True, kw_only=True)
class Target:
    """The published ACR that a row is compared with."""

    acr: float
    deviation: float | None
    """Over the paper's seeds; None where it has none."""
    seeds: int
    """How many runs it is the mean of."""
    digits: int
    """Decimals in print."""


def target(row: Reproduced) -> Target | None:
    """The mean over seeds where the paper has it, otherwise the main table's number; None if nothing is published."""
    published = row.preset.published
    if published is None:
        return None
    if published.acr_mean is None or row.main_table:
        return Target(acr=published.acr, deviation=published.acr_std, seeds=1, digits=3)
    return Target(
        acr=published.acr_mean, deviation=published.acr_std, seeds=PUBLISHED_SEEDS, digits=4
    )


def verdict(row: Reproduced) -> str:
    """Whether the row agrees with the paper, in a few words; why that cannot be said, where it cannot."""
    published = target(row)
    if not row.runs:
        return "no run"
    if not row.judged:
        return ": ".join(part for part in ("not judged", ", ".join(row.cuts)) if part)
    if published is None:
        return "nothing published"
    gap, allowed = difference(row, published), margin(row, published)
    if allowed is None:
        return f"no deviation published: {gap:+z.4f}"
    if abs(gap) <= allowed:
        return "agrees"
    return f"{'higher' if gap > 0 else 'lower'} by {abs(gap):.4f}"


def difference(row: Reproduced, published: Target) -> float:
    """How far our ACR lies above the published one, with our radii rounded as the paper's logs round them."""
    return float(_by_image(row).mean()) - published.acr


def margin(row: Reproduced, published: Target) -> float | None:
    """The difference that chance explains; None where the paper tells nothing of chance.

    Two means over seeds differ by their seeds; where not all images were certified, by the choice of images as well.
    """
    if published.deviation is None:
        return None
    seeds = SURE * published.deviation * math.sqrt(1 / len(row.runs) + 1 / published.seeds)
    return seeds + _half_width(row)


def _half_width(row: Reproduced) -> float:
    """Of the bootstrap interval over images; 0 for the whole test set, which is the paper's as well."""
    if row.all_images:
        return 0.0
    interval = mean(_by_image(row))
    return (interval.high - interval.low) / 2


def _by_image(row: Reproduced) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """The radius of each image as in the paper, mean over seeds, which hold the same images."""
    return np.asarray(np.mean([run.as_in_the_paper().counted for run in row.runs], axis=0))


def reproduction_grid(
    rows: Sequence[Reproduced],
    *,
    title: str,
    radii: Sequence[float] | None = None,
    wide: bool = False,
) -> Grid:
    """Our numbers, the published ones, what lies between them in seed deviations, and a verdict for each row.

    `wide` gives deviations columns of their own, for programs; otherwise they stand behind their means. Without
    `radii`, certified accuracies stand at the paper's own.
    """
    at = tuple(paper_radii(rows) if radii is None else radii)
    plain = tuple(_line(row, at, wide=wide) for row in rows)
    grid = mark_improvements(
        Grid(title=title, columns=_columns(at, wide=wide), rows=plain, notes=_notes(rows))
    )
    # A single run is not held against the means over seeds of the other rows.
    lines = (
        line if row.main_table else best
        for row, line, best in zip(rows, plain, grid.rows, strict=True)
    )
    return replace(grid, rows=tuple(lines))


def paper_radii(rows: Sequence[Reproduced]) -> list[float]:
    """The radii of the paper's table over seeds if every row has several, otherwise those of its main table."""
    published = [row.preset.published for row in rows if row.preset.published is not None]
    several = all(len(row.runs) > 1 for row in rows if row.runs) and any(row.runs for row in rows)
    over = (
        [p.accuracy_mean for p in published]
        if several and all(p.accuracy_mean for p in published)
        else []
    )
    return sorted(
        {radius for columns in over or [p.accuracy for p in published] for radius in columns}
        or USUAL_RADII
    )


def _columns(at: Sequence[float], *, wide: bool) -> tuple[Column, ...]:
    def pair(name: str, key: str, deviation: str, *, judged: bool) -> tuple[Column, ...]:
        columns = Column(name=name, key=key, judged=judged), Column(name="deviation", key=deviation)
        return columns if wide else columns[:1]

    accuracy = [
        pair(text, f"accuracy_{text}", f"accuracy_{text}_deviation", judged=True)
        for text in map(radius_text, at)
    ]
    return (
        Column(name="row", key="row"),
        Column(name="σ", key="sigma"),
        Column(name="seeds", key="seeds"),
        *pair("ACR", "acr", "acr_std", judged=True),
        *pair("published ACR", "published_acr", "published_deviation", judged=False),
        Column(name="difference in deviations", key="difference_in_deviations"),
        Column(name="verdict", key="verdict"),
        *(column for columns in accuracy for column in columns),
    )


def _line(row: Reproduced, at: Sequence[float], *, wide: bool) -> Row:
    ours, published, said = (
        over_seeds(row.runs, at=at) if row.runs else None,
        target(row),
        verdict(row),
    )
    acr = (ours.acr, ours.acr_std) if ours else (None, None)
    printed = (published.acr, published.deviation) if published else (None, None)
    shares = (
        zip(ours.accuracy, ours.accuracy_std, strict=True) if ours else [(None, None)] * len(at)
    )
    cells = (
        Cell(row.word),
        Cell(rounded(row.sigma, 2)),
        Cell(len(row.runs)),
        *_pair(*acr, digits=4, wide=wide),
        *_pair(
            *printed, digits=published.digits if published else 4, deviation_digits=4, wide=wide
        ),
        _away(row, published),
        Cell(said),
        *(cell for share in shares for cell in _pair(*map(_percent, share), digits=2, wide=wide)),
    )
    config = row.preset.config
    return Row(cells=cells, method=str(config.method["name"]), sigma=row.sigma, data=config.data)


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _pair(
    value: float | None,
    deviation: float | None,
    *,
    digits: int,
    deviation_digits: int | None = None,
    wide: bool,
) -> tuple[Cell, ...]:
    """A mean and its deviation, in two cells or in one; text also for programs, so that zeros at the end are kept."""
    mean_cell = _number(value, digits)
    deviation_cell = _number(deviation, deviation_digits or digits)
    if wide:
        return mean_cell, deviation_cell
    if deviation is None:
        return (mean_cell,)
    return (replace(mean_cell, suffix=f" ± {deviation_cell.shown}"),)


def _number(value: float | None, digits: int, form: str = "") -> Cell:
    if value is None:
        return Cell(text=DASH)
    return Cell(rounded(value, digits), form)


def _away(row: Reproduced, published: Target | None) -> Cell:
    if (
        not row.runs
        or not row.judged
        or not row.all_images
        or published is None
        or not published.deviation
    ):
        return Cell(text=DASH)
    return _number(difference(row, published) / published.deviation, 1, "+")


def _notes(rows: Sequence[Reproduced]) -> tuple[str, ...]:
    """Everything that a reader must know: first what holds for the whole table, then what is said of single rows."""
    runs = [run for row in rows for run in row.runs]
    cuts = ((row.called, f"cut: {', '.join(row.cuts)}") for row in rows if row.cuts)
    unseen = ((row.called, text) for row in rows if (text := _unseen(row)))
    # What the method was set to stands beside every number: another epsilon or m may turn a comparison round.
    of_rows = (
        (row.called, text)
        for row in rows
        for text in (row.preset.about, row.preset.note, *row.notes)
        if text
    )
    of_files = ((run.name, text) for run in runs for text in run.notes)
    return (
        *_grouped(cuts, len(rows)),
        *_rules(rows, runs),
        *_differences(rows),
        *_grouped(unseen, len(rows)),
        *_grouped(of_rows, len(rows)),
        *_grouped(of_files, len(runs)),
    )


def _rules(rows: Sequence[Reproduced], runs: Sequence[Measured]) -> list[str]:
    said = ["certified accuracies are in percent"]
    if any(run.paper_rounding for run in runs):
        said.append(
            "radii are rounded to nearest at three digits, as in the paper's logs, which is not sound"
        )
    elif runs:
        said.append(
            "no radius is rounded up; difference and verdict alone are of radii rounded as in the paper's logs"
        )
    if any(len(row.runs) > 1 for row in rows):
        said.append("deviations over seeds have n - 1 in the denominator")
    targets = [found for row in rows if row.runs and row.judged and (found := target(row))]
    if any(found.deviation for found in targets):
        said.append(
            f"a row agrees within {SURE:g} published deviations times sqrt(1/seeds + 1/{PUBLISHED_SEEDS}) of a mean, "
            "or sqrt(1/seeds + 1) of a single run"
        )
    if any(found.digits == 3 for found in targets):
        said.append(
            "single runs are published with three digits: 0.0005 of a difference from them may be rounding"
        )
    return said


def _unseen(row: Reproduced) -> str:
    """How large a difference a row on part of the images cannot show; empty where nothing of it is judged."""
    published = target(row)
    if row.all_images or not (row.runs and row.judged and published):
        return ""
    allowed = margin(row, published)
    return (
        f"on {len(row.runs[0]):,} images a difference below {allowed:.4f} is not seen"
        if allowed
        else ""
    )


def _differences(rows: Sequence[Reproduced]) -> list[str]:
    """What sets rows of one noise apart; the runs of one row are alike, or they could not have been averaged."""
    first: dict[float, list[Measured]] = {}
    for row in rows:
        first.setdefault(row.sigma, []).extend(
            replace(run, name=row.called) for run in row.runs[:1]
        )
    return [
        f"not to be compared as they stand: {found}"
        for group in first.values()
        for found in what_differs(group)
    ]


def _grouped(said: Iterable[tuple[str, str]], everything: int) -> list[str]:
    """Each text once: first what is said of everything, then the others behind the names they are said of."""
    names: dict[str, list[str]] = {}
    for name, text in said:
        names.setdefault(text, []).append(name)
    shared = [text for text, of in names.items() if len(of) == everything > 1]
    return shared + [f"{', '.join(of)}: {text}" for text, of in names.items() if text not in shared]
