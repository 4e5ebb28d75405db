"""Packed files: .gz, .bz2, .xz, and .zip with one file, with a limit on what they unpack to."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from smoothmix._io.files import open_to_read, read_limited, within_limit

PACKED = (".gz", ".bz2", ".xz", ".zip")
"""Endings of packed files."""

MOST_STREAMS = 64
"""Most streams that one .xz or .bz2 file may consist of: reading many takes quadratic time."""

XZ_MEMORY = 2**27
"""Bytes that unpacking a stream may take; `xz -9` needs half of it."""

MOST_MEMBERS = 1000
"""Most entries of a .zip file: listing them takes memory."""

ZIP_ENTRY = b"PK\x01\x02"
"""How each entry in the directory of a .zip file begins."""

ENCRYPTED = 1
"""The bit of an entry's flags that says so."""

UNPACK_ERRORS = (OSError, EOFError, zlib.error, lzma.LZMAError)
"""What `read_unpacked` raises for a file that is damaged or not packed as its name says."""

TAR_ERRORS = (
    tarfile.TarError,
    OSError,
    EOFError,
    ValueError,
    ArithmeticError,
    LookupError,
    TypeError,
    MemoryError,
    RecursionError,
    struct.error,
    zlib.error,
)
"""What reading a damaged archive ends in; headers that announce headers recurse."""

ZIP_ERRORS = (
    zipfile.BadZipFile,
    NotImplementedError,
    RuntimeError,
    ValueError,
    struct.error,
    zlib.error,
)


class Decompressor(Protocol):
    """What lzma and bz2 unpack one stream with."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


def read_unpacked(path: Path, limit: int) -> bytes:
    """The bytes of a file, unpacked if its name has one of the endings in PACKED.

    The limit holds for the unpacked bytes: a small file may unpack to any size.
    """
    if path.suffix == ".gz":
        with open_to_read(path) as packed, gzip.open(packed) as stream:
            return within_limit(stream.read(limit + 1), path, limit)
    content = read_limited(path, limit)
    if path.suffix == ".xz":
        content = _unpack_streams(content, limit, _xz)
    elif path.suffix == ".bz2":
        content = _unpack_streams(content, limit, bz2.BZ2Decompressor)
    elif path.suffix == ".zip":
        content = _unpack_zip(content, limit)
    return within_limit(content, path, limit)


def without_packing(name: str) -> str:
    """The name of a file without the ending of its packing.

    >>> without_packing("noise_0.50.xz"), without_packing("noise_0.50")
    ('noise_0.50', 'noise_0.50')
    """
    for ending in PACKED:
        if name.endswith(ending):
            return name.removesuffix(ending)
    return name


def _xz() -> Decompressor:
    return lzma.LZMADecompressor(memlimit=XZ_MEMORY)


def _unpack_streams(packed: bytes, limit: int, start: Callable[[], Decompressor]) -> bytes:
    """The streams of a file one after another, at most one byte more than `limit`."""
    content = b""
    for _ in range(MOST_STREAMS):
        stream = start()
        content += stream.decompress(packed, max_length=limit + 1 - len(content))
        if len(content) > limit:
            return content
        if not stream.eof:
            raise EOFError("it ends in the middle of a stream")
        packed = stream.unused_data.lstrip(b"\0")
        if not packed:
            return content
    raise OSError(f"more than {MOST_STREAMS} streams")


def _unpack_zip(packed: bytes, limit: int) -> bytes:
    """The only file in a .zip archive, at most one byte more than `limit`."""
    # Counted before Python makes an object for each.
    if packed.count(ZIP_ENTRY) > MOST_MEMBERS:
        raise OSError(f"more than {MOST_MEMBERS} files in it")
    try:
        with zipfile.ZipFile(io.BytesIO(packed)) as archive:
            member = _only_member(archive)
            with archive.open(member) as stream:
                return stream.read(limit + 1)
    except ZIP_ERRORS as error:
        raise OSError(str(error) or type(error).__name__) from error


def _only_member(archive: zipfile.ZipFile) -> zipfile.ZipInfo:
    members = []
    for member in archive.infolist():
        # Not by its own `is_dir`, which fails on an empty name.
        is_folder = member.filename.endswith("/")
        # macOS adds a file of its own for each.
        if not is_folder and not member.filename.startswith("__MACOSX/"):
            members.append(member)
    if len(members) != 1:
        raise OSError(f"it holds {len(members)} files instead of one: unpack it first")
    (member,) = members
    if member.flag_bits & ENCRYPTED:
        raise OSError("it is encrypted")
    # Other ways to compress may take any amount of memory.
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise OSError("it is compressed in an unusual way: unpack it first")
    return member
