"""A network and a run that take a moment, for tests in which many processes certify one data set."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

from torch import nn

from smoothmix import data
from smoothmix._process.world import World
from smoothmix.certificates import FileSettings, settings_path
from smoothmix.certify.dataset import Progress, file_settings
from smoothmix.certify.loop import Budget
from smoothmix.certify.workers import Outcome, certify_together
from smoothmix.config import Certification
from smoothmix.data import Dataset
from smoothmix.stats.anytime import Stopping

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
    "--model", "digits:make", "--sigma", SIGMA, "--data", "sample", "--n0", N0, "--n", N, "--seed", SEED,
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


def run_settings(
    *, skip: int = 25, maximum: int | None = None, n: int = N, anytime: bool = False
) -> FileSettings:
    """The settings of the whole file."""
    how = Certification(sigma=SIGMA, n0=N0, n=n, seed=SEED)
    stopping = Stopping(tolerance=0.2, max_draws=768) if anytime else None
    return file_settings(
        network(),
        images(),
        how,
        model_name="digits:make",
        skip=skip,
        maximum=maximum,
        stopping=stopping,
    )


def certify_as(
    world: World,
    settings: FileSettings,
    path: Path,
    *,
    shards: str = "",
    budget: Budget | None = None,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> Outcome:
    """What one process of a job does, here in a thread: locks hold between threads as between processes."""
    return certify_together(
        network(),
        images(),
        settings,
        path=path,
        world=world,
        shards=shards,
        budget=budget,
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
    """Files are equal but for the time column, with equal settings, and nothing else is left of the run."""
    assert without_time(path) == without_time(expected)
    assert settings_path(path).read_text() == settings_path(expected).read_text()
    assert not leftovers(path)


def leftovers(path: Path) -> Sequence[str]:
    """Names of parts and locks beside a file."""
    return sorted(
        file.name
        for file in path.parent.glob(f"{path.stem}[-.]*")
        if file.suffix == ".lock" or "-of-" in file.name
    )
