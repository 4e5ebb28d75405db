"""Files that torch.save wrote: checked as a whole first, then read by torch."""

from __future__ import annotations

import io
import mmap
import zipfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import IO, Any, Literal, cast

import torch

from smoothmix._io.files import NamedPipeError, open_to_read
from smoothmix._io.untrusted.torch_pickles import ForbiddenNameError, SizeLimits, walk_pickle
from smoothmix.errors import CheckpointError, shown

LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
"""The first value in the files that torch.save wrote before it wrote zip archives."""

LEGACY_START = b"\x80\x02\x8a\x0a" + LEGACY_MAGIC.to_bytes(10, "little") + b"."
"""That value as a pickle: how such a file begins."""

LEGACY_PICKLES = 5
"""Pickles at the start of a legacy file: magic number, version, system, content, storage keys."""

Layout = Literal["zip", "legacy"]


def load_plain(path: Path) -> Any:
    """The tensors and plain values in a file that torch.save wrote; anything else is refused."""
    try:
        layout = _checked_layout(path)
        # Mapped into memory, no tensor can be declared larger than the file.
        use_mmap = layout == "zip"
        return torch.load(path, map_location="cpu", weights_only=True, mmap=use_mmap)
    except ForbiddenNameError as error:
        raise _forbidden(path, error) from None
    except (CheckpointError, FileNotFoundError, IsADirectoryError, NamedPipeError, PermissionError):
        raise
    # A hostile file can end in an error of any kind; each one means that it is not read.
    except Exception as error:
        raise CheckpointError(f"{path} is damaged, or holds more than plain values") from error


def _forbidden(path: Path, error: ForbiddenNameError) -> CheckpointError:
    content = "code, not only tensors"
    if str(error).startswith("torch."):
        content = "more than plain tensors"
    return CheckpointError(
        f"{path} holds {content} ({shown(error)}); smoothmix never runs code from a file"
    )


def _checked_layout(path: Path) -> Layout:
    """Which of its two layouts torch.save used, once everything in the file has been checked."""
    with open_to_read(path) as file:
        start = file.read(len(LEGACY_START))
        if start == LEGACY_START:
            _check_legacy(file)
            return "legacy"
        if start.startswith(b"PK") and _check_archive(file):
            _require_checksums(path, file)
            return "zip"
        _refuse_programs(path, file)
    raise CheckpointError(f"{path} is cut short, damaged, or not written by torch.save")


def _check_legacy(file: IO[bytes]) -> None:
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        limits = SizeLimits(len(content))
        for _ in range(LEGACY_PICKLES):
            walk_pickle(cast(IO[bytes], content), limits)
        limits.check_total()


def _check_archive(file: IO[bytes]) -> bool:
    """Whether this is an archive as torch.save writes them; its pickle is walked as well."""
    size = file.seek(0, io.SEEK_END)
    try:
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            if not _is_plain_archive(members, size):
                return False
            # The folder that the first member names holds all others.
            folder = members[0].filename.partition("/")[0]
            content = archive.read(f"{folder}/data.pkl")
    except (zipfile.BadZipFile, KeyError, EOFError):
        return False
    limits = SizeLimits(size)
    walk_pickle(io.BytesIO(content), limits)
    limits.check_total()
    return True


def _refuse_programs(path: Path, file: IO[bytes]) -> None:
    """Call archives that hold a whole network by their name; any other file passes."""
    if not zipfile.is_zipfile(file):
        return
    with zipfile.ZipFile(file) as archive:
        parts = {PurePosixPath(name).name for name in archive.namelist()}
    kind = ""
    if "constants.pkl" in parts:
        kind = "a TorchScript file"
    if "archive_format" in parts:
        kind = "an archive of torch.export"
    if kind:
        raise CheckpointError(
            f"{path} is {kind}, which holds a network with its code, and not weights: give the "
            "file itself as --model, or save the network's state_dict()"
        )


def _require_checksums(path: Path, file: IO[bytes]) -> None:
    """Refuse an archive of which a part has changed: torch writes checksums, but ignores them."""
    with zipfile.ZipFile(file) as archive:
        damaged = archive.testzip()
    if damaged is not None:
        part = shown(damaged.partition("/")[2])
        raise CheckpointError(
            f"{path}: its part {part} does not have the checksum it was written with"
        )


def _is_plain_archive(members: Sequence[zipfile.ZipInfo], size: int) -> bool:
    """Whether torch.save could have written this archive, and every reader reads it alike."""
    if not members:
        return False
    # Readers of zip files differ in which of two members of one name they take, and in what
    # they make of bytes before the first member.
    names = {member.filename.lower() for member in members}
    if len(names) < len(members) or min(member.header_offset for member in members) != 0:
        return False
    return all(_is_plain_member(member, size) for member in members)


def _is_plain_member(member: zipfile.ZipInfo, size: int) -> bool:
    path = PurePosixPath(member.filename.lower())
    # A name that leads out of the folder into which someone may unpack the archive.
    if path.is_absolute() or ".." in path.parts or "\\" in member.filename:
        return False
    # A program in TorchScript has constants; weights have none.
    if path.name == "constants.pkl":
        return False
    # A compressed member could unpack to any size.
    stored = member.compress_type == zipfile.ZIP_STORED
    return stored and member.file_size == member.compress_size <= size
