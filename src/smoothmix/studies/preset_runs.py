"""Studies that are runs of presets: the paper's ablations, and one preset with several seeds.

No torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from smoothmix.analysis import Measured
from smoothmix.config import require
from smoothmix.reproduce.table import Reproduced, reproduction_grid
from smoothmix.studies.study import StudyReport
from smoothmix.tables import Cell, Column, Grid, rounded

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ABLATIONS = {
    "eta": "how much the mixing loss weighs",
    "steps": "steps of the attack, as far in all",
    "limit": "a hard limit on the attack",
    "copies": "noise samples",
}
"""What each of the four ablations varies, by the names of their presets."""


def ablation_report(
    rows: Sequence[Reproduced], *, radii: Sequence[float] | None = None
) -> StudyReport:
    """The paper's ablations: a table with the cost of each row, and curves per setting."""
    require(bool(rows), "an ablation needs at least one row")
    grid = reproduction_grid(rows, title="Ablations of SmoothMix (MNIST, sigma 1.0)", radii=radii)
    groups = runs_by_ablation(rows)
    best = []
    for meaning, runs in groups.items():
        winner = max(runs, key=_acr)
        best.append(f"{meaning}: best is {winner.name}")
    return StudyReport(
        name="ablation",
        title="Ablations",
        text=(
            "Certified accuracy of SmoothMix when one setting is varied, and the time of an epoch. "
            f"By ACR, {'; '.join(best)}."
        ),
        grid=_with_cost(grid, rows),
        draw=partial(_draw, groups),
    )


def seeds_report(row: Reproduced, *, radii: Sequence[float] | None = None) -> StudyReport:
    """One preset with several seeds: mean and standard deviation beside the paper's, and curves."""
    require(len(row.runs) > 1, "a study of seeds needs at least two runs")
    preset = row.preset.name
    grid = reproduction_grid([row], title=f"{preset} over {len(row.runs)} seeds", radii=radii)
    acrs = [_acr(run) for run in row.runs]
    each = ", ".join(f"{acr:.4f}" for acr in acrs)
    runs = [replace(run, name=f"seed {number}") for number, run in enumerate(row.runs)]
    return StudyReport(
        name="seeds",
        title=f"Seeds of {preset}",
        text=(
            f"The same training with {len(runs)} seeds has an ACR of {np.mean(acrs):.4f} with a "
            f"standard deviation of {np.std(acrs, ddof=1):.4f} ({each}). Differences between "
            "methods are to be judged against that."
        ),
        grid=_with_cost(grid, [row]),
        draw=partial(_draw, {preset: runs}),
    )


def runs_by_ablation(rows: Sequence[Reproduced]) -> dict[str, list[Measured]]:
    """The first seed of each row, grouped by what it varies; each group has the Gaussian row."""
    first_runs = {}
    for row in rows:
        if row.runs:
            first_runs[row.preset.name.removeprefix("ablation/")] = row.runs[0]
    # Every panel has the baseline, so that each can be read alone.
    baselines = []
    if "gaussian" in first_runs:
        baselines.append(replace(first_runs["gaussian"], name="Gaussian"))
    groups = {}
    for ablation, meaning in ABLATIONS.items():
        runs = []
        for name, run in first_runs.items():
            if name.startswith(f"{ablation}/"):
                runs.append(replace(run, name=name.replace("/", " ")))
        if runs:
            groups[meaning] = [*baselines, *runs]
    return groups


def seconds_per_epoch(row: Reproduced) -> float | None:
    """The time of an epoch, mean over epochs and seeds; None if no training is recorded."""
    seconds = []
    for run in row.runs:
        for epoch in run.training:
            # Metrics are a text file that users may have edited: a line may lack the time.
            if "seconds" in epoch:
                seconds.append(float(epoch["seconds"]))
    if not seconds:
        return None
    return float(np.mean(seconds))


def _with_cost(grid: Grid, rows: Sequence[Reproduced]) -> Grid:
    """The table with a column for the time of an epoch."""
    with_cost = []
    for table_row, row in zip(grid.rows, rows, strict=True):
        seconds = seconds_per_epoch(row)
        cell = Cell()
        if seconds is not None:
            cell = Cell(rounded(seconds, 2), ".1f")
        with_cost.append(replace(table_row, cells=(*table_row.cells, cell)))
    # The key is part of the CSV files that earlier studies have written.
    column = Column(name="seconds per epoch", key="seconds_an_epoch")
    return replace(grid, columns=(*grid.columns, column), rows=tuple(with_cost))


def _acr(run: Measured) -> float:
    return float(run.counted.mean())


def _draw(groups: Mapping[str, Sequence[Measured]]) -> Figure:
    # matplotlib is optional and slow to import.
    from smoothmix.plots.curves import certified_accuracy_by

    return certified_accuracy_by(groups)
