"""The hash of many image files, computed once: sizes and times show whether it still holds."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from smoothmix._io.files import atomic_write

DIGEST_LENGTH = 64
"""Hexadecimal digits of SHA-256."""


def content_hash(root: Path, files: Sequence[str], *, cache: Path | None = None) -> str:
    """SHA-256 over the names and contents of all files; read once, then taken from the cache.

    The cache is valid as long as every file has the size and the time of its last change that it
    had: whoever changes an image and sets its time back deceives only the cache.
    """
    remembered = (cache or _cache_folder()) / _listing_hash(root, files)
    with suppress(OSError):
        found = remembered.read_text()
        if len(found) == DIGEST_LENGTH:
            return found
    whole = hashlib.sha256()
    for file in files:
        with (root / file).open("rb") as stream:
            content = hashlib.file_digest(stream, "sha256").hexdigest()
        whole.update(f"{file}\0{content}\n".encode())
    # A folder that cannot be written costs time in the next run, and nothing else.
    with suppress(OSError):
        atomic_write(remembered, whole.hexdigest().encode())
    return whole.hexdigest()


def _listing_hash(root: Path, files: Sequence[str]) -> str:
    listing = hashlib.sha256(os.path.realpath(root).encode())
    for file in files:
        status = (root / file).stat()
        # The inode as well: a file that was replaced may have the time of the one before.
        known = f"{file}\0{status.st_size}\0{status.st_mtime_ns}\0{status.st_ino}\n"
        listing.update(known.encode())
    return listing.hexdigest()


def _cache_folder() -> Path:
    # Imported here: it takes long to load, and only very large folders need it.
    import pooch  # type: ignore[import-untyped]

    return Path(pooch.os_cache("smoothmix")) / "hashes"
