"""Files that are replaced whole or not at all, and reading with a limit on the bytes."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from smoothmix._io.temporary import temporary_beside
from smoothmix.errors import SmoothmixError, UsageError


class FileTooLargeError(SmoothmixError):
    """A file holds more bytes than its reader accepts."""

    def __init__(self, path: Path, limit: int) -> None:
        super().__init__(f"{path}: holds more than {limit:,} bytes, too many for such a file")


class NamedPipeError(OSError):
    """What was to be read is a named pipe."""

    def __init__(self) -> None:
        super().__init__(errno.EINVAL, "it is a pipe, and only files are read")

    def __str__(self) -> str:
        return self.strerror or ""


@contextmanager
def replace_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary path to write to, which replaces `path` if the block succeeds.

    Missing folders are made. After the block the new content survives a power failure; if the
    block fails, the old content stays. Only a regular file is ever replaced.
    """
    # A link stays a link: the file it points to is replaced.
    target = Path(os.path.realpath(path))
    require_regular(target, name=os.fspath(path))
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        # In the same folder, since a rename is atomic within one file system only.
        with temporary_beside(target) as temporary:
            yield temporary
            flush_to_disk(temporary)
            temporary.replace(target)
            flush_to_disk(target.parent)
    except OSError as error:
        # The system does not name the file when a write finds no room.
        error.filename = error.filename or os.fspath(path)
        raise


def require_regular(path: Path, *, name: str | None = None) -> None:
    """Refuse to write to what exists and is no file: a folder, a device, a pipe.

    Reading a device may never end, opening a pipe waits for its other end, and root would replace
    either by a file.
    """
    try:
        mode = path.stat().st_mode
    except OSError:
        # It does not exist, or whoever opens it finds out why it cannot be opened.
        return
    if not stat.S_ISREG(mode):
        raise UsageError(
            f"{name or path}: is {_kind(mode)}, and results are written to files only; "
            "choose another --out"
        )


def _kind(mode: int) -> str:
    if stat.S_ISDIR(mode):
        return "a folder"
    if stat.S_ISFIFO(mode):
        return "a pipe"
    return "a device or a socket"


def atomic_write(path: str | os.PathLike[str], data: bytes) -> None:
    """Write `data` so that a reader finds either the old content or the new, never a part."""
    with replace_file(path) as temporary:
        temporary.write_bytes(data)


def open_to_read(path: Path) -> BinaryIO:
    """The file, opened to read bytes; a named pipe is refused with an `OSError`.

    Opening a pipe waits for its other end: one in a folder from somebody else would hang whoever
    reads it. Those that a shell makes, as in `<(...)`, are open at the other end already.
    """
    made_by_shell = path.parts[:2] in (("/", "dev"), ("/", "proc"))
    if path.is_fifo() and not made_by_shell:
        raise NamedPipeError
    return path.open("rb")


def read_limited(path: Path, limit: int) -> bytes:
    """The bytes of a file; raises `FileTooLargeError` if there are more than `limit`."""
    # The size is not asked for, since a pipe or a device has none.
    with open_to_read(path) as file:
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
