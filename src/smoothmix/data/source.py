"""What every named data set can do: be loaded, and perhaps be looked for and fetched."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from smoothmix.data.base import Dataset
from smoothmix.errors import DataError, UsageError

Downloader = Callable[[str, str, None], object]
"""How pooch calls what downloads a file: with an address, the file to write, and whom it works for."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """What the caller asked for."""

    name: str
    """As given: `mnist`, `npz:my.npz`."""

    data_dir: Path
    """Where the data sets of this machine are."""

    split: str = "test"
    """`train`, `test` or, for trees of folders, `val`."""

    allow_partial: bool = False
    """Whether to go on with what is there when a part is missing."""

    @property
    def path(self) -> Path:
        """What follows the colon of a name that has one."""
        return Path(self.name.partition(":")[2]).expanduser()


@dataclass(frozen=True, kw_only=True)
class Source(ABC):
    """Where one data set comes from and what it holds."""

    images: str
    """How many images it has, in words for people."""

    shape: str
    """Channels, height and width, in words for people."""

    classes: str
    """How many classes it has, in words for people."""

    origin: str
    """Who made it, or where it comes from."""

    @abstractmethod
    def load(self, request: Request) -> Dataset:
        """The data set, every file of it checked."""

    def splits(self, request: Request) -> tuple[str, ...]:
        """The parts that can be loaded, each images of its own."""
        return ("train", "test")

    @property
    def sides(self) -> tuple[int, ...] | None:
        """Channels, height and width, where that is known before any file is read."""
        sides = self.shape.split("x")
        return tuple(map(int, sides)) if all(map(str.isdecimal, sides)) else None


@dataclass(frozen=True, kw_only=True)
class Stored(Source):
    """A data set whose files lie under the data folder."""

    @abstractmethod
    def found(self, request: Request) -> bool:
        """Whether its files seem to be there. They are not read."""


@dataclass(frozen=True, kw_only=True)
class Fetched(Stored):
    """A data set whose files may be downloaded by anyone."""

    @abstractmethod
    def fetch(self, request: Request, downloader: Downloader) -> list[Path]:
        """The files that hold it, downloaded where they are missing or damaged."""


def split_of(request: Request) -> str:
    """The split asked for, of a data set that calls its splits `train` and `test`."""
    if request.split not in ("train", "test"):
        raise UsageError(f"{request.name} has the splits train and test, not {request.split!r}")
    return request.split


def how_to_get(request: Request) -> str:
    """What to do about a missing or damaged file of a data set that can be fetched."""
    return f"run `smoothmix data fetch {request.name}` or point --data-dir at a folder that has it"


def missing(request: Request, what: str, places: Iterable[Path]) -> DataError:
    """The error for files that are in none of the places where they may be."""
    looked = ", ".join(dict.fromkeys(str(place) for place in places))
    return DataError(
        f"{request.name}: {what} not found (looked in {looked}): {how_to_get(request)}"
    )


@contextmanager
def advice(request: Request) -> Iterator[None]:
    """Add to what is wrong with a file what to do about it."""
    try:
        yield
    except DataError as error:
        raise DataError(f"{error}: {how_to_get(request)}") from error
