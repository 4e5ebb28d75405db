"""Certify a data set with several processes: each takes free shards until the file is complete."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import final

from smoothmix._io.locks import InUseError
from smoothmix._process.progress import OnProgress, Progress, ignore_progress
from smoothmix._process.world import World
from smoothmix.certificates import Certificates, FileSettings, read, writing
from smoothmix.certificates.old_partial import import_old_votes
from smoothmix.certificates.partial import Journal
from smoothmix.certificates.probes import RANDOM
from smoothmix.certificates.selection import parse_shards
from smoothmix.certificates.shard import Shard
from smoothmix.certificates.shards import (
    ShardedRun,
    remove_leftovers,
    rows_in,
    rows_missing,
    settings_of,
    split_run,
    started_shards,
)
from smoothmix.certify.dataset import certify_file, certify_remaining, unfinished
from smoothmix.certify.loop import TimeLimit
from smoothmix.config import require
from smoothmix.data import Dataset
from smoothmix.inference.sampler import Sampler

SHARDS_PER_PROCESS = 4
"""How many shards a run has per process that starts it: processes that finish early, or join later,
find shards that are free."""

FIRST_PAUSE = 0.1
LONGEST_PAUSE = 2.0
"""Seconds between two looks at the files of other processes."""

SECONDS_BETWEEN_COUNTS = 1.0
"""Between two counts of the rows of other processes."""


@final
@dataclass(frozen=True)
class Outcome:
    """What one of several processes leaves behind."""

    file: Certificates | None
    """The whole file; None where shards are unfinished."""
    requested: tuple[Shard, ...] = ()
    """The shards that this command was to certify."""
    unfinished: tuple[Shard, ...] = ()
    """All shards that lack images."""


def certify_together(
    sampler: Sampler,
    dataset: Dataset,
    settings: FileSettings,
    *,
    path: Path,
    world: World,
    shards: str = "",
    time_limit: TimeLimit | None = None,
    on_progress: OnProgress = ignore_progress,
) -> Outcome:
    """Certify a data set into `path`, together with all other processes that do the same.

    A single process writes the file itself. Several split the run into shards with a file each, and
    so does a process with a list of `shards`, such as `3,4/8`. Existing shards are resumed, whoever
    left them. A process that finds all shards finished merges them: the merged file is the one that
    a single process would have written.
    """
    if world.alone and not shards and not started_shards(path, settings):
        file = certify_file(
            sampler,
            dataset,
            settings,
            path=path,
            time_limit=time_limit,
            on_progress=on_progress,
        )
        if not file.missing:
            remove_leftovers(path)
        return Outcome(file)
    require(
        settings.probe != RANDOM,
        "the network draws random numbers, so that nothing shows whether all shards ran the same "
        "one: certify it with one process, without --shard",
    )
    _require_budget_of_shards(path, settings, world)
    numbers: tuple[int, ...] = ()
    requested = None
    if shards:
        numbers, requested = parse_shards(shards)
    path.parent.mkdir(parents=True, exist_ok=True)
    run = split_run(path, settings, requested=requested, default=SHARDS_PER_PROCESS * world.size)
    if run.complete:
        # A process that died after the merge may have left shards.
        run.merge()
    worker = _Worker(
        sampler=sampler,
        dataset=dataset,
        run=run,
        chosen=_chosen_shards(run, numbers, world),
        # Whoever names shards wants these and no others, which may be certified days later.
        waits=not (world.alone and shards),
        limit=time_limit or TimeLimit(),
        on_progress=on_progress,
    )
    return worker.work()


def _require_budget_of_shards(path: Path, settings: FileSettings, world: World) -> None:
    """Refuse budgets that cannot be divided among shards."""
    budget = settings.certification.budget
    if budget is None:
        return
    require(
        budget.hours is None or world.alone,
        "a budget of hours is the time of one process: start it without torchrun, or give each "
        "process a shard of its own, such as --shard 1/2",
    )
    complete = rows_in(path) >= len(settings.indices)
    require(
        complete or not rows_in(path),
        f"{path}: was started as one file, whose budget is not divided among shards: finish it "
        "with one process and without --shard",
    )


def _chosen_shards(run: ShardedRun, numbers: Sequence[int], world: World) -> tuple[Shard, ...]:
    """The shards of these numbers, or all, in the order in which this process tries them."""
    chosen = [shard for shard in run.shards if not numbers or shard.number in numbers]
    own = chosen[world.rank :: world.size]
    # The shards of other processes come last: those may only be slower to start.
    others = [shard for shard in chosen if shard not in own]
    return (*own, *others)


@final
@dataclass(kw_only=True)
class _Worker:
    """One process that works on the shards of a run."""

    sampler: Sampler
    dataset: Dataset
    run: ShardedRun
    chosen: tuple[Shard, ...]
    """The shards to certify, in the order in which to try whether they are free."""
    waits: bool
    """Whether to wait for shards that other processes hold, and to take them over if those die."""
    limit: TimeLimit
    on_progress: OnProgress
    _journal: Journal = field(init=False)
    _end: float = field(init=False)
    _counted_at: float = field(init=False, default=-math.inf)
    _rows_elsewhere: int = field(init=False, default=0)
    """Rows of the chosen shards but the current one, when they were last counted."""

    def __post_init__(self) -> None:
        self._end = time.monotonic() + self.limit.seconds
        # One journal for all shards: they resume what any process has drawn for their images.
        self._journal = Journal(self.run.path, self.run.settings)

    def work(self) -> Outcome:
        """Certify shards until none is left to take, and wait for the rest."""
        worked = False
        pause = FIRST_PAUSE
        while not self.run.complete:
            if self._certify_any():
                worked = True
                pause = FIRST_PAUSE
                continue
            if self.run.unfinished:
                if not self._may_wait():
                    break
            elif self.run.merge():
                break
            self._report_waiting()
            # Others may need hours: the pauses grow, and a file system over a network gets rest.
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
        return self._outcome(worked)

    def _certify_any(self) -> bool:
        """Certify the first shard that is free; False if there is none, or no time."""
        if not self._has_time():
            return False
        # It stops at the first that is certified: others may have finished some meanwhile.
        return any(self._certify(shard) for shard in self._remaining())

    def _has_time(self) -> bool:
        return time.monotonic() < self._end

    def _may_wait(self) -> bool:
        """Whether shards of other processes may still come to this one."""
        return self.waits and self._has_time() and bool(self._remaining())

    def _remaining(self) -> list[Shard]:
        return [shard for shard in self.chosen if rows_missing(shard, self.run.settings)]

    def _certify(self, shard: Shard) -> bool:
        """Certify one shard; False where it is finished, or another process holds it."""
        settings = settings_of(shard, self.run.settings)
        try:
            if not self.run.start(shard):
                return False
            with writing(shard.path, settings) as writer:
                self._counted_at = -math.inf
                # A single process of an earlier version may have left votes beside the whole file.
                import_old_votes(self.run.path, self.run.settings, self._journal)
                # A limit of zero would be refused; so little time is enough to save the votes.
                seconds = max(self._end - time.monotonic(), 1e-3)
                certify_remaining(
                    writer,
                    self.sampler,
                    self.dataset,
                    self._journal,
                    time_limit=replace(self.limit, seconds=seconds),
                    on_progress=lambda progress: self._report(shard, progress),
                )
        except InUseError:
            # Another process was faster; it holds the lock as long as it lives.
            return False
        return True

    def _report_waiting(self) -> None:
        numbers = ", ".join(str(shard.number) for shard in self._remaining())
        self._report(None, Progress(0, 0, f"waiting for other processes with shard {numbers}"))

    def _report(self, current: Shard | None, progress: Progress) -> None:
        """Report the progress of all chosen shards: that of the current one, and others' rows."""
        # Rows of others are counted now and then only: there may be thousands of files.
        if current is None or time.monotonic() - self._counted_at > SECONDS_BETWEEN_COUNTS:
            self._rows_elsewhere = self._count_rows_elsewhere(current)
            self._counted_at = time.monotonic()
        total = 0
        for shard in self.chosen:
            total += len(settings_of(shard, self.run.settings).indices)
        done = min(self._rows_elsewhere + progress.done, total)
        self.on_progress(Progress(done, total, progress.note))

    def _count_rows_elsewhere(self, current: Shard | None) -> int:
        rows = 0
        for shard in self.chosen:
            if shard != current:
                rows += rows_in(shard.path)
        return rows

    def _outcome(self, worked: bool) -> Outcome:
        if self.run.complete:
            return Outcome(read(self.run.path), self.chosen)
        remaining = self._remaining()
        if remaining and not worked and self._has_time():
            raise InUseError(f"{remaining[0].path}: another smoothmix process is writing it")
        if remaining and not any(rows_in(shard.path) for shard in self.chosen):
            raise unfinished(self.run.path, self.run.settings)
        return Outcome(None, tuple(sorted(self.chosen)), self.run.unfinished)
