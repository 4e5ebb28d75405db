"""One run as parts: a file each, guarded by a lock, that many processes fill and one of them puts together. No torch.

The parts of `certificates.tsv` are `certificates-2-of-3.tsv` and so on beside it. Everything that processes have to
know of each other is in these files and their locks, so that they may start, die and come back in any order.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Sequence, Set
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from smoothmix._io.locks import InUseError, allow_open_files, exclusive, is_held
from smoothmix.certificates.file import Certificates, read
from smoothmix.certificates.partial import forget_begun, keep_begun, load_begun, remove_begun
from smoothmix.certificates.row import Certificate
from smoothmix.certificates.settings import (
    FileSettings,
    differences,
    load_settings,
    refuse_others,
    require_own_settings,
    require_tsv,
    settings_path,
)
from smoothmix.certificates.tools import merge, save, verify
from smoothmix.config import require
from smoothmix.errors import CertificateError, UsageError


@dataclass(frozen=True, order=True)
class Part:
    """Every `parts`-th image of a run, from the one with this number on."""

    whole: Path
    """The file that all parts are to become."""
    number: int
    """From 1 on."""
    parts: int

    @property
    def shard(self) -> str:
        """Its name in the settings."""
        return f"{self.number}/{self.parts}"

    @property
    def path(self) -> Path:
        """Its own file."""
        return self.whole.with_name(f"{self.whole.stem}-{self.number}-of-{self.parts}.tsv")

    def settings(self, whole: FileSettings) -> FileSettings:
        """Its settings, from those of the whole file."""
        return replace(whole, shard=self.shard)

    def left(self, whole: FileSettings) -> int:
        """How many images it still lacks."""
        return max(0, len(self.settings(whole).indices) - rows_in(self.path))


def parse_shards(shards: str) -> tuple[tuple[int, ...], int]:
    """Which parts of how many: `3/8` or `3,4/8`.

    >>> parse_shards("3,4/8")
    ((3, 4), 8)
    """
    match = re.fullmatch(r"([1-9]\d{0,8}(?:,[1-9]\d{0,8})*)/([1-9]\d{0,8})", shards, re.ASCII)
    numbers = tuple(sorted({int(text) for text in match[1].split(",")})) if match else ()
    good = match is not None and numbers[-1] <= int(match[2])
    require(
        good, f"a shard is written part/parts, such as 2/3, or several as 2,3/8, got {shards!r}"
    )
    assert match is not None
    return numbers, int(match[2])


def rows_in(path: Path) -> int:
    """How many whole rows a certificate file has, without reading what they say; 0 if it is not there."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return 0
    return _count_rows(path, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=4096)
def _count_rows(path: Path, size: int, changed: int) -> int:
    """Counted once for every state of the file: processes that wait look often, and over a network."""
    try:
        return max(0, path.read_bytes().count(b"\n") - 1)
    except FileNotFoundError:
        return 0


def parts_beside(path: Path) -> list[Part]:
    """All parts whose files are beside a whole file, or where it is to be."""
    pattern = re.compile(
        rf"{re.escape(path.stem)}-([1-9]\d*)-of-([1-9]\d*)\.(?:tsv|toml)", re.ASCII
    )
    names = [file.name for file in path.parent.glob(f"{glob.escape(path.stem)}-*-of-*.t*")]
    found = {
        Part(path, int(match[1]), int(match[2])) for match in map(pattern.fullmatch, names) if match
    }
    return [part for part in sorted(found) if part.number <= part.parts]


def begun_parts(path: Path, settings: FileSettings) -> list[Part]:
    """The parts of a run that some process has begun; refused if they are of another run.

    One without any row counts if it has the settings of this run: its process may be at its first image. With others it
    is what a first try left that failed.
    """
    return [part for part in parts_beside(path) if _belongs(part, settings)]


def _belongs(part: Part, settings: FileSettings) -> bool:
    there = load_settings(part.path)
    if there is None:
        # Put together and removed since it was listed, or a file that has lost its settings.
        require(
            not rows_in(part.path), f"{part.path}: has no {settings_path(part.path).name} beside it"
        )
        return False
    own = part.settings(settings)
    if rows_in(part.path):
        refuse_others(part.path, there, own)
    return not differences(there, own)


@dataclass(frozen=True)
class Division:
    """A run cut into parts."""

    path: Path
    """The whole file."""
    settings: FileSettings
    """Its settings."""
    parts: tuple[Part, ...]

    @property
    def complete(self) -> bool:
        """Whether the whole file has all its rows."""
        return rows_in(self.path) >= len(self.settings.indices)

    @property
    def unfinished(self) -> tuple[Part, ...]:
        """Parts that lack images."""
        return tuple(part for part in self.parts if part.left(self.settings))

    def deal(self, part: Part) -> bool:
        """Whether a part is to be made; it gets its share of an unfinished whole file first, so nothing is drawn twice.

        Another process may have made it since we looked, and put it together with the rest.
        """
        with exclusive(part.path):
            if self.complete or not part.left(self.settings):
                return False
            indices = set(part.settings(self.settings).indices)
            self._hand_on_begun(part, indices)
            old = read(self.path) if rows_in(self.path) else None
            if old is None or old.settings is None:
                return True
            # The rows of a file are its first images, so those that fall to a part are its first ones too.
            rows = tuple(row for row in old.rows if row.idx in indices)
            if len(rows) > rows_in(part.path):
                settings = replace(old.settings, shard=part.shard, images=self.settings.images)
                save(replace(old, rows=rows, settings=settings), part.path)
            return True

    def _hand_on_begun(self, part: Part, indices: Set[int]) -> None:
        """Give a part the images in work that a single process has left, unless it has begun some itself."""
        own = part.settings(self.settings)
        left = [row for row in load_begun(self.path, self.settings).values() if row.idx in indices]
        if left and not load_begun(part.path, own):
            keep_begun(part.path, own, left)

    def put_together(self) -> bool:
        """Make the whole file of parts that are all finished, and remove them; False if another process is at work.

        A process that did so may have died before it had removed them all: then that is done.
        """
        try:
            with ExitStack() as held:
                held.enter_context(exclusive(self.path))
                there = self.parts if not self.complete else begun_parts(self.path, self.settings)
                allow_open_files(len(there))
                for part in there:
                    held.enter_context(exclusive(part.path))
                if not self.complete:
                    save(self._merged(), self.path)
                whole = read(self.path)
                _remove(there, whole)
                forget_begun(self.path, whole)  # of a run that one process began
        except InUseError:
            return False
        return True

    def _merged(self) -> Certificates:
        merged = merge(
            [_checked(part) for part in self.parts if part.settings(self.settings).indices]
        )
        before = read(self.path) if rows_in(self.path) else None
        if before is None or before.settings is None or merged.settings is None:
            return merged
        lost = {row.idx for row in before.rows} - {row.idx for row in merged.rows}
        if lost:
            raise CertificateError(
                f"{self.path}: has image {min(lost)}, which none of its parts has"
            )
        images = max(before.settings.images, merged.settings.images)
        return replace(merged, settings=replace(merged.settings, images=images))


def divide(path: Path, settings: FileSettings, *, asked: int | None, usual: int) -> Division:
    """How a run is cut: as the parts that are there already, or else as asked for, or else into the usual number.

    What cannot be gone on with is refused: a damaged part, one of another run, one cut otherwise, one with more images.
    """
    require_own_settings(path)
    being_written = is_held(require_tsv(path))
    # Before the whole file is looked at: once that is there, its parts vanish.
    begun = begun_parts(path, settings)
    _refuse_another_whole(path, settings)
    counts = sorted({part.parts for part in begun})
    number = counts[0] if counts else asked or min(usual, len(settings.indices))
    division = Division(path, settings, tuple(Part(path, k, number) for k in range(1, number + 1)))
    if division.complete:
        return division
    if len(counts) > 1:
        raise UsageError(
            f"{path}: is cut into {counts[0]} and into {counts[1]} parts; delete the parts of one kind"
        )
    if asked not in (None, number):
        raise UsageError(f"{path}: is cut into {number} parts already: give --shard part/{number}")
    for part in begun:
        _refuse_more_images(part, settings)
        _read(part)
    # Its parts vanish while it is put together, and then it is complete.
    if being_written and division.unfinished and not division.complete:
        raise InUseError(f"{path}: another smoothmix process is writing it as one file")
    return division


def _refuse_another_whole(path: Path, settings: FileSettings) -> None:
    if not rows_in(path):
        return
    there = load_settings(path)
    if there is None:
        beside = settings_path(path).name
        raise UsageError(
            f"{path}: has no {beside} beside it to say how it was made; use another --out"
        )
    refuse_others(path, there, settings)


def _refuse_more_images(part: Part, settings: FileSettings) -> None:
    there = load_settings(part.path)
    if there is not None and there.images > settings.images:
        raise UsageError(
            f"{part.path}: is part of a run of {there.images} images, not {settings.images}: finish it with the same "
            "--max, or delete its parts"
        )


def _read(part: Part) -> Certificates | None:
    """A part's rows, or what is wrong with them; None if it has none, or was put together with others meanwhile."""
    try:
        return read(part.path) if rows_in(part.path) else None
    except UsageError:
        return None
    except CertificateError as error:
        raise CertificateError(
            f"{error}; repair that file, or delete it to have its images certified again"
        ) from error


def _checked(part: Part) -> Certificates:
    """A part whose every row follows from its votes."""
    file = _read(part)
    if file is None:
        raise CertificateError(
            f"{part.path}: was removed while it was about to be put together with the others"
        )
    found = verify(file)
    if not found.ok:
        more = f" and {len(found.problems) - 1} more problems" if len(found.problems) > 1 else ""
        raise CertificateError(
            f"{part.path}: {found.problems[0]}{more}; repair that file, or delete it to have its images certified again"
        )
    return file


def _remove(parts: Sequence[Part], whole: Certificates) -> None:
    """Delete parts all of whose images are in the whole file. Settings last: rows without them are worth nothing."""
    kept = {row.idx: _without_time(row) for row in whole.rows}
    for part in parts:
        file, settings = _read(part), load_settings(part.path)
        if settings and not kept.keys() >= set(settings.indices):
            continue  # of a run of more images, which this one is a look into
        if file is None or all(kept.get(row.idx) == _without_time(row) for row in file.rows):
            part.path.unlink(missing_ok=True)
            settings_path(part.path).unlink(missing_ok=True)
            remove_begun(part.path)  # of a process that was stopped right after its last row


def _without_time(row: Certificate) -> Certificate:
    return replace(row, seconds=0.0)
