"""Files that torch.save wrote, read without trust: nothing in them is run, and memory is taken for what they hold."""

from __future__ import annotations

import io
import mmap
import zipfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import IO, Any, Literal, cast

import torch

from smoothmix._io.torch_pickles import Budget, ForbiddenNameError, walk
from smoothmix.errors import CheckpointError, shown

LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
"""The first value in what torch.save wrote before it wrote zip archives."""

LEGACY_START = b"\x80\x02\x8a\x0a" + LEGACY_MAGIC.to_bytes(10, "little") + b"."
"""That value as a pickle, which is how such a file begins."""

Layout = Literal["zip", "legacy"]


def load_plain(path: Path) -> Any:
    """The tensors and plain values in a file that torch.save wrote; anything else in it is refused."""
    try:
        layout = _checked_layout(path)
        # Mapped into memory, no tensor can be declared larger than the file.
        return torch.load(path, map_location="cpu", weights_only=True, mmap=layout == "zip")
    except ForbiddenNameError as error:
        what = (
            "more than plain tensors"
            if str(error).startswith("torch.")
            else "code, not only tensors"
        )
        raise CheckpointError(
            f"{path} holds {what} ({shown(error)}); smoothmix never runs code from a file"
        ) from None
    except (CheckpointError, FileNotFoundError, IsADirectoryError, PermissionError):
        raise
    except Exception as error:
        # A hostile file can end in an error of any kind; none is answered by trusting it.
        raise CheckpointError(f"{path} is damaged, or holds more than plain values") from error


def _checked_layout(path: Path) -> Layout:
    """Which of its two kinds of file torch.save has written here, once all that it asks for is known to be harmless."""
    with path.open("rb") as file:
        start = file.read(len(LEGACY_START))
        if start == LEGACY_START:
            _check_legacy(file)
            return "legacy"
        if not start.startswith(b"PK") or not _check_archive(file):
            raise CheckpointError(f"{path} is cut short, damaged, or nothing that torch.save wrote")
    return "zip"


def _check_legacy(file: IO[bytes]) -> None:
    """Walk the five pickles at the start: magic number, version, system, content and the order of the storages."""
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        budget = Budget(len(content))
        for _ in range(5):
            walk(cast(IO[bytes], content), budget)
        budget.check()


def _check_archive(file: IO[bytes]) -> bool:
    """Whether this is an archive as torch.save writes them, once its pickle has been walked."""
    size = file.seek(0, io.SEEK_END)
    try:
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            if not _is_plain_archive(members, size):
                return False
            # The folder that the first member names holds all others.
            content = archive.read(members[0].filename.partition("/")[0] + "/data.pkl")
    except (zipfile.BadZipFile, KeyError, EOFError):
        return False
    budget = Budget(size)
    walk(io.BytesIO(content), budget)
    budget.check()
    return True


def _is_plain_archive(members: Sequence[zipfile.ZipInfo], size: int) -> bool:
    """Whether an archive is one that torch.save could have written, and that every reader reads alike.

    Compressed members could unpack to any size. A name in any spelling must be there once and the first member must
    begin the file, since readers of zip files differ in which of two they take. A program of TorchScript is refused.
    """
    names = [member.filename.lower() for member in members]
    return (
        len(set(names)) == len(names) > 0
        and min(member.header_offset for member in members) == 0
        and all(map(_is_safe_name, names))
        and not any(name.endswith("/constants.pkl") for name in names)
        and all(
            member.compress_type == zipfile.ZIP_STORED
            and member.file_size == member.compress_size <= size
            for member in members
        )
    )


def _is_safe_name(name: str) -> bool:
    """Whether a member's name stays below the folder that an archive is unpacked into."""
    return (
        not PurePosixPath(name).is_absolute()
        and ".." not in PurePosixPath(name).parts
        and "\\" not in name
    )
