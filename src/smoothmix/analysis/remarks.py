"""Notes on a certificate file: what a reader must know beside its numbers. No torch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from smoothmix._io.text import counted
from smoothmix.analysis.draws import Draws, Origin
from smoothmix.analysis.rounding import printing_of
from smoothmix.analysis.sources import unread_sigma
from smoothmix.certificates import Certificate, Certificates, Certification, settings_path
from smoothmix.certificates.row import selected_votes, votes_of
from smoothmix.noise import GAUSSIAN
from smoothmix.stats.allocation import Budget


def remarks(
    file: Certificates, *, sigma: float | None, draws: Draws, paper_rounding: bool
) -> list[str]:
    """The notes on a file, a sentence each, such as on a line that was cut."""
    return [
        *file.notes,
        *_unread_sigma(file, sigma),
        *_beyond_reach(file, sigma, draws),
        *_unchecked(file),
        *_unfinished(file),
        *_stopped_early(file),
        *_lower_ends(file, paper_rounding),
        *_from_radii(file, sigma),
    ]


def has_some_votes(file: Certificates) -> bool:
    """Whether any row records its votes."""
    return any(row.has_votes for row in file.rows)


def has_all_votes(file: Certificates) -> bool:
    """Whether every row records its votes."""
    return all(row.has_votes for row in file.rows)


def _unread_sigma(file: Certificates, sigma: float | None) -> list[str]:
    number = unread_sigma(file.path)
    if sigma is not None or not number:
        return []
    return [f"{number} in its path may or may not be its sigma: state it as name@sigma=path"]


def _beyond_reach(file: Certificates, sigma: float | None, draws: Draws) -> list[str]:
    """Where the stated n and alpha contradict the radii."""
    if sigma is None or draws.origin is not Origin.STATED or draws.guarantee is None:
        return []
    reach = draws.guarantee.largest_radius(GAUSSIAN, sigma=sigma)
    largest = float(file.radius.max())
    # A printed radius may have been rounded up.
    if largest - printing_of(file.radius).unit(largest) <= reach:
        return []
    note = (
        f"has a radius of {largest:g}, but no more than {reach:.3f} can be certified with the "
        f"stated n {draws.n:,} and alpha {draws.alpha:g}"
    )
    return [note]


def _unchecked(file: Certificates) -> list[str]:
    if file.settings is not None or not has_some_votes(file):
        return []
    name = settings_path(file.path).name
    return [f"has no {name} beside it: its radii cannot be computed again from their votes"]


def _unfinished(file: Certificates) -> list[str]:
    missing = len(file.missing)
    if not missing:
        return []
    return [f"not finished: {missing} of {missing + len(file.rows)} images are still missing"]


def _stopped_early(file: Certificates) -> list[str]:
    """Anytime certification stops once its own question is answered, so other numbers are low."""
    if file.settings is None or not file.settings.guarantee.holds_at_any_time:
        return []
    draws = np.mean([row.n or 0 for row in file.rows])
    note = f"{file.settings.guarantee.description}, {draws:,.0f} per image on average"
    if file.settings.guarantee.radii:
        note += "; ACR and accuracy at other radii would be higher with more noise samples"
    notes = [note]
    undecided = _count_undecided(file.rows, file.settings.certification)
    if file.settings.certification.budget is not None:
        notes.append(_on_budget(file, file.settings.certification.budget, undecided=undecided))
    elif undecided:
        notes.append(
            f"not decided: {undecided} of {counted(len(file.rows), 'image')} (stopped early for "
            "lack of time, or drawn for another alpha), whose radii would be larger with more "
            "noise samples"
        )
    return notes


def _on_budget(file: Certificates, budget: Budget, *, undecided: int) -> str:
    """What a budget for all images has left open."""
    by = "votes"
    if file.settings is not None and file.settings.certification.skip_wrong:
        by = "votes and labels"
    images = counted(len(file.rows), "image")
    note = (
        f"{budget.description}: images took turns by expected gain, from {by}; not decided when it "
        f"ended: {undecided} of {images}, whose radii would be larger with more noise samples"
    )
    without = sum(row.n == 0 for row in file.rows)
    if without:
        note += f"; {without} had no noise samples and count as radius 0"
    if not budget.reproducible:
        note += "; how far its hours went is not reproducible"
    return note


def _count_undecided(rows: Sequence[Certificate], certification: Certification) -> int:
    """How many images had too few noise samples by the file's own rules."""
    images = []
    without_draws = 0
    for row in rows:
        # Images that selection skipped, or that have no votes on record, say nothing.
        if row.selected is None or not (row.n and row.counts and row.selection_counts):
            without_draws += _lacks_draws(row, certification)
            continue
        images.append(votes_of(row))
    if not images:
        return without_draws
    enough = certification.guarantee.enough(
        selected_votes(images), certification.noise, sigma=certification.sigma
    )
    return without_draws + int((~enough).sum())


def _lacks_draws(row: Certificate, certification: Certification) -> bool:
    """Whether a budget has left an image without draws that might have gained something."""
    if certification.budget is None or row.n != 0:
        return False
    return not certification.skip_wrong or row.selected == row.label


def _from_radii(file: Certificates, sigma: float | None) -> list[str]:
    if has_some_votes(file):
        return []
    if sigma is None:
        return ["a log without votes that does not record its sigma, so p_A is not known"]
    return ["a log without votes: p_A is the lower bound that follows from the radius"]


def _lower_ends(file: Certificates, paper_rounding: bool) -> list[str]:
    """Why the ACR is not the plain average of the radii that a log prints."""
    if paper_rounding or has_all_votes(file):
        return []
    note = (
        "each printed radius is read as the least that it may have been rounded from, so the ACR "
        "lies a little below the mean of the printed radii (--paper-rounding gives that mean)"
    )
    return [note]
