"""One image's certificate, as a value and as a line of the file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import ROUND_DOWN, Decimal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothmix.config import Mode
from smoothmix.errors import CertificateError
from smoothmix.stats import anytime
from smoothmix.stats.binomial import ABSTAIN, lower_bound, radius

FIELD_COLUMNS = ("idx", "label", "predict", "radius", "correct", "time")
"""The columns of the field's own logs, in their order."""

COLUMNS = (*FIELD_COLUMNS, "p_lower", "n", "counts", "selected", "selection_counts")
"""The columns of our files: the field's, then what a reader needs to compute them again."""

DECIMALS = Decimal("0.000001")
WHOLE = 2.0**52
"""From here on floating-point numbers are whole."""

LARGEST_RADIUS = 1e12
"""A larger number is no distance between images."""
MOST_CLASSES = 2**31
MOST_VOTES = 2**53
"""Counts up to this are exact as floating-point numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """One row: what was voted, and what follows from it."""

    idx: int
    label: int
    predict: int
    """The certified class, or -1 for abstention."""
    radius: float
    correct: bool
    seconds: float = math.nan
    p_lower: float | None = None
    n: int | None = None
    counts: Mapping[int, int] | None = None
    selected: int | None = None
    selection_counts: Mapping[int, int] | None = None
    """The last five are None in a row from a log that has the field's six columns only."""

    @property
    def has_votes(self) -> bool:
        """Whether the row carries the votes that it was computed from."""
        return self.counts is not None


def from_votes(
    idx: int,
    label: int,
    selection_counts: Mapping[int, int],
    counts: Mapping[int, int],
    *,
    sigma: float,
    alpha: float,
    seconds: float = math.nan,
    mode: Mode = "exact",
    planned: int | None = None,
    bound: float | None = None,
) -> Certificate:
    """The certificate that these votes give. No estimation votes means that none were drawn: a skipped wrong image.

    In exact mode, fewer votes than `planned` mean that drawing stopped because abstention had become certain. `bound`
    is the bound on p_A that the votes give, where it is known already: for many images at once it is faster.
    """
    selected = top_class(selection_counts)
    n = sum(counts.values())
    if bound is None:
        bound = _bound(
            counts.get(selected, 0), n, selection_counts, selected, alpha=alpha, mode=mode
        )
    if mode == "exact" and planned is not None and n < planned:
        bound = 0.0
    certified = bound > 0.5
    # Without draws nothing is known; a wrong class that was skipped may be told, since it counts for nothing.
    predict = selected if certified or (n == 0 and selected != label) else ABSTAIN
    return Certificate(
        idx=idx,
        label=label,
        predict=predict,
        radius=round_down(float(radius(bound, sigma=sigma))) if certified else 0.0,
        correct=predict == label,
        seconds=seconds,
        p_lower=round_down(bound),
        n=n,
        counts=counts,
        selected=selected,
        selection_counts=selection_counts,
    )


def _bound(
    k: int, n: int, selection: Mapping[int, int], selected: int, *, alpha: float, mode: Mode
) -> float:
    """What the probability of the selected class is at least, by the guarantee asked for."""
    if n == 0:
        return 0.0
    if mode == "anytime":
        return float(
            anytime.lower_bound(
                k, n, k0=selection[selected], n0=sum(selection.values()), alpha=alpha
            )
        )
    return float(lower_bound(k, n, alpha=alpha))


def top_class(counts: Mapping[int, int]) -> int:
    """The class with most votes; the smallest of those that share the lead."""
    return min(counts, key=lambda c: (-counts[c], c))


def sparse(votes: ArrayLike) -> dict[int, int]:
    """Votes by class, without the classes that got none."""
    array = np.asarray(votes)
    return {int(c): int(array[c]) for c in np.flatnonzero(array)}


def dense(votes: Mapping[int, int] | None, num_classes: int) -> NDArray[np.int64]:
    """Votes as an array with a place for every class; zeros where none are known.

    >>> dense({1: 5}, 3).tolist()
    [0, 5, 0]
    """
    counts = np.zeros(num_classes, dtype=np.int64)
    for c, count in (votes or {}).items():
        counts[c] = count
    return counts


def round_down(value: float) -> float:
    """The value cut after six decimals: what a file may claim is never more than what was proved.

    >>> round_down(0.9999999)
    0.999999
    """
    if (
        not abs(value) < WHOLE
    ):  # what has no decimals has none to lose, and not a number stays what it is
        return value
    return float(Decimal(value).quantize(DECIMALS, rounding=ROUND_DOWN))


def to_line(row: Certificate) -> str:
    """The row as a line of our file, newline included."""
    if row.counts is None or row.selection_counts is None or row.p_lower is None:
        raise CertificateError(
            f"image {row.idx} has no votes, so it cannot be written as a certificate of ours"
        )
    ours = (
        f"{row.p_lower:.6f}",
        row.n,
        votes_text(row.counts),
        row.selected,
        votes_text(row.selection_counts),
    )
    return "\t".join(map(str, (*_field_cells(row), *ours))) + "\n"


def to_field_line(row: Certificate) -> str:
    """The row as a line of the field's six-column log. The radius keeps six decimals, rounded down."""
    return "\t".join(map(str, _field_cells(row))) + "\n"


def _field_cells(row: Certificate) -> tuple[object, ...]:
    return (
        row.idx,
        row.label,
        row.predict,
        f"{row.radius:.6f}",
        int(row.correct),
        f"{row.seconds:.3f}",
    )


def from_cells(cells: Mapping[str, str]) -> Certificate:
    """The row that a line's cells, by column name, say; ValueError where a cell makes no sense."""
    if "counts" in cells and not cells["selection_counts"]:
        raise ValueError("selection_counts is empty")
    row = Certificate(
        idx=_whole(cells, "idx", least=0),
        label=_whole(cells, "label", least=0),
        predict=_whole(cells, "predict", least=ABSTAIN),
        radius=_number(cells, "radius", highest=LARGEST_RADIUS),
        correct=_truth(cells["correct"]),
        seconds=seconds_from(cells.get("time", "")),
        **(_vote_cells(cells) if "counts" in cells else {}),  # type: ignore[arg-type]
    )
    if row.correct != (row.predict == row.label):
        raise ValueError(
            f"correct is {int(row.correct)}, but the label is {row.label} and the prediction {row.predict}"
        )
    return row


def _vote_cells(cells: Mapping[str, str]) -> dict[str, object]:
    return {
        "p_lower": _number(cells, "p_lower", highest=1.0),
        "n": _whole(cells, "n", least=0),
        "counts": votes_from(cells["counts"]),
        "selected": _whole(cells, "selected", least=0),
        "selection_counts": votes_from(cells["selection_counts"]),
    }


def votes_text(votes: Mapping[int, int]) -> str:
    """Votes as `class:count,...`, by class."""
    return ",".join(f"{c}:{votes[c]}" for c in sorted(votes))


def votes_from(text: str) -> dict[int, int]:
    """Votes from `class:count,...`.

    >>> votes_from("3:95,7:5")
    {3: 95, 7: 5}
    """
    votes: dict[int, int] = {}
    for pair in text.split(",") if text else ():
        c, colon, count = pair.partition(":")
        if (
            not (colon and c.isascii() and c.isdigit() and count.isascii() and count.isdigit())
            or int(c) in votes
        ):
            raise ValueError(
                f"votes must read class:count,... with each class once, got {text[:80]!r}"
            )
        votes[int(c)] = int(count)
    if max(votes, default=0) >= MOST_CLASSES or sum(votes.values()) > MOST_VOTES:
        raise ValueError(f"votes beyond what can be counted: {text[:80]!r}")
    return votes


def seconds_from(text: str) -> float:
    """Seconds from a number or from the field's `h:mm:ss.s`; nan where there is no time to be read.

    >>> seconds_from("0:01:02.5"), seconds_from("2.5")
    (62.5, 2.5)
    """
    try:
        days, comma, clock = text.replace(" days, ", " day, ").rpartition(" day, ")
        seconds = 0.0
        for part in clock.split(":"):
            seconds = 60 * seconds + float(part)
        seconds += 86_400 * float(days) if comma else 0.0
    except ValueError:
        return math.nan
    return seconds


def _whole(cells: Mapping[str, str], name: str, *, least: int) -> int:
    text = cells[name].strip()
    value = (
        int(text) if text.removeprefix("-").isascii() and text.removeprefix("-").isdigit() else None
    )
    if value is None or not least <= value < 2**62:
        raise ValueError(f"{name} must be a whole number of {least} or more, got {text[:80]!r}")
    return value


def _number(cells: Mapping[str, str], name: str, *, highest: float) -> float:
    text = cells[name].strip()
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (0 <= value <= highest and math.isfinite(value)):
        most = f" and {highest:g} at most" if value > highest else ""
        raise ValueError(f"{name} must be a number of zero or more{most}, got {text[:80]!r}")
    return value


def _truth(text: str) -> bool:
    truths = {"1": True, "0": False, "True": True, "False": False}
    if text.strip() not in truths:
        raise ValueError(f"correct must be 0 or 1, got {text[:80]!r}")
    return truths[text.strip()]
