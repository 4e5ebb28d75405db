"""The table of a reproduction: our numbers, the paper's, and a verdict for each row. No torch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from smoothmix.analysis import Measured, mean, over_seeds, what_differs
from smoothmix.presets import Preset
from smoothmix.tables import Cell, Column, Grid, Row, mark_improvements, radius_text, rounded
from smoothmix.tables.numbers import DASH

ALLOWED_STDS = 3.0
"""Standard deviations from which on a difference counts."""

PUBLISHED_SEEDS = 5
"""Runs behind the paper's means."""

DEFAULT_RADII = (0.0, 0.25, 0.5, 0.75, 1.0)
"""For rows without published numbers."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Reproduced:
    """One row of the paper, and our runs of it."""

    preset: Preset

    runs: tuple[Measured, ...] = ()
    """One per seed; may be empty."""

    cuts: tuple[str, ...] = ()
    """What was cut, in words: "30 of 90 epochs", "n 10,000 instead of 100,000", "every 20th image
    (500)"."""

    judged: bool = True
    """False where a cut (epochs, n) makes a comparison with the published number meaningless."""

    all_images: bool = True
    """Whether every run has the whole test set; otherwise the choice of images affects the ACR."""

    main_table: bool = False
    """Compare with the single run of the main table, even if the paper has a mean over seeds."""

    notes: tuple[str, ...] = ()
    """What else a reader of this row must know."""

    @property
    def sigma(self) -> float:
        """Standard deviation of the noise in training."""
        return float(self.preset.config.method["sigma"])

    @property
    def called(self) -> str:
        """The preset's name without its group, such as `1.00/gaussian`."""
        _, _, name = self.preset.name.partition("/")
        if self.main_table:
            name += " (main table)"
        return name

    @property
    def title(self) -> str:
        """The same without sigma, which has its own column."""
        return self.called.removeprefix(f"{self.sigma:.2f}/")


@dataclass(frozen=True, kw_only=True)
class Target:
    """The published ACR that a row is compared with."""

    acr: float
    std: float | None
    """Standard deviation over the paper's seeds; None where it has none."""
    seeds: int
    """How many runs it is the mean of."""
    digits: int
    """Decimals in print."""


def target(row: Reproduced) -> Target | None:
    """The mean over seeds if the paper has one, else the main table's number; None for neither."""
    published = row.preset.published
    if published is None:
        return None
    if published.acr_mean is None or row.main_table:
        return Target(acr=published.acr, std=published.acr_std, seeds=1, digits=3)
    return Target(acr=published.acr_mean, std=published.acr_std, seeds=PUBLISHED_SEEDS, digits=4)


def verdict(row: Reproduced) -> str:
    """Whether the row agrees with the paper, in a few words, or why that is not known."""
    published = target(row)
    if not row.runs:
        return "no run"
    if not row.judged and not row.cuts:
        return "not judged"
    if not row.judged:
        return f"not judged: {', '.join(row.cuts)}"
    if published is None:
        return "nothing published"
    # The sign is shown even without a margin: readers judge by it.
    gap = difference(row, published)
    allowed = margin(row, published)
    if allowed is None:
        return f"no deviation published: {gap:+z.4f}"
    if abs(gap) <= allowed:
        return "agrees"
    if gap > 0:
        return f"higher by {gap:.4f}"
    return f"lower by {-gap:.4f}"


def difference(row: Reproduced, published: Target) -> float:
    """Our ACR minus the published one, with our radii rounded as in the paper's logs."""
    return float(_radii_by_image(row).mean()) - published.acr


def margin(row: Reproduced, published: Target) -> float | None:
    """The difference that chance explains; None if the paper has no standard deviation.

    Two means over seeds differ by their seeds; where not all images were certified, also by the
    choice of images.
    """
    if published.std is None:
        return None
    seeds = ALLOWED_STDS * published.std * math.sqrt(1 / len(row.runs) + 1 / published.seeds)
    return seeds + _half_width(row)


def _half_width(row: Reproduced) -> float:
    """Half of the bootstrap interval over images; 0 for the whole test set, which the paper has."""
    if row.all_images:
        return 0.0
    interval = mean(_radii_by_image(row))
    return (interval.high - interval.low) / 2


def _radii_by_image(row: Reproduced) -> NDArray[np.float64]:
    """The radius of each image as in the paper, mean over seeds, which have the same images."""
    by_seed = [run.as_in_the_paper().counted for run in row.runs]
    return np.asarray(np.mean(by_seed, axis=0))


def reproduction_grid(
    rows: Sequence[Reproduced],
    *,
    title: str,
    radii: Sequence[float] | None = None,
    wide: bool = False,
) -> Grid:
    """Our numbers, the published ones, their difference in standard deviations, and the verdict.

    `wide` gives standard deviations their own columns, for programs; otherwise they follow their
    means. Without `radii`, certified accuracies are at the paper's.
    """
    if radii is None:
        radii = paper_radii(rows)
    plain = tuple(_table_row(row, radii, wide=wide) for row in rows)
    columns = _columns(radii, wide=wide)
    grid = mark_improvements(Grid(title=title, columns=columns, rows=plain, notes=_notes(rows)))
    table_rows = []
    for row, unmarked, marked in zip(rows, plain, grid.rows, strict=True):
        # A single run is not compared with the means over seeds of the other rows.
        if row.main_table:
            table_rows.append(unmarked)
        else:
            table_rows.append(marked)
    return replace(grid, rows=tuple(table_rows))


def paper_radii(rows: Sequence[Reproduced]) -> list[float]:
    """The radii of the paper's table over seeds if all rows have several, else the main table's."""
    # The two tables of the paper have different radii.
    published = [row.preset.published for row in rows if row.preset.published is not None]
    run_counts = [len(row.runs) for row in rows if row.runs]
    several_seeds = bool(run_counts) and min(run_counts) > 1
    radii: set[float] = set()
    if several_seeds and all(numbers.accuracy_mean for numbers in published):
        for numbers in published:
            radii.update(numbers.accuracy_mean)
    else:
        for numbers in published:
            radii.update(numbers.accuracy)
    return sorted(radii or DEFAULT_RADII)


def _columns(radii: Sequence[float], *, wide: bool) -> tuple[Column, ...]:
    # Keys with `deviation` are those of CSV files that exist.
    columns = [
        Column(name="row", key="row"),
        Column(name="σ", key="sigma"),
        Column(name="seeds", key="seeds"),
        *_mean_and_std_columns("ACR", "acr", "acr_deviation", wide=wide, judged=True),
        *_mean_and_std_columns("published ACR", "published_acr", "published_deviation", wide=wide),
        Column(name="difference in deviations", key="difference_in_deviations"),
        Column(name="verdict", key="verdict"),
    ]
    for radius in map(radius_text, radii):
        key = f"accuracy_{radius}"
        columns += _mean_and_std_columns(radius, key, f"{key}_deviation", wide=wide, judged=True)
    return tuple(columns)


def _mean_and_std_columns(
    name: str, key: str, std_key: str, *, wide: bool, judged: bool = False
) -> list[Column]:
    columns = [Column(name=name, key=key, judged=judged)]
    if wide:
        columns.append(Column(name="deviation", key=std_key))
    return columns


def _table_row(row: Reproduced, radii: Sequence[float], *, wide: bool) -> Row:
    published = target(row)
    cells = [
        Cell(row.title),
        Cell(rounded(row.sigma, 2)),
        Cell(len(row.runs)),
        *_acr_cells(row, wide=wide),
        *_published_cells(published, wide=wide),
        _difference_cell(row, published),
        Cell(verdict(row)),
        *_accuracy_cells(row, radii, wide=wide),
    ]
    config = row.preset.config
    method = str(config.method["name"])
    return Row(cells=tuple(cells), method=method, sigma=row.sigma, data=config.data)


def _acr_cells(row: Reproduced, *, wide: bool) -> list[Cell]:
    if not row.runs:
        return _mean_and_std(None, None, digits=4, wide=wide)
    ours = over_seeds(row.runs, at=())
    return _mean_and_std(ours.acr, ours.acr_std, digits=4, wide=wide)


def _published_cells(published: Target | None, *, wide: bool) -> list[Cell]:
    if published is None:
        return _mean_and_std(None, None, digits=4, wide=wide)
    return _mean_and_std(
        published.acr, published.std, digits=published.digits, std_digits=4, wide=wide
    )


def _accuracy_cells(row: Reproduced, radii: Sequence[float], *, wide: bool) -> list[Cell]:
    cells = []
    if not row.runs:
        for _ in radii:
            cells += _mean_and_std(None, None, digits=2, wide=wide)
        return cells
    ours = over_seeds(row.runs, at=radii)
    reach = _reach(row.runs)
    for radius, share, std in zip(radii, ours.accuracy, ours.accuracy_std, strict=True):
        # As in the report: 0 would say that images failed, and not that n is too small.
        if share == 0 and radius > reach:
            cells += _mean_and_std(None, None, digits=2, wide=wide)
            continue
        percent_std = None
        if std is not None:
            percent_std = 100 * std
        cells += _mean_and_std(100 * share, percent_std, digits=2, wide=wide)
    return cells


def _reach(runs: Sequence[Measured]) -> float:
    """The largest radius that any of the runs could certify; infinite where that is not known."""
    largest = [run.largest_radius for run in runs]
    return max(math.inf if radius is None else radius for radius in largest)


def _mean_and_std(
    value: float | None,
    std: float | None,
    *,
    digits: int,
    std_digits: int | None = None,
    wide: bool,
) -> list[Cell]:
    """A mean and its standard deviation, in two cells or in one."""
    mean_cell = _number(value, digits)
    std_cell = _number(std, std_digits or digits)
    if wide:
        return [mean_cell, std_cell]
    # A single run has no standard deviation, and gets no empty ± after its number.
    if std is None:
        return [mean_cell]
    return [replace(mean_cell, suffix=f" ± {std_cell.shown}")]


def _number(value: float | None, digits: int, form: str = "") -> Cell:
    if value is None:
        return Cell(text=DASH)
    return Cell(rounded(value, digits), form)


def _difference_cell(row: Reproduced, published: Target | None) -> Cell:
    # On part of the images the difference is not one of seeds alone.
    comparable = bool(row.runs) and row.judged and row.all_images
    if not comparable or published is None or not published.std:
        return Cell(text=DASH)
    return _number(difference(row, published) / published.std, 1, "+")


def _notes(rows: Sequence[Reproduced]) -> tuple[str, ...]:
    """What a reader must know: first what holds for the whole table, then for single rows."""
    runs: list[Measured] = []
    cuts = []
    unseen = []
    of_rows = []
    for row in rows:
        runs += row.runs
        if row.cuts:
            cuts.append((row.called, f"cut: {', '.join(row.cuts)}"))
        smallest = _smallest_difference(row)
        if smallest:
            unseen.append((row.called, smallest))
        # The settings of the method too: another epsilon or m may reverse a comparison.
        for text in (row.preset.about, row.preset.note, *row.notes):
            if text:
                of_rows.append((row.called, text))
    of_files = []
    for run in runs:
        for text in run.notes:
            of_files.append((run.name, text))
    return (
        *_grouped(cuts, len(rows)),
        *_rules(rows, runs),
        *_differences(rows),
        *_grouped(unseen, len(rows)),
        *_grouped(of_rows, len(rows)),
        *_grouped(of_files, len(runs)),
    )


def _rules(rows: Sequence[Reproduced], runs: Sequence[Measured]) -> list[str]:
    """How the numbers of the table were rounded and compared."""
    rules = ["certified accuracies are in percent"]
    if any(run.paper_rounding for run in runs):
        rules.append(
            "radii are rounded to nearest at three digits, as in the paper's logs, which is not "
            "sound"
        )
    elif runs:
        rules.append(
            "no radius is rounded up; only difference and verdict are of radii rounded as in the "
            "paper's logs"
        )
    if any(len(row.runs) > 1 for row in rows):
        rules.append("deviations over seeds have n - 1 in the denominator")
    targets = _judged_targets(rows)
    if any(published.std for published in targets):
        rules.append(
            f"a row agrees within {ALLOWED_STDS:g} published deviations times "
            f"sqrt(1/seeds + 1/{PUBLISHED_SEEDS}) of a mean, or sqrt(1/seeds + 1) of a single run"
        )
    if any(published.digits == 3 for published in targets):
        rules.append(
            "single runs are published with three digits: 0.0005 of a difference from them may be "
            "rounding"
        )
    return rules


def _judged_targets(rows: Sequence[Reproduced]) -> list[Target]:
    """The published numbers of the rows with a verdict."""
    targets = []
    for row in rows:
        published = target(row)
        if row.runs and row.judged and published is not None:
            targets.append(published)
    return targets


def _smallest_difference(row: Reproduced) -> str:
    """How small a difference a row on part of the images cannot show; empty if not judged."""
    published = target(row)
    if row.all_images or not row.runs or not row.judged or published is None:
        return ""
    allowed = margin(row, published)
    if not allowed:
        return ""
    return f"on {len(row.runs[0]):,} images a difference below {allowed:.4f} is not seen"


def _differences(rows: Sequence[Reproduced]) -> list[str]:
    """What sets rows of one sigma apart. The runs of one row agree, or they were not averaged."""
    by_sigma: dict[float, list[Measured]] = {}
    for row in rows:
        if row.runs:
            first = replace(row.runs[0], name=row.called)
            by_sigma.setdefault(row.sigma, []).append(first)
    notes = []
    for runs in by_sigma.values():
        for text in what_differs(runs):
            notes.append(f"not to be compared as they stand: {text}")
    return notes


def _grouped(notes: Sequence[tuple[str, str]], everything: int) -> list[str]:
    """Each text once: those about everything first, the others after the names they are about."""
    names: dict[str, list[str]] = {}
    for name, text in notes:
        names.setdefault(text, []).append(name)
    about_all = []
    about_some = []
    # A note about every row is shorter without a list of all names.
    for text, subjects in names.items():
        if len(subjects) == everything > 1:
            about_all.append(text)
        else:
            about_some.append(f"{', '.join(subjects)}: {text}")
    return about_all + about_some
