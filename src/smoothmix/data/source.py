"""What every named data set offers: facts, loading, and perhaps downloading.

To add a data set, make one module with a subclass of `Source` and one instance of it, and add a
line to `registry.py`. In a package of your own the instance is enough: use it by its address,
`package.module:NAME`, or announce it as an entry point of the group `smoothmix.data`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from smoothmix.config import Preparation
from smoothmix.data.dataset import Dataset
from smoothmix.errors import DataError, UsageError

Downloader = Callable[[str, str, None], object]
"""How pooch calls a downloader: with an address, the file to write, and its own caller."""

PixelStatistics = tuple[tuple[float, ...], tuple[float, ...]]
"""Mean and standard deviation of each channel."""


# A value, so that a source can get further options without a change to every source.
@dataclass(frozen=True, kw_only=True)
class DataRequest:
    """What to load, and where to look for it."""

    name: str
    """As given: `mnist`, `npz:my.npz`."""

    data_dir: Path
    """The folder with the data sets of this machine."""

    split: str = "test"
    """`train`, `test` or, for image folders, `val`."""

    allow_partial: bool = False
    """Whether to use the rest when a part is missing."""

    preparation: Preparation | None = None
    """How image files are resized and cropped; only for sources with `takes_preparation`."""

    @property
    def path(self) -> Path:
        """The path after the colon, of a name such as `npz:my.npz`."""
        return Path(self.name.partition(":")[2]).expanduser()


@dataclass(frozen=True, kw_only=True)
class Source(ABC):
    """The facts about one data set, and how to load it."""

    description: str
    """What it contains, and who made it."""

    images: Mapping[str, int] = field(default_factory=dict)
    """Number of images in each split, where that is known beforehand."""

    shape: tuple[int, int, int] | None = None
    """Channels, height and width, where they are known before a file is read."""

    num_classes: int | None = None
    """Number of classes, where that is known beforehand."""

    augmentation: str = "none"
    """How its training images are augmented: `none`, `flip-shift` or `resized-crop`."""

    pixel_statistics: PixelStatistics | None = None
    """For networks whose normalisation is the name of this data set; None leaves pixels as is."""

    preset: str | None = None
    """The preset that gives a run on it the default network and recipe."""

    takes_preparation: bool = False
    """Whether its image files may be of any size, so that a run resizes and crops them."""

    included: bool = False
    """Whether it is part of an installed package, so that nothing has to be downloaded."""

    @abstractmethod
    def load(self, request: DataRequest) -> Dataset:
        """The requested split, with every file checked."""

    def splits(self, request: DataRequest) -> tuple[str, ...]:
        """The splits that can be loaded."""
        return ("train", "test")


@dataclass(frozen=True, kw_only=True)
class LocalSource(Source):
    """A data set whose files lie under the data folder."""

    @abstractmethod
    def found(self, request: DataRequest) -> bool:
        """Whether its files seem to be there; they are not read."""


@dataclass(frozen=True, kw_only=True)
class DownloadableSource(LocalSource):
    """A data set whose files anyone may download."""

    @abstractmethod
    def fetch(self, request: DataRequest, downloader: Downloader) -> list[Path]:
        """Its files, downloaded where they are missing or damaged."""


def train_or_test(request: DataRequest) -> str:
    """The requested split of a data set that has just `train` and `test`."""
    if request.split not in ("train", "test"):
        raise UsageError(f"{request.name} has the splits train and test, not {request.split!r}")
    return request.split


def how_to_get(request: DataRequest) -> str:
    """What to do about a missing or damaged file of a data set that can be downloaded."""
    return f"run `smoothmix data fetch {request.name}` or point --data-dir at a folder that has it"


def missing_error(request: DataRequest, what: str, folders: Iterable[Path]) -> DataError:
    """The error for files that are in none of the `folders`."""
    # Without repetitions, in order: two names may stand for one folder.
    searched = ", ".join(dict.fromkeys(map(str, folders)))
    return DataError(
        f"{request.name}: {what} not found (looked in {searched}): {how_to_get(request)}"
    )


@contextmanager
def advice_on_errors(request: DataRequest) -> Iterator[None]:
    """Add to each DataError what to do about it."""
    try:
        yield
    except DataError as error:
        raise DataError(f"{error}: {how_to_get(request)}") from error
