"""What a reader of a certificate file must know beside its numbers. No torch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from smoothmix._io.text import counted
from smoothmix.certificates import Certificate, Certificates, settings_path
from smoothmix.config import Certification
from smoothmix.stats.anytime import Stopping, decided


def remarks(file: Certificates, *, sigma: float | None, paper_rounding: bool) -> list[str]:
    """A sentence for each thing, such as a line that was cut."""
    return [
        *file.notes,
        *_unchecked(file),
        *_unfinished(file),
        *_stopped(file),
        *_lower_ends(file, paper_rounding),
        *_from_radii(file, sigma),
    ]


def _unchecked(file: Certificates) -> list[str]:
    if file.settings is not None or not any(row.has_votes for row in file.rows):
        return []
    return [
        f"has no {settings_path(file.path).name} beside it: its radii cannot be computed again from their votes"
    ]


def _unfinished(file: Certificates) -> list[str]:
    missing = len(file.missing)
    return (
        [f"not finished: {missing} of {missing + len(file.rows)} images are still missing"]
        if missing
        else []
    )


def _stopped(file: Certificates) -> list[str]:
    """That an anytime file stops drawing once its own questions are answered, and so says little about others."""
    if file.settings is None or file.settings.stopping is None:
        return []
    draws = np.mean([row.n or 0 for row in file.rows])
    told = (
        "; ACR and accuracy at other radii would be higher with more draws"
        if file.settings.stopping.radii
        else ""
    )
    said = [f"{file.settings.guarantee}, {draws:,.0f} an image on average{told}"]
    if undecided := _undecided(file.rows, file.settings.certification, file.settings.stopping):
        said.append(
            f"not decided: {undecided} of {counted(len(file.rows), 'image')} (given up for lack of time, or drawn for "
            "another alpha), whose radii would be larger with more draws"
        )
    return said


def _undecided(rows: Sequence[Certificate], how: Certification, stopping: Stopping) -> int:
    """How many images had not had enough draws by the file's own rules."""
    drawn = [
        row
        for row in rows
        if row.n and row.counts and row.selection_counts and row.selected is not None
    ]
    if not drawn:
        return 0
    votes = np.array([[(row.counts or {}).get(row.selected or 0, 0), row.n or 0] for row in drawn])
    before = np.array([(row.selection_counts or {}).get(row.selected or 0, 0) for row in drawn])
    enough = decided(
        *votes.T, k0=before, n0=how.n0, alpha=how.alpha, sigma=how.sigma, stopping=stopping
    )
    return int((~enough).sum())


def _from_radii(file: Certificates, sigma: float | None) -> list[str]:
    if any(row.has_votes for row in file.rows):
        return []
    return [
        "a log without votes: p_A is what its radii say it is at least"
        if sigma is not None
        else "a log without votes that does not say its sigma, so p_A is not known"
    ]


def _lower_ends(file: Certificates, paper_rounding: bool) -> list[str]:
    """That the numbers are not those of whoever averages what a log prints."""
    if paper_rounding or all(row.has_votes for row in file.rows):
        return []
    said = "each printed radius is read as the least that it may have been rounded from"
    return [
        f"{said}, so that the ACR lies a little below the mean of what is printed (--paper-rounding gives that mean)"
    ]
