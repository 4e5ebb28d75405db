"""Certificate files: reading ours and the field's, and growing ours row by row through any interruption."""

from __future__ import annotations

import lzma
import os
import time
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from io import FileIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from smoothmix._io.files import FileTooLargeError, read_unpacked
from smoothmix._io.locks import exclusive
from smoothmix.certificates.row import COLUMNS, FIELD_COLUMNS, Certificate, from_cells, to_line
from smoothmix.certificates.settings import (
    MOST_IMAGES,
    FileSettings,
    joined_versions,
    load_settings,
    refuse_others,
    require_own_settings,
    require_tsv,
    settings_path,
)
from smoothmix.errors import CertificateError, SmoothmixError, UsageError
from smoothmix.runs import zoo
from smoothmix.runs.folder import RunFolder

HEADER = "\t".join(COLUMNS) + "\n"
SECONDS_BETWEEN_SYNCS = 1.0
LARGEST_FILE = 2**28
"""Bytes, unpacked: the validation split of ImageNet with votes for a hundred classes an image has half of it."""


@dataclass(frozen=True)
class Certificates:
    """The rows of a file, with its settings if it has any, and what a reader must know about them."""

    path: Path
    rows: tuple[Certificate, ...]
    settings: FileSettings | None = None
    notes: tuple[str, ...] = ()

    @property
    def radius(self) -> NDArray[np.float64]:
        """Certified radii, in the order of the rows."""
        return np.array([row.radius for row in self.rows])

    @property
    def correct(self) -> NDArray[np.bool_]:
        """Whether each image is certified as its label."""
        return np.array([row.correct for row in self.rows], dtype=bool)

    @property
    def missing(self) -> list[int]:
        """Images that the settings announce and no row has."""
        present = {row.idx for row in self.rows}
        return [i for i in self.settings.indices if i not in present] if self.settings else []


def read(path: Path) -> Certificates:
    """The certificates in a file of ours or a log of the field's (also .gz or .xz), a run folder or `zoo:NAME`."""
    path = zoo.resolved(path)
    if path.is_dir():
        there = [path / f"certificates.tsv{packed}" for packed in ("", ".gz", ".xz")]
        path = next((file for file in there if file.exists()), there[0])
    settings = load_settings(path)
    rows, notes = _parse(_text(path), path)
    return Certificates(path, tuple(rows), settings, tuple(notes))


def _text(path: Path) -> str:
    try:
        return read_unpacked(path, LARGEST_FILE).decode()
    except FileTooLargeError as error:
        raise CertificateError(str(error)) from None
    except FileNotFoundError:
        folder = RunFolder(path.parent)
        first = path.name == "certificates.tsv" and folder.weights.exists()
        what = f"; certify it first: smoothmix certify {path.parent}" if first else ""
        raise UsageError(f"{path}: there is no such certificate file{what}") from None
    except (OSError, EOFError, zlib.error, lzma.LZMAError, UnicodeDecodeError) as error:
        raise CertificateError(
            f"{path}: cannot be read ({error or type(error).__name__})"
        ) from error


def _parse(text: str, path: Path) -> tuple[list[Certificate], list[str]]:
    header: list[str] = []
    rows: list[Certificate] = []
    notes: list[str] = []
    seen: dict[int, int] = {}
    for number, (line, whole) in enumerate(_lines(text), start=1):
        if number == 1:
            header = line.removesuffix("\r").split("\t")
            _check_header(header, path)
            continue
        row = (
            _parse_line(line, header, f"{path}, line {number}")
            if whole
            else _parse_tail(line, header, path, number)
        )
        if row is None:
            notes.append(f"line {number} is cut off and was left out")
            continue
        _note_double(seen, row.idx, number, path)
        rows.append(row)
        if len(rows) > MOST_IMAGES:
            raise CertificateError(
                f"{path}: holds more than {MOST_IMAGES:,} rows, which no data set needs"
            )
    return rows, notes


def _lines(text: str) -> Iterator[tuple[str, bool]]:
    """The lines one by one, and whether each has its newline: a hostile file may have more than fit into memory."""
    start = 0
    while (end := text.find("\n", start)) >= 0:
        yield text[start:end], True
        start = end + 1
    if start < len(text) or not text:
        yield text[start:], False


def _parse_tail(line: str, header: list[str], path: Path, number: int) -> Certificate | None:
    """The row in a last line without a newline; None where it was cut."""
    # In our own file such a line was being written when the run died: its votes may be cut too. Other tools' logs
    # often just lack the last newline.
    if "counts" in header:
        return None
    try:
        return _parse_line(line, header, f"{path}, line {number}")
    except CertificateError:
        if line.count("\t") >= len(header) - 1:
            raise  # it is whole, and wrong
        return None


def _check_header(header: list[str], path: Path) -> None:
    expected = COLUMNS if "counts" in header else FIELD_COLUMNS
    lacking = [name for name in expected if name not in header]
    if lacking:
        raise CertificateError(
            f"{path}, line 1: not a certificate file (no column {', '.join(lacking)})"
        )


def _parse_line(line: str, header: list[str], where: str) -> Certificate:
    cells = line.removesuffix("\r").split("\t")
    if len(cells) != len(header):
        raise CertificateError(f"{where}: {len(cells)} columns, where the header has {len(header)}")
    try:
        return from_cells(dict(zip(header, cells, strict=True)))
    except ValueError as error:
        raise CertificateError(f"{where}: {error}") from None


def _note_double(seen: dict[int, int], idx: int, number: int, path: Path) -> None:
    if idx in seen:
        raise CertificateError(
            f"{path}, line {number}: image {idx} is there already, in line {seen[idx]}"
        )
    seen[idx] = number


class Writer:
    """Grows a certificate file by whole rows, in the order of the images its settings announce."""

    def __init__(self, path: Path, settings: FileSettings) -> None:
        self.path = path
        self.settings = settings
        self.announced = settings
        """The same with all images that the file is to have: those of an earlier run may be more."""
        self.done: list[Certificate] = []
        self._stream: FileIO | None = None
        self._synced = 0.0

    @property
    def remaining(self) -> list[int]:
        """Images that are still to be certified, in order."""
        return list(self.settings.indices)[len(self.done) :]

    @property
    def whole(self) -> bool:
        """Whether the file lacks nothing that it announces."""
        return len(self.done) >= len(self.announced.indices)

    def append(self, row: Certificate) -> None:
        """Add a row; it is on its way to the disk when this returns."""
        try:
            if self._stream is None:
                # Unbuffered: what a failed write left in a buffer would be written again on closing.
                self._stream = self.path.open("ab", buffering=0)
                if self._stream.tell() == 0:
                    self._write(HEADER)
            self._write(to_line(row))
        except OSError as error:
            raise SmoothmixError(
                f"{self.path}: image {row.idx} could not be written ({error.strerror or error}); "
                f"{len(self.done)} images are safe: make room and run the same command again"
            ) from error
        self.done.append(row)

    def _write(self, line: str) -> None:
        assert self._stream is not None
        data = memoryview(line.encode())
        while data:
            data = data[self._stream.write(data) :]
        if time.monotonic() - self._synced > SECONDS_BETWEEN_SYNCS:
            os.fsync(self._stream.fileno())
            self._synced = time.monotonic()

    def close(self) -> None:
        """Put everything on the disk."""
        if self._stream is not None:
            os.fsync(self._stream.fileno())
            self._stream.close()
            self._stream = None


@contextmanager
def writing(path: Path, settings: FileSettings) -> Iterator[Writer]:
    """A writer that goes on where an earlier run with the same settings stopped; others are refused."""
    require_tsv(path).parent.mkdir(parents=True, exist_ok=True)
    with exclusive(path):
        writer = Writer(path, settings)
        require_own_settings(path)
        earlier = load_settings(path) if path.exists() else None
        writer.done = _take_up(path, earlier, settings)
        if earlier is None or not writer.done:
            settings.save(settings_path(path))
        else:
            versions = continued_versions(path, earlier, settings)
            writer.announced = replace(
                earlier, images=max(earlier.images, settings.images), versions=versions
            )
            writer.announced.save(settings_path(path))
        try:
            yield writer
        finally:
            writer.close()


def _take_up(path: Path, earlier: FileSettings | None, settings: FileSettings) -> list[Certificate]:
    """The rows that an earlier run left. A cut last line is dropped, once everything says that the file is ours."""
    if not path.exists():
        return []
    if HEADER.encode().startswith(path.read_bytes()[: len(HEADER) + 1]):
        rows = []  # nothing but the header, or the beginning of one
    else:
        rows = list(read(path).rows)
        if earlier is None:
            raise UsageError(
                f"{path}: has no {settings_path(path).name} beside it to say how it was made; use another --out"
            )
        refuse_others(path, earlier, settings)
        expected = replace(settings, images=max(earlier.images, settings.images)).indices
        for row, idx in zip(rows, expected, strict=False):
            if row.idx != idx:
                raise CertificateError(
                    f"{path}: holds image {row.idx} where image {idx} should be; it cannot be continued"
                )
    _drop_cut_line(path)
    return rows


def continued_versions(path: Path, earlier: FileSettings, settings: FileSettings) -> dict[str, str]:
    """Versions old and new; other software may draw or round differently, which is allowed and said."""
    for name in ("torch", "numpy"):
        old, new = earlier.versions.get(name), settings.versions.get(name)
        if old and new and new not in old.split(", "):
            warnings.warn(
                f"{path}: was begun with {name} {old} and goes on with {new}", stacklevel=4
            )
    return joined_versions(earlier.versions, settings.versions)


def _drop_cut_line(path: Path) -> None:
    """Cut the file back to its last newline: what follows it was being written when the run died."""
    data = path.read_bytes()
    whole = data.rfind(b"\n") + 1
    if whole < len(data):
        with path.open("r+b") as stream:
            stream.truncate(whole)
