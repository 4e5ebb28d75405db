"""The names of shards: which images a shard has, and which files. No torch.

The shards of `certificates.tsv` are `certificates-2-of-3.tsv` and so on beside it, and those of
`attacks.tsv` likewise.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar, final

T = TypeVar("T")


@final
@dataclass(frozen=True, order=True)
class Shard:
    """Every `count`-th image of a run, starting with the one at this number."""

    whole: Path
    """The file that all shards are merged into."""
    number: int
    """From 1 to `count`."""
    count: int

    @property
    def name(self) -> str:
        """Its name in the settings and for `--shard`, such as `2/3`."""
        return f"{self.number}/{self.count}"

    @property
    def path(self) -> Path:
        """Its own file."""
        return self.whole.with_name(f"{self.whole.stem}-{self.number}-of-{self.count}.tsv")

    def of(self, images: Sequence[T]) -> Sequence[T]:
        """Its images of all those of the run."""
        return images[self.number - 1 :: self.count]


def shards_beside(path: Path) -> list[Shard]:
    """All shards whose files lie beside a whole file, or beside where it will be.

    A shard that has settings and no rows yet is one of them.
    """
    pattern = re.compile(
        rf"{re.escape(path.stem)}-([1-9]\d*)-of-([1-9]\d*)\.(?:tsv|toml)", re.ASCII
    )
    found = set()
    for file in path.parent.glob(f"{glob.escape(path.stem)}-*-of-*.t*"):
        match = pattern.fullmatch(file.name)
        # Nothing but a file is a shard: reading a pipe or a device may never end.
        if match and file.is_file() and int(match[1]) <= int(match[2]):
            found.add(Shard(path, int(match[1]), int(match[2])))
    return sorted(found)
