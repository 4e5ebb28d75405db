"""Certification in tests: quick networks, runs of one or many processes, and what they leave."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

from torch import nn

from smoothmix import data
from smoothmix._process.progress import OnProgress, ignore_progress
from smoothmix._process.world import World
from smoothmix.certificates import (
    Certificate,
    Certificates,
    Certification,
    FileSettings,
    Selection,
    settings_path,
)
from smoothmix.certificates.partial import SUFFIX, Journal, PartialVotes
from smoothmix.certify.dataset import certify_file, file_settings, open_classifier
from smoothmix.certify.loop import TimeLimit
from smoothmix.certify.workers import Outcome, certify_together
from smoothmix.data import Dataset
from smoothmix.stats.anytime import Stopping
from smoothmix.stats.guarantees import FixedDraws
from tests.helpers.guarantees import with_stopping

ALONE = World()
ALL_IMAGES = Selection()

NETWORK = """
import torch

def make():
    from smoothmix import data
    sample = data.load("sample", "train")
    labels = torch.tensor(sample.labels)
    pixels = sample.images(range(len(sample))).flatten(1)
    means = torch.stack([pixels[labels == c].mean(0) for c in range(10)])
    layer = torch.nn.Linear(784, 10)
    layer.weight.data, layer.bias.data = means, -means.square().sum(1) / 2
    return torch.nn.Sequential(torch.nn.Flatten(), layer)
"""
"""The nearest of the ten mean digits: right and certified for many images, at once."""

N, N0, SIGMA, SEED = 300, 20, 0.5, 3
OPTIONS = (
    "--model", "digits:make", "--sigma", SIGMA, "--noise", "gaussian", "--data", "sample",
    "--n0", N0, "--n", N, "--seed", SEED,
)  # fmt: skip


def put_network(folder: Path) -> None:
    """Make the network importable for commands that run in a folder."""
    (folder / "digits.py").write_text(NETWORK)


@cache
def network() -> nn.Module:
    """The same network in this process."""
    names: dict[str, Callable[[], nn.Module]] = {}
    exec(NETWORK, names)
    return names["make"]()


def images() -> Dataset:
    """What is certified."""
    return data.load("sample", "test")


def settings_for(
    model: nn.Module,
    dataset: Dataset,
    certification: Certification,
    *,
    model_name: str = "bright",
    weights: str = "",
    selection: Selection = ALL_IMAGES,
    stopping: Stopping | None = None,
) -> FileSettings:
    """The settings of a certificate file of this network."""
    with open_classifier(model, dataset, certification) as sampler:
        return file_settings(
            sampler,
            dataset,
            with_stopping(certification, stopping),
            model_name=model_name,
            weights=weights,
            selection=selection,
        )


def certify_settings(
    model: nn.Module,
    dataset: Dataset,
    settings: FileSettings,
    *,
    path: Path,
    time_limit: TimeLimit | None = None,
) -> Certificates:
    """Certify what a file of these settings lacks."""
    with open_classifier(model, dataset, settings.certification) as sampler:
        return certify_file(sampler, dataset, settings, path=path, time_limit=time_limit)


def certify_shards(
    model: nn.Module,
    dataset: Dataset,
    settings: FileSettings,
    *,
    path: Path,
    world: World = ALONE,
    shards: str = "",
    time_limit: TimeLimit | None = None,
    on_progress: OnProgress = ignore_progress,
) -> Outcome:
    """What one process of a job does."""
    with open_classifier(model, dataset, settings.certification) as sampler:
        return certify_together(
            sampler,
            dataset,
            settings,
            path=path,
            world=world,
            shards=shards,
            time_limit=time_limit,
            on_progress=on_progress,
        )


def run_settings(
    *, skip: int = 25, maximum: int | None = None, n: int = N, anytime: bool = False
) -> FileSettings:
    """The settings of the whole file."""
    certification = Certification(sigma=SIGMA, guarantee=FixedDraws(n0=N0, n=n), seed=SEED)
    stopping = Stopping(tolerance=0.2, max_draws=768) if anytime else None
    return settings_for(
        network(),
        images(),
        certification,
        model_name="digits:make",
        selection=Selection(skip=skip, maximum=maximum),
        stopping=stopping,
    )


def certify_as(
    world: World,
    settings: FileSettings,
    path: Path,
    *,
    shards: str = "",
    time_limit: TimeLimit | None = None,
    on_progress: OnProgress = ignore_progress,
) -> Outcome:
    """What one process of a job does, here in a thread: locks hold between threads as well."""
    return certify_shards(
        network(),
        images(),
        settings,
        path=path,
        world=world,
        shards=shards,
        time_limit=time_limit,
        on_progress=on_progress,
    )


def certify_with(processes: int, settings: FileSettings, path: Path) -> list[Outcome]:
    """What all processes of a job do."""
    with ThreadPoolExecutor(processes) as pool, warnings.catch_warnings():
        worlds = [World(rank, processes) for rank in range(processes)]
        return list(pool.map(lambda world: certify_as(world, settings, path), worlds))


def without_time(path: Path) -> list[list[str]]:
    """The cells of a file but for the time column."""
    lines = [line.split("\t") for line in path.read_bytes().decode().splitlines(keepends=True)]
    return [line[:5] + line[6:] for line in lines]


def assert_same(path: Path, expected: Path) -> None:
    """Files are equal but for the time column, and nothing else is left of the run."""
    assert without_time(path) == without_time(expected)
    assert settings_path(path).read_text() == settings_path(expected).read_text()
    assert not leftovers(path)


def leftovers(path: Path) -> Sequence[str]:
    """Names of shards, locks and journals beside a file."""
    return sorted(
        file.name
        for file in path.parent.glob(f"{path.stem}[-.]*")
        if file.suffix in (".lock", SUFFIX) or "-of-" in file.name
    )


def journals(path: Path) -> Sequence[Path]:
    """The journals of partial votes beside a file, of any settings."""
    return sorted(path.parent.glob(f"{path.stem}.*{SUFFIX}"))


def save_votes(path: Path, settings: FileSettings, rows: Iterable[Certificate]) -> None:
    """Leave partial votes as a run that was killed does."""
    Journal(path, settings).append({row.idx: PartialVotes.of_row(row) for row in rows})


def saved_votes(path: Path, settings: FileSettings) -> dict[int, PartialVotes]:
    """The partial votes that a run of these settings would resume."""
    return Journal(path, settings).read()
