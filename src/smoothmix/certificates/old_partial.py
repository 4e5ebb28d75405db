"""Partial votes as earlier versions kept them: `certificates-begun.tsv` beside `certificates.tsv`.

Such a file looks like a certificate file with unfinished rows. Its votes are copied into the
journal once; it is deleted only if it is certain that no run wrote it as its certificate file.
This is the only module that knows the old name. No torch.
"""

from __future__ import annotations

import warnings
from pathlib import Path

from smoothmix._io.locks import is_held
from smoothmix.certificates.certification import Certification
from smoothmix.certificates.file import Certificates, read
from smoothmix.certificates.partial import Journal, PartialVotes
from smoothmix.certificates.row import Certificate
from smoothmix.certificates.settings import FileSettings, differences, settings_path
from smoothmix.errors import SmoothmixError


def old_votes_path(path: Path) -> Path:
    """Where an earlier version kept the partial votes of a certificate file."""
    return path.with_name(f"{path.stem}-begun.tsv")


def import_old_votes(path: Path, settings: FileSettings, journal: Journal) -> None:
    """Copy the partial votes that an earlier version left beside a file into its journal."""
    old = old_votes_path(path)
    if not old.exists() or is_held(old):
        return
    try:
        file = read(old)
    except SmoothmixError as error:
        warnings.warn(f"{error}; partial votes in it are not used", stacklevel=3)
        return
    # Someone may have given this name to a certificate file of other settings.
    if file.settings is None or differences(file.settings, settings):
        return
    # Ranges of draws make this safe to repeat, should the process die before the file is deleted.
    journal.append(_new_votes(file, settings, journal))
    # A whole file may have been extended, which keeps images with any number of draws.
    may_be_extended = settings.guarantee.holds_at_any_time and not file.missing
    if not may_be_extended and any(_is_surely_unfinished(row, settings) for row in file.rows):
        # The rows first: without settings they cannot be taken for those of another run.
        old.unlink(missing_ok=True)
        settings_path(old).unlink(missing_ok=True)
        return
    warnings.warn(
        f"{old}: its votes are used, but it may be a certificate file of yours, so it is kept; "
        "delete it if you do not need it",
        stacklevel=3,
    )


def _new_votes(
    file: Certificates, settings: FileSettings, journal: Journal
) -> dict[int, PartialVotes]:
    """The votes of resumable images that the journal does not hold."""
    known = journal.read()
    new = {}
    for row in file.rows:
        if not _can_be_resumed(row, settings):
            continue
        votes = PartialVotes.of_row(row)
        if row.idx not in known or known[row.idx].drawn < votes.drawn:
            new[row.idx] = votes
    return new


def _can_be_resumed(row: Certificate, settings: FileSettings) -> bool:
    """Whether a run with these settings can have left this: a whole selection, whole batches."""
    if row.counts is None or row.selection_counts is None or row.n is None:
        return False
    certification = settings.certification
    classes = [*row.counts, *row.selection_counts]
    return (
        row.idx in settings.indices
        and max(classes) < settings.num_classes
        and sum(row.selection_counts.values()) == certification.guarantee.n0
        and sum(row.counts.values()) == row.n <= certification.guarantee.max_draws
        and (row.n % certification.batch == 0 or row.n == certification.guarantee.max_draws)
    )


def _is_surely_unfinished(row: Certificate, settings: FileSettings) -> bool:
    """Whether no run can have written this row into its certificate file."""
    assert row.n is not None
    certification = settings.certification
    if row.n == 0:
        return not (certification.skip_wrong and row.selected != row.label)
    guarantee = certification.guarantee
    # No run by these rules has written it, and nobody knows what has.
    if row.n > guarantee.max_draws:
        return False
    if guarantee.holds_at_any_time:
        return not _is_checked_after(row.n, certification)
    # An early stop of an image that is sure to abstain looks like an unfinished one.
    return bool(guarantee.draws_problem(row.n))


def _is_checked_after(draws: int, certification: Certification) -> bool:
    """Whether stopping rules are checked after so many draws: only then is an image finished."""
    checked = 0
    while checked < draws:
        checked = certification.guarantee.next_check(checked, batch=certification.batch)
    return checked == draws
