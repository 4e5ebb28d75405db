"""Which images of a data set a run certifies. No torch."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import final

from smoothmix.config import require


@final
@dataclass(frozen=True, kw_only=True)
class Selection:
    """Every `skip`-th image, at most `maximum` of them, and of those only some shards."""

    skip: int = 1
    """Certify images 0, skip, 2 skip, ..."""

    maximum: int | None = None
    """The most images to certify, in all shards together."""

    shard: str = ""
    """`2/3` is every third of these images, from the second on; `3,4/8` is two shards of eight."""

    def __post_init__(self) -> None:
        require(self.skip >= 1, f"skip must be at least 1, got {self.skip}")
        maximum = self.maximum
        require(maximum is None or maximum >= 1, f"max must be at least 1, got {maximum}")
        if self.shard:
            parse_shards(self.shard)

    @property
    def whole(self) -> Selection:
        """The images of all shards."""
        return replace(self, shard="")

    def images(self, size: int) -> int:
        """How many images of a data set of this size are selected, in all shards together."""
        available = math.ceil(size / self.skip)
        if self.maximum is None:
            return available
        return min(available, self.maximum)

    def indices(self, size: int) -> range:
        """The selected images of a data set of this size, in all shards together."""
        return range(0, size, self.skip)[: self.images(size)]


def parse_shards(shards: str) -> tuple[tuple[int, ...], int]:
    """Which shards of how many: `3/8` or `3,4/8`.

    >>> parse_shards("3,4/8")
    ((3, 4), 8)
    """
    # At most nine digits: Python takes seconds to read numbers of many thousands.
    number = r"0*[1-9]\d{0,8}"
    match = re.fullmatch(rf"({number}(?:,{number})*)/({number})", shards, re.ASCII)
    message = f"a shard is written number/count, such as 2/3, or several as 2,3/8, got {shards!r}"
    require(match is not None, message)
    assert match is not None
    numbers = {int(text) for text in match[1].split(",")}
    count = int(match[2])
    require(max(numbers) <= count, message)
    return tuple(sorted(numbers)), count


def parse_shard(shard: str) -> tuple[int, int]:
    """Number and count of one shard such as `2/3`; empty means all images, which is shard 1 of 1.

    >>> parse_shard("2/3"), parse_shard("")
    ((2, 3), (1, 1))
    """
    numbers, count = parse_shards(shard or "1/1")
    require(len(numbers) == 1, f"one file holds one shard, such as 2/3, got {shard!r}")
    return numbers[0], count
