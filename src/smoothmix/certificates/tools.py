"""What can be done with certificate files alone: verify, merge, recompute, export."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import attrgetter
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from smoothmix._io.files import atomic_write
from smoothmix._io.text import counted
from smoothmix.certificates.digests import DigestRecord, digest_of_rows, removed_rows
from smoothmix.certificates.file import Certificates, digest_problems, header_of
from smoothmix.certificates.row import (
    COHEN_COLUMNS,
    Certificate,
    certificates_of,
    to_cohen_line,
    to_line,
    votes_of,
)
from smoothmix.certificates.settings import (
    FileSettings,
    differences,
    joined_records,
    require_own_settings,
    require_tsv,
    settings_path,
)
from smoothmix.config import require_alpha
from smoothmix.errors import CertificateError

FOLLOWING = ("selected", "predict", "correct", "p_lower", "radius", "squared")
"""Cells of a row that follow from its votes."""

following = attrgetter(*FOLLOWING)

SHOWN_IMAGES = 5
"""Numbers of images that a message names one by one."""


@dataclass(frozen=True)
class Verification:
    """What a check of a file found."""

    rows: int
    recomputed: int
    """Rows whose radius, bound and prediction follow from their votes."""
    problems: tuple[str, ...]
    missing: tuple[int, ...]
    bound: int = 0
    """Rows that were compared with their digests."""
    finished: bool = True
    """Whether all rows are there, and the digest over them if the file has digests."""

    @property
    def ok(self) -> bool:
        """Whether all rows of the file are right."""
        return not self.problems


def verify(file: Certificates) -> Verification:
    """Compute every row again from its votes, and check the votes against the settings."""
    problems = list(_order_problems(file.rows))
    problems += digest_problems(file)
    problems += _completeness_problems(file)
    recomputed = 0
    if file.settings is not None:
        problems += _row_problems(file.rows, file.settings)
        problems += _budget_problems(file.rows, file.settings)
        recomputed = sum(row.has_votes for row in file.rows)
    elif any(row.has_votes for row in file.rows):
        problems.append(f"has no {settings_path(file.path).name} beside it to compute its votes by")
    bound = 0
    if file.digests is not None:
        bound = len(file.rows)
    return Verification(
        rows=len(file.rows),
        recomputed=recomputed,
        problems=tuple(problems),
        missing=tuple(file.missing),
        bound=bound,
        finished=file.finished,
    )


def _order_problems(rows: Sequence[Certificate]) -> Iterator[str]:
    # Rows are resumed by their order, so it is part of what a file claims.
    for before, after in pairwise(rows):
        if after.idx <= before.idx:
            yield f"image {after.idx} comes after image {before.idx}"


def _completeness_problems(file: Certificates) -> Iterator[str]:
    """Rows that are gone, as far as a file with digests shows it."""
    record = file.digests
    if record is None:
        return
    if not record.finished:
        yield from _gaps(file)
        return
    if len(file.rows) != record.rows:
        lost = ""
        if file.missing:
            lost = f": {some(file.missing)} removed or cut off"
        yield f"{removed_rows(record, len(file.rows))}{lost}"
    elif digest_of_rows(file.rows) != record.sha256:
        yield "the digest over all rows does not fit: these are not the rows it was finished with"


def _gaps(file: Certificates) -> Iterator[str]:
    # Rows are written in the order of the images. At the end of a file that is not finished,
    # missing rows are those still to come.
    last = max(file.indices, default=-1)
    gaps = [idx for idx in file.missing if idx < last]
    if gaps:
        yield f"{some(gaps)} missing before image {last}: rows were removed"


def _row_problems(rows: Sequence[Certificate], settings: FileSettings) -> list[str]:
    """Problems of all rows, in their order."""
    # Once for all rows: it is worked out anew each time.
    images = settings.indices
    found: dict[int, list[str]] = {}
    for row in rows:
        found[row.idx] = list(_vote_problems(row, settings, images))
    # Rows whose votes do not add up give no certificate to compare with.
    sound = [row for row in rows if _votes_add_up(row, settings)]
    expected = certificates_of([votes_of(row) for row in sound], settings.certification)
    for row, again in zip(sound, expected, strict=True):
        # Nearly always nothing differs, and one comparison shows it.
        if following(row) == following(again):
            continue
        for name in FOLLOWING:
            claimed = getattr(row, name)
            follows = getattr(again, name)
            if claimed != follows:
                found[row.idx].append(f"says {name} {claimed}, but its votes give {follows}")
    return [f"image {idx}: {problem}" for idx, problems in found.items() for problem in problems]


def _budget_problems(rows: Sequence[Certificate], settings: FileSettings) -> Iterator[str]:
    """More draws than the budget of the file."""
    limit = settings.budget_draws
    if limit is None:
        return
    spent = 0
    for row in rows:
        spent += settings.guarantee.n0 + (row.n or 0)
    if spent > limit:
        yield f"has {spent:,} draws in all, more than its budget of {limit:,}"


def _votes_add_up(row: Certificate, settings: FileSettings) -> bool:
    if row.counts is None or row.selection_counts is None:
        return False
    selection_draws = sum(row.selection_counts.values())
    return selection_draws == settings.guarantee.n0 and sum(row.counts.values()) == row.n


def _vote_problems(row: Certificate, settings: FileSettings, images: range) -> Iterator[str]:
    """What is wrong with the votes of a row, apart from what follows from them."""
    if row.counts is None or row.selection_counts is None:
        yield "has no votes to check"
        return
    if row.idx not in images:
        yield f"is none of the {settings.images} images of the settings"
    if max(row.label, *row.counts, *row.selection_counts) >= settings.num_classes:
        yield f"has a class of {settings.num_classes} or more"
    selection_draws = sum(row.selection_counts.values())
    if selection_draws != settings.guarantee.n0:
        yield f"has {selection_draws} selection votes, not n0={settings.guarantee.n0}"
        return
    draws = sum(row.counts.values())
    if draws != row.n:
        yield f"has {draws} votes, where it says n={row.n}"
        return
    problem = _draws_problem(row, draws, settings)
    if problem:
        yield problem


def label_problems(rows: Sequence[Certificate], labels: NDArray[np.int64]) -> Iterator[str]:
    """Labels of rows that are not those of the data set, as sentences."""
    for row in rows:
        if row.idx >= len(labels):
            yield f"image {row.idx}: is beyond the {len(labels):,} images of the data set"
        elif row.label != labels[row.idx]:
            label = labels[row.idx]
            yield f"image {row.idx}: says label {row.label}, but the data set says {label}"


def _draws_problem(row: Certificate, draws: int, settings: FileSettings) -> str:
    """Why a row cannot have its number of draws; empty where it can."""
    # Skipping depends on the selection alone, so it is the same under every guarantee.
    if settings.certification.skip_wrong and row.selected != row.label:
        if draws == 0:
            return ""
        return f"has n={draws} draws, though its selected class is wrong"
    if draws == 0 and settings.certification.budget is not None:
        return ""
    return settings.guarantee.draws_problem(draws)


def recompute(file: Certificates, *, alpha: float) -> Certificates:
    """The same votes at another failure probability.

    A row whose draws stopped early because abstention was certain stays an abstention: where its
    draws ended depends on its votes, so nothing else may be read off them.
    """
    require_alpha(alpha)
    settings = _settings_of(file)
    if not all(row.has_votes for row in file.rows):
        raise CertificateError(f"{file.path}: has no votes, so nothing can be recomputed from it")
    # New digests must not hide that rows were edited.
    _require_digests(file)
    guarantee = replace(settings.guarantee, alpha=alpha)
    certification = replace(settings.certification, guarantee=guarantee)
    rows = certificates_of([votes_of(row) for row in file.rows], certification)
    settings = replace(settings, certification=certification)
    finished = file.digests is not None and file.digests.finished
    return bound(replace(file, rows=tuple(rows), settings=settings), finished=finished)


def bound(file: Certificates, *, finished: bool) -> Certificates:
    """The file with digests of its rows, if its settings ask for them, and one over all rows.

    The last is there only if the file is `finished`.
    """
    settings = _settings_of(file)
    if not settings.has_digests:
        return replace(file, digests=None)
    row_digests = settings.row_digests
    rows = tuple(map(row_digests.bound, file.rows))
    record = DigestRecord(row_digests.settings)
    if finished:
        record = record.over(rows)
    return replace(file, rows=rows, digests=record)


def _require_digests(file: Certificates) -> None:
    problems = digest_problems(file)
    if problems:
        raise CertificateError(f"{file.path}: {problems[0]}")


def merge(files: Sequence[Certificates], *, allow_gaps: bool = False) -> Certificates:
    """The rows of several parts of one run, in the order of the images.

    Refused are files of other settings, rows that do not follow from their votes, and images that
    are missing or that two files have.
    """
    # Before the rows: settings decide whether they are right.
    _require_one_run(files)
    for file in files:
        require_verified(file)
    return merge_verified(files, allow_gaps=allow_gaps)


def require_verified(file: Certificates, *, advice: str = "") -> None:
    """Refuse a file if one of its rows is wrong; `advice` ends the sentence."""
    problems = verify(file).problems
    if not problems:
        return
    more = ""
    if len(problems) > 1:
        more = f" and {counted(len(problems) - 1, 'more problem')}"
    raise CertificateError(f"{file.path}: {problems[0]}{more}{advice}")


def merge_verified(files: Sequence[Certificates], *, allow_gaps: bool = False) -> Certificates:
    """The rows of several parts, which the caller has verified, as by `merge`."""
    _require_one_run(files)
    first = files[0]
    rows = _merged_rows(files)
    every = [_settings_of(file) for file in files]
    settings = replace(_unsharded(first), **joined_records(*every))
    whole = replace(first, rows=rows, settings=settings)
    if whole.missing and not allow_gaps:
        raise CertificateError(f"the files lack {some(whole.missing)} of {settings.images} images")
    # A file with gaps is as finished as it will be: rows that are lost later are found.
    return bound(whole, finished=True)


def _require_one_run(files: Sequence[Certificates]) -> None:
    """Refuse files whose settings do not belong to one run."""
    first, *others = files
    settings = _unsharded(first)
    for other in others:
        found = differences(settings, _unsharded(other))
        if found:
            raise CertificateError(
                f"{first.path} and {other.path} do not belong together: {'; '.join(found)}"
            )


def _merged_rows(files: Sequence[Certificates]) -> tuple[Certificate, ...]:
    rows: dict[int, Certificate] = {}
    found_in: dict[int, Path] = {}
    for file in files:
        for row in file.rows:
            if row.idx in rows:
                raise CertificateError(
                    f"image {row.idx} is in {found_in[row.idx]} and in {file.path}"
                )
            rows[row.idx] = row
            found_in[row.idx] = file.path
    return tuple(rows[idx] for idx in sorted(rows))


def _unsharded(file: Certificates) -> FileSettings:
    return replace(_settings_of(file), shard="")


def some(indices: Sequence[int]) -> str:
    """A few of many image numbers.

    >>> some([1, 2, 3, 4, 5, 6, 7])
    '7 images (1, 2, 3, 4, 5, ...)'
    """
    shown = ", ".join(map(str, indices[:SHOWN_IMAGES]))
    if len(indices) == 1:
        return f"image {shown}"
    if len(indices) > SHOWN_IMAGES:
        shown += ", ..."
    return f"{len(indices)} images ({shown})"


def save(file: Certificates, path: Path) -> None:
    """Write rows and settings as a certificate file, completely or not at all.

    Rows that were read with digests must still fit them; others get theirs here.
    """
    settings = _settings_of(file)
    require_own_settings(require_tsv(path))
    if settings.has_digests and file.digests is None:
        file = bound(file, finished=not file.missing)
    _require_digests(file)
    replaces_rows = path.exists()
    # Settings first: rows without settings could be taken for those of another run. The digest
    # over all rows is not that of rows which are there already.
    settings.save(settings_path(path), None if replaces_rows else file.digests)
    lines = [header_of(settings.columns)]
    for row in file.rows:
        lines.append(to_line(row, settings.columns))
    atomic_write(path, "".join(lines).encode())
    if replaces_rows and settings.has_digests:
        settings.save(settings_path(path), file.digests)


def export_cohen_log(file: Certificates) -> str:
    """The rows as a Cohen-style log of six columns."""
    header = "\t".join(COHEN_COLUMNS) + "\n"
    return header + "".join(map(to_cohen_line, file.rows))


def _settings_of(file: Certificates) -> FileSettings:
    if file.settings is None:
        raise CertificateError(
            f"{file.path}: has no {settings_path(file.path).name} beside it, "
            "so that nobody can tell how it was made"
        )
    return file.settings
