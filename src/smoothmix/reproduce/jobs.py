"""Which rows of the paper are run, each in its own folder. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from smoothmix import certificates, presets
from smoothmix._io.toml import to_toml
from smoothmix.certificates import Certification
from smoothmix.certificates.settings import load_settings
from smoothmix.certificates.shard import shards_beside
from smoothmix.config import RunConfig, require
from smoothmix.errors import UsageError
from smoothmix.noise import GAUSSIAN
from smoothmix.presets import Preset
from smoothmix.report.published import PAPER_IMAGES
from smoothmix.runs.folder import RunFolder
from smoothmix.runs.options import Overrides, RunOverrides
from smoothmix.runs.plan import make_config, run_name
from smoothmix.stats.guarantees import FixedDraws


@dataclass(frozen=True, kw_only=True)
class Job:
    """One row of the paper with one seed."""

    preset: Preset
    config: RunConfig
    folder: RunFolder

    certificates: Path
    """Where its certificates go: a run may have several files, each of other settings."""

    @property
    def trained(self) -> bool:
        """Whether its training is finished."""
        return self.folder.weights.exists()

    def certified(self, certification: Certification, skip: int) -> int:
        """How many images are certified with these settings, in one file or in shards of it."""
        whole = self.certificates
        in_shards = 0
        for shard in shards_beside(whole):
            in_shards += _matching_rows(shard.path, certification, skip)
        # Not the sum: the shards repeat the rows of a file that was started in one process.
        return max(_matching_rows(whole, certification, skip), in_shards)


def _matching_rows(path: Path, certification: Certification, skip: int) -> int:
    """Rows of a certificate file, or 0 if it has other settings or does not exist."""
    if not path.exists():
        return 0
    file = certificates.read(path)
    if file.settings is None:
        return 0
    # Rows with other settings are not resumed but refused, so that nothing of them is done.
    if (file.settings.certification, file.settings.skip) != (certification, skip):
        return 0
    return len(file.rows)


def choose(group: str, *, sigma: float | None = None, rows: Sequence[str] = ("*",)) -> list[str]:
    """The presets of a group whose rows match any of the patterns, in the paper's order.

    >>> choose("mnist", sigma=1.0, rows=["gaussian", "smoothmix-eta5*"])
    ['mnist/1.00/gaussian', 'mnist/1.00/smoothmix-eta5', 'mnist/1.00/smoothmix-eta5-onestep']
    """
    require(bool(rows), "no rows were requested")
    if not presets.names(group):
        groups = dict.fromkeys(name.partition("/")[0] for name in presets.names())
        raise UsageError(
            f"no rows of the paper are called {group!r}: the groups are {', '.join(groups)}"
        )
    candidates = presets.names(group, sigma=sigma)
    require(bool(candidates), f"{group} has no rows with sigma {sigma}")
    chosen: set[str] = set()
    for pattern in rows:
        matching = [name for name in candidates if _matches(name, pattern)]
        # A misspelt row among several must not be left out in silence.
        if not matching:
            titles = dict.fromkeys(map(row_title, candidates))
            raise UsageError(f"no row is called {pattern!r}: the rows are {', '.join(titles)}")
        chosen.update(matching)
    return [name for name in candidates if name in chosen]


def row_title(name: str) -> str:
    """The row's name in the paper: the preset's name without its group and sigma.

    >>> row_title("mnist/0.50/smoothmix-eta5"), row_title("ablation/eta/16")
    ('smoothmix-eta5', 'eta/16')
    """
    _, _, rest = name.partition("/")
    first, slash, last = rest.partition("/")
    has_sigma = slash and first.replace(".", "").isdigit()
    if has_sigma:
        return last
    return rest


def _matches(name: str, pattern: str) -> bool:
    return fnmatchcase(row_title(name), pattern) or fnmatchcase(name, pattern)


def make_jobs(names: Sequence[str], *, seeds: int, overrides: Overrides, out: Path) -> list[Job]:
    """A job for every preset and seed, the seeds of one row together."""
    require(seeds >= 1, f"seeds must be at least 1, got {seeds}")
    jobs = []
    for name in names:
        for seed in range(seeds):
            with_seed = RunOverrides(**vars(overrides), seed=seed)
            config = make_config(with_seed, preset=name)
            # On another data set it is no longer a run of the preset, which still names the folder.
            title = run_name(replace(config, preset=name))
            if overrides.data is not None:
                title += f"-{overrides.data}"
            folder = RunFolder(out / title)
            job = Job(
                preset=presets.get(name),
                config=config,
                folder=folder,
                certificates=folder.certificates,
            )
            jobs.append(job)
    return _share_folders(jobs)


def _share_folders(jobs: Sequence[Job]) -> list[Job]:
    """The jobs, those with the same settings in one folder."""
    # Some rows of the paper's ablations are one run, which is trained and certified once.
    owners: dict[str, Job] = {}
    for job in jobs:
        owner = owners.setdefault(_settings_text(job), job)
        # An existing folder is preferred, whichever of the rows it was made for.
        if job.folder.path.exists() and not owner.folder.path.exists():
            owners[_settings_text(job)] = job
    shared = []
    for job in jobs:
        owner = owners[_settings_text(job)]
        shared.append(
            replace(
                job,
                config=owner.config,
                folder=owner.folder,
                certificates=owner.certificates,
            )
        )
    return shared


def _settings_text(job: Job) -> str:
    """What decides the results of a run."""
    # The preset's name and the notes describe a run; they do not change it.
    return to_toml(replace(job.config, preset="", notes=()))


def paper_skip(jobs: Sequence[Job]) -> int:
    """The step between the test images that the paper certified; 1 for several data sets."""
    # One table has one step for all of its rows.
    data_sets = {job.config.data for job in jobs}
    if len(data_sets) > 1:
        return 1
    (data,) = data_sets
    if data not in PAPER_IMAGES:
        return 1
    return PAPER_IMAGES[data].step


def certifications(jobs: Sequence[Job], *, n: int, skip_wrong: bool = False) -> list[Certification]:
    """The settings of each job's certification, refused now if they could certify nothing."""
    # Before the training, which takes hours: too small an n is refused at once.
    settings = []
    for job in jobs:
        # In floats, as the published numbers that these are compared with.
        certification = Certification(
            sigma=job.config.sigma,
            guarantee=FixedDraws(n),
            noise=GAUSSIAN,
            skip_wrong=skip_wrong,
        )
        certification.require_reach()
        settings.append(certification)
    return settings


def choose_files(
    jobs: Sequence[Job], certifications: Sequence[Certification], *, skip: int
) -> list[Job]:
    """The jobs with a certificate file for each: that of these settings, not one of others.

    A run that was certified with another n or other images is certified again without training.
    """
    chosen = []
    for job, certification in zip(jobs, certifications, strict=True):
        path = job.folder.certificates
        if _has_others(path, certification, skip):
            path = path.with_name(_file_name(certification, skip))
        chosen.append(replace(job, certificates=path))
    return chosen


def _file_name(certification: Certification, skip: int) -> str:
    """A name that tells apart what `reproduce` may be asked for."""
    name = f"certificates-n{certification.guarantee.max_draws}"
    if skip > 1:
        name += f"-skip{skip}"
    if certification.skip_wrong:
        name += "-skip-wrong"
    return f"{name}.tsv"


def _has_others(path: Path, certification: Certification, skip: int) -> bool:
    """Whether a certificate file, or a shard of it, is there with other settings."""
    for file in (path, *(shard.path for shard in shards_beside(path))):
        settings = load_settings(file)
        if settings is None and file.exists():
            return True
        if settings is not None and (settings.certification, settings.skip) != (
            certification,
            skip,
        ):
            return True
    return False
