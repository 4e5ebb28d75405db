"""Where this process stands among those that do one job together, as the launcher's environment says. No torch."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from smoothmix.errors import SmoothmixError, UsageError


@dataclass(frozen=True)
class Place:
    """One process of a job: torchrun starts `world_size` of them, numbered by `rank`."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    """Its number among the processes on the same machine, which decides its GPU."""
    local_world_size: int = 1
    """How many there are on that machine, which share its cores."""

    def __post_init__(self) -> None:
        if not (0 <= self.rank < self.world_size and self.local_rank >= 0):
            raise UsageError(f"there is no rank {self.rank} among {self.world_size} processes")

    @property
    def is_main(self) -> bool:
        """Whether this is the process that writes files and speaks to the person."""
        return self.rank == 0

    @property
    def alone(self) -> bool:
        """Whether there are no others."""
        return self.world_size == 1

    def share(self, positions: range) -> range:
        """The part of some positions that falls to this process; it may be empty.

        >>> [Place(rank, 3).share(range(10, 18)) for rank in range(3)]
        [range(10, 12), range(12, 15), range(15, 18)]
        """
        first, last = (
            len(positions) * rank // self.world_size for rank in (self.rank, self.rank + 1)
        )
        return positions[first:last]


ALONE = Place()
"""A process without others."""


class SaidElsewhere(SmoothmixError):  # noqa: N818 - the error is another's
    """What ends every process of a job and rank 0 explains: the others end with its exit code, without a word."""

    def __init__(self, exit_code: int = SmoothmixError.exit_code) -> None:
        super().__init__("rank 0 says what is wrong")
        self.exit_code = exit_code


def place(environment: Mapping[str, str] = os.environ) -> Place:
    """This process's place, from what torchrun sets; alone where nothing is set.

    >>> place({"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "0"})
    Place(rank=1, world_size=2, local_rank=0, local_world_size=1)
    """
    world_size = _number(environment, "WORLD_SIZE", 1)
    if world_size == 1:
        return Place()
    if "RANK" not in environment:
        raise UsageError(
            f"WORLD_SIZE is {world_size}, but RANK is not set: start all processes with torchrun"
        )
    local = _number(environment, "LOCAL_RANK", 0), _number(environment, "LOCAL_WORLD_SIZE", 1)
    return Place(_number(environment, "RANK", 0), world_size, *local)


def _number(environment: Mapping[str, str], name: str, default: int) -> int:
    value = environment.get(name, default)
    try:
        return int(value)
    except ValueError:
        raise UsageError(
            f"the environment variable {name} must be a whole number, got {value!r}"
        ) from None
