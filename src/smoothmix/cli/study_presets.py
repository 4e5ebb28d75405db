"""The commands `study ablation | seeds`: runs of the paper's presets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from smoothmix._process.world import current_world
from smoothmix.cli.options import (
    FLAT,
    USUAL_GROUP,
    Numbers,
    PresetRunOptions,
    StudyFiles,
    parse_radii,
)
from smoothmix.cli.output import echo
from smoothmix.cli.reproduce import OUT, plan_runs
from smoothmix.cli.study import announce_figure, show_saved
from smoothmix.config import require
from smoothmix.runs.options import Overrides

if TYPE_CHECKING:
    from smoothmix.reproduce.table import Reproduced
    from smoothmix.studies import StudyReport


@Parameter(name="*", group=USUAL_GROUP)
@dataclass(frozen=True, kw_only=True)
class StudyRunOptions(PresetRunOptions):
    """Which runs are made, and where."""

    runs: Path = OUT
    """Folder for the runs. With that of `smoothmix reproduce`, finished runs are not repeated."""


OVERRIDES = Overrides()
OPTIONS = StudyRunOptions()
FILES = StudyFiles()


def ablation(
    *families: str,
    radii: Numbers = None,
    overrides: Annotated[Overrides, FLAT] = OVERRIDES,
    options: StudyRunOptions = OPTIONS,
    files: StudyFiles = FILES,
) -> None:
    """Train and certify the paper's ablations of SmoothMix, with the time of an epoch of each.

    Parameters
    ----------
    families
        Which of eta, steps, limit and copies; by default all four.
    radii
        Radii of the table; by default the paper's.
    """
    from smoothmix.errors import unknown_name
    from smoothmix.reproduce.jobs import choose
    from smoothmix.studies.preset_runs import ABLATIONS, ablation_report

    for family in families:
        if family not in ABLATIONS:
            raise unknown_name("ablation", family, ABLATIONS)
    patterns = [f"{family}/*" for family in families or ABLATIONS]
    # The Gaussian row is in every table: it is what the ablations improve on.
    names = choose("ablation", rows=["gaussian", *patterns])
    chosen_radii = parse_radii(radii) or None
    announce_figure()
    rows = _run(names, 1, overrides, options)
    if rows:
        _finish(ablation_report(rows, radii=chosen_radii), files)


def seeds(
    preset: str,
    /,
    *,
    count: int = 5,
    radii: Numbers = None,
    overrides: Annotated[Overrides, FLAT] = OVERRIDES,
    options: StudyRunOptions = OPTIONS,
    files: StudyFiles = FILES,
) -> None:
    """Train and certify one preset with several seeds: mean and standard deviation of its ACR.

    Parameters
    ----------
    preset
        A row of the paper or a quick one (`smoothmix presets`).
    count
        How many seeds.
    radii
        Radii of the table; by default the paper's.
    """
    from smoothmix import presets
    from smoothmix.studies.preset_runs import seeds_report

    require(count >= 2, f"a standard deviation needs at least 2 seeds, got {count}")
    chosen_radii = parse_radii(radii) or None
    name = presets.get(preset).name
    announce_figure()
    for row in _run([name], count, overrides, options):
        _finish(seeds_report(row, radii=chosen_radii), files)


def _run(
    names: Sequence[str], count: int, overrides: Overrides, options: StudyRunOptions
) -> list[Reproduced]:
    """Train and certify these presets; the rows in the main process, and none in the others."""
    from smoothmix.reproduce.results import results

    planned = plan_runs(names, seeds=count, overrides=overrides, out=options.runs, options=options)
    planned.run()
    echo()
    # Under torchrun all processes train and certify, but one makes the report.
    if not current_world().is_main:
        return []
    return results(planned.jobs)


def _finish(report: StudyReport, files: StudyFiles) -> None:
    from smoothmix.studies.files import save_report

    show_saved(save_report(report, files.out, files.format))
