"""The logs and certificate files in a folder, its subfolders and their tar archives. No torch."""

from __future__ import annotations

import lzma
import os
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from smoothmix import certificates
from smoothmix._io.files import FileTooLargeError, read_limited
from smoothmix._io.unpacking import PACKED, TAR_ERRORS, UNPACK_ERRORS, read_unpacked
from smoothmix.analysis import Measured, Source, from_file, measure
from smoothmix.analysis.plain_logs import read_plain
from smoothmix.analysis.sources import sigma_in
from smoothmix.certificates import Certificates
from smoothmix.certificates.file import LARGEST_FILE
from smoothmix.certificates.parse import parse
from smoothmix.errors import SmoothmixError, UsageError, shown

MOST_FILES = 20_000
"""Files of a folder, and of an archive, that are considered."""

LARGEST_ARCHIVE = 2**32
"""Bytes that the files of one archive may have together."""

LONGEST_REASON = 300
"""Characters of what is said about a file that cannot be read."""

START = 512
"""Bytes that tell whether a file is a log."""

ARCHIVES = (".tar", ".tar.gz", ".tar.bz2", ".tar.xz", ".tgz")

TEXT_ERRORS = (UnicodeDecodeError, FileTooLargeError, *UNPACK_ERRORS)


@dataclass(frozen=True, kw_only=True)
class Unread:
    """A file that looks like a log and cannot be read."""

    place: str
    """Where it lies in the folder."""

    reason: str


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a folder holds."""

    runs: tuple[tuple[str, Measured], ...]
    """Where each lies in the folder, and its content."""

    unread: tuple[Unread, ...] = ()
    others: int = 0
    """Files that are neither logs nor certificates."""


@dataclass(frozen=True)
class _Text:
    """A file that may be a log."""

    path: Path
    content: bytes


def find(folder: Path, *, stated: Source) -> Found:
    """The logs and runs in a folder, with what is stated about its logs, in the order of paths."""
    if not folder.is_dir():
        raise UsageError(f"--leaderboard {folder}: there is no such folder")
    runs: list[tuple[str, Measured]] = []
    unread: list[Unread] = []
    others = 0
    for path, found in _contents(folder):
        place = str(path.relative_to(folder))
        if found is None:
            others += 1
            continue
        try:
            # An error that reading met is raised here, where all end up in one list.
            if isinstance(found, Exception):
                raise found
            runs.append((place, _read(found, replace(stated, path=str(path)))))
        except (SmoothmixError, *TEXT_ERRORS, tarfile.TarError) as error:
            reason = shown(_without_path(error, path), LONGEST_REASON)
            unread.append(Unread(place=place, reason=reason))
    return Found(runs=tuple(runs), unread=tuple(unread), others=others)


def _without_path(error: Exception, path: Path) -> str:
    """The message without the path it begins with, which stands beside it."""
    text = str(error) or type(error).__name__
    return text.removeprefix(str(path)).lstrip(":, ")


Content = tuple[Path, "_Text | Exception | None"]
"""A file: its text if it may be a log, what went wrong, or None for something else."""


def _contents(folder: Path) -> Iterator[Content]:
    for path in _files(folder):
        # Before the packing is examined: a .tar.xz is no packed log.
        if path.name.endswith(ARCHIVES):
            yield from _archived(path)
            continue
        try:
            yield path, _text_of(path)
        except TEXT_ERRORS as error:
            yield path, error


def _files(folder: Path) -> Iterator[Path]:
    """The regular files below a folder, in the order of their paths."""
    count = 0
    # Links to folders are not followed: they may lead in circles, or out of the folder.
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(parent, name)
            # To open a pipe would wait for ever.
            if name.startswith(".") or not path.is_file():
                continue
            count += 1
            if count > MOST_FILES:
                raise UsageError(
                    f"--leaderboard {folder}: holds more than {MOST_FILES:,} files; "
                    "name a folder with fewer"
                )
            yield path


def _text_of(path: Path) -> _Text | None:
    # Most files are no logs, and a folder may hold gigabytes of them: their start is enough.
    if path.suffix not in PACKED:
        with path.open("rb") as stream:
            start = stream.read(START)
        if not _may_be_log(path, start):
            return None
        return _Text(path, read_limited(path, LARGEST_FILE))
    content = read_unpacked(path, LARGEST_FILE)
    if not _may_be_log(path, content[:START]):
        return None
    return _Text(path, content)


def _may_be_log(path: Path, start: bytes) -> bool:
    """Whether a file has the header of a log, or the name of one."""
    header = start.partition(b"\n")[0]
    if b"idx" in header and b"label" in header:
        return True
    if path.name.startswith("certificates.tsv"):
        return True
    # A log that lost its header is worth a word; pictures and notes of a run are not.
    has_other_ending = path.suffix.lower() in (".png", ".pdf", ".md", ".toml", ".json", ".py")
    return sigma_in(Path(path.name)) is not None and not has_other_ending


def _archived(path: Path) -> Iterator[Content]:
    """The files in a tar archive, one after another: nothing is written to the disk."""
    count = 0
    size = 0
    try:
        # As a stream: to seek in a packed archive would unpack it again for each file.
        with tarfile.open(path, "r|*") as archive:
            for member in archive:
                # Links and devices could stand for anything on this machine.
                if not member.isfile():
                    continue
                count += 1
                size += member.size
                if count > MOST_FILES or size > LARGEST_ARCHIVE:
                    raise tarfile.TarError("holds more or larger files than logs can be")
                yield _member(archive, member, path)
    # tarfile passes on what the packing inside it raises.
    except (*TAR_ERRORS, lzma.LZMAError) as error:
        yield path, tarfile.TarError(str(error))


def _member(archive: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> Content:
    # The name serves only to be shown: nothing is opened by it.
    inside = path / member.name.replace("..", "").lstrip("/")
    if member.size > LARGEST_FILE:
        return inside, FileTooLargeError(inside, LARGEST_FILE)
    stream = archive.extractfile(member)
    if stream is None:
        return inside, None
    content = stream.read()
    if not _may_be_log(inside, content[:START]):
        return inside, None
    return inside, _Text(inside, content)


def _read(found: _Text, source: Source) -> Measured:
    # A file of ours is read with its settings, and its radii are checked against its votes.
    if found.path.is_file() and certificates.settings_path(found.path).exists():
        return _without_rows(measure(source))
    # Spreadsheets put a mark of the encoding first.
    text = found.content.decode("utf-8-sig")
    measured = read_plain(text, source)
    if measured is not None:
        return measured
    rows, notes = parse(text, found.path)
    if not rows:
        raise UsageError("has no certificates yet")
    file = Certificates(found.path, tuple(rows), None, tuple(notes))
    return _without_rows(from_file(file, name=found.path.name, source=source))


def _without_rows(measured: Measured) -> Measured:
    """The same without its rows: those of hundreds of files would fill the memory."""
    return replace(measured, file=replace(measured.file, rows=()))
