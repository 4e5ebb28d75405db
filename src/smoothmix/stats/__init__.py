"""Guarantees, and the bounds and tests they are made of: pure functions of counts. No torch."""

from smoothmix.stats.allocation import Budget
from smoothmix.stats.anytime import Stopping
from smoothmix.stats.binomial import NOBODY
from smoothmix.stats.guarantees import (
    GUARANTEES,
    Anytime,
    FixedDraws,
    Guarantee,
    GuaranteeOptions,
    SelectedVotes,
)

__all__ = [
    "GUARANTEES",
    "NOBODY",
    "Anytime",
    "Budget",
    "FixedDraws",
    "Guarantee",
    "GuaranteeOptions",
    "SelectedVotes",
    "Stopping",
]
