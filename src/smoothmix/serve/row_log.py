"""Certificates of requests as rows of a certificate file.

The file has one secret seed, and the numbers of its rows decide their noise. Nobody outside knows
the seed, so that no image can be prepared for the noise of a later request. Rows are written in the
order of their numbers: one that ends early waits for those before it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import final

from smoothmix.certificates import Certificate, FileSettings, Writer, writing
from smoothmix.certificates.seeds import SecretSeed, generator_key
from smoothmix.serve.errors import Refused


@final
class RowLog:
    """Hands out numbers, and writes a row for each; every number that was taken gets one."""

    def __init__(self, writer: Writer, seed: SecretSeed) -> None:
        self._writer = writer
        self._lock = threading.Lock()
        self._next = len(writer.done)
        self._early: dict[int, Certificate] = {}
        self.key = generator_key(seed)
        """Key of the noise of all rows."""
        self.commitment = seed.commitment

    def number(self) -> int:
        """The number of the next row."""
        with self._lock:
            if self._next >= self._writer.file_settings.images:
                raise Refused(503, "the log of certificates is full: start with another --log")
            self._next += 1
            return self._next - 1

    def add(self, row: Certificate) -> None:
        """Write a row, once all before it are written."""
        with self._lock:
            self._early[row.idx] = row
            while len(self._writer.done) in self._early:
                self._writer.append(self._early.pop(len(self._writer.done)))

    def finish(self) -> None:
        """Declare the rows that are there to be all, so that their digest is recorded."""
        with self._lock:
            rows = len(self._writer.done)
            if rows:
                self._writer.file_settings = replace(self._writer.file_settings, images=rows)


@contextmanager
def row_log(path: Path, settings: FileSettings) -> Iterator[RowLog]:
    """A log in a file; one of the same settings is continued."""
    with writing(path, settings) as writer:
        # A file that was finished has no room: this run adds to it.
        writer.file_settings = replace(writer.file_settings, images=settings.images)
        writer.save_settings()
        # A file holds the commitment alone: the key comes with the settings of this run.
        seed = settings.certification.seed
        assert isinstance(seed, SecretSeed)
        log = RowLog(writer, seed)
        try:
            yield log
        finally:
            log.finish()
