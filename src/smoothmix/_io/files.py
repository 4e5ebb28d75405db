"""Files that are there whole or not at all, whatever stops their writer; and reading without end prevented."""

from __future__ import annotations

import gzip
import lzma
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

XZ_STREAMS = 64
"""A file put together of more parts than this is refused: each part is copied once for every one before it."""
XZ_MEMORY = 2**27


@contextmanager
def replace_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary path to write to; it takes the place of `path` if the block ends well, and is removed if not.

    The folder is made where it is missing. Once the block has ended, the new content outlives a power failure.
    """
    # A link stays a link: what it points to is replaced.
    target = Path(os.path.realpath(path))
    target.parent.mkdir(parents=True, exist_ok=True)
    # In the same folder, since a rename is atomic within one file system only. Not by mkstemp, whose files
    # others may not read: a run folder is often shared.
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        yield temporary
        _flush(temporary)
        temporary.replace(target)
        _flush(target.parent)
    except OSError as error:
        error.filename = error.filename or os.fspath(
            path
        )  # a write that finds no room does not say where
        raise
    finally:
        temporary.unlink(missing_ok=True)


def remove_unfinished(folder: Path) -> None:
    """Delete what writers that were killed have left in a folder; for someone who knows that no other writes there."""
    for left in folder.glob(".*.tmp"):
        left.unlink(missing_ok=True)


def atomic_write(path: str | os.PathLike[str], data: bytes) -> None:
    """Put `data` into a file, so that a reader finds the old content or the new and never a part."""
    with replace_file(path) as temporary:
        temporary.write_bytes(data)


def read_limited(path: Path, limit: int) -> bytes:
    """The bytes of a file, at most one more than `limit`: whoever gets more than the limit knows it is too large.

    Its size is not asked for, since a pipe or a device has none.
    """
    with path.open("rb") as file:
        return file.read(limit + 1)


def unpacked(path: Path, limit: int) -> bytes:
    """The same of what a file ending in .gz or .xz unpacks to: a small one may unpack to any size."""
    if path.suffix == ".gz":
        with gzip.open(path) as stream:
            return stream.read(limit + 1)
    packed = read_limited(path, limit)
    return _unpacked_xz(packed, limit) if path.suffix == ".xz" else packed


def _unpacked_xz(packed: bytes, limit: int) -> bytes:
    """One stream after another, each refused if it needs more memory to unpack than `xz -9` lets it."""
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


def _flush(path: Path) -> None:
    """Have the operating system put a file, or the names in a folder, on the disk."""
    if path.is_dir() and os.name != "posix":
        return  # Windows cannot open a folder, and writes its names by itself
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
