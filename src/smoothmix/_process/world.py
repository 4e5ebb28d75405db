"""The rank of this process, and how many processes work on the same job. No torch."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from smoothmix.errors import SmoothmixError, UsageError


@dataclass(frozen=True)
class World:
    """One process of a job: torchrun starts `size` processes, numbered by `rank`."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    """Its number among the processes on the same machine, which selects its GPU."""
    local_size: int = 1
    """How many processes of the job run on that machine and share its cores."""

    def __post_init__(self) -> None:
        if not (0 <= self.rank < self.size and self.local_rank >= 0):
            raise UsageError(f"there is no rank {self.rank} among {self.size} processes")

    @property
    def is_main(self) -> bool:
        """Whether this process writes the files and prints the messages."""
        return self.rank == 0

    @property
    def alone(self) -> bool:
        """Whether this is the only process of the job."""
        return self.size == 1

    def share(self, positions: range) -> range:
        """The part of `positions` that this process works on; it may be empty.

        >>> [World(rank, 3).share(range(10, 18)) for rank in range(3)]
        [range(10, 12), range(12, 15), range(15, 18)]
        """
        # By multiplication before division, so that shares differ by one position at most.
        first = len(positions) * self.rank // self.size
        end = len(positions) * (self.rank + 1) // self.size
        return positions[first:end]


SINGLE_PROCESS = World()
"""The world of a process that was started without a launcher."""


class ReportedByRankZero(SmoothmixError):  # noqa: N818 - the error itself is raised on rank 0
    """Ends the other processes of a job with the exit code of rank 0, which prints the message."""

    def __init__(self, exit_code: int = SmoothmixError.exit_code) -> None:
        super().__init__("rank 0 reports what went wrong")
        self.exit_code = exit_code


def current_world(environment: Mapping[str, str] = os.environ) -> World:
    """The world of this process, read from the variables that torchrun sets.

    >>> current_world({"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "0"})
    World(rank=1, size=2, local_rank=0, local_size=1)
    """
    size = _integer(environment, "WORLD_SIZE", default=1)
    # Schedulers set some of the other variables for single processes as well.
    if size == 1:
        return World()
    if "RANK" not in environment:
        raise UsageError(
            f"WORLD_SIZE is {size}, but RANK is not set: start all processes with torchrun"
        )
    return World(
        rank=_integer(environment, "RANK", default=0),
        size=size,
        local_rank=_integer(environment, "LOCAL_RANK", default=0),
        local_size=_integer(environment, "LOCAL_WORLD_SIZE", default=1),
    )


def _integer(environment: Mapping[str, str], name: str, *, default: int) -> int:
    value = environment.get(name, default)
    try:
        return int(value)
    except ValueError:
        raise UsageError(
            f"the environment variable {name} must be a whole number, got {value!r}"
        ) from None
