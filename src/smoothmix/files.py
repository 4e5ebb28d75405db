"""Files that are there whole or not at all, whatever stops their writer; and what kind of file one is."""

from __future__ import annotations

import os
import secrets
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

LEGACY_MAGIC = 0x1950A86A20F9469CFC6C.to_bytes(10, "little")
"""Stands near the start of what torch.save wrote before it wrote zip archives."""


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
    finally:
        temporary.unlink(missing_ok=True)


def atomic_write(path: str | os.PathLike[str], data: bytes) -> None:
    """Put `data` into a file, so that a reader finds the old content or the new and never a part."""
    with replace_file(path) as temporary:
        temporary.write_bytes(data)


def torch_save_layout(path: Path) -> Literal["zip", "legacy"] | None:
    """Which of its two kinds of file torch.save has written here; None if it is neither, or damaged.

    An archive with compressed members is not its work: it could unpack to any size. Nor is a TorchScript program.
    """
    with path.open("rb") as file:
        start = file.read(32)
    if not start.startswith(b"PK"):
        return "legacy" if LEGACY_MAGIC in start else None
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
    except zipfile.BadZipFile:
        return None
    stored = all(member.compress_type == zipfile.ZIP_STORED for member in members)
    program = any(member.filename.endswith("/constants.pkl") for member in members)
    return "zip" if stored and not program else None


def _flush(path: Path) -> None:
    """Have the operating system put a file, or the names in a folder, on the disk."""
    if path.is_dir() and os.name != "posix":
        return  # Windows cannot open a folder, and writes its names by itself
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
