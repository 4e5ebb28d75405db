"""Certifications by one guarantee or another."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from smoothmix.certificates import Certification
from smoothmix.stats.anytime import Stopping
from smoothmix.stats.guarantees import Anytime, FixedDraws


def with_stopping(certification: Certification, stopping: Stopping | None) -> Certification:
    """The same certification by the anytime guarantee, if there are rules for stopping."""
    if stopping is None:
        return certification
    before = certification.guarantee
    guarantee = Anytime(stopping, n0=before.n0, alpha=before.alpha)
    return replace(certification, guarantee=guarantee)


def certification_of(sigma: float, **options: Any) -> Certification:
    """A certification with a fixed number of draws, whose options may be the guarantee's."""
    of_guarantee = {}
    for name in ("n", "n0", "alpha", "stop_abstaining"):
        if name in options:
            of_guarantee[name] = options.pop(name)
    return Certification(sigma=sigma, guarantee=FixedDraws(**of_guarantee), **options)


def with_draws(certification: Certification, **changes: Any) -> Certification:
    """The same certification with other settings of its guarantee."""
    return replace(certification, guarantee=replace(certification.guarantee, **changes))
