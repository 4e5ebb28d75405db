"""Votes of images in work, kept beside a certificate file: neither a limit on time nor a kill loses them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

from smoothmix.certificates.file import Certificates, read
from smoothmix.certificates.row import Certificate
from smoothmix.certificates.settings import FileSettings, differences, settings_path
from smoothmix.certificates.tools import save
from smoothmix.errors import SmoothmixError

SECONDS_BETWEEN_KEEPING = 60.0
"""How much work on images that are not finished a kill may cost."""


def begun_path(path: Path) -> Path:
    """Where the images in work of a certificate file are kept, as a certificate file of its own.

    >>> begun_path(Path("runs/certificates.tsv")).name
    'certificates-begun.tsv'
    """
    return path.with_name(f"{path.stem}-begun.tsv")


def load_begun(path: Path, settings: FileSettings) -> dict[int, Certificate]:
    """What was kept for a file of these settings, by image; other settings have drawn other votes."""
    kept = begun_path(path)
    if not kept.exists():
        return {}
    try:
        file = read(kept)
    except SmoothmixError as error:
        warnings.warn(f"{error}; the images that it held are begun anew", stacklevel=3)
        return {}
    if file.settings is None or differences(file.settings, settings):
        return {}
    return {row.idx: row for row in file.rows}


def keep_begun(path: Path, settings: FileSettings, rows: Sequence[Certificate]) -> None:
    """Keep the images in work as they stand."""
    kept = begun_path(path)
    save(Certificates(kept, tuple(rows), settings), kept)


def remove_begun(path: Path) -> None:
    """Forget them: the file is finished."""
    kept = begun_path(path)
    for file in (kept, settings_path(kept)):
        file.unlink(missing_ok=True)
