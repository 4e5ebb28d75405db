"""Whether a network gives the votes on record, or others that rounding explains.

Noise is addressed, so that any vote can be drawn again: under the same weights, engine, precision
and batch it is the same vote. Other hardware rounds differently, which can change the vote of a
draw whose two highest logits are nearly equal. How many draws are so close is counted, class by
class: what these near ties cannot explain comes from another network, or from an edit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np
from numpy.typing import NDArray

from smoothmix._io.text import counted
from smoothmix.certificates import Certificate, FileSettings, dense, sparse
from smoothmix.certificates.probes import have_same_bits, probe_deviation
from smoothmix.certificates.row import votes_text
from smoothmix.config import Precision
from smoothmix.data import Dataset
from smoothmix.errors import UsageError
from smoothmix.inference.guards import check_images
from smoothmix.inference.sampler import ImageDraws, Sampler
from smoothmix.noise.streams import Domain

NEAR_TIE: Mapping[Precision, float] = {"fp32": 1e-4, "bf16": 2.0**-6}
"""Difference of the two highest logits, relative to the largest, that rounding may turn round."""

DEVIATIONS = 4.0
"""Near ties are wider if the probe's logits differ from those on record: so many differences."""

ROWS_ON_RESUMING = 20
"""Finished rows whose selection votes are drawn again where the probe is not enough."""


@final
@dataclass(frozen=True, kw_only=True)
class ComparedVotes:
    """The votes on record for some draws beside those that the network gives now."""

    differing: int
    """The least number of draws that voted otherwise than recorded."""
    problem: str = ""
    """The difference in words, if rounding does not explain it."""


def near_tie_width(settings: FileSettings, probe: str) -> float:
    """How close two logits are, relative to the largest, for rounding to turn them round.

    `probe` is that of the network here; the settings have the one on record.
    """
    narrowest = NEAR_TIE[settings.certification.precision]
    return max(narrowest, DEVIATIONS * probe_deviation(settings.probe, probe))


def compare_votes(
    sampler: Sampler, draws: ImageDraws, recorded: Mapping[int, int], *, near_tie: float
) -> ComparedVotes:
    """Draw votes again and compare them with those on record."""
    (again,) = sampler.tally([draws])
    return explain_difference(sampler, draws, recorded, again, near_tie=near_tie)


def explain_difference(
    sampler: Sampler,
    draws: ImageDraws,
    recorded: Mapping[int, int],
    again: NDArray[np.int64],
    *,
    near_tie: float,
) -> ComparedVotes:
    """Compare votes that were drawn again with those on record."""
    before = dense(recorded, sampler.num_classes)
    differing = int(np.abs(before - again).sum()) // 2
    if not differing:
        return ComparedVotes(differing=0)
    ties = sampler.near_ties(draws, tolerance=near_tie)
    if is_rounding(before, again, ties):
        return ComparedVotes(differing=differing)
    purpose = "selection" if draws.domain is Domain.SELECTION else "estimation"
    drawn = votes_text(sparse(again[:-1], nobody=int(again[-1])))
    problem = (
        f"says {purpose} votes {votes_text(recorded)}, but the network gives {drawn}, and only "
        f"{counted(int(ties[0].sum()), 'draw')} of them came near a tie"
    )
    return ComparedVotes(differing=differing, problem=problem)


def is_rounding(
    recorded: NDArray[np.int64], again: NDArray[np.int64], ties: NDArray[np.int64]
) -> bool:
    """Whether near ties explain that the recorded votes are not those that were drawn again.

    `ties` counts the near ties by their first class and by their second: a class can lose the
    votes of the first ones, and win those of the second ones.
    """
    can_lose, can_win = ties
    return bool(np.all((recorded >= again - can_lose) & (recorded <= again + can_win)))


def require_same_votes(
    path: Path,
    rows: Sequence[Certificate],
    recorded: FileSettings,
    here: FileSettings,
    sampler: Sampler,
    dataset: Dataset,
) -> None:
    """Refuse to continue rows whose votes this network does not give.

    Where the code of the network is that on record and the probe has the same bits, nothing is
    drawn. Otherwise the probe allows for rounding, or its eight images may miss code that treats
    other images differently: so the selection votes of some finished rows are drawn again, which
    takes less than the draws of one more image.
    """
    if have_same_bits(recorded.probe, sampler.probe) and not _has_other_code(recorded, here):
        return
    chosen = [row for row in _spread(rows, ROWS_ON_RESUMING) if row.selection_counts]
    # All of them at once, so that every thread has work.
    ranges = [_selection_draws(row, dataset) for row in chosen]
    near_tie = near_tie_width(recorded, sampler.probe)
    for row, draws, again in zip(chosen, ranges, sampler.tally(ranges), strict=True):
        problem = explain_difference(
            sampler, draws, row.selection_counts or {}, again, near_tie=near_tie
        ).problem
        if problem:
            raise UsageError(
                f"{path}: image {row.idx} {problem}: the code or the settings of the network have "
                "changed since the file was started; finish it with the network that started it, "
                "or choose another --out"
            )


def _has_other_code(recorded: FileSettings, here: FileSettings) -> bool:
    """Whether some rows may come from another version of the network's source files."""
    for module, digest in here.sources.items():
        # A file that several versions have written names all of them.
        if recorded.sources.get(module, digest) != digest:
            return True
    return False


def _selection_draws(row: Certificate, dataset: Dataset) -> ImageDraws:
    images = dataset.images([row.idx])
    check_images(images)
    return ImageDraws(
        image=images[0],
        index=row.idx,
        domain=Domain.SELECTION,
        start=0,
        stop=sum((row.selection_counts or {}).values()),
    )


def _spread(rows: Sequence[Certificate], most: int) -> list[Certificate]:
    """Rows from the first to the last, at most so many, evenly spaced."""
    count = min(len(rows), most)
    positions = np.linspace(0, len(rows) - 1, count).round().astype(int)
    return [rows[position] for position in positions]
