"""What callers do with a data set by its name: load, check, download and describe it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from smoothmix._io.text import counted
from smoothmix.config import Preparation, require
from smoothmix.data.dataset import Dataset
from smoothmix.data.download import web
from smoothmix.data.folders import refuse_files, some_names
from smoothmix.data.image_files import FolderDataset
from smoothmix.data.registry import DATASETS
from smoothmix.data.source import DataRequest, DownloadableSource, LocalSource, Source
from smoothmix.errors import DataError, SmoothmixError, UsageError

MAX_LISTED_CLASSES = 100
"""Up to this many classes are listed with their labels by `check`."""


@dataclass(frozen=True)
class SplitCheck:
    """Whether one split of a data set can be used."""

    split: str
    ok: bool
    message: str
    """What was found, or what is wrong and what to do."""


@dataclass(frozen=True)
class DataSummary:
    """One data set in the list of all."""

    name: str
    source: Source
    found: bool | None
    """Whether its files seem to be on this machine; None where only a path can tell."""

    @property
    def images(self) -> str:
        """The number of images in each split, in words."""
        if not self.source.images:
            return "any number"
        return ", ".join(f"{count:,} {split}" for split, count in self.source.images.items())

    @property
    def shape(self) -> str:
        """Channels, height and width, in words."""
        return _size_text(self.source.shape)

    @property
    def classes(self) -> str:
        """The number of classes, in words."""
        return str(self.source.num_classes or "any number")


def default_data_dir() -> Path:
    """The folder $SMOOTHMIX_DATA, or else the cache folder of this user."""
    # Imported here: it takes long to load, and callers that give a folder do without.
    import pooch  # type: ignore[import-untyped]

    chosen = os.environ.get("SMOOTHMIX_DATA")
    if chosen:
        return Path(chosen).expanduser()
    return Path(pooch.os_cache("smoothmix"))


def known_shape(name: str) -> tuple[int, int, int] | None:
    """Channels, height and width of the images, if they are known without reading a file.

    >>> known_shape("cifar10"), known_shape("npz:mine.npz")
    ((3, 32, 32), None)
    """
    return DATASETS[name].shape


def load(
    name: str,
    split: str = "test",
    *,
    data_dir: Path | str | None = None,
    allow_partial: bool = False,
    preparation: Preparation | None = None,
) -> Dataset:
    """The `split` of the data set `name`, its files checked against the published ones.

    Files are searched under `data_dir`, or under `default_data_dir()`; nothing is downloaded.
    With `allow_partial`, missing batches of CIFAR-10 are left out and named by `note`.
    `preparation` resizes and crops image files of your own, as a run has recorded it.
    """
    source = DATASETS[name]
    require(
        preparation is None or source.takes_preparation,
        f"{name} has images of one size: only image files of your own (folder:PATH) are resized, "
        "cropped or read with other channels",
    )
    # The name goes into files and is compared there: one folder must have one name.
    request = DataRequest(
        name=_normalised_name(name),
        data_dir=_data_dir(data_dir),
        split=split,
        allow_partial=allow_partial,
        preparation=preparation,
    )
    with _system_errors_explained(name):
        return source.load(request)


def fetch(name: str, *, data_dir: Path | str | None = None, progress: bool = False) -> list[Path]:
    """The files of a data set, downloaded where missing; none if it is part of a package."""
    source = DATASETS[name]
    if source.included:
        return []
    if not isinstance(source, DownloadableSource):
        raise UsageError(f"{name} cannot be downloaded ({source.description})")
    request = DataRequest(name=name, data_dir=_data_dir(data_dir))
    with _system_errors_explained(name), web(progress=progress) as downloader:
        return source.fetch(request, downloader)


def check(
    name: str,
    *,
    data_dir: Path | str | None = None,
    preparation: Preparation | None = None,
) -> list[SplitCheck]:
    """Whether each split can be used. Your own image files are all decoded, ImageNet's counted."""
    folder = _data_dir(data_dir)
    # Only the source knows: the user's own folders may have a third split.
    with _system_errors_explained(name):
        splits = DATASETS[name].splits(DataRequest(name=name, data_dir=folder))
    return [_check_split(name, split, folder, preparation) for split in splits]


def describe(*, data_dir: Path | str | None = None) -> list[DataSummary]:
    """All data sets: their facts, and whether their files are on this machine."""
    folder = _data_dir(data_dir)
    summaries = []
    for name in DATASETS:
        source = DATASETS[name]
        found = _found(source, DataRequest(name=name, data_dir=folder))
        summaries.append(DataSummary(name, source, found))
    return summaries


def _check_split(
    name: str, split: str, data_dir: Path, preparation: Preparation | None
) -> SplitCheck:
    try:
        dataset = load(name, split, data_dir=data_dir, preparation=preparation)
        if isinstance(dataset, FolderDataset) and _is_own_data(name):
            _decode_all(dataset)
    except SmoothmixError as error:
        return SplitCheck(split, False, str(error))
    return SplitCheck(split, True, _facts(dataset))


def _decode_all(dataset: FolderDataset) -> None:
    """Raise an error that names every damaged file, if there is any."""
    problems = []
    for index in range(len(dataset)):
        try:
            dataset.images([index])
        except DataError as error:
            problems.append(error)
    refuse_files(dataset.root, problems, len(dataset))


def _facts(dataset: Dataset) -> str:
    images = f"{counted(len(dataset), 'image')} {_size_text(dataset.shape)}"
    classes = f"{dataset.num_classes:,} classes"
    if dataset.num_classes == 1:
        classes = "1 class"
    if dataset.note:
        classes += f" ({dataset.note})"
    facts = f"{images}, {classes}, fingerprint {dataset.fingerprint}"
    # Results have numbers for classes; those of the user's own data are listed nowhere else.
    if _is_own_data(dataset.name) and dataset.num_classes <= MAX_LISTED_CLASSES:
        facts += f"; labels: {_labels_text(dataset)}"
    if isinstance(dataset, FolderDataset) and dataset.left_out:
        facts += f"; left out: {some_names(dataset.left_out)}"
    return facts


def _labels_text(dataset: Dataset) -> str:
    """Each label with the name of its class and the number of its images."""
    counts = np.bincount(dataset.labels, minlength=dataset.num_classes)
    classes = []
    for label, name in enumerate(dataset.class_names):
        classes.append(f"{label} {name} ({counts[label]:,})")
    return ", ".join(classes)


def _size_text(shape: tuple[int, int, int] | None) -> str:
    if shape is None:
        return "any"
    return "x".join(map(str, shape))


def _is_own_data(name: str) -> bool:
    """Whether this is the user's own data, by a path or an address."""
    return ":" in name


def _normalised_name(name: str) -> str:
    """The name, with a path written in one way.

    >>> _normalised_name("folder:./mine/"), _normalised_name("mnist")
    ('folder:mine', 'mnist')
    """
    kind, _, path = name.partition(":")
    if not path:
        return name
    return f"{kind}:{os.path.normpath(path)}"


def _found(source: Source, request: DataRequest) -> bool | None:
    if source.included:
        return True
    if not isinstance(source, LocalSource):
        return None
    # A folder that cannot be read must not keep the other data sets from being listed.
    try:
        return source.found(request)
    except (OSError, DataError):
        return False


@contextmanager
def _system_errors_explained(name: str) -> Iterator[None]:
    """Explain what the system reports for a folder without permission or a failing disk."""
    try:
        yield
    except OSError as error:
        raise DataError(f"{name}: {error.filename} cannot be read ({error.strerror})") from error


def _data_dir(data_dir: Path | str | None) -> Path:
    if data_dir is None:
        return default_data_dir()
    return Path(data_dir).expanduser()
