"""What an earlier run has left where certificates are to be written. No torch."""

from __future__ import annotations

import glob
import re
from pathlib import Path

from smoothmix.certificates.old_partial import old_votes_path
from smoothmix.certificates.partial import SUFFIX
from smoothmix.certificates.settings import FileSettings, load_settings
from smoothmix.certificates.shard import shards_beside
from smoothmix.certificates.shards import rows_in
from smoothmix.errors import SmoothmixError

LONGEST_NAME = 80
"""Characters of a model's name in the name of a file; its end distinguishes models."""


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


def path_for_model(usual: Path, model: str) -> Path:
    """The usual file, or one named after the model where the usual one is another model's.

    Networks without a run folder share the current folder. Whoever certifies two of them there gets
    two files, and the same command finds its own again.
    """
    named = usual.with_name(f"{usual.stem}-{_as_file_name(model)}{usual.suffix}")
    if existing_settings(named) is not None:
        return named
    existing = existing_settings(usual)
    if existing is None or existing.model == model:
        return usual
    return named


def _as_file_name(model: str) -> str:
    """A name without the characters that paths and shells treat in their own way.

    >>> _as_file_name("zoo:mnist-0.50-gaussian"), _as_file_name("../nets/a b.onnx")
    ('zoo-mnist-0.50-gaussian', 'nets-a-b.onnx')
    """
    plain = re.sub(r"[^\w.-]+", "-", model, flags=re.ASCII)
    return plain.strip("-.")[-LONGEST_NAME:].strip("-.")


def _readable_settings(path: Path) -> FileSettings | None:
    # Whoever writes the file refuses settings that are damaged, or another program's file.
    try:
        return load_settings(path)
    except SmoothmixError:
        return None


def _has_partial_votes(path: Path) -> bool:
    journals = path.parent.glob(f"{glob.escape(path.stem)}.*{SUFFIX}")
    return any(journals) or old_votes_path(path).exists()
