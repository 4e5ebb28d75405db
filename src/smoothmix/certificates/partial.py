"""Votes of images in work, kept beside a certificate file: neither a limit on time nor a kill loses them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

from smoothmix.certificates.file import Certificates, read
from smoothmix.certificates.row import Certificate
from smoothmix.certificates.settings import FileSettings, differences, load_settings, settings_path
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
    return {row.idx: row for row in file.rows if _fits(row, settings)}


def _fits(row: Certificate, settings: FileSettings) -> bool:
    """Whether a run of these settings can have left an image like this: all of its selection and some whole blocks."""
    how = settings.certification
    if (
        row.counts is None
        or row.selection_counts is None
        or row.n is None
        or row.idx not in settings.indices
    ):
        return False
    return (
        max((*row.counts, *row.selection_counts, 0)) < settings.num_classes
        and sum(row.selection_counts.values()) == how.n0
        and sum(row.counts.values()) == row.n <= how.n
        and (row.n % how.batch == 0 or row.n == how.n)
    )


def keep_begun(path: Path, settings: FileSettings, rows: Sequence[Certificate]) -> None:
    """Keep the images in work as they stand."""
    kept = begun_path(path)
    if not _is_of(kept, settings):
        # Settings are written before rows: rows of another run must not be left under them, should this be cut off.
        remove_begun(path)
    try:
        save(Certificates(kept, tuple(rows), settings), kept)
    except OSError as error:
        raise SmoothmixError(
            f"{kept}: the images in work could not be kept ({error.strerror or error}): make room and run the same "
            "command again"
        ) from error


def keep_at_the_end(keep: Callable[[], None]) -> None:
    """Keep what can be kept on the way out. If that fails it is said, and no more: what ends the run is to be heard."""
    try:
        keep()
    except SmoothmixError as error:
        warnings.warn(str(error), stacklevel=2)


def _is_of(kept: Path, settings: FileSettings) -> bool:
    try:
        there = load_settings(kept)
    except SmoothmixError:
        return False
    return there is not None and not differences(there, settings)


def forget_begun(path: Path, whole: Certificates) -> None:
    """Forget those that have their row in the file by now; a run of more images may have others in work."""
    assert whole.settings is not None
    done = {row.idx for row in whole.rows}
    if left := [row for i, row in load_begun(path, whole.settings).items() if i not in done]:
        keep_begun(path, whole.settings, left)
    else:
        remove_begun(path)


def remove_begun(path: Path) -> None:
    """Forget them: the file is finished."""
    kept = begun_path(path)
    for file in (
        kept,
        settings_path(kept),
    ):  # the rows first: without settings they could be taken for another's
        file.unlink(missing_ok=True)
