"""The certificate of one image, as a value and as a line of the file."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_DOWN, Decimal
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothmix.certificates.certification import Certification
from smoothmix.certificates.squared import squared_claim
from smoothmix.config import UNLABELLED
from smoothmix.errors import CertificateError
from smoothmix.stats.binomial import ABSTAIN, NOBODY
from smoothmix.stats.guarantees import SelectedVotes

COHEN_COLUMNS = ("idx", "label", "predict", "radius", "correct", "time")
"""The columns of Cohen-style logs, in their order."""

VOTE_COLUMNS = ("p_lower", "n", "counts", "selected", "selection_counts")
"""The columns that a reader needs to compute the others again."""

COLUMNS = (*COHEN_COLUMNS, *VOTE_COLUMNS)
"""The columns of every file of ours."""

GRID_COLUMNS = (*COLUMNS, "squared")
"""The columns of our files with noise on a grid, where the claim is one about integers."""

DIGEST = "digest"
"""The last column of files whose rows are bound by digests (`digests.py`)."""

DIGEST_LENGTH = 64
"""Hexadecimal digits of a SHA-256."""

DECIMALS = Decimal("0.000001")
WHOLE_FROM = 1e9
"""Numbers from here on are cut to whole ones: below, a float has the digits of six decimals."""

CLEAR_BELOW = 1e3
CLEAR = 1e-6
"""Numbers below 1,000 times a million have an error below 1.2e-7, so this leaves a margin."""

VOTES = re.compile(rf"(?:{NOBODY}|[0-9]+):[0-9]+(?:,(?:{NOBODY}|[0-9]+):[0-9]+)*+")
"""How votes are written: class:count,... with -1 for NOBODY."""

SHORT_VOTES = 16
"""Characters of votes that are worth remembering, such as those of an image that is never mistaken.
"""

LARGEST_RADIUS = 1e12
"""A larger number is no distance between images."""

LARGEST_SQUARED = 2**128
"""More than the largest radius gives with the most levels."""

MOST_CLASSES = 2**31
MOST_VOTES = 2**53
"""Counts up to this are exact as floating-point numbers."""

LONGEST_QUOTE = 80
"""Characters of a damaged cell that a message shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """One row: the votes for an image, and what follows from them."""

    idx: int
    label: int
    """The true class."""
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
    """The last five are None in a row of a Cohen-style log, which has six columns only."""
    squared: int | None = None
    """The largest certified sum of squared differences of pixels, as integers in [0, levels].

    None where the radius is 0, and for noise that lies on no grid.
    """
    # It tells whether the others are as they were written, and is no part of what they say.
    digest: str = field(default="", compare=False)
    """The recorded SHA-256 of the settings and the row; empty where none was recorded."""

    @property
    def has_votes(self) -> bool:
        """Whether the row carries the votes that it was computed from."""
        return self.counts is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageVotes:
    """The votes for one image by class; those of ambiguous draws are for NOBODY."""

    idx: int
    label: int
    """The true class."""
    selection_counts: Mapping[int, int]
    counts: Mapping[int, int]
    """Estimation votes; none where a wrong image was skipped."""
    seconds: float = math.nan

    @property
    def selected(self) -> int:
        """The class that the selection draws chose."""
        return top_class(self.selection_counts)

    @property
    def drawn(self) -> int:
        """Estimation draws."""
        return sum(self.counts.values())


def from_votes(
    idx: int,
    label: int,
    selection_counts: Mapping[int, int],
    counts: Mapping[int, int],
    *,
    certification: Certification,
    seconds: float = math.nan,
) -> Certificate:
    """The certificate that follows from the votes for one image."""
    image = ImageVotes(
        idx=idx,
        label=label,
        selection_counts=selection_counts,
        counts=counts,
        seconds=seconds,
    )
    (row,) = certificates_of([image], certification)
    return row


def certificates_of(
    images: Sequence[ImageVotes], certification: Certification
) -> list[Certificate]:
    """The certificates that follow from the votes for several images."""
    # The bounds of all images are computed at once, which is much faster in mode anytime.
    selected = [image.selected for image in images]
    bounds = certification.guarantee.lower_bound(_votes_for(selected, images))
    radii = certification.noise.radius(bounds, sigma=certification.sigma)
    certified = (np.asarray(bounds) > 0.5).tolist()
    recorded_bounds = rounded_down(bounds)
    recorded_radii = rounded_down(radii)
    levels = certification.levels
    # A budget also leaves images without draws by their votes, whatever their labels are.
    skipped_by_label = certification.skip_wrong or certification.budget is None
    rows = []
    for position, image in enumerate(images):
        row = _certificate(
            image,
            selected[position],
            certified=certified[position],
            p_lower=recorded_bounds[position],
            radius=recorded_radii[position],
            levels=levels,
            skipped_by_label=skipped_by_label,
        )
        rows.append(row)
    return rows


def selected_votes(images: Sequence[ImageVotes]) -> SelectedVotes:
    """The votes for the selected class of each image, for a guarantee to judge."""
    return _votes_for([image.selected for image in images], images)


def _votes_for(selected: Sequence[int], images: Sequence[ImageVotes]) -> SelectedVotes:
    votes = []
    for c, image in zip(selected, images, strict=True):
        selection = image.selection_counts
        votes.append(
            (image.counts.get(c, 0), image.drawn, selection.get(c, 0), sum(selection.values()))
        )
    # One array from all of them: filling it column by column takes longer than the sums.
    return SelectedVotes(*np.array(votes, dtype=np.int64).reshape(-1, 4).T.copy())


def _certificate(
    image: ImageVotes,
    selected: int,
    *,
    certified: bool,
    p_lower: float,
    radius: float,
    levels: int | None,
    skipped_by_label: bool,
) -> Certificate:
    squared = None
    if levels is not None:
        squared = squared_claim(radius, levels=levels)
    drawn = image.drawn
    # Without draws nothing is known. The class of a skipped wrong image is still shown, since such
    # an image counts for nothing.
    skipped = skipped_by_label and drawn == 0 and image.label not in (selected, UNLABELLED)
    predict = selected if certified or skipped else ABSTAIN
    return Certificate(
        idx=image.idx,
        label=image.label,
        predict=predict,
        radius=radius,
        correct=_is_correct(predict, image.label),
        seconds=image.seconds,
        p_lower=p_lower,
        n=drawn,
        counts=image.counts,
        selected=selected,
        selection_counts=image.selection_counts,
        squared=squared,
    )


def _is_correct(predict: int, label: int) -> bool:
    # -1 stands for abstention too.
    return predict == label and label != UNLABELLED


def votes_of(row: Certificate) -> ImageVotes:
    """The votes that a row carries."""
    assert row.counts is not None
    assert row.selection_counts is not None
    return ImageVotes(
        idx=row.idx,
        label=row.label,
        selection_counts=row.selection_counts,
        counts=row.counts,
        seconds=row.seconds,
    )


def top_class(counts: Mapping[int, int]) -> int:
    """The class with most votes, never NOBODY; the smallest of those that share the lead."""
    # As numpy's argmax decides ties, so that a file and a run agree. It chooses class 0 where no
    # class has a vote.
    best = 0
    most = -1
    # A loop rather than a key function: files of many images ask this for every row.
    for c, count in counts.items():
        if c != NOBODY and (count > most or (count == most and c < best)):
            best = c
            most = count
    return best


def sparse(votes: ArrayLike, *, nobody: int = 0) -> dict[int, int]:
    """Votes by class from an array with one element per class, and those for NOBODY.

    Classes without votes are left out.

    >>> sparse([0, 5, 0], nobody=2)
    {1: 5, -1: 2}
    """
    array = np.asarray(votes)
    # Plain integers: numpy's cannot be written to JSON.
    found = {int(c): int(array[c]) for c in np.flatnonzero(array)}
    if nobody:
        found[NOBODY] = int(nobody)
    return found


def dense(votes: Mapping[int, int] | None, num_classes: int) -> NDArray[np.int64]:
    """Votes as an array with one element per class and a last one for NOBODY.

    All are zero where no votes are known.

    >>> dense({1: 5, -1: 2}, 3).tolist()
    [0, 5, 0, 2]
    """
    counts = np.zeros(num_classes + 1, dtype=np.int64)
    for c, count in (votes or {}).items():
        # NOBODY is -1, and so the last element.
        counts[c] = count
    return counts


def round_down(value: float) -> float:
    """The value cut after six decimals: a file never claims more than what was proved.

    >>> round_down(0.9999999)
    0.999999
    """
    # Infinity and nan stay what they are.
    if not math.isfinite(value):
        return value
    # The text of a larger number with six decimals could be above it: a float has too few digits.
    if abs(value) >= WHOLE_FROM:
        return float(math.trunc(value))
    # Decimal holds the exact value of a float; arithmetic on floats might round up. The float that
    # is returned may be above the decimal number, but its text with six decimals is that number.
    return float(Decimal(value).quantize(DECIMALS, rounding=ROUND_DOWN))


def rounded_down(values: ArrayLike) -> list[float]:
    """Each of the values cut after six decimals, as by `round_down` but many times as fast.

    >>> rounded_down([0.9999999, 0.5])
    [0.999999, 0.5]
    """
    exact = np.atleast_1d(np.asarray(values, dtype=np.float64))
    with np.errstate(invalid="ignore", over="ignore"):
        scaled = exact * 10**6
        whole = np.floor(scaled)
        beyond = scaled - whole
        # Far from a whole number of millionths, the error of the product changes nothing; the
        # quotient is then the float nearest to the decimal number, which is what Decimal gives.
        is_clear = (exact >= 0) & (exact < CLEAR_BELOW) & (beyond > CLEAR) & (beyond < 1 - CLEAR)
    found: list[float] = (whole / 10**6).tolist()
    for position in np.flatnonzero(~is_clear):
        found[position] = round_down(float(exact[position]))
    return found


def columns_of(certification: Certification, *, has_digests: bool = False) -> tuple[str, ...]:
    """The columns of a certificate file."""
    columns: tuple[str, ...] = COLUMNS
    if certification.levels is not None:
        columns = GRID_COLUMNS
    if has_digests:
        return (*columns, DIGEST)
    return columns


def to_line(row: Certificate, columns: Sequence[str] = COLUMNS) -> str:
    """The row as a line of our file with these columns, newline included."""
    cells = cells_of(row)
    return "\t".join(cells[name] for name in columns) + "\n"


def cells_of(row: Certificate) -> dict[str, str]:
    """The text of a row's cells by column, for all columns that a file of ours may have."""
    if row.counts is None or row.selection_counts is None or row.p_lower is None:
        raise CertificateError(
            f"image {row.idx} has no votes: it cannot be written to a certificate file"
        )
    cells = (
        *_cohen_cells(row),
        f"{row.p_lower:.6f}",
        row.n,
        votes_text(row.counts),
        row.selected,
        votes_text(row.selection_counts),
        "" if row.squared is None else row.squared,
        row.digest,
    )
    return dict(zip((*GRID_COLUMNS, DIGEST), map(str, cells), strict=True))


def to_cohen_line(row: Certificate) -> str:
    """The row as a line of a Cohen-style log. The radius keeps six decimals, rounded down."""
    return "\t".join(map(str, _cohen_cells(row))) + "\n"


def _cohen_cells(row: Certificate) -> tuple[object, ...]:
    return (
        row.idx,
        row.label,
        row.predict,
        f"{row.radius:.6f}",
        int(row.correct),
        f"{row.seconds:.3f}",
    )


def from_cells(
    cells: Mapping[str, str], *, levels: int | None = None, labelled: bool = True
) -> Certificate:
    """The row in a line's cells, given by column name; ValueError where a cell makes no sense.

    With the `levels` of a grid, the column `squared` must follow from the radius. Unless
    `labelled`, every label must be -1.
    """
    least_label = 0
    if not labelled:
        least_label = UNLABELLED
    row = Certificate(
        idx=_whole(cells, "idx", least=0),
        label=_whole(cells, "label", least=least_label),
        predict=_whole(cells, "predict", least=ABSTAIN),
        radius=_number(cells, "radius", highest=LARGEST_RADIUS),
        correct=_truth(cells["correct"]),
        seconds=seconds_from(cells.get("time", "")),
        **_vote_cells(cells),  # type: ignore[arg-type]
    )
    if not labelled and row.label != UNLABELLED:
        raise ValueError(f"label is {row.label}, but the images of this file have no labels (-1)")
    if row.correct != _is_correct(row.predict, row.label):
        raise ValueError(
            f"correct is {int(row.correct)}, but the label is {row.label} "
            f"and the prediction {row.predict}"
        )
    if levels is not None:
        _require_claim(row, cells["radius"], levels)
    return row


def _require_claim(row: Certificate, radius: str, levels: int) -> None:
    # More decimals would be rounded, perhaps up.
    if radius != f"{row.radius:.6f}":
        raise ValueError(f"image {row.idx}: radius must have six decimals, got {_quoted(radius)}")
    follows = squared_claim(row.radius, levels=levels)
    if row.squared != follows:
        raise ValueError(
            f"image {row.idx}: squared is {_cell(row.squared)}, but radius {radius} with "
            f"{levels} levels gives {_cell(follows)}"
        )


def _cell(value: int | None) -> str:
    return "empty" if value is None else str(value)


def _vote_cells(cells: Mapping[str, str]) -> dict[str, object]:
    if "counts" not in cells:
        return {}
    if not cells["selection_counts"]:
        raise ValueError("selection_counts is empty")
    return {
        "p_lower": _number(cells, "p_lower", highest=1.0),
        "n": _whole(cells, "n", least=0),
        "counts": votes_from(cells["counts"]),
        "selected": _whole(cells, "selected", least=0),
        "selection_counts": votes_from(cells["selection_counts"]),
        "squared": _squared(cells),
        "digest": _digest(cells),
    }


def _squared(cells: Mapping[str, str]) -> int | None:
    if not cells.get("squared"):
        return None
    return _whole(cells, "squared", least=0, most=LARGEST_SQUARED)


def _digest(cells: Mapping[str, str]) -> str:
    if DIGEST not in cells:
        return ""
    text = cells[DIGEST]
    if len(text) != DIGEST_LENGTH or not set(text) <= set("0123456789abcdef"):
        raise ValueError(f"digest must have 64 hexadecimal digits, got {_quoted(text)}")
    return text


def votes_text(votes: Mapping[int, int]) -> str:
    """Votes as `class:count,...`, by class; NOBODY, which is -1, comes first."""
    return ",".join(f"{c}:{votes[c]}" for c in sorted(votes))


def votes_from(text: str) -> dict[int, int]:
    """Votes from `class:count,...`, where class -1 is NOBODY.

    >>> votes_from("-1:2,3:93,7:5")
    {-1: 2, 3: 93, 7: 5}
    """
    if not text:
        return {}
    # Most selections are unanimous: a file has few of these short texts, each many times.
    if len(text) <= SHORT_VOTES:
        return dict(_short_votes(text))
    return _parsed_votes(text)


@lru_cache(maxsize=4096)
def _short_votes(text: str) -> dict[int, int]:
    return _parsed_votes(text)


def _parsed_votes(text: str) -> dict[int, int]:
    if VOTES.fullmatch(text) is None:
        raise _bad_votes(text)
    # A file has a million of these pairs: one split of the whole text is twice as fast as many.
    numbers = list(map(int, text.replace(":", ",").split(",")))
    classes = numbers[::2]
    votes = dict(zip(classes, numbers[1::2], strict=True))
    if len(votes) < len(classes):
        raise _bad_votes(text)
    if max(votes) >= MOST_CLASSES or sum(votes.values()) > MOST_VOTES:
        raise ValueError(f"votes beyond what can be counted: {_quoted(text)}")
    return votes


def _bad_votes(text: str) -> ValueError:
    return ValueError(f"votes must read class:count,... with each class once, got {_quoted(text)}")


def seconds_from(text: str) -> float:
    """Seconds from a number or from `h:mm:ss.s`; nan where no time can be read.

    >>> seconds_from("0:01:02.5"), seconds_from("2.5")
    (62.5, 2.5)
    """
    try:
        # As our own files have it.
        return float(text)
    except ValueError:
        return _duration(text)


def _duration(text: str) -> float:
    # Python prints durations of a day and more as `1 day, 2:03:04`.
    days, separator, clock = text.replace(" days, ", " day, ").rpartition(" day, ")
    try:
        seconds = 0.0
        for part in clock.split(":"):
            seconds = 60 * seconds + float(part)
        if separator:
            seconds += 86_400 * float(days)
    except ValueError:
        return math.nan
    return seconds


def _whole(cells: Mapping[str, str], name: str, *, least: int, most: int = 2**62 - 1) -> int:
    text = cells[name].strip()
    # What nearly every cell is: a few digits.
    if len(text) < 10 and text.isascii() and text.isdigit() and int(text) >= least:
        return int(text)
    # Python reads more as whole numbers than any file of certificates has, such as 1_000.
    if _is_digits(text.removeprefix("-")) and least <= int(text) <= most:
        return int(text)
    raise ValueError(f"{name} must be a whole number of {least} or more, got {_quoted(text)}")


def _number(cells: Mapping[str, str], name: str, *, highest: float) -> float:
    text = cells[name].strip()
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if 0 <= value <= highest:
        return value
    most = f" and {highest:g} at most" if value > highest else ""
    raise ValueError(f"{name} must be a number of zero or more{most}, got {_quoted(text)}")


def _truth(text: str) -> bool:
    truths = {"1": True, "0": False, "True": True, "False": False}
    if text.strip() not in truths:
        raise ValueError(f"correct must be 0 or 1, got {_quoted(text)}")
    return truths[text.strip()]


def _is_digits(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _quoted(text: str) -> str:
    return repr(text[:LONGEST_QUOTE])
