"""What a leaderboard shows of each run, and which runs are the best at each radius. No torch."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import NamedTuple

from smoothmix.analysis import (
    Estimate,
    Measured,
    means_of,
    rounded_alike,
    unique_names,
)
from smoothmix.analysis.draws import Origin
from smoothmix.config import require
from smoothmix.noise import GAUSSIAN
from smoothmix.report.comparison import Choices, table_radii
from smoothmix.report.leaderboard.files import Found, Unread

DATA_SETS = {
    "mnist": "mnist",
    "cifar10": "cifar10",
    "cifar": "cifar10",
    "imagenet": "imagenet",
    "svhn": "svhn",
}
"""Folders of published logs, and the data set that each stands for. Only whole names count: a word
inside a name, as in `not-mnist`, says nothing."""

METHODS = {
    "cohen": "gaussian",
    "gaussian": "gaussian",
    "stab": "stability",
    "stability": "stability",
    "salman": "smoothadv",
    "smoothadv": "smoothadv",
    "macer": "macer",
    "consistency": "consistency",
    "smoothmix": "smoothmix",
    "smix": "smoothmix",
}
"""What names of folders begin with, and the method that each stands for."""

UNKNOWN = "unknown"
"""Shown, and chosen in a filter, where a property is not known."""

NETWORK = re.compile(r"(?:cifar_)?resnet-?\d+|lenet", re.IGNORECASE)


class Ranked(NamedTuple):
    """What runs that are ranked share."""

    data: str
    images: str
    """A digest of indices and labels."""
    n: int
    alpha: float
    noise: str
    """Radii of another noise may be of another norm."""


@dataclass(frozen=True, kw_only=True)
class Fact:
    """A property of a run: recorded in its file, or read from its path."""

    text: str = ""
    """Empty where it is not known."""

    from_path: bool = False


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A row of the leaderboard."""

    name: str
    place: str
    """Where its file lies in the folder."""

    data: Fact
    method: Fact
    network: Fact
    sigma: float | None
    images: int
    n: int | None
    alpha: float | None
    origin: Origin
    """How n and alpha are known."""

    acr: Estimate
    accuracy: Sequence[float]
    """Certified accuracy at the radii of the board."""

    group: Ranked | None
    """Runs of one group are ranked; None where data set, n or alpha is not known."""

    notes: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Best:
    """The best run of a group at one radius, over all sigmas."""

    radius: float
    accuracy: float
    entry: Entry


@dataclass(frozen=True, kw_only=True)
class Board:
    """A leaderboard."""

    title: str
    radii: Sequence[float]
    confidence: float
    entries: Sequence[Entry]
    """The highest ACR first."""

    unread: Sequence[Unread]
    others: int
    """Files that are neither logs nor certificates."""

    @property
    def groups(self) -> dict[Ranked, list[Entry]]:
        """The runs that may be ranked with each other, larger groups first."""
        sizes = Counter(entry.group for entry in self.entries if entry.group)
        groups: dict[Ranked, list[Entry]] = {}
        for group, _ in sizes.most_common():
            groups[group] = [entry for entry in self.entries if entry.group == group]
        return groups

    def best(self, group: Sequence[Entry]) -> list[Best]:
        """The run with the highest certified accuracy at each radius; none where nobody has any."""
        found = []
        for column, radius in enumerate(self.radii):
            # Of equal ones the first, which has the higher ACR.
            leader = max(group, key=lambda entry: entry.accuracy[column])
            accuracy = leader.accuracy[column]
            if accuracy > 0:
                found.append(Best(radius=radius, accuracy=accuracy, entry=leader))
        return found

    def choices(self, name: str) -> list[str]:
        """The values that a property of the runs takes, for a filter."""
        texts = {shown_facts(entry)[name] for entry in self.entries}
        return sorted(texts, key=_natural)


def make_board(
    found: Found, choices: Choices, *, title: str, paper_rounding: bool = False
) -> Board:
    """The leaderboard of what a folder holds."""
    require(bool(found.runs), f"{title}: there is no log or certificate file that can be read")
    every = unique_names([measured for _, measured in found.runs])
    # Before anything is counted, so that all numbers of the page are of the same radii.
    if paper_rounding:
        every = rounded_alike(every)
    radii = table_radii(every, choices)
    # In one call: files of equal length share their bootstrap resamples, which take most time.
    acrs = means_of([each.counted for each in every], confidence=choices.confidence)
    entries = []
    for (place, _), measured, acr in zip(found.runs, every, acrs, strict=True):
        entries.append(_entry(place, measured, acr, radii))
    # The page sorts again by any column; this is its order without scripts.
    entries.sort(key=lambda entry: entry.acr.value, reverse=True)
    return Board(
        title=title,
        radii=radii,
        confidence=choices.confidence,
        entries=entries,
        unread=found.unread,
        others=found.others,
    )


def shown_facts(entry: Entry) -> Mapping[str, str]:
    """The properties that runs are filtered by, as text."""
    # n alone tells nothing: a larger alpha allows larger radii with the same n.
    draws = UNKNOWN
    if entry.n is not None and entry.alpha is not None:
        draws = f"n {entry.n:,}, alpha {entry.alpha:g}"
    sigma = UNKNOWN
    if entry.sigma is not None:
        sigma = f"{entry.sigma:g}"
    return {
        "data": entry.data.text or UNKNOWN,
        "sigma": sigma,
        "method": entry.method.text or UNKNOWN,
        "network": entry.network.text or UNKNOWN,
        "draws": draws,
    }


def _natural(text: str) -> tuple[float, str]:
    """Numbers in their order, before words."""
    try:
        return float(text), text
    except ValueError:
        return float("inf"), text


def _entry(place: str, measured: Measured, acr: Estimate, radii: Sequence[float]) -> Entry:
    path = PurePath(place)
    data = _data(measured, path)
    draws = measured.draws
    group = None
    # What is not known of both may differ, and then their order would mean nothing.
    if data.text and draws.n is not None and draws.alpha is not None:
        # Labels as well: the same indices of another data set are other images.
        images = hashlib.sha256(b"".join(measured.images_key)).hexdigest()
        group = Ranked(data.text, images, draws.n, draws.alpha, _noise(measured))
    return Entry(
        name=measured.name,
        place=place,
        data=data,
        method=_method(measured, path),
        network=_network(measured, path),
        sigma=measured.sigma,
        images=len(measured),
        n=draws.n,
        alpha=draws.alpha,
        origin=draws.origin,
        acr=acr,
        accuracy=list(map(float, measured.accuracy_at(radii))),
        group=group,
        notes=measured.file.notes,
    )


def _data(measured: Measured, path: PurePath) -> Fact:
    recorded = measured.source.data
    if measured.settings is not None:
        recorded = measured.settings.data
    if recorded:
        return Fact(text=recorded)
    # From the outside in: a folder of a data set holds those of methods, not the other way round.
    for part in path.parts:
        if part.lower() in DATA_SETS:
            return Fact(text=DATA_SETS[part.lower()], from_path=True)
    return Fact()


def _noise(measured: Measured) -> str:
    # Logs do not record their noise, which is always Gaussian.
    if measured.settings is None:
        return GAUSSIAN.description
    return measured.settings.certification.noise.description


def _method(measured: Measured, path: PurePath) -> Fact:
    if measured.method:
        return Fact(text=measured.method)
    for part in path.parts:
        for start, method in METHODS.items():
            # Followed by a sign or nothing: cohen_2019, but not cohens-dog.
            if re.match(rf"{start}(?![a-z])", part.lower()):
                return Fact(text=method, from_path=True)
    return Fact()


def _network(measured: Measured, path: PurePath) -> Fact:
    if measured.settings is not None:
        return Fact(text=measured.settings.model)
    # Anywhere in the path, since it is often a part of a longer name.
    found = NETWORK.search(str(path))
    if found is None:
        return Fact()
    return Fact(text=found.group().lower(), from_path=True)
