"""What finished jobs gave, the seeds of a row together. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from smoothmix.analysis import measure, on_common_images
from smoothmix.presets import Preset
from smoothmix.report.published import cuts
from smoothmix.reproduce.jobs import Job
from smoothmix.reproduce.table import Reproduced


def results(jobs: Sequence[Job], *, paper_rounding: bool = False) -> list[Reproduced]:
    """The rows of the paper that these jobs were for, each with its runs."""
    rows: dict[str, tuple[Preset, list[Path]]] = {}
    for job in jobs:
        rows.setdefault(job.preset.name, (job.preset, []))[1].append(job.folder.path)
    return [
        _row(preset, folders, paper_rounding=paper_rounding) for preset, folders in rows.values()
    ]


def _row(preset: Preset, folders: Sequence[Path], *, paper_rounding: bool) -> Reproduced:
    # An earlier command may have certified more images with one of the seeds.
    runs = on_common_images([measure(folder, paper_rounding=paper_rounding) for folder in folders])
    cut = cuts(runs[0], preset)
    return Reproduced(
        preset=preset, runs=runs, cuts=cut.every, judged=cut.comparable, all_images=not cut.images
    )
