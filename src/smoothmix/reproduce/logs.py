"""The authors' published logs of the MNIST tables and ablations: which file is a run of which row. No torch."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from smoothmix import presets
from smoothmix._process.progress import OnProgress, Progress, ignore_progress
from smoothmix.analysis import Measured, measure
from smoothmix.errors import UsageError
from smoothmix.methods.registry import METHODS
from smoothmix.presets import Preset
from smoothmix.reproduce.table import Reproduced

TEST_IMAGES = 10_000
"""Of MNIST: what each published log holds."""

SETTINGS = "logs record no settings: n0 100, n 100,000 and alpha 0.001 are what their authors state"

SIX_LOGS = "seeds 1-5 are averaged; the log of seed {} is left out, although the paper's accuracies over seeds count it"

CONSISTENCY_SEEDS = frozenset(range(1, 6))

ROOTS = ("mnist", "ablation")

ABLATIONS = {"eta": "eta", "steps": "alphat", "limit": "restriction", "copies": "m"}
"""Folders of the ablations by the setting that our presets name them after."""

LOG = re.compile(r"noise_(\d+(?:\.\d+)?)(?:_(\d+))?(?:\.(?:tsv|txt|log))?(?:\.(?:gz|xz))?")


@dataclass(frozen=True, kw_only=True)
class LogSet:
    """The published logs of one row."""

    seeds: tuple[Path, ...] = ()
    """What the paper's means over seeds are of; of an ablation, its run."""

    main: Path | None = None
    """The run in the main table, where it is another one."""

    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a folder of published logs holds."""

    rows: Mapping[str, LogSet]
    """By the name of the preset."""

    others: int
    """Files that belong to no row."""


@dataclass(frozen=True, kw_only=True)
class _Log:
    path: Path
    place: str
    """Its folder below the root, with numbers written in one way."""
    sigma: float
    seed: int | None


def rows_from_logs(
    folder: Path,
    names: Sequence[str],
    *,
    paper_rounding: bool,
    on_progress: OnProgress = ignore_progress,
) -> list[Reproduced]:
    """The rows of these presets as the published logs have them, each followed by the main table's run if that is
    another one; without runs where the folder has no log of a row."""
    found = find_logs(folder)
    wanted = [(presets.get(name), found.rows.get(name, LogSet())) for name in names]
    total = sum(len(logs.seeds) + (logs.main is not None) for _, logs in wanted)
    done = 0

    def read(path: Path) -> Measured:
        nonlocal done
        measured = measure(path, paper_rounding=paper_rounding)
        done += 1
        on_progress(Progress(done, total))
        # The arrays say all that a log without votes does; a million rows of a hundred logs would fill the memory.
        bare = replace(measured.file, rows=())
        return replace(measured, name=str(path.relative_to(folder)), file=bare)

    left_out = (
        [f"{found.others} files in {folder} belong to no row and are left out"]
        if found.others
        else []
    )
    rows = []
    for preset, logs in wanted:
        notes = (*logs.notes, SETTINGS, *left_out)
        if logs.seeds or logs.main is None:
            rows.append(_row(preset, [read(path) for path in logs.seeds], notes, main_table=False))
        if logs.main is not None:
            rows.append(_row(preset, [read(logs.main)], notes, main_table=True))
    return rows


def _row(
    preset: Preset, runs: Sequence[Measured], notes: tuple[str, ...], *, main_table: bool
) -> Reproduced:
    fewest = min((len(run) for run in runs), default=TEST_IMAGES)
    whole = fewest >= TEST_IMAGES
    return Reproduced(
        preset=preset,
        runs=tuple(runs),
        cuts=() if whole else (f"{fewest:,} of {TEST_IMAGES:,} images",),
        all_images=whole,
        main_table=main_table,
        notes=notes,
    )


def find_logs(folder: Path) -> Found:
    """The published logs in a folder that holds `mnist` or `ablation` or is one of them, by the preset of their row."""
    if not folder.is_dir():
        raise UsageError(
            f"{folder}: {'is a file; unpack it first' if folder.exists() else 'there is no such folder'}"
        )
    names = _names()
    rows: dict[str, list[_Log]] = {}
    others = 0
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        log = _log(path, folder)
        name = names.get((log.place, log.sigma)) if log else None
        if log is None or name is None:
            others += 1
        else:
            rows.setdefault(name, []).append(log)
    if not rows:
        raise UsageError(
            f"{folder}: holds no log of a row of the paper; expected mnist/cohen/noise_<sigma>_<seed>, "
            "mnist/smoothmix/smix_<step>_<T>_m0/tau_<eta>/num_4/<seed>/noise_<sigma> and ablation/eta/..."
        )
    return Found(
        rows={name: _log_set(presets.get(name), logs) for name, logs in rows.items()}, others=others
    )


def _names() -> dict[tuple[str, float], str]:
    """Presets by where their logs lie and by their noise."""
    every = [presets.get(name) for root in ROOTS for name in presets.names(f"{root}/*")]
    return {
        (place, preset.config.method["sigma"]): preset.name
        for preset in every
        for place in _places(preset)
    }


def _places(preset: Preset) -> list[str]:
    """The folders that may hold the logs of a preset; none if its logs were not published."""
    root, setting, *_ = preset.name.split("/")
    method = preset.config.method
    log_folders = METHODS[method["name"]].log_folders
    if log_folders is None:
        return []
    folders = log_folders(method)
    if root == "mnist":
        return [f"{root}/{folder}" for folder in folders]
    if setting not in ABLATIONS:
        return []
    # In the ablations, the folder of the setting takes the place of the method's.
    return [f"{root}/{ABLATIONS[setting]}/{folder.partition('/')[2]}" for folder in folders]


def _log(path: Path, folder: Path) -> _Log | None:
    """What the path of a log says, with sigma 0.5 and 0.50 the same; None where it is named otherwise."""
    named = LOG.fullmatch(path.name)
    if named is None:
        return None
    parts = [folder.resolve().name, *path.relative_to(folder).parts[:-1]]
    root = max((i for i, part in enumerate(parts) if part in ROOTS), default=None)
    places = ["mnist", *parts[1:]] if root is None else parts[root:]
    seed = named[2] or (places.pop() if places[-1].isdecimal() else None)
    place = "/".join(
        re.sub(r"\d+\.\d+", lambda number: f"{float(number[0]):g}", part) for part in places
    )
    return _Log(
        path=path, place=place, sigma=float(named[1]), seed=None if seed is None else int(seed)
    )


def _log_set(preset: Preset, logs: Sequence[_Log]) -> LogSet:
    by_seed: dict[int | None, Path] = {}
    for log in logs:
        other = by_seed.setdefault(log.seed, log.path)
        if other is not log.path:
            raise UsageError(
                f"{log.path} and {other} are logs of one seed of {preset.name}: remove one of them"
            )
    return _chosen(
        preset, dict(sorted(by_seed.items(), key=lambda item: -1 if item[0] is None else item[0]))
    )


def _chosen(preset: Preset, by_seed: dict[int | None, Path]) -> LogSet:
    """Which logs are averaged: seed 0 is SmoothMix's run in the main table, and one too many of Consistency's."""
    method, over_seeds = (
        preset.config.method["name"],
        preset.published and preset.published.acr_mean is not None,
    )
    if method == "smoothmix" and over_seeds:
        main = by_seed.pop(0, None)
        return LogSet(seeds=tuple(by_seed.values()), main=main)
    if method == "consistency" and by_seed.keys() > CONSISTENCY_SEEDS:
        extra = [str(seed) for seed in by_seed if seed not in CONSISTENCY_SEEDS]
        kept = tuple(path for seed, path in by_seed.items() if seed in CONSISTENCY_SEEDS)
        return LogSet(seeds=kept, notes=(SIX_LOGS.format(", ".join(extra)),))
    return LogSet(seeds=tuple(by_seed.values()))
