"""Certificates of requests as rows of certificate files.

Each file has a secret seed of its own, and the numbers of its rows decide their noise. Nobody
outside knows the seed, so that no image can be prepared for the noise of a later request. Rows are
written in the order of their numbers: one that ends early waits for those before it. A file that is
full is finished, and the next one begins: `log.tsv`, `log-2.tsv`, and so on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import final

from smoothmix.certificates import Certificate, FileSettings, Writer, writing
from smoothmix.certificates.secret_seeds import secret_seed_for
from smoothmix.certificates.seeds import generator_key


@final
class LogFile:
    """One file: hands out its numbers, and writes a row for each that was taken."""

    def __init__(self, path: Path, settings: FileSettings, *, on_note: Callable[[str], None]):
        seed, note = secret_seed_for(path)
        on_note(note)
        certification = replace(settings.certification, seed=seed)
        self._opened = ExitStack()
        self._writer: Writer = self._opened.enter_context(
            writing(path, replace(settings, certification=certification))
        )
        self._lock = threading.Lock()
        self._next = len(self._writer.done)
        self._early: dict[int, Certificate] = {}
        self.key = generator_key(seed)
        """Key of the noise of its rows."""
        self.commitment = seed.commitment
        # A file that was finished has as many images as rows: there is room again.
        self._set_images(max(settings.images, self._next))
        self._writer.save_settings()

    def take(self) -> int | None:
        """The number of the next row; None if the file is full."""
        with self._lock:
            if self._next >= self._writer.file_settings.images:
                return None
            self._next += 1
            return self._next - 1

    def add(self, row: Certificate) -> None:
        """Write a row, once all before it are written."""
        with self._lock:
            self._early[row.idx] = row
            while len(self._writer.done) in self._early:
                self._writer.append(self._early.pop(len(self._writer.done)))

    @property
    def awaits_rows(self) -> bool:
        """Whether a number was taken whose row is still to come."""
        with self._lock:
            return len(self._writer.done) < self._next

    def close(self) -> None:
        """Declare the rows that are there to be all, so that their digest is recorded."""
        with self._lock:
            rows = len(self._writer.done)
            if rows:
                self._set_images(rows)
            self._opened.close()

    def _set_images(self, images: int) -> None:
        self._writer.file_settings = replace(self._writer.file_settings, images=images)


@final
@dataclass(frozen=True, eq=False)
class Place:
    """Where the row of a request will be."""

    file: LogFile
    number: int


@final
class RowLog:
    """Hands out places, and begins the next file where one is full."""

    def __init__(
        self, path: Path, settings: FileSettings, *, on_note: Callable[[str], None]
    ) -> None:
        self._path = path
        self._settings = settings
        self._on_note = on_note
        self._number = last_number(path)
        self._file = self._open(self._number)
        self._full: list[LogFile] = []
        """Files without room, of which rows are still to come."""

    def take(self) -> Place:
        """The place of the next row."""
        self._close_full()
        number = self._file.take()
        while number is None:
            # First what may fail, such as on a full disk: the next request tries it again.
            following = self._open(self._number + 1)
            self._full.append(self._file)
            self._number += 1
            self._file = following
            number = self._file.take()
        return Place(self._file, number)

    def close(self) -> None:
        """Finish all files."""
        for file in (*self._full, self._file):
            file.close()

    def _open(self, number: int) -> LogFile:
        return LogFile(numbered(self._path, number), self._settings, on_note=self._on_note)

    def _close_full(self) -> None:
        # By the caller of `take`, as locks belong to the thread that opened them.
        for file in list(self._full):
            if not file.awaits_rows:
                self._full.remove(file)
                file.close()


def numbered(path: Path, number: int) -> Path:
    """The path of a file of a log, counted from 1.

    >>> numbered(Path("log.tsv"), 1).name, numbered(Path("log.tsv"), 2).name
    ('log.tsv', 'log-2.tsv')
    """
    if number == 1:
        return path
    return path.with_name(f"{path.stem}-{number}{path.suffix}")


def last_number(path: Path) -> int:
    """The number of the last file of a log that is there, or 1."""
    number = 1
    while numbered(path, number + 1).exists():
        number += 1
    return number


@contextmanager
def row_log(
    path: Path, settings: FileSettings, *, on_note: Callable[[str], None] = lambda note: None
) -> Iterator[RowLog]:
    """A log whose files have up to `settings.images` rows; one of the same settings is continued.

    `on_note` receives a sentence that says where the secret seed of each file is.
    """
    log = RowLog(path, settings, on_note=on_note)
    try:
        yield log
    finally:
        log.close()
