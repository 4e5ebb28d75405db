"""How many images are drawn for at once, and what their guarantee makes of their votes so far."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from smoothmix.certificates.certification import Certification
from smoothmix.certificates.row import Certificate, ImageVotes, certificates_of
from smoothmix.certify.active import ActiveImage
from smoothmix.stats.guarantees import SelectedVotes

MOST_ACTIVE = 64
"""Active images at once: enough to keep every core busy while most of them are decided already."""

BATCHES_PER_THREAD = 16
"""Least batches per thread between two checks: at a check all threads wait for the last."""


FEW_ACTIVE = 8
"""Active images where the time of a run is limited, unless more threads than that draw."""


def active_images(certification: Certification, threads: int, *, limited: bool = False) -> int:
    """How many images to draw for at once; few where the time of the run is `limited`."""
    if limited:
        # The first ones are then finished when it runs out, instead of all of them nearly so.
        return min(MOST_ACTIVE, max(FEW_ACTIVE, threads))
    if certification.guarantee.holds_at_any_time:
        return MOST_ACTIVE
    # As few as keep the threads busy: rows are written early, and an interruption costs little.
    first_check = certification.guarantee.next_check(0, batch=certification.batch)
    batches = math.ceil(first_check / certification.batch)
    return min(MOST_ACTIVE, math.ceil(BATCHES_PER_THREAD * threads / batches))


def next_check(drawn: int, certification: Certification) -> int:
    """The number of draws after which an image that has `drawn` is checked next."""
    return certification.guarantee.next_check(drawn, batch=certification.batch)


def have_enough(images: Sequence[ActiveImage], certification: Certification) -> list[bool]:
    """Which images have had enough draws."""
    votes = np.zeros((4, len(images)), dtype=np.int64)
    for column, image in enumerate(images):
        votes[:, column] = (
            image.votes[image.selected],
            image.drawn,
            image.selection[image.selected],
            certification.guarantee.n0,
        )
    enough = certification.guarantee.enough(
        SelectedVotes(*votes), certification.noise, sigma=certification.sigma
    )
    return [bool(each) for each in enough]


def rows_of(images: Sequence[ActiveImage], certification: Certification) -> list[Certificate]:
    """The certificates that follow from the votes so far."""
    votes = []
    for image in images:
        votes.append(
            ImageVotes(
                idx=image.index,
                label=image.label,
                selection_counts=image.selection_counts,
                counts=image.counts,
                seconds=image.seconds,
            )
        )
    return certificates_of(votes, certification)
