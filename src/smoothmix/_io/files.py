"""Files that are replaced whole or not at all, and reading with a limit on the bytes."""

from __future__ import annotations

import gzip
import lzma
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from smoothmix.errors import SmoothmixError

XZ_STREAMS = 64
"""Most streams that one .xz file may consist of: reading many takes quadratic time."""

XZ_MEMORY = 2**27
"""Bytes that unpacking a stream may take; `xz -9` needs half of it."""


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
        _flush_to_disk(temporary)
        temporary.replace(target)
        _flush_to_disk(target.parent)
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
        return _within_limit(file.read(limit + 1), path, limit)


def read_unpacked(path: Path, limit: int) -> bytes:
    """The bytes of a file, unpacked if its name ends in .gz or .xz, with the same limit.

    The limit holds for the unpacked bytes: a small file may unpack to any size.
    """
    if path.suffix == ".gz":
        with gzip.open(path) as stream:
            return _within_limit(stream.read(limit + 1), path, limit)
    content = read_limited(path, limit)
    if path.suffix == ".xz":
        return _within_limit(_unpack_xz(content, limit), path, limit)
    return content


def _within_limit(content: bytes, path: Path, limit: int) -> bytes:
    if len(content) > limit:
        raise FileTooLargeError(path, limit)
    return content


def _unpack_xz(packed: bytes, limit: int) -> bytes:
    """The streams of an .xz file one after another, at most one byte more than `limit`."""
    content = b""
    for _ in range(XZ_STREAMS):
        stream = lzma.LZMADecompressor(memlimit=XZ_MEMORY)
        content += stream.decompress(packed, max_length=limit + 1 - len(content))
        if len(content) > limit:
            return content
        if not stream.eof:
            raise EOFError("it ends in the middle of a stream")
        packed = stream.unused_data.lstrip(b"\0")
        if not packed:
            return content
    raise lzma.LZMAError(f"more than {XZ_STREAMS} streams")


def _flush_to_disk(path: Path) -> None:
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
