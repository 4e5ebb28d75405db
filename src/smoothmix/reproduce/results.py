"""The results of finished jobs, the seeds of a row together. No torch."""

from __future__ import annotations

from collections.abc import Sequence

from smoothmix.analysis import Measured, measure, on_common_images
from smoothmix.analysis.sources import Source
from smoothmix.data import DATASETS
from smoothmix.presets import Preset
from smoothmix.report.published import PAPER_IMAGES, cuts
from smoothmix.reproduce.jobs import Job
from smoothmix.reproduce.table import Reproduced


def results(jobs: Sequence[Job], *, paper_rounding: bool = False) -> list[Reproduced]:
    """The rows of the paper that these jobs are runs of, each with its runs."""
    files: dict[str, list[Source]] = {}
    row_presets: dict[str, Preset] = {}
    for job in jobs:
        row_presets[job.preset.name] = job.preset
        # The run's name, whichever of its certificate files it is.
        source = Source(path=str(job.certificates), name=job.folder.path.name)
        files.setdefault(job.preset.name, []).append(source)
    # In the order of the jobs, which is that of the paper.
    rows = []
    for name, preset in row_presets.items():
        rows.append(_row(preset, files[name], paper_rounding=paper_rounding))
    return rows


def _row(preset: Preset, files: Sequence[Source], *, paper_rounding: bool) -> Reproduced:
    runs = [measure(file, paper_rounding=paper_rounding) for file in files]
    # An earlier command may have certified more images with one of the seeds.
    runs_on_common_images = on_common_images(runs)
    first = runs_on_common_images[0]
    cut = cuts(first, preset)
    return Reproduced(
        preset=preset,
        runs=runs_on_common_images,
        cuts=(*cut.every, *_part_of_test_set(first, preset)),
        judged=cut.comparable,
        all_images=not cut.images,
    )


def _part_of_test_set(run: Measured, preset: Preset) -> list[str]:
    """How many images of its test set a run has, where the paper has no images to compare with."""
    data = preset.config.data
    if data in PAPER_IMAGES:
        return []
    whole = DATASETS[data].images.get("test", len(run))
    if len(run) >= whole:
        return []
    return [f"{len(run):,} of {whole:,} images"]
