"""One run as several shards: each has its own file and lock, and one process merges them. No torch.

All that the processes of a run must know of each other is in these files (`shard.py` has their
names) and locks, so that they may start, die and come back in any order.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import final

from smoothmix._io.locks import InUseError, allow_open_files, exclusive, is_held
from smoothmix._io.temporary import remove_abandoned_in
from smoothmix.certificates.file import Certificates, read
from smoothmix.certificates.output import require_output
from smoothmix.certificates.partial import Journal
from smoothmix.certificates.row import GRID_COLUMNS, to_line
from smoothmix.certificates.settings import (
    FileSettings,
    differences,
    load_settings,
    refuse_others,
    require_own_settings,
    settings_path,
)
from smoothmix.certificates.shard import Shard, shards_beside
from smoothmix.certificates.tools import bound, merge_verified, require_verified, save
from smoothmix.config import require
from smoothmix.errors import CertificateError, UsageError

REPAIR = "repair that file, or delete it to have its images certified again"


def settings_of(shard: Shard, whole: FileSettings) -> FileSettings:
    """The settings of a shard, from those of the whole file."""
    return replace(whole, shard=shard.name)


def rows_missing(shard: Shard, whole: FileSettings) -> int:
    """How many images of a shard still have no row."""
    return max(0, len(settings_of(shard, whole).indices) - rows_in(shard.path))


def rows_in(path: Path) -> int:
    """The number of whole rows in a certificate file, which are not parsed; 0 without a file."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return 0
    return _count_rows(path, status.st_size, status.st_mtime_ns)


# Processes that wait for others count often, and perhaps over a network: each state of a file is
# read only once.
@lru_cache(maxsize=4096)
def _count_rows(path: Path, size: int, modified: int) -> int:
    try:
        return max(0, path.read_bytes().count(b"\n") - 1)
    except FileNotFoundError:
        return 0


def remove_leftovers(path: Path) -> None:
    """Delete what killed processes left for shards of a whole file that is complete."""
    shard = rf"{re.escape(path.stem)}-\d+-of-\d+"
    # Whoever writes a shard removes its abandoned files, but nobody will write these again.
    remove_abandoned_in(path.parent, rf"{shard}\.(?:tsv|toml)")
    pattern = re.compile(rf"{shard}\.lock", re.ASCII)
    for file in list(path.parent.iterdir()):
        if not pattern.fullmatch(file.name):
            continue
        # It is removed as it is released; one that is held belongs to a process that is alive.
        with suppress(UsageError), exclusive(file):
            pass


def started_shards(path: Path, settings: FileSettings) -> list[Shard]:
    """The shards of a run that some process has started; those of another run are refused.

    A shard without rows counts if it has the settings of this run: its process may be at its first
    image. If its settings are others, an attempt that failed has left it.
    """
    return [shard for shard in shards_beside(path) if _belongs(shard, settings)]


def _belongs(shard: Shard, settings: FileSettings) -> bool:
    existing = load_settings(shard.path)
    if existing is None:
        # Merged and removed since it was listed, or a file that has lost its settings.
        require(
            not rows_in(shard.path),
            f"{shard.path}: has no {settings_path(shard.path).name} beside it",
        )
        return False
    own = settings_of(shard, settings)
    if rows_in(shard.path):
        refuse_others(shard.path, existing, own)
    return not differences(existing, own)


@final
@dataclass(frozen=True)
class ShardedRun:
    """A run that is split into shards."""

    path: Path
    """The whole file."""
    settings: FileSettings
    """Its settings."""
    shards: tuple[Shard, ...]

    @property
    def complete(self) -> bool:
        """Whether the whole file has all its rows."""
        return rows_in(self.path) >= len(self.settings.indices)

    @property
    def unfinished(self) -> tuple[Shard, ...]:
        """Shards that still lack rows."""
        return tuple(shard for shard in self.shards if rows_missing(shard, self.settings))

    def start(self, shard: Shard) -> bool:
        """Whether a shard still needs work; it first gets its rows of an unfinished whole file.

        False where another process has finished it meanwhile, and perhaps merged it.
        """
        with exclusive(shard.path):
            if self.complete or not rows_missing(shard, self.settings):
                return False
            if not rows_in(self.path):
                return True
            unfinished = read(self.path)
            if unfinished.settings is None:
                return True
            # The rows of a file are those of its first images, so the ones that belong to a shard
            # are the first of the shard too.
            indices = set(settings_of(shard, self.settings).indices)
            rows = tuple(row for row in unfinished.rows if row.idx in indices)
            if len(rows) > rows_in(shard.path):
                settings = replace(
                    unfinished.settings, shard=shard.name, images=self.settings.images
                )
                digests = unfinished.digests
                if digests is not None:
                    # The whole file may have been finished, before it got more images.
                    digests = digests.over(())
                part = replace(unfinished, rows=rows, settings=settings, digests=digests)
                save(part, shard.path)
            return True

    def merge(self) -> bool:
        """Write the whole file from finished shards, and remove these; False if others are at work.

        If a process died after it had written the whole file, what it left is removed.
        """
        try:
            # All locks at once: nobody may add a row while the shards are read and removed.
            with ExitStack() as held:
                held.enter_context(exclusive(self.path))
                shards: Sequence[Shard] = self.shards
                if self.complete:
                    shards = started_shards(self.path, self.settings)
                allow_open_files(len(shards))
                for shard in shards:
                    held.enter_context(exclusive(shard.path))
                if not self.complete:
                    save(self._merged(), self.path)
                whole = _closed(read(self.path))
                _remove(shards, whole)
                Journal(self.path, self.settings).remove_if_finished(whole.indices)
            remove_leftovers(self.path)
        except InUseError:
            return False
        return True

    def _merged(self) -> Certificates:
        files = []
        for shard in self.shards:
            # There may be more shards than images, and those without images have no file.
            if settings_of(shard, self.settings).indices:
                files.append(_verified(shard))
        merged = merge_verified(files)
        if not rows_in(self.path):
            return merged
        before = read(self.path)
        if before.settings is None or merged.settings is None:
            return merged
        lost = before.indices - merged.indices
        # The whole file would be replaced, and with it rows that someone has added meanwhile.
        if lost:
            raise CertificateError(
                f"{self.path}: has image {min(lost)}, which none of its shards has"
            )
        images = max(before.settings.images, merged.settings.images)
        whole = replace(merged, settings=replace(merged.settings, images=images))
        return bound(whole, finished=not whole.missing)


def split_run(
    path: Path, settings: FileSettings, *, requested: int | None, default: int
) -> ShardedRun:
    """The shards of a run: those that exist, else as many as requested, else the default number.

    What cannot be resumed is refused: a damaged shard, one of another run, another number of
    shards, more images.
    """
    require_own_settings(path)
    being_written = is_held(require_output(path))
    # Before the whole file is examined: once that exists, its shards disappear.
    started = started_shards(path, settings)
    _refuse_another_whole(path, settings)
    count = requested or min(default, len(settings.indices))
    if started:
        count = min(shard.count for shard in started)
    shards = tuple(Shard(path, number, count) for number in range(1, count + 1))
    run = ShardedRun(path, settings, shards)
    if run.complete:
        return run
    _refuse_another_split(path, started, requested)
    for shard in started:
        _refuse_more_images(shard, settings)
        # Damage is found here, before hours are spent on the other shards.
        _read(shard)
    # While shards are merged they disappear, and then the run is complete.
    if being_written and run.unfinished and not run.complete:
        raise InUseError(f"{path}: another smoothmix process is writing it as one file")
    return run


def _refuse_another_split(path: Path, started: Sequence[Shard], requested: int | None) -> None:
    counts = sorted({shard.count for shard in started})
    if len(counts) > 1:
        raise UsageError(
            f"{path}: is split into {counts[0]} and into {counts[1]} shards; "
            "delete the files of one kind"
        )
    if counts and requested not in (None, counts[0]):
        raise UsageError(
            f"{path}: is split into {counts[0]} shards already: give --shard number/{counts[0]}"
        )


def _refuse_another_whole(path: Path, settings: FileSettings) -> None:
    if not rows_in(path):
        return
    existing = load_settings(path)
    if existing is None:
        raise UsageError(
            f"{path}: has no {settings_path(path).name} beside it to say how it was made; "
            "use another --out"
        )
    refuse_others(path, existing, settings)


def _refuse_more_images(shard: Shard, settings: FileSettings) -> None:
    existing = load_settings(shard.path)
    if existing is not None and existing.images > settings.images:
        raise UsageError(
            f"{shard.path}: is a shard of a run of {existing.images} images, not "
            f"{settings.images}: finish it with the same --max, or delete its shards"
        )


def _read(shard: Shard) -> Certificates | None:
    """A shard's rows; None if it has none, or was merged meanwhile. Damage is an error."""
    try:
        if not rows_in(shard.path):
            return None
        return read(shard.path)
    except UsageError:
        # It was removed since its rows were counted.
        return None
    except CertificateError as error:
        raise CertificateError(f"{error}; {REPAIR}") from error


def _verified(shard: Shard) -> Certificates:
    """A shard, after every row has been computed again from its votes."""
    file = _read(shard)
    if file is None:
        raise CertificateError(f"{shard.path}: was removed just before it was to be merged")
    require_verified(file, advice=f"; {REPAIR}")
    return file


def _closed(file: Certificates) -> Certificates:
    """A whole file, after it got the digest over its rows if a process died before writing it."""
    if file.settings is None or file.digests is None or file.digests.finished or file.missing:
        return file
    require_verified(file)
    closed = bound(file, finished=True)
    file.settings.save(settings_path(file.path), closed.digests)
    return closed


def _remove(shards: Sequence[Shard], whole: Certificates) -> None:
    """Delete shards all of whose images are in the whole file."""
    rows = _rows_without_time(whole)
    for shard in shards:
        settings = load_settings(shard.path)
        if settings and not rows.keys() >= set(settings.indices):
            # It belongs to a run of more images, of which this one has certified the first.
            continue
        file = _read(shard)
        if file is None or _rows_without_time(file).items() <= rows.items():
            # The settings last: rows without them cannot be resumed.
            shard.path.unlink(missing_ok=True)
            settings_path(shard.path).unlink(missing_ok=True)


def _rows_without_time(file: Certificates) -> dict[int, str]:
    """The rows as they are written, by image; the same draws may have taken another time."""
    return {row.idx: to_line(replace(row, seconds=0.0), GRID_COLUMNS) for row in file.rows}
