"""How the ACR depends on n: what fewer of the recorded votes would have certified.

Critics of the ACR point out that it grows with n, and for some methods more than for others. A file
records how many draws voted for each class, but not in which order. The votes of the first m of n
draws are therefore drawn again: without replacement, which is the hypergeometric distribution.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from smoothmix.analysis.measured import Floats, Ints, Measured
from smoothmix.analysis.remarks import has_all_votes
from smoothmix.certificates import Certification
from smoothmix.stats.guarantees import FixedDraws, SelectedVotes

FEWEST = 100
"""With fewer draws hardly any radius is left to compare."""

STEP = 10
"""Each number of draws is this multiple of the one before."""

SEED = 20_211_115
"""Of the choice among the recorded votes: the same files give the same numbers."""


def acr_by_draws(measured: Measured) -> list[tuple[int, float]]:
    """The ACR with 100, 1,000, ... of the recorded draws, and with all; empty without votes.

    Votes of the mode anytime are left out: how many an image has depends on what they were.
    """
    settings = measured.settings
    if settings is None or not has_all_votes(measured.file) or measured.paper_rounding:
        return []
    guarantee = settings.guarantee
    if not isinstance(guarantee, FixedDraws):
        return []
    right, others = _votes(measured)
    # An image without all of its draws abstained or was wrong: fewer draws would not change it.
    whole = (right + others == guarantee.n) & _is_selected_right(measured)
    found = []
    generator = np.random.default_rng(SEED)
    draws = FEWEST
    while draws < guarantee.n:
        votes = generator.hypergeometric(right[whole], others[whole], draws)
        radii = _radii(votes, replace(guarantee, n=draws), settings.certification)
        found.append((draws, float(radii.sum()) / len(measured)))
        draws *= STEP
    found.append((guarantee.n, float(measured.counted.mean())))
    return found


def _votes(measured: Measured) -> tuple[Ints, Ints]:
    """Votes for the selected class of each image, and all other draws."""
    right = []
    others = []
    for row in measured.file.rows:
        votes = (row.counts or {}).get(row.selected or 0, 0)
        right.append(votes)
        others.append((row.n or 0) - votes)
    return np.array(right), np.array(others)


def _is_selected_right(measured: Measured) -> NDArray[np.bool_]:
    # What is selected wrongly counts as 0 with any number of draws.
    selected = np.array([row.selected for row in measured.file.rows])
    return np.asarray(selected == measured.label)


def _radii(votes: Ints, guarantee: FixedDraws, certification: Certification) -> Floats:
    # Few draws have few outcomes, and a bound is worked out once for each.
    outcomes, position = np.unique(votes, return_inverse=True)
    draws = np.full(len(outcomes), guarantee.n)
    selection = np.full(len(outcomes), guarantee.n0)
    each = SelectedVotes(outcomes, draws, selection, selection)
    bounds = guarantee.lower_bound(each)
    radii = certification.noise.radius(bounds, sigma=certification.sigma)
    return np.where(bounds > 0.5, radii, 0.0)[position]
