"""Studies that are runs of presets: the paper's ablations, and one preset with several seeds. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from smoothmix.analysis import Measured
from smoothmix.config import require
from smoothmix.reproduce.table import Reproduced, reproduction_grid
from smoothmix.studies.base import Study
from smoothmix.tables import Cell, Column, Grid, rounded

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FAMILIES = {
    "eta": "how much the mixing loss weighs",
    "steps": "steps of the attack, as far in all",
    "limit": "a hard limit on the attack",
    "copies": "noise copies",
}
"""What the four ablations vary, by the names of their presets."""


def seconds_an_epoch(row: Reproduced) -> float | None:
    """What an epoch of this row cost, mean over epochs and seeds; None where no training is recorded."""
    seconds = [
        float(line["seconds"]) for run in row.runs for line in run.training if "seconds" in line
    ]
    return float(np.mean(seconds)) if seconds else None


def with_cost(grid: Grid, rows: Sequence[Reproduced]) -> Grid:
    """The table with a column of what an epoch cost."""
    costs = [seconds_an_epoch(row) for row in rows]
    cells = [Cell() if cost is None else Cell(rounded(cost, 2), ".1f") for cost in costs]
    lines = [
        replace(line, cells=(*line.cells, cell))
        for line, cell in zip(grid.rows, cells, strict=True)
    ]
    column = Column(name="seconds an epoch", key="seconds_an_epoch")
    return replace(grid, columns=(*grid.columns, column), rows=tuple(lines))


def ablation(
    rows: Sequence[Reproduced], *, radii: Sequence[float] | None = None, figure: bool = True
) -> Study:
    """The paper's ablations: a table with what each row cost, and a panel of curves for each setting that is varied."""
    require(bool(rows), "an ablation needs at least one row")
    grid = reproduction_grid(rows, title="Ablations of SmoothMix (MNIST, sigma 1.0)", radii=radii)
    groups = families(rows)
    best = {
        name: max(runs, key=lambda m: float(m.counted.mean())).name
        for name, runs in groups.items()
        if runs
    }
    found = "; ".join(f"{name}: best is {which}" for name, which in best.items())
    return Study(
        name="ablation",
        title="Ablations",
        text=f"Certified accuracy of SmoothMix when one setting is varied, and what an epoch costs. By ACR, {found}.",
        grid=with_cost(grid, rows),
        figure=_panels(groups) if figure else None,
    )


def families(rows: Sequence[Reproduced]) -> dict[str, list[Measured]]:
    """The first seed of each row by what its family varies; Gaussian training stands in every panel."""
    named = [(row.preset.name.removeprefix("ablation/"), row.runs[0]) for row in rows if row.runs]
    baselines = [replace(run, name="Gaussian") for name, run in named if name == "gaussian"]
    groups = {}
    for family, meaning in FAMILIES.items():
        runs = [
            replace(run, name=name.replace("/", " "))
            for name, run in named
            if name.startswith(f"{family}/")
        ]
        if runs:
            groups[meaning] = [*baselines, *runs]
    return groups


def _panels(groups: dict[str, list[Measured]]) -> Figure:
    from smoothmix.plots.curves import certified_accuracy_by

    return certified_accuracy_by(groups)


def seeds(row: Reproduced, *, radii: Sequence[float] | None = None, figure: bool = True) -> Study:
    """One preset with several seeds: mean and deviation beside the paper's, and the curves on top of each other."""
    require(len(row.runs) > 1, "a study of seeds needs at least two runs")
    grid = reproduction_grid(
        [row], title=f"{row.preset.name} over {len(row.runs)} seeds", radii=radii
    )
    acrs = [float(run.counted.mean()) for run in row.runs]
    told = ", ".join(f"{acr:.4f}" for acr in acrs)
    runs = [replace(run, name=f"seed {number}") for number, run in enumerate(row.runs)]
    return Study(
        name="seeds",
        title=f"Seeds of {row.preset.name}",
        text=(
            f"The same training with {len(runs)} seeds has an ACR of {np.mean(acrs):.4f} with a deviation of "
            f"{np.std(acrs, ddof=1):.4f} ({told}). A difference between methods means something beside that."
        ),
        grid=with_cost(grid, [row]),
        figure=_panels({row.preset.name: runs}) if figure else None,
    )
