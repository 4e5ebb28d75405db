"""Which rows of the paper are to be run, each in a folder of its own. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from smoothmix import certificates, presets
from smoothmix._io.toml import to_toml
from smoothmix.certificates.shards import shards_beside
from smoothmix.config import Certification, RunConfig, require
from smoothmix.errors import UsageError
from smoothmix.presets import Preset
from smoothmix.report.published import PAPER_IMAGES
from smoothmix.runs.folder import RunFolder
from smoothmix.runs.options import Overrides, RunOverrides
from smoothmix.runs.plan import make_config, run_name
from smoothmix.stats.binomial import require_enough_draws


@dataclass(frozen=True, kw_only=True)
class Job:
    """One row of the paper with one seed."""

    preset: Preset
    config: RunConfig
    folder: RunFolder

    @property
    def trained(self) -> bool:
        """Whether its weights are there."""
        return self.folder.weights.exists()

    def certified(self, how: Certification, skip: int) -> int:
        """How many images are certified already in this way, in one file or in parts of it."""
        whole = self.folder.certificates
        in_parts = sum(_rows(part.path, how, skip) for part in shards_beside(whole))
        return max(
            _rows(whole, how, skip), in_parts
        )  # parts have been given what the whole file had


def _rows(path: Path, how: Certification, skip: int) -> int:
    file = certificates.read(path) if path.exists() else None
    settings = file.settings if file else None
    alike = settings is not None and (settings.certification, settings.skip) == (how, skip)
    return len(file.rows) if file and alike else 0


def choose(group: str, *, sigma: float | None = None, rows: Sequence[str] = ("*",)) -> list[str]:
    """The presets of a group whose rows fit any of the patterns, in the paper's order.

    >>> choose("mnist", sigma=1.0, rows=["gaussian", "smoothmix-eta5*"])
    ['mnist/1.00/gaussian', 'mnist/1.00/smoothmix-eta5', 'mnist/1.00/smoothmix-eta5-onestep']
    """
    require(bool(rows), "no rows were asked for")
    every = presets.names(group)
    if not every:
        groups = list(dict.fromkeys(name.partition("/")[0] for name in presets.names()))
        raise UsageError(
            f"no rows of the paper are called {group!r}: there are {', '.join(groups)}"
        )
    of_sigma = presets.names(group, sigma=sigma)
    require(bool(of_sigma), f"{group} has no rows with sigma {sigma}")
    fitting = [name for name in of_sigma if any(_fits(name, pattern) for pattern in rows)]
    titles = list(dict.fromkeys(row_title(name) for name in of_sigma))
    for pattern in rows:
        known = any(_fits(name, pattern) for name in of_sigma)
        require(known, f"no row is called {pattern!r}: there are {', '.join(titles)}")
    return fitting


def row_title(name: str) -> str:
    """What the paper would call the row: the preset's name without its group and sigma.

    >>> row_title("mnist/0.50/smoothmix-eta5"), row_title("ablation/eta/16")
    ('smoothmix-eta5', 'eta/16')
    """
    _, _, rest = name.partition("/")
    first, slash, last = rest.partition("/")
    return last if slash and first.replace(".", "").isdigit() else rest


def _fits(name: str, pattern: str) -> bool:
    return fnmatchcase(row_title(name), pattern) or fnmatchcase(name, pattern)


def make_jobs(names: Sequence[str], *, seeds: int, overrides: Overrides, out: Path) -> list[Job]:
    """A job for every preset and seed, the seeds of one row together."""
    require(seeds >= 1, f"seeds must be at least 1, got {seeds}")
    jobs = []
    for name in names:
        for seed in range(seeds):
            with_seed = RunOverrides(**vars(overrides), seed=seed)
            config = make_config(with_seed, preset=name)
            # On another data set a run is no longer the preset, but its folder is still named after it.
            title = run_name(replace(config, preset=name))
            if overrides.data is not None:
                title += f"-{overrides.data}"
            folder = RunFolder(out / title)
            jobs.append(Job(preset=presets.get(name), config=config, folder=folder))
    return _sharing(jobs)


def _sharing(jobs: Sequence[Job]) -> list[Job]:
    """The jobs, those with the same settings in one folder: some rows of the paper's ablations are one run.

    A folder that is there already is preferred.
    """
    alike: dict[str, list[Job]] = {}
    for job in jobs:
        alike.setdefault(to_toml(replace(job.config, preset="", notes=())), []).append(job)
    first = {
        same: next((job for job in group if job.folder.path.exists()), group[0])
        for same, group in alike.items()
    }
    owner = {id(job): first[same] for same, group in alike.items() for job in group}
    return [
        replace(job, config=owner[id(job)].config, folder=owner[id(job)].folder) for job in jobs
    ]


def paper_skip(jobs: Sequence[Job]) -> int:
    """Every how many images the paper certified one, where all jobs are for one data set."""
    steps = {
        PAPER_IMAGES[job.config.data].step if job.config.data in PAPER_IMAGES else 1 for job in jobs
    }
    return steps.pop() if len(steps) == 1 else 1


def certifications(jobs: Sequence[Job], *, n: int, skip_wrong: bool = False) -> list[Certification]:
    """How each job is certified; refused before the training where no image could be."""
    hows = [Certification(sigma=job.config.sigma, n=n, skip_wrong=skip_wrong) for job in jobs]
    for how in hows:
        require_enough_draws(how.n, alpha=how.alpha, sigma=how.sigma)
    return hows
