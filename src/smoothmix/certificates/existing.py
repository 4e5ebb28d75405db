"""What an earlier run has left where certificates are to be written. No torch."""

from __future__ import annotations

import glob
from pathlib import Path

from smoothmix.certificates.old_partial import old_votes_path
from smoothmix.certificates.partial import SUFFIX
from smoothmix.certificates.settings import FileSettings, load_settings
from smoothmix.certificates.shards import rows_in, shards_beside
from smoothmix.errors import SmoothmixError


def existing_settings(path: Path) -> FileSettings | None:
    """The settings of a file or of its shards, if there are rows or partial votes to resume.

    Settings alone do not count: an attempt that failed may have left them, and they are replaced.
    """
    without_rows = None
    for each in (path, *(shard.path for shard in shards_beside(path))):
        settings = _readable_settings(each)
        if settings is None:
            continue
        if rows_in(each):
            return settings
        without_rows = without_rows or settings
    if _has_partial_votes(path):
        return without_rows
    return None


def _readable_settings(path: Path) -> FileSettings | None:
    # Whoever writes the file refuses settings that are damaged, or another program's file.
    try:
        return load_settings(path)
    except SmoothmixError:
        return None


def _has_partial_votes(path: Path) -> bool:
    journals = path.parent.glob(f"{glob.escape(path.stem)}.*{SUFFIX}")
    return any(journals) or old_votes_path(path).exists()
