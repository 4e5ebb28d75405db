"""Certificate files: read ours and Cohen-style logs, and append rows to ours. No torch.

A file grows by whole rows in the order of its images. A run that was interrupted anywhere resumes
after the last whole row.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from io import FileIO
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from smoothmix._io.files import FileTooLargeError
from smoothmix._io.locks import exclusive
from smoothmix._io.text import counted
from smoothmix._io.unpacking import PACKED, UNPACK_ERRORS, read_unpacked
from smoothmix.certificates.digests import DigestRecord, RowDigests, removed_rows
from smoothmix.certificates.output import require_output
from smoothmix.certificates.own_rows import read_own
from smoothmix.certificates.parse import parse
from smoothmix.certificates.rescue import lost_file, rescue
from smoothmix.certificates.row import COLUMNS, DIGEST, GRID_COLUMNS, Certificate, to_line
from smoothmix.certificates.settings import (
    FileSettings,
    joined_records,
    load_bound_settings,
    load_settings,
    refuse_others,
    require_own_settings,
    settings_path,
    warn_of_changed_sources,
)
from smoothmix.errors import CertificateError, SmoothmixError, UsageError
from smoothmix.runs import zoo
from smoothmix.runs.folder import RunFolder

SECONDS_BETWEEN_SYNCS = 1.0
FILES_NAMED = 3
"""Files that a message names where a folder was given."""

LARGEST_FILE = 2**28
"""Bytes, unpacked: twice what ImageNet's validation split takes with votes for 100 classes."""


@dataclass(frozen=True)
class Certificates:
    """The rows of a file, with its settings if it has any."""

    path: Path
    rows: tuple[Certificate, ...]
    settings: FileSettings | None = None
    notes: tuple[str, ...] = ()
    """What a reader must know, such as a line that was left out."""
    digests: DigestRecord | None = None
    """The digests of the settings and of all rows, if the file has digests."""

    @property
    def radius(self) -> NDArray[np.float64]:
        """Certified radii, in the order of the rows."""
        return np.array([row.radius for row in self.rows])

    @property
    def correct(self) -> NDArray[np.bool_]:
        """Whether each image is certified as its true class."""
        return np.array([row.correct for row in self.rows], dtype=bool)

    @property
    def indices(self) -> set[int]:
        """The images that have a row."""
        return {row.idx for row in self.rows}

    @property
    def missing(self) -> list[int]:
        """Images of the settings that have no row."""
        if self.settings is None:
            return []
        present = self.indices
        return [i for i in self.settings.indices if i not in present]

    @property
    def finished(self) -> bool:
        """Whether all rows are there, and the digest over them if the file has digests."""
        return not self.missing and (self.digests is None or self.digests.finished)


def read(path: Path) -> Certificates:
    """The certificates in a file, a run folder or `zoo:NAME`.

    A file is one of ours or a Cohen-style log, also packed as .gz, .bz2, .xz or .zip.
    """
    # `zoo:NAME` arrives as a path too, since commands take both in one place.
    path = zoo.resolved(path)
    if path.is_dir():
        path = _file_in(path)
    return read_by(path, path)


def read_by(path: Path, other: Path) -> Certificates:
    """The certificates in a file, read by the settings of another one."""
    settings, digests = load_bound_settings(other)
    text = _text(path)
    if settings is not None and settings.labelled:
        levels = settings.certification.levels
        own = read_own(text, levels=levels, has_digests=settings.has_digests)
        # The usual case; whatever is unusual is read again by the reader that explains it.
        if own is not None:
            return Certificates(path, tuple(own), settings, (), digests)
    rows, notes = parse(text, path, settings)
    return Certificates(path, tuple(rows), settings, tuple(notes), digests)


def _file_in(folder: Path) -> Path:
    """The certificate file of a run folder, packed or not."""
    for ending in ("", *PACKED):
        path = folder / f"certificates.tsv{ending}"
        if path.exists():
            return path
    raise _missing(folder / "certificates.tsv")


def _missing(path: Path) -> UsageError:
    """The error for a certificate file that does not exist, with what to do about it."""
    problem = f"{path}: there is no such certificate file"
    if path.name != "certificates.tsv" or not path.parent.is_dir():
        return UsageError(problem)
    if RunFolder(path.parent).weights.exists():
        return UsageError(f"{problem}; certify it first: smoothmix certify {path.parent}")
    return UsageError(f"{problem}; {_files_instead(path.parent)}")


def _files_instead(folder: Path) -> str:
    """What to name instead of a folder that holds no certificates of its own."""
    names = []
    folders = 0
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            folders += 1
        elif not path.name.startswith("."):
            names.append(path.name)
    if names:
        listed = ", ".join(names[:FILES_NAMED])
        return f"name a log in the folder itself, if it is one of these: {listed}"
    if folders:
        return f"the folder holds {counted(folders, 'folder')}: name the runs or logs in them"
    return "the folder is empty"


def _text(path: Path) -> str:
    try:
        # Some editors begin a file with a mark of its encoding, which utf-8-sig leaves out.
        return read_unpacked(path, LARGEST_FILE).decode("utf-8-sig")
    except FileTooLargeError as error:
        raise CertificateError(str(error)) from None
    except FileNotFoundError:
        raise _missing(path) from None
    except (*UNPACK_ERRORS, UnicodeDecodeError) as error:
        reason = str(error) or type(error).__name__
        raise CertificateError(f"{path}: cannot be read ({reason})") from error


def header_of(columns: Sequence[str]) -> str:
    """The first line of a file with these columns."""
    return "\t".join(columns) + "\n"


@final
class Writer:
    """Appends rows to a certificate file, in the order of the images of its settings."""

    def __init__(self, path: Path, settings: FileSettings) -> None:
        self.path = path
        self.settings = settings
        self.file_settings = settings
        """The settings of the whole file, which may have more images than this run certifies."""
        self.done: list[Certificate] = []
        self._stream: FileIO | None = None
        self._synced = 0.0
        self._identity: Identity | None = None
        """Of the file that holds the rows so far; None before there is one."""
        self._lost = False

    @property
    def remaining(self) -> list[int]:
        """Images that are still to be certified, in order."""
        return list(self.settings.indices)[len(self.done) :]

    @property
    def whole(self) -> bool:
        """Whether the file has a row for every image of its settings."""
        return len(self.done) >= len(self.file_settings.indices)

    def resume(self, rows: Sequence[Certificate]) -> None:
        """Continue after the rows that the file holds."""
        self.done = list(rows)
        if self.path.exists():
            self._identity = _identity(self.path.stat())

    def append(self, row: Certificate) -> None:
        """Add a row, with its digest; the operating system has it when this returns.

        If the file was deleted or replaced, all rows are written elsewhere, and the error says so.
        """
        if self.file_settings.has_digests:
            row = self._row_digests.bound(row)
        self._require_in_place(row)
        try:
            if self._stream is None:
                # Unbuffered: what a failed write leaves in a buffer would be written on closing.
                self._stream = self.path.open("ab", buffering=0)
                self._identity = _identity(os.fstat(self._stream.fileno()))
                if self._stream.tell() == 0:
                    self._write(self._stream, header_of(self.file_settings.columns))
            self._write(self._stream, to_line(row, self.file_settings.columns))
        except OSError as error:
            raise SmoothmixError(
                f"{self.path}: image {row.idx} could not be written ({error.strerror or error}); "
                f"{len(self.done)} images are safe: free some disk space and run the same command "
                "again"
            ) from error
        self.done.append(row)

    def _require_in_place(self, *new: Certificate) -> None:
        """Save all rows, also new ones, elsewhere and raise, if the file is not where it was."""
        if self._is_in_place():
            # Rows without settings cannot be resumed.
            if not settings_path(self.path).exists():
                self.file_settings.save(settings_path(self.path))
            return
        # Once: closing must not save them again.
        self._lost = True
        # Not before: a copy of the rows for each new one would take quadratic time.
        rows = [*self.done, *new]
        columns = self.file_settings.columns
        content = [header_of(columns)]
        content.extend(to_line(row, columns) for row in rows)
        rescued = rescue(self.path, "".join(content).encode(), self.file_settings)
        raise lost_file(self.path, len(rows), rescued)

    def _is_in_place(self) -> bool:
        if self._identity is None:
            return self.path.parent.is_dir()
        try:
            return _identity(self.path.stat()) == self._identity
        except OSError:
            return False

    def _write(self, stream: FileIO, line: str) -> None:
        remaining = memoryview(line.encode())
        while remaining:
            remaining = remaining[stream.write(remaining) :]
        # Once per second at most: a sync may take longer than an image.
        if time.monotonic() - self._synced > SECONDS_BETWEEN_SYNCS:
            os.fsync(stream.fileno())
            self._synced = time.monotonic()

    def close(self) -> None:
        """Have the operating system put all rows on the disk, and check that they are there.

        The settings of a file with all rows get the digest over them.
        """
        if self._stream is not None:
            os.fsync(self._stream.fileno())
            self._stream.close()
            self._stream = None
        if self.done and not self._lost:
            self._require_in_place()
            # Last, and at once: a run that dies before is finished by the next one.
            if self.whole and self.file_settings.has_digests:
                self.save_settings()

    def save_settings(self) -> None:
        """Write the settings, with the digest over all rows if they are there."""
        record = None
        if self.whole and self.file_settings.has_digests:
            record = DigestRecord(self._row_digests.settings).over(self.done)
        self.file_settings.save(settings_path(self.path), record)

    # Once: a run may write many rows in a second.
    @cached_property
    def _row_digests(self) -> RowDigests:
        return self.file_settings.row_digests


Identity = tuple[int, int]
"""Device and number of a file, which a file of the same name does not share."""


def _identity(status: os.stat_result) -> Identity:
    return status.st_dev, status.st_ino


@contextmanager
def writing(path: Path, settings: FileSettings) -> Iterator[Writer]:
    """A writer that resumes a file of the same settings; a file of other settings is refused."""
    require_output(path).parent.mkdir(parents=True, exist_ok=True)
    with exclusive(path):
        # Again under the lock: a name that was free may have become something else.
        require_output(path)
        writer = Writer(path, settings)
        # Nothing may be written before it is clear that both files are ours.
        require_own_settings(path)
        earlier = None
        if path.exists():
            earlier = load_settings(path)
        writer.resume(_resumed_rows(path, earlier, settings))
        if earlier is not None and writer.done:
            writer.file_settings = replace(earlier, **continued_records(path, earlier, settings))
        writer.save_settings()
        try:
            yield writer
        finally:
            writer.close()


def _resumed_rows(
    path: Path, earlier: FileSettings | None, settings: FileSettings
) -> list[Certificate]:
    """The rows that an earlier run left; a cut last line is dropped from the file."""
    if not path.exists():
        return []
    rows: list[Certificate] = []
    if not _has_header_only(path):
        file = read(path)
        rows.extend(file.rows)
        if earlier is None:
            raise UsageError(
                f"{path}: has no {settings_path(path).name} beside it to say how it was made; "
                "use another --out"
            )
        refuse_others(path, earlier, settings)
        _require_order(path, rows, replace(settings, images=max(earlier.images, settings.images)))
        _require_digests(file)
    # Not before the settings have shown that the file is ours.
    _drop_cut_line(path)
    if not rows and path.read_bytes() != header_of(settings.columns).encode():
        # A run with other noise, which left no row, wrote other columns.
        os.truncate(path, 0)
    return rows


def _has_header_only(path: Path) -> bool:
    """Whether a file holds nothing but a header of ours, or the beginning of it."""
    for columns in (COLUMNS, (*COLUMNS, DIGEST), GRID_COLUMNS, (*GRID_COLUMNS, DIGEST)):
        header = header_of(columns).encode()
        with path.open("rb") as stream:
            start = stream.read(len(header) + 1)
        if header.startswith(start):
            return True
    return False


def _require_order(path: Path, rows: Sequence[Certificate], settings: FileSettings) -> None:
    """Refuse rows of other images than the first ones of the settings."""
    for row, idx in zip(rows, settings.indices, strict=False):
        if row.idx != idx:
            raise CertificateError(
                f"{path}: holds image {row.idx} where image {idx} should be; it cannot be resumed"
            )


def _require_digests(file: Certificates) -> None:
    """Refuse to continue rows that are not as they were written; warn of rows that are gone."""
    problems = digest_problems(file)
    if problems:
        raise CertificateError(
            f"{file.path}: {problems[0]}; it is not continued: restore it, or choose another --out"
        )
    record = file.digests
    if record is not None and len(file.rows) < record.rows:
        warnings.warn(
            f"{file.path}: {removed_rows(record, len(file.rows))}; the others are certified again",
            stacklevel=5,
        )


def digest_problems(file: Certificates) -> list[str]:
    """What the digests of a file show to have been edited, first in its settings."""
    settings = file.settings
    record = file.digests
    if settings is None or record is None:
        return []
    problems = []
    if record.settings != settings.digest:
        problems.append(
            f"the settings in {settings_path(file.path).name} were edited after the rows were "
            "written: sigma, the seed, n or another setting is not the one that rows are bound to"
        )
    # By the recorded digest: other settings make no row wrong, and rows that are wrong are named.
    row_digests = replace(settings.row_digests, settings=record.settings)
    for row in file.rows:
        if row.has_votes and not row_digests.fits(row):
            problems.append(
                f"image {row.idx}: the row was edited after it was written: its digest does not fit"
            )
    return problems


def continued_records(path: Path, earlier: FileSettings, settings: FileSettings) -> dict[str, Any]:
    """What the earlier run and this one record without having to agree.

    Other software may draw or round differently, which is allowed; a warning names it. So does
    another one if the source file of the network was edited.
    """
    for name in ("torch", "numpy"):
        old = earlier.versions.get(name)
        new = settings.versions.get(name)
        if old and new and new not in old.split(", "):
            warnings.warn(
                f"{path}: was started with {name} {old} and is resumed with {new}", stacklevel=4
            )
    warn_of_changed_sources(path, earlier, settings)
    return joined_records(earlier, settings)


def _drop_cut_line(path: Path) -> None:
    """Cut the file back to its last newline: the rest was being written when the run died."""
    data = path.read_bytes()
    whole = data.rfind(b"\n") + 1
    if whole < len(data):
        with path.open("r+b") as stream:
            stream.truncate(whole)
