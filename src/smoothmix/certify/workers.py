"""Certify a data set with many processes: each takes parts of the run that nobody holds, until the file is whole."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from torch import nn

from smoothmix._io.locks import InUseError
from smoothmix._process.world import World
from smoothmix.certificates import Certificates, FileSettings, read, writing
from smoothmix.certificates.shards import Division, Part, begun_parts, divide, parse_shards, rows_in
from smoothmix.certify.dataset import Progress, certify_file, file_sampler, fill, undecided
from smoothmix.certify.loop import Budget
from smoothmix.data import Dataset
from smoothmix.inference.sampler import Sampler

PARTS_PER_PROCESS = 4
"""Into how many parts a run is cut for each process that begins it: those that are done first, and those that come
later, find parts that nobody has begun."""

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0
"""Seconds between two looks at the files of others."""

SECONDS_BETWEEN_COUNTS = 1.0


@dataclass(frozen=True)
class Outcome:
    """What a process of many leaves behind."""

    file: Certificates | None
    """The whole file; None where parts are still to be made."""
    asked: tuple[Part, ...] = ()
    """The parts that this command was to make."""
    unfinished: tuple[Part, ...] = ()
    """Those that lack images, of all."""


def certify_together(
    model: nn.Module,
    dataset: Dataset,
    settings: FileSettings,
    *,
    path: Path,
    world: World,
    shards: str = "",
    budget: Budget | None = None,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> Outcome:
    """Certify a data set into `path`, together with whoever else does.

    A single process writes that file itself. Several cut the run into parts, of which each has a file of its own, and
    so do those that are told which ones to make (`3,4/8`). Parts that are there already are gone on with, whoever left
    them. Whoever finds all finished puts them together: that file is the one that a single process would have written.
    """
    if world.alone and not shards and not begun_parts(path, settings):
        return Outcome(
            certify_file(
                model, dataset, settings, path=path, budget=budget, on_progress=on_progress
            )
        )
    numbers, asked = parse_shards(shards) if shards else (None, None)
    path.parent.mkdir(parents=True, exist_ok=True)
    division = divide(path, settings, asked=asked, usual=PARTS_PER_PROCESS * world.size)
    chosen = [part for part in division.parts if numbers is None or part.number in numbers]
    if division.complete:
        division.put_together()
    own = chosen[world.rank :: world.size]
    worker = _Worker(
        model=model,
        dataset=dataset,
        division=division,
        # Others' parts last: whoever they fall to may only be slower to start.
        chosen=(*own, *(part for part in chosen if part not in own)),
        waits=not (world.alone and shards),
        budget=budget or Budget(),
        on_progress=on_progress,
    )
    return worker.work()


@dataclass(kw_only=True)
class _Worker:
    """One process at work on the parts of a run."""

    model: nn.Module
    dataset: Dataset
    division: Division
    chosen: tuple[Part, ...]
    """The parts to make, in the order in which to look whether they are free."""
    waits: bool
    """Whether to wait for parts that other processes hold, to take them over should those die."""
    budget: Budget
    on_progress: Callable[[Progress], None]
    _end: float = field(init=False)
    _counted: float = field(init=False, default=-math.inf)
    _elsewhere: int = field(init=False, default=0)
    """Rows in the chosen parts but the one in work, when they were last counted."""

    def __post_init__(self) -> None:
        self._end = time.monotonic() + self.budget.seconds

    def work(self) -> Outcome:
        """Take parts until there is nothing left to take, and wait for the rest."""
        division, worked, pause = self.division, False, FIRST_PAUSE
        with file_sampler(self.model, division.settings) as sampler:
            while not division.complete:
                left = [part for part in self.chosen if part.left(division.settings)]
                in_time = time.monotonic() < self._end
                if in_time and any(self._take(part, sampler) for part in left):
                    worked, pause = True, FIRST_PAUSE
                    continue
                nothing_to_come = not in_time or not self.waits or not left
                if division.unfinished and nothing_to_come:
                    break
                if not division.unfinished and division.put_together():
                    break
                self.on_progress(
                    replace(self._progress(), waiting_for=tuple(part.number for part in left))
                )
                time.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
        return self._outcome(worked)

    def _take(self, part: Part, sampler: Sampler) -> bool:
        """Make one part, or say that there is nothing to do for it: it is finished, or in other hands."""
        settings = part.settings(self.division.settings)
        try:
            if not self.division.deal(part):
                return False
            with writing(part.path, settings) as writer:
                seconds = max(self._end - time.monotonic(), 1e-3)
                self._counted = -math.inf
                fill(
                    writer,
                    sampler,
                    self.dataset,
                    replace(self.budget, seconds=seconds),
                    lambda state: self._tell(part, state),
                )
        except InUseError:
            return False
        return True

    def _tell(self, part: Part, state: Progress) -> None:
        all_parts = self._progress(part, state.done)
        self.on_progress(replace(state, done=all_parts.done, total=all_parts.total))

    def _progress(self, part: Part | None = None, done: int = 0) -> Progress:
        """How far the chosen parts are: our own as we know it, the others as counted a moment ago."""
        if part is None or time.monotonic() - self._counted > SECONDS_BETWEEN_COUNTS:
            self._elsewhere = sum(rows_in(other.path) for other in self.chosen if other != part)
            self._counted = time.monotonic()
        total = sum(len(part.settings(self.division.settings).indices) for part in self.chosen)
        return Progress(done=min(self._elsewhere + done, total), total=total)

    def _outcome(self, worked: bool) -> Outcome:
        if self.division.complete:
            return Outcome(read(self.division.path), self.chosen)
        left = [part for part in self.chosen if part.left(self.division.settings)]
        if left and not worked and time.monotonic() < self._end:
            raise InUseError(f"{left[0].path}: another smoothmix process is writing it")
        if left and not any(rows_in(part.path) for part in self.chosen):
            raise undecided(self.division.path)
        return Outcome(None, tuple(sorted(self.chosen)), self.division.unfinished)
