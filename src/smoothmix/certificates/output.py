"""Where a certificate file may be written: decided in one place, before anything is drawn.

An output is a pair: rows in `c.tsv`, settings in `c.toml`. Its lock lies beside the file that all
links lead to (`_io.locks`). So both files of a pair must lead to one pair, and the rows must have
one name: a second one would be a second output with another lock. No torch.
"""

from __future__ import annotations

import os
from pathlib import Path

from smoothmix._io.files import require_regular
from smoothmix._io.unpacking import PACKED
from smoothmix.certificates.settings import require_tsv, settings_path
from smoothmix.errors import UsageError


def require_output(path: Path) -> Path:
    """The path, if rows may be written there; else a sentence that says why not."""
    settings = settings_path(require_tsv(path))
    require_regular(path)
    require_regular(settings)
    _refuse_second_name(path)
    _require_pair(path, settings)
    _refuse_packed(path)
    return path


def real_output(path: Path) -> Path:
    """The file itself, if the path is a link to it."""
    return Path(os.path.realpath(path))


def _refuse_second_name(path: Path) -> None:
    try:
        names = path.stat().st_nlink
    except OSError:
        return
    if names > 1:
        raise UsageError(
            f"{path}: is one of {names} names of the same file (hard links), so that another "
            "process could write it under another name; copy it and use the copy as --out"
        )


def _require_pair(path: Path, settings: Path) -> None:
    expected = settings_path(real_output(path))
    if real_output(settings) != expected:
        raise UsageError(
            f"{path}: leads to {real_output(path)}, but {settings.name} does not lead to "
            f"{expected}: rows and settings of two files would be mixed; "
            "use a path without links as --out"
        )


def _refuse_packed(path: Path) -> None:
    # A packed file has the same settings file, which a new run would replace.
    for suffix in PACKED:
        packed = path.with_name(path.name + suffix)
        if packed.exists() and not path.exists():
            raise UsageError(
                f"{path}: {packed.name} is beside it, whose settings would be replaced; "
                "unpack that file to resume it, or choose another --out"
            )
