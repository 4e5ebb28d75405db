"""Short and distinct names for files, from what tells their paths apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from smoothmix._io.unpacking import without_packing
from smoothmix.analysis.measured import Measured
from smoothmix.analysis.sources import without_sigma

LONGEST_NAME = 40
"""Characters of a name that is made from a path."""

Parts = tuple[str, ...]


def unique_names(every: Sequence[Measured]) -> list[Measured]:
    """The same files under distinct names: logs without one are named after their paths."""
    renamed = list(every)
    # Files of different sigma may share a name: the sigma stands beside it.
    positions = [at for at, each in enumerate(every) if _needs_name(each, every)]
    parts = [_path_parts(every[at]) for at in positions]
    for at, name in zip(positions, _short_names(parts), strict=True):
        renamed[at] = replace(every[at], name=name)
    return _numbered(renamed)


def _needs_name(measured: Measured, every: Sequence[Measured]) -> bool:
    if measured.source.name:
        return False
    # Runs of ours have names of their own, which are good unless two share one.
    if measured.settings is None:
        return len(every) > 1
    twins = 0
    for other in every:
        twins += (other.name, other.sigma) == (measured.name, measured.sigma)
    return twins > 1


def _path_parts(measured: Measured) -> Parts:
    """The parts of a path that may tell a run apart."""
    path = measured.path.resolve()
    last = without_packing(path.name).removesuffix(".tsv").removesuffix(".txt")
    parts = [*path.parts[1:-1], last]
    if last.split(".")[0] == "certificates":
        parts.pop()
    if measured.sigma is not None:
        parts = [without_sigma(part) for part in parts]
    return tuple(part for part in parts if part)


def _short_names(every: Sequence[Parts]) -> list[str]:
    """A name for each path: what all have in common goes, and long ones lose their middle."""
    start = _common_start(every)
    remaining = [parts[start:] for parts in every]
    end = _common_start([parts[::-1] for parts in remaining])
    names = []
    for parts, whole in zip(remaining, every, strict=True):
        kept = parts[: len(parts) - end]
        # The same path twice, or one inside another, leaves nothing.
        names.append(_shortened(kept or whole[-1:], remaining))
    return names


def _common_start(every: Sequence[Parts]) -> int:
    """How many first parts all paths share."""
    count = 0
    for parts in zip(*every, strict=False):
        if len(set(parts)) > 1:
            break
        count += 1
    return count


def _shortened(parts: Parts, every: Sequence[Parts]) -> str:
    """The parts as a name; of a long one, the first part and as many last ones as it needs."""
    name = "/".join(parts)
    if len(name) <= LONGEST_NAME or len(parts) < 3:
        return name
    for kept in range(1, len(parts) - 1):
        twins = 0
        for other in every:
            twins += other[:1] == parts[:1] and _ends_with(other, parts[-kept:])
        if twins <= 1:
            return "/".join([parts[0], "...", *parts[-kept:]])
    return name


def _ends_with(parts: Parts, ending: Parts) -> bool:
    # What all paths end with is still there.
    for start in range(len(parts) - len(ending) + 1):
        if parts[start : start + len(ending)] == ending:
            return True
    return False


def _numbered(every: Sequence[Measured]) -> list[Measured]:
    """The same file may be given twice, and so may a name: later ones get a number."""
    seen: Counter[tuple[str, float | None]] = Counter()
    numbered = []
    for measured in every:
        key = (measured.name, measured.sigma)
        seen[key] += 1
        if seen[key] > 1:
            measured = replace(measured, name=f"{measured.name} {seen[key]}")
        numbered.append(measured)
    return numbered
