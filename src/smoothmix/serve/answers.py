"""The answer about an image, as JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from smoothmix.certificates import Certificate
from smoothmix.certificates.row import top_class
from smoothmix.serve.classifier import Classifier
from smoothmix.stats.binomial import ABSTAIN, NOBODY

LEVELS = 255
"""Steps from black to white, in which people know pixels."""


def answer_of(row: Certificate, classifier: Classifier, *, ended: str) -> dict[str, Any]:
    """The certificate of a row; `ended` says why drawing ended, and is empty while it goes on."""
    counts = row.counts or {}
    predicted = None
    name = None
    if row.predict != ABSTAIN:
        predicted = row.predict
        name = classifier.class_name(row.predict)
    return {
        "class": predicted,
        "name": name,
        "abstained": predicted is None,
        "radius": row.radius,
        "squared": row.squared,
        "p_lower": row.p_lower,
        "selected": row.selected,
        "votes": _votes(counts),
        "selection_votes": _votes(row.selection_counts or {}),
        "draws": row.n,
        "alpha": classifier.certification.guarantee.alpha,
        "ended": ended,
        "runner_up": _runner_up(row, counts, classifier),
        "equivalent": equivalents(row.radius, classifier.shape),
    }


def _votes(counts: Mapping[int, int]) -> dict[str, int]:
    """Votes by class, as JSON has them; "-1" are those for no class."""
    return {str(number): counts[number] for number in sorted(counts)}


def _runner_up(
    row: Certificate, counts: Mapping[int, int], classifier: Classifier
) -> dict[str, Any] | None:
    """The class with most votes besides the selected one: the likeliest to take over."""
    others = {}
    for number, votes in counts.items():
        if number not in (row.selected, NOBODY):
            others[number] = votes
    if not others:
        return None
    number = top_class(others)
    return {
        "class": number,
        "name": classifier.class_name(number),
        "share": round(others[number] / sum(counts.values()), 6),
    }


def equivalents(radius: float, shape: tuple[int, ...]) -> dict[str, float | int]:
    """How large a radius is, in two changes that people can imagine; both rounded down.

    >>> equivalents(1.5, (1, 28, 28))
    {'levels_everywhere': 13.6, 'values_switched': 2}
    """
    # A radius r allows every change with a sum of squares below r^2.
    everywhere = LEVELS * radius / math.sqrt(math.prod(shape))
    return {
        "levels_everywhere": math.floor(10 * everywhere) / 10,
        "values_switched": max(0, math.ceil(radius**2) - 1),
    }
