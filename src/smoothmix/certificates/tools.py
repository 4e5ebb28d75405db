"""What can be done with certificate files alone: check, merge, compute again at another alpha, export."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from smoothmix._io.files import atomic_write
from smoothmix.certificates.file import HEADER, Certificates
from smoothmix.certificates.row import (
    FIELD_COLUMNS,
    Certificate,
    from_votes,
    to_field_line,
    to_line,
    top_class,
)
from smoothmix.certificates.settings import (
    FileSettings,
    differences,
    joined_versions,
    require_own_settings,
    require_tsv,
    settings_path,
)
from smoothmix.config import require_alpha
from smoothmix.errors import CertificateError
from smoothmix.stats import anytime


@dataclass(frozen=True)
class Verification:
    """What a check of a file found."""

    rows: int
    recomputed: int
    """Rows whose radius, bound and prediction follow from their votes."""
    problems: tuple[str, ...]
    missing: tuple[int, ...]

    @property
    def ok(self) -> bool:
        """Whether everything that is there is right."""
        return not self.problems


def verify(file: Certificates) -> Verification:
    """Compute every row again from its votes, and check the votes against the settings."""
    problems = list(_order_problems(file.rows))
    if file.settings is None and any(row.has_votes for row in file.rows):
        problems.append(f"has no {settings_path(file.path).name} beside it to compute its votes by")
    if file.settings is not None:
        for row, bound in zip(file.rows, _bounds(file.rows, file.settings), strict=True):
            problems.extend(
                f"image {row.idx}: {problem}"
                for problem in _row_problems(row, file.settings, bound)
            )
    recomputed = sum(row.has_votes for row in file.rows) if file.settings else 0
    return Verification(len(file.rows), recomputed, tuple(problems), tuple(file.missing))


def _order_problems(rows: Sequence[Certificate]) -> Iterator[str]:
    for before, after in pairwise(rows):
        if after.idx <= before.idx:
            yield f"image {after.idx} comes after image {before.idx}"


def _row_problems(row: Certificate, settings: FileSettings, bound: float | None) -> Iterator[str]:
    how = settings.certification
    if not row.has_votes or row.counts is None or row.selection_counts is None:
        yield "has no votes to check"
        return
    if row.idx not in settings.indices:
        yield f"is none of the {settings.images} images that the settings announce"
    if max(row.label, *row.counts, *row.selection_counts) >= settings.num_classes:
        yield f"has a class of {settings.num_classes} or more"
    if sum(row.selection_counts.values()) != how.n0:
        yield f"has {sum(row.selection_counts.values())} selection votes, not n0={how.n0}"
        return
    if sum(row.counts.values()) != row.n:
        yield f"has {sum(row.counts.values())} votes, where it says n={row.n}"
        return
    problem = _draws_problem(row, settings)
    if problem:
        yield problem
    again = _again(row, settings, bound)
    for name in ("selected", "predict", "correct", "p_lower", "radius"):
        said, follows = getattr(row, name), getattr(again, name)
        if said != follows:
            yield f"says {name} {said}, but its votes give {follows}"


def _draws_problem(row: Certificate, settings: FileSettings) -> str:
    """What is wrong with the number of draws; empty where nothing is."""
    how = settings.certification
    assert row.n is not None
    if how.skip_wrong and row.selected != row.label:
        return f"has n={row.n} draws, though its selected class is wrong" if row.n else ""
    if settings.mode == "anytime":
        return "has no draws" if row.n == 0 else ""
    # A row that stopped early claims nothing, whatever alpha it is read at: only that it may is checked.
    if row.n == how.n or (how.stop_abstaining and 0 < row.n < how.n):
        return ""
    return f"has n={row.n} draws, not {how.n}"


def _bounds(rows: Sequence[Certificate], settings: FileSettings) -> list[float | None]:
    """The anytime bounds of all rows at once; None where each is computed by itself, which is fast in exact mode."""
    if settings.mode == "exact" or not all(row.has_votes and row.selection_counts for row in rows):
        return [None] * len(rows)
    how = settings.certification
    # Draws as the votes have them: a row that claims another number is reported by itself.
    counts = [
        (_votes_for(row, row.counts), _draws(row.counts), _votes_for(row, row.selection_counts))
        for row in rows
    ]
    votes, drawn, before = np.array(counts).T
    sizes = np.array([_draws(row.selection_counts) for row in rows])
    return [
        float(bound)
        for bound in anytime.lower_bound(votes, drawn, k0=before, n0=sizes, alpha=how.alpha)
    ]


def _draws(votes: Mapping[int, int] | None) -> int:
    return sum((votes or {}).values())


def _votes_for(row: Certificate, votes: Mapping[int, int] | None) -> int:
    """For the class that the selection draws chose."""
    return (votes or {}).get(top_class(row.selection_counts or {}), 0)


def _again(row: Certificate, settings: FileSettings, bound: float | None) -> Certificate:
    how = settings.certification
    assert row.counts is not None
    assert row.selection_counts is not None
    return from_votes(
        row.idx,
        row.label,
        row.selection_counts,
        row.counts,
        sigma=how.sigma,
        alpha=how.alpha,
        seconds=row.seconds,
        mode=settings.mode,
        planned=how.n,
        bound=bound,
    )


def recompute(file: Certificates, *, alpha: float) -> Certificates:
    """The same votes at another failure probability.

    A row whose draws were stopped because it was sure to abstain at the old one stays an abstention: where its draws
    ended was decided by that, so nothing else may be read off them.
    """
    require_alpha(alpha)
    settings = _settings_of(file)
    if not all(row.has_votes for row in file.rows):
        raise CertificateError(
            f"{file.path}: has no votes, so nothing can be computed again from it"
        )
    settings = replace(settings, certification=replace(settings.certification, alpha=alpha))
    bounds = _bounds(file.rows, settings)
    rows = tuple(_again(row, settings, bound) for row, bound in zip(file.rows, bounds, strict=True))
    return replace(file, rows=rows, settings=settings)


def merge(files: Sequence[Certificates], *, allow_gaps: bool = False) -> Certificates:
    """The rows of several parts of one run, in the order of the images; gaps and doubles are refused."""
    first, *others = files
    for other in others:
        found = differences(_unsharded(first), _unsharded(other))
        if found:
            raise CertificateError(
                f"{first.path} and {other.path} do not belong together: {'; '.join(found)}"
            )
    merged: dict[int, tuple[Certificate, Path]] = {}
    for file in files:
        for row in file.rows:
            if row.idx in merged:
                raise CertificateError(
                    f"image {row.idx} is in {merged[row.idx][1]} and in {file.path}"
                )
            merged[row.idx] = row, file.path
    every = [_settings_of(file) for file in files]
    versions = joined_versions(*(settings.versions for settings in every))
    settings = replace(
        _unsharded(first), images=max(settings.images for settings in every), versions=versions
    )
    whole = replace(first, rows=tuple(merged[i][0] for i in sorted(merged)), settings=settings)
    if whole.missing and not allow_gaps:
        raise CertificateError(f"the files lack {some(whole.missing)} of {settings.images} images")
    return whole


def _unsharded(file: Certificates) -> FileSettings:
    return replace(_settings_of(file), shard="")


def some(indices: Sequence[int]) -> str:
    """A few of many image numbers.

    >>> some([1, 2, 3, 4, 5, 6, 7])
    '7 images (1, 2, 3, 4, 5, ...)'
    """
    shown = ", ".join(map(str, indices[:5])) + (", ..." if len(indices) > 5 else "")
    return f"{len(indices)} images ({shown})" if len(indices) > 1 else f"image {shown}"


def save(file: Certificates, path: Path) -> None:
    """Write rows and settings as a certificate file of ours, whole or not at all."""
    settings = _settings_of(file)
    require_own_settings(require_tsv(path))
    settings.save(settings_path(path))
    atomic_write(path, (HEADER + "".join(map(to_line, file.rows))).encode())


def export_field_log(file: Certificates) -> str:
    """The rows as the field's six-column log."""
    return "\t".join(FIELD_COLUMNS) + "\n" + "".join(map(to_field_line, file.rows))


def _settings_of(file: Certificates) -> FileSettings:
    if file.settings is None:
        raise CertificateError(
            f"{file.path}: has no {settings_path(file.path).name} beside it to say how it was made"
        )
    return file.settings
