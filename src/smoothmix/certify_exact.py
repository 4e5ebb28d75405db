"""Certification with a fixed number of draws, an image at a time; the one in work is told of and kept now and then."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial

from smoothmix.certificates import Certificate
from smoothmix.certificates.begun import SECONDS_BETWEEN_KEEPING, keep_at_the_end
from smoothmix.certify import InWork, certify_image
from smoothmix.config import Certification
from smoothmix.interruption import TOLD_TO_STOP
from smoothmix.smoothing import SECONDS_BETWEEN_TELLING, Images, Sampler


def exact_rows(
    sampler: Sampler,
    images: Images,
    how: Certification,
    *,
    begun: Mapping[int, Certificate] | None = None,
    keep: Callable[[Sequence[Certificate]], None] = lambda rows: None,
    on_draws: Callable[[int], None] = lambda draws: None,
) -> Generator[Certificate, None, None]:
    """The certificates of these images, in order.

    An image may take hours: `keep` gets it as it stands, now and then and when one is told to stop, also while its row
    is being written; handed in as `begun`, it goes on from there. `on_draws` hears how many draws it has had.
    """
    latest: InWork | None
    for index, label, image in images:
        kept = told = time.monotonic()
        latest = None

        def heard(state: InWork) -> None:
            nonlocal kept, told, latest
            now, latest = time.monotonic(), state
            if now - told > SECONDS_BETWEEN_TELLING:
                told = now
                on_draws(int(state.votes.sum()))
            if now - kept > SECONDS_BETWEEN_KEEPING:
                kept = now
                keep([state.row])

        before = (begun or {}).get(index)
        try:
            yield certify_image(sampler, image, index, label=label, how=how, begun=before, on_block=heard)
        except TOLD_TO_STOP:
            if latest:
                keep_at_the_end(partial(keep, [latest.row]))
            raise
