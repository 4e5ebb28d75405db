"""Bounds and tests as pure functions of counts, and the guarantees made from them. No torch."""

from smoothmix.stats.anytime import Stopping
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
    "Anytime",
    "FixedDraws",
    "Guarantee",
    "GuaranteeOptions",
    "SelectedVotes",
    "Stopping",
]
