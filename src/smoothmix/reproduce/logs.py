"""Published logs of the paper's tables and ablations: which file is a run of which row. No torch.

The MNIST logs are the authors' own. Those of CIFAR-10 and ImageNet come from several repositories,
whose folders name the network, the noise of training or the split as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from smoothmix import presets
from smoothmix._io.unpacking import without_packing
from smoothmix._process.progress import OnProgress, Progress, ignore_progress
from smoothmix.analysis import Measured, Source, measure
from smoothmix.errors import UsageError
from smoothmix.methods.registry import METHODS
from smoothmix.presets import Preset
from smoothmix.report.published import PAPER_IMAGES
from smoothmix.reproduce.table import Reproduced

PAPER_DRAWS = 100_000
PAPER_ALPHA = 0.001
SETTINGS_NOTE = (
    "logs record no settings: n0 100, n 100,000 and alpha 0.001 are what their authors state"
)

EXTRA_LOG_NOTE = (
    "seeds 1-5 are averaged; the log of seed {} is left out, although the paper's accuracies over "
    "seeds include it"
)

CONSISTENCY_SEEDS = frozenset(range(1, 6))

ROOTS = ("mnist", "ablation", "cifar10", "imagenet")

OTHER_FOLDERS = {"gaussian": "", "macer": "macer", "smoothmix": "smoothmix"}
"""Folders of CIFAR-10 and ImageNet that do not name settings, by method; none for Gaussian."""

ONE_STEP = "_adv"
"""Ending of logs of SmoothMix's one-step adversary on CIFAR-10."""

NETWORKS = ("resnet110", "cifar_resnet110", "resnet50")
"""Folders of the paper's networks. Logs of other networks belong to no row."""

ABLATIONS = {"eta": "eta", "steps": "alphat", "limit": "restriction", "copies": "m"}
"""Folders of the ablations, by the setting that our presets are named after."""

LOG_NAME = re.compile(
    r"(?:noise|sigma)_(?P<sigma>\d+(?:\.\d+)?)(?:_(?P<seed>\d+))?(?P<one_step>_adv)?"
    r"(?:\.(?:tsv|txt|log))?"
)
"""The name of a log without its packing: sigma, perhaps the seed, perhaps a suffix."""

NOISE_FOLDER = re.compile(r"noise_(\d+(?:\.\d+)?)")

DECIMAL = re.compile(r"\d+\.\d+")


@dataclass(frozen=True, kw_only=True)
class LogSet:
    """The published logs of one row."""

    seeds: tuple[Path, ...] = ()
    """The runs behind the paper's means over seeds; of an ablation, its run."""

    main: Path | None = None
    """The run in the main table, if that is another one."""

    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class FoundLogs:
    """The published logs in a folder."""

    rows: Mapping[str, LogSet]
    """The logs by the name of the preset."""

    others: int
    """Number of files that belong to no row."""


@dataclass(frozen=True, kw_only=True)
class _Log:
    path: Path
    folder: str
    """Its folder below the root, with numbers in one spelling."""
    sigma: float
    seed: int | None


def rows_from_logs(
    folder: Path,
    names: Sequence[str],
    *,
    paper_rounding: bool,
    on_progress: OnProgress = ignore_progress,
) -> list[Reproduced]:
    """The rows of these presets from published logs, without runs where the folder has no log.

    A row is followed by the run of the main table, if that is another one.
    """
    found = find_logs(folder)
    log_sets = [found.rows.get(name, LogSet()) for name in names]
    total = 0
    for logs in log_sets:
        total += len(logs.seeds)
        total += logs.main is not None
    done = 0

    def read(path: Path) -> Measured:
        nonlocal done
        stated = Source(path=str(path), n=PAPER_DRAWS, alpha=PAPER_ALPHA)
        measured = measure(stated, paper_rounding=paper_rounding)
        done += 1
        on_progress(Progress(done, total))
        # The arrays hold all that a log without votes has. The rows as objects, a million for a
        # hundred logs, would fill the memory.
        without_rows = replace(measured.file, rows=())
        return replace(measured, name=str(path.relative_to(folder)), file=without_rows)

    rows = []
    for name, logs in zip(names, log_sets, strict=True):
        preset = presets.get(name)
        notes = [*logs.notes, SETTINGS_NOTE]
        if found.others:
            notes.append(f"{found.others} files in {folder} belong to no row and are left out")
        if logs.seeds or logs.main is None:
            runs = list(map(read, logs.seeds))
            rows.append(_row(preset, runs, notes, main_table=False))
        if logs.main is not None:
            rows.append(_row(preset, [read(logs.main)], notes, main_table=True))
    return rows


def _row(
    preset: Preset, runs: Sequence[Measured], notes: Sequence[str], *, main_table: bool
) -> Reproduced:
    test_images = len(PAPER_IMAGES[preset.config.data])
    fewest = min(map(len, runs), default=test_images)
    cuts = []
    if fewest < test_images:
        cuts.append(f"{fewest:,} of {test_images:,} images")
    return Reproduced(
        preset=preset,
        runs=tuple(runs),
        cuts=tuple(cuts),
        all_images=not cuts,
        main_table=main_table,
        notes=tuple(notes),
    )


def find_logs(folder: Path) -> FoundLogs:
    """The published logs in a folder that contains or is one of ROOTS, by their rows."""
    # The authors publish an archive, and giving its name is the natural mistake.
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder}: is a file; unpack it first")
    if not folder.exists():
        raise UsageError(f"{folder}: there is no such folder")
    names = _preset_names()
    logs_of_rows: dict[str, list[_Log]] = {}
    others = 0
    # Sorted: which of two logs of one seed is named first must not depend on the file system.
    for path in sorted(folder.rglob("*")):
        if not path.is_file():
            continue
        log = _parse_path(path, folder)
        if log is None or (log.folder, log.sigma) not in names:
            # Not an error: the archive has runs that are in no table.
            others += 1
            continue
        name = names[log.folder, log.sigma]
        logs_of_rows.setdefault(name, []).append(log)
    if not logs_of_rows:
        raise UsageError(
            f"{folder}: holds no log of a row of the paper; expected "
            "mnist/cohen/noise_<sigma>_<seed>, "
            "mnist/smoothmix/smix_<step>_<T>_m0/tau_<eta>/num_4/<seed>/noise_<sigma>, "
            "ablation/eta/..., cifar10/smoothmix/noise_<sigma> "
            "or imagenet/resnet50/noise_<sigma>/test/sigma_<sigma>"
        )
    rows = {}
    for name, logs in logs_of_rows.items():
        rows[name] = _select_logs(presets.get(name), logs)
    return FoundLogs(rows=rows, others=others)


def _preset_names() -> dict[tuple[str, float], str]:
    """The presets by the folder of their logs and their sigma."""
    names = {}
    for root in ROOTS:
        for name in presets.names(f"{root}/*"):
            preset = presets.get(name)
            for folder in _folders(preset):
                names[folder, preset.config.method["sigma"]] = name
    return names


def _folders(preset: Preset) -> list[str]:
    """The folders that may hold the logs of a preset; none if its logs were not published."""
    root, setting, *_ = preset.name.split("/")
    method = preset.config.method
    log_folders = METHODS[method["name"]].log_folders
    if log_folders is None:
        return []
    folders = log_folders(method)
    if root == "mnist":
        return [f"{root}/{folder}" for folder in folders]
    if root in ("cifar10", "imagenet"):
        every = [*folders, *_other_folders(method, root)]
        return [f"{root}/{folder}".rstrip("/") for folder in every]
    if setting not in ABLATIONS:
        return []
    # In the ablations, the folder of the setting replaces that of the method.
    return [f"{root}/{ABLATIONS[setting]}/{folder.partition('/')[2]}" for folder in folders]


def _other_folders(method: Mapping[str, Any], root: str) -> list[str]:
    """Folders of a method in the layouts that do not name all settings."""
    name = method["name"]
    if name == "smoothadv":
        levels = 256 * method["epsilon"]
        attack = "PGD_{steps}steps_multiNoiseSamples/{copies}-multitrain".format_map(method)
        return [f"{attack}/eps_{levels:g}"]
    if name not in OTHER_FOLDERS:
        return []
    folder = OTHER_FOLDERS[name]
    # On ImageNet all of SmoothMix's rows are of one step.
    if root == "cifar10" and method.get("one_step"):
        folder += ONE_STEP
    return [folder]


def _parse_path(path: Path, folder: Path) -> _Log | None:
    """What the path of a log tells about it; None for other files."""
    name = LOG_NAME.fullmatch(without_packing(path.name))
    if name is None:
        return None
    sigma = float(name["sigma"])
    parts = _below_root([folder.resolve().name, *path.relative_to(folder).parts[:-1]])
    seed = name["seed"]
    # Some logs have the seed in their name, others in that of their folder.
    if seed is None and parts[-1].isdecimal():
        seed = parts.pop()
    kept = _kept_parts(parts, sigma)
    if kept is None:
        return None
    called = "/".join(kept) + (name["one_step"] or "")
    number = None
    if seed is not None:
        number = int(seed)
    return _Log(path=path, folder=called, sigma=sigma, seed=number)


def _kept_parts(parts: Sequence[str], sigma: float) -> list[str] | None:
    """The folders that name the method; None where a model was certified at another sigma."""
    kept = []
    for part in parts:
        noise = NOISE_FOLDER.fullmatch(part)
        if noise is not None:
            # Trained with one noise, certified with another: in no table.
            if float(noise[1]) != sigma:
                return None
        elif part not in NETWORKS and part != "test":
            kept.append(DECIMAL.sub(_shortest, part))
    return kept


def _below_root(parts: Sequence[str]) -> list[str]:
    """The folders from the last of ROOTS on; without one, the first is mnist."""
    # SmoothAdv's logs have the data set a second time, below the attack.
    for position in range(1, len(parts)):
        if parts[position] in ROOTS and parts[position - 1].startswith("eps_"):
            parts = [*parts[:position], *parts[position + 1 :]]
            break
    # The last one: the logs may lie in somebody's folder that is called mnist as well.
    for position in reversed(range(len(parts))):
        if parts[position] in ROOTS:
            return list(parts[position:])
    return ["mnist", *parts[1:]]


def _shortest(number: re.Match[str]) -> str:
    """A number in one spelling: 0.5 and 0.50 are the same."""
    return f"{float(number[0]):g}"


def _select_logs(preset: Preset, logs: Iterable[_Log]) -> LogSet:
    """Which logs of a row are averaged, and which is the main table's."""
    by_seed: dict[int | None, Path] = {}
    for log in logs:
        if log.seed in by_seed:
            raise UsageError(
                f"{log.path} and {by_seed[log.seed]} are logs of one seed of {preset.name}: "
                "remove one of them"
            )
        by_seed[log.seed] = log.path
    by_seed = dict(sorted(by_seed.items(), key=_seed_order))
    method = preset.config.method["name"]
    published = preset.published
    has_mean = published is not None and published.acr_mean is not None
    if method == "smoothmix" and has_mean:
        # Seed 0 is the run of the main table.
        main = by_seed.pop(0, None)
        return LogSet(seeds=tuple(by_seed.values()), main=main)
    if method == "consistency" and by_seed.keys() > CONSISTENCY_SEEDS:
        # There is one log more than the paper averages.
        extra = by_seed.keys() - CONSISTENCY_SEEDS
        for seed in extra:
            del by_seed[seed]
        note = EXTRA_LOG_NOTE.format(", ".join(map(str, extra)))
        return LogSet(seeds=tuple(by_seed.values()), notes=(note,))
    return LogSet(seeds=tuple(by_seed.values()))


def _seed_order(item: tuple[int | None, Path]) -> int:
    """By number, a log without a seed first."""
    seed, _ = item
    if seed is None:
        return -1
    return seed
