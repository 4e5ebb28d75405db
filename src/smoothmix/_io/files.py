"""Files that are replaced whole or not at all, and reading with a limit on the bytes."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from smoothmix.errors import SmoothmixError


class FileTooLargeError(SmoothmixError):
    """A file holds more bytes than its reader accepts."""

    def __init__(self, path: Path, limit: int) -> None:
        super().__init__(f"{path}: holds more than {limit:,} bytes, too many for such a file")


@contextmanager
def replace_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary path to write to, which replaces `path` if the block succeeds.

    Missing folders are made. After the block the new content survives a power failure; if the
    block fails, the old content stays.
    """
    # A link stays a link: the file it points to is replaced.
    target = Path(os.path.realpath(path))
    target.parent.mkdir(parents=True, exist_ok=True)
    # In the same folder, since a rename is atomic within one file system only. Not by mkstemp,
    # whose files others may not read: a run folder is often shared.
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        yield temporary
        flush_to_disk(temporary)
        temporary.replace(target)
        flush_to_disk(target.parent)
    except OSError as error:
        # The system does not name the file when a write finds no room.
        error.filename = error.filename or os.fspath(path)
        raise
    finally:
        temporary.unlink(missing_ok=True)


def remove_temporary_files(folder: Path) -> None:
    """Delete what killed writers left in a folder; the caller must be its only writer."""
    for path in folder.glob(".*.tmp"):
        path.unlink(missing_ok=True)


def atomic_write(path: str | os.PathLike[str], data: bytes) -> None:
    """Write `data` so that a reader finds either the old content or the new, never a part."""
    with replace_file(path) as temporary:
        temporary.write_bytes(data)


def read_limited(path: Path, limit: int) -> bytes:
    """The bytes of a file; raises `FileTooLargeError` if there are more than `limit`."""
    # The size is not asked for, since a pipe or a device has none.
    with path.open("rb") as file:
        return within_limit(file.read(limit + 1), path, limit)


def within_limit(content: bytes, path: Path, limit: int) -> bytes:
    """The content again; raises `FileTooLargeError` if it has more than `limit` bytes."""
    if len(content) > limit:
        raise FileTooLargeError(path, limit)
    return content


def flush_to_disk(path: Path) -> None:
    """Have the operating system write a file, or the names in a folder, to the disk."""
    flags = os.O_RDWR
    if path.is_dir():
        # Windows cannot open a folder, and writes its names by itself.
        if os.name != "posix":
            return
        flags = os.O_RDONLY
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
