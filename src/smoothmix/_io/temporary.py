"""Temporary files beside an output: each is locked by its writer, so that dead writers show.

A kill cannot be cleaned up after by the process that it hits. The next process that replaces the
same output does: the operating system has released the lock of a writer that is gone.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # pragma: no cover - Windows
    fcntl = None  # type: ignore[assignment]

TOKEN_BYTES = 4


@contextmanager
def temporary_beside(target: Path) -> Iterator[Path]:
    """The path of a new, empty file in the folder of `target`, removed when the block ends."""
    remove_abandoned(target)
    # Not by mkstemp, whose files others may not read: a run folder is often shared.
    path, descriptor = _create(target)
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


def remove_abandoned(target: Path) -> None:
    """Delete the temporary files of `target` whose writers are gone."""
    remove_abandoned_in(target.parent, re.escape(target.name))


def remove_abandoned_in(folder: Path, names: str) -> None:
    """Delete the temporary files in a folder whose writers are gone, by a pattern of targets."""
    pattern = re.compile(rf"\.{names}\.[0-9a-f]{{{2 * TOKEN_BYTES}}}\.tmp", re.ASCII)
    with suppress(OSError):
        for path in list(folder.iterdir()):
            if pattern.fullmatch(path.name):
                _remove_unless_locked(path)


def _create(target: Path) -> tuple[Path, int]:
    while True:
        path = target.with_name(f".{target.name}.{secrets.token_hex(TOKEN_BYTES)}.tmp")
        # Writable for the lock alone: the caller opens the file by its path.
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | _CLOSE_ON_EXEC, 0o666)
        if not _is_lost(descriptor):
            return path, descriptor
        # Another process took it for abandoned before it was locked.
        os.close(descriptor)


def _is_lost(descriptor: int) -> bool:
    """Lock a new file; whether a process that removes abandoned ones was faster."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        # The file system has no locks: then nobody removes the file either.
        return False
    return os.fstat(descriptor).st_nlink == 0


def _remove_unless_locked(path: Path) -> None:
    if fcntl is None:
        return
    with suppress(OSError):
        # Never through a link, and without waiting for the other end of a pipe.
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | _CLOSE_ON_EXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink(missing_ok=True)
        finally:
            os.close(descriptor)


_CLOSE_ON_EXEC = getattr(os, "O_CLOEXEC", 0)
