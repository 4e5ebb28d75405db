"""Attack a smoothed classifier on the images of a data set, into a file that can be resumed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import final

from torch import nn

from smoothmix._io.locks import InUseError, is_held
from smoothmix._process.progress import OnProgress, Progress, ignore_progress
from smoothmix._process.world import SINGLE_PROCESS, World
from smoothmix.attacks.nearest import nearest_attack
from smoothmix.attacks.target import model_for_gradients
from smoothmix.certificates.attack_file import (
    SEARCH_VERSION,
    Attack,
    Attacks,
    AttackSettings,
    AttackWriter,
    SearchSettings,
    load_attack_settings,
    read_attacks,
    writing_attacks,
)
from smoothmix.certificates.attack_shards import merge_attacks, rows_of_all
from smoothmix.certificates.selection import parse_shards
from smoothmix.certificates.settings import settings_path
from smoothmix.certificates.shard import Shard, shards_beside
from smoothmix.certify.engine import engine_of_record
from smoothmix.certify.smoothed import Smoothed
from smoothmix.config import require
from smoothmix.data import Dataset
from smoothmix.inference.guards import check_images, check_noise, warn_of_doubts
from smoothmix.inference.sampler import Sampler
from smoothmix.networks import state_hash
from smoothmix.noise import GridNoise

USUAL_SEARCH = SearchSettings()

SHARDS_PER_PROCESS = 4
"""How many shards a run has per process that starts it: processes that finish early, or join later,
find shards that are free."""

PAUSE = 0.5
"""Seconds between two looks at the files of other processes."""


def attack_dataset(
    smoothed: Smoothed,
    dataset: Dataset,
    indices: Sequence[int],
    *,
    path: Path | str,
    model_name: str,
    search: SearchSettings = USUAL_SEARCH,
    shards: str = "",
    world: World = SINGLE_PROCESS,
    on_progress: OnProgress = ignore_progress,
) -> Attacks:
    """The attacks on images of a data set; those that the file has already are not repeated.

    A single process writes the file itself. Several split the images into shards with a file each,
    and so does a process with a list of `shards`, such as `3,4/8`. Whoever finds that all images
    have rows merges the shards into the file. Until then the result has the rows of all shards so
    far, and names those that are unfinished.
    """
    path = Path(path)
    noise = smoothed.distribution
    require(
        noise.norm == "L2",
        f"attacks look for small L2 distances, and {noise.name} noise certifies {noise.norm} "
        "radii: choose --noise grid or gaussian",
    )
    smoothed = _with_recorded_engine(smoothed, path)
    with smoothed.open(dataset.shape, seed=search.seed) as sampler:
        settings = AttackSettings(
            search=search,
            model=model_name,
            model_hash=state_hash(smoothed.model),
            data=dataset.name,
            split=dataset.split,
            data_hash=dataset.fingerprint,
            num_classes=smoothed.num_classes,
            sigma=smoothed.sigma,
            noise=noise.name,
            levels=noise.levels if isinstance(noise, GridNoise) else 0,
            batch=smoothed.batch,
            precision=smoothed.precision,
            engine=sampler.engine,
            search_version=SEARCH_VERSION,
        )
        # Errors of the network appear here, before there is any file.
        sampler.check_network(dataset.shape)
        warn_of_doubts(smoothed.sigma, dataset)
        attacker = _Attacker(
            sampler=sampler,
            model=model_for_gradients(sampler),
            dataset=dataset,
            indices=indices,
            path=path,
            settings=settings,
            on_progress=on_progress,
        )
        if world.alone and not shards and not shards_beside(path):
            attacker.attack_into(path, indices)
            return read_attacks(path)
        return attacker.attack_shards(_chosen_shards(path, shards, world), waits=not shards)


def _with_recorded_engine(smoothed: Smoothed, path: Path) -> Smoothed:
    """The classifier with the engine that began the attack, as rounding may depend on it."""
    if smoothed.engine != "auto":
        return smoothed
    for file in (path, *(shard.path for shard in shards_beside(path))):
        # A shard may be merged and removed meanwhile.
        if file.exists() and settings_path(file).exists():
            record = load_attack_settings(file).engine
            return replace(smoothed, engine=engine_of_record(file, record))
    return smoothed


def _chosen_shards(path: Path, shards: str, world: World) -> list[Shard]:
    """The shards of these numbers, or all, in the order in which this process tries them."""
    if shards:
        numbers, count = parse_shards(shards)
    else:
        # Those that exist are resumed in their files.
        count = max(
            (shard.count for shard in shards_beside(path)),
            default=SHARDS_PER_PROCESS * world.size,
        )
        numbers = tuple(range(1, count + 1))
    chosen = [Shard(path, number, count) for number in numbers]
    own = chosen[world.rank :: world.size]
    # The shards of other processes come last: those may only be slower to start.
    others = [shard for shard in chosen if shard not in own]
    return [*own, *others]


@final
@dataclass(frozen=True, kw_only=True)
class _Attacker:
    """Attacks images of one run, into whichever of its files."""

    sampler: Sampler
    model: nn.Module
    dataset: Dataset
    indices: Sequence[int]
    """All images of the run."""
    path: Path
    """The whole file."""
    settings: AttackSettings
    on_progress: OnProgress

    def attack_into(self, path: Path, indices: Sequence[int]) -> None:
        """Attack those of the images that have no row yet, into one file."""
        with writing_attacks(path, self.settings) as writer:
            done = rows_of_all(self.path, self.settings).keys()
            remaining = [index for index in indices if index not in done]
            finished = len(indices) - len(remaining)
            self.on_progress(Progress(finished, len(indices), ""))
            for number, index in enumerate(remaining, start=finished + 1):
                row = self._attack(index, writer)
                self.on_progress(Progress(number, len(indices), _note(row)))

    def _attack(self, index: int, writer: AttackWriter) -> Attack:
        # One by one: images of a folder may not fit into memory.
        (image,) = self.dataset.images([index])
        check_images(image[None])
        check_noise(image[None], self.sampler.noise, [index])
        row = nearest_attack(
            self.sampler,
            image,
            index,
            int(self.dataset.labels[index]),
            self.settings.search,
            model=self.model,
        )
        writer.append(row)
        return row

    def attack_shards(self, shards: Sequence[Shard], *, waits: bool) -> Attacks:
        """Attack shards that are free, and merge all once every image of the run has a row.

        With `waits`, shards that other processes hold are waited for, and taken over if those die.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        while True:
            worked = False
            for shard in shards:
                worked |= self._attack_shard(shard)
            rows = rows_of_all(self.path, self.settings)
            if not self._without_rows(self.indices, rows):
                # Another process may be merging, or about to see that it can.
                if merge_attacks(self.path, self.settings):
                    return read_attacks(self.path)
            elif not waits:
                return self._unfinished(shards, rows, worked=worked)
            if not worked:
                time.sleep(PAUSE)

    def _attack_shard(self, shard: Shard) -> bool:
        """Attack one shard; False where it has all rows, or another process holds it."""
        # A held shard is not even listed: its rows are being written.
        if is_held(shard.path):
            return False
        indices = shard.of(self.indices)
        if not self._without_rows(indices, rows_of_all(self.path, self.settings)):
            return False
        with suppress(InUseError):
            self.attack_into(shard.path, indices)
            return True
        # Another process was faster; it holds the lock as long as it lives.
        return False

    def _without_rows(self, indices: Sequence[int], rows: dict[int, Attack]) -> list[int]:
        return [index for index in indices if index not in rows]

    def _unfinished(
        self, shards: Sequence[Shard], rows: dict[int, Attack], *, worked: bool
    ) -> Attacks:
        """What there is of a run whose other shards are for other commands."""
        (count,) = {shard.count for shard in shards}
        unfinished = []
        for number in range(1, count + 1):
            shard = Shard(self.path, number, count)
            if self._without_rows(shard.of(self.indices), rows):
                unfinished.append(shard)
        held = [shard for shard in shards if shard in unfinished]
        if held and not worked:
            raise InUseError(f"{held[0].path}: another smoothmix process is writing it")
        return Attacks(
            path=self.path,
            settings=self.settings,
            rows=tuple(rows[index] for index in sorted(rows)),
            unfinished=tuple(shard.name for shard in unfinished),
        )


def _note(row: Attack) -> str:
    if row.distance is None:
        return f"image {row.idx}: nothing found"
    return f"image {row.idx}: class {row.adversarial} at distance {row.distance:.3f}"
