"""Work that is interrupted: each scenario takes a folder from any state to its end."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import redirect_stderr
from dataclasses import dataclass, replace
from functools import cache
from io import StringIO
from pathlib import Path
from typing import final

import numpy as np

from smoothmix.certificates import Certification, SearchSettings, Selection, file
from smoothmix.certify import Smoothed, attack_dataset, loop
from smoothmix.certify.dataset import certify_dataset
from smoothmix.certify.extend import extend_dataset
from smoothmix.config import RunConfig
from smoothmix.data import MemoryDataset
from smoothmix.noise import GAUSSIAN
from smoothmix.runs.options import TrainingOptions
from smoothmix.stats.allocation import Budget
from smoothmix.stats.anytime import Stopping
from smoothmix.stats.guarantees import Anytime, FixedDraws
from smoothmix.training.run import open_run
from tests.certify.test_partial_votes import IsBright
from tests.conftest import Linear
from tests.helpers.certification import certify_shards, settings_for
from tests.helpers.guarantees import with_stopping
from tests.helpers.processes import tiny_run

EXACT = Certification(
    sigma=0.5, guarantee=FixedDraws(n0=20, n=96), noise=GAUSSIAN, seed=1, batch=32
)
RULES = Stopping(radii=(0.5,), max_draws=128)
MORE = Stopping(max_draws=256)
SHARED = Certification(
    sigma=0.5,
    guarantee=Anytime(Stopping(radii=(0.5,), max_draws=512), n0=20),
    seed=1,
    batch=32,
    budget=Budget(draws=1_000),
)
SEARCH = SearchSettings(n=100, search_draws=20, copies=2, steps=2, rounds=2)
FILE = "c.tsv"


@final
@dataclass(frozen=True)
class Scenario:
    """Something to finish, and what it must leave."""

    finish: Callable[[Path], None]
    """Do what remains; the folder may be in any state that a kill leaves."""
    prepare: Callable[[Path], None] = lambda folder: None
    """What is there before the first start, and is not disturbed."""
    weight: int = 1
    """How many points it gets, in relation to others: training takes longer than a file."""


@cache
def images() -> MemoryDataset:
    """A few images, of which the first is the hardest."""
    greys = 0.5 + np.array([0.5, 1.5, 1.5, 0.2], dtype=np.float32) / 4
    pixels = np.broadcast_to(greys[:, None, None, None], (4, 1, 4, 4)).copy()
    return MemoryDataset(
        name="greys",
        split="test",
        labels=np.ones(4, dtype=np.int64),
        class_names=("dark", "bright"),
        pixels=pixels,
    )


@cache
def images_on_the_grid() -> MemoryDataset:
    """The same images in 8 bits."""
    pixels = np.rint(images().pixels * 255).astype(np.uint8)
    return replace(images(), pixels=pixels)


def write_often() -> None:
    """Save and sync after every batch instead of now and then: more points, and worse ones."""
    loop.SECONDS_BETWEEN_SAVES = -1.0
    loop.SECONDS_BETWEEN_REPORTS = -1.0
    file.SECONDS_BETWEEN_SYNCS = -1.0


def certify(path: Path, certification: Certification, shard: str = "") -> None:
    certify_dataset(
        IsBright(),
        images(),
        certification,
        path=path,
        model_name="bright",
        selection=Selection(shard=shard),
    )


def exact(folder: Path) -> None:
    certify(folder / FILE, EXACT)


def anytime(folder: Path) -> None:
    certify(folder / FILE, with_stopping(EXACT, RULES))


def sharded(folder: Path) -> None:
    """One process certifies shard after shard; the last one merges."""
    settings = settings_for(IsBright(), images(), EXACT)
    for shards in ("1/2", "2/2"):
        certify_shards(IsBright(), images(), settings, path=folder / FILE, shards=shards)


def merged(folder: Path) -> None:
    """Shards with files of their own are merged by a command."""
    from smoothmix.cli import main

    parts = [folder / "first.tsv", folder / "second.tsv"]
    certify(parts[0], EXACT, shard="1/2")
    certify(parts[1], EXACT, shard="2/2")
    whole = folder / FILE
    if not whole.exists():
        # What the command says would fill the log of thousands of trials.
        messages = StringIO()
        with redirect_stderr(messages):
            code = main(["certificates", "merge", *map(str, parts), "--out", str(whole)])
        assert code == 0, messages.getvalue()


def extended(folder: Path) -> None:
    """A finished file is drawn further, unless that has been done."""
    extend_dataset(IsBright(), images(), with_stopping(EXACT, MORE), path=folder / FILE)


def shared(folder: Path) -> None:
    """All images share one budget: their rows come at the end, and votes are saved until then."""
    certify(folder / FILE, SHARED)


def attacked(folder: Path) -> None:
    """Attacks in two shards; the second one merges."""
    smoothed = Smoothed(Linear(16), sigma=0.5, num_classes=2)
    for shards in ("1/2", "2/2"):
        attack_dataset(
            smoothed,
            images_on_the_grid(),
            range(4),
            path=folder / "attacks.tsv",
            model_name="linear",
            search=SEARCH,
            shards=shards,
        )


def put_data(folder: Path) -> None:
    """The settings of a run of four steps, and its images."""
    tiny_run(folder, images=64, epochs=2)


def trained(folder: Path) -> None:
    """A run that saves a checkpoint after every step."""
    config = RunConfig.load(folder / "config.toml")
    with open_run(config, folder / "run", TrainingOptions(checkpoint_minutes=1e-9)) as trainer:
        trainer.run()


SCENARIOS = {
    "exact": Scenario(exact, weight=4),
    "anytime": Scenario(anytime, weight=4),
    "sharded": Scenario(sharded, weight=4),
    "merged": Scenario(merged, weight=2),
    "extended": Scenario(extended, prepare=anytime, weight=4),
    "shared": Scenario(shared, weight=2),
    "attacked": Scenario(attacked, weight=1),
    "trained": Scenario(trained, prepare=put_data, weight=1),
}


def contents(folder: Path) -> dict[str, object]:
    """All files below a folder, hidden ones too, without what a clock decides."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            found[str(path.relative_to(folder))] = _content(path, folder)
    return found


def _content(path: Path, folder: Path) -> object:
    content = path.read_bytes()
    if path.suffix == ".tsv":
        return _without_time(content)
    if path.name == "metrics.jsonl":
        lines = [json.loads(line) for line in content.splitlines()]
        return [(line["epoch"], line["loss"], line["accuracy"]) for line in lines]
    # A state holds the time that its epoch took. What it leads to is compared instead: weights.
    if path.suffix == ".pt":
        return "a state"
    return content.replace(str(folder).encode(), b"FOLDER")


def _without_time(content: bytes) -> object:
    header = content.partition(b"\n")[0].split(b"\t")
    if b"time" not in header:
        return content
    time = header.index(b"time")
    rows = [line.split(b"\t") for line in content.split(b"\n")]
    return [row[:time] + row[time + 1 :] for row in rows]


def empty(folder: Path) -> None:
    """Remove everything in a folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
