"""MNIST and Fashion-MNIST: four IDX files, gzipped or not, wherever people keep them.

The gzip bytes differ between distributors, so the content is checked: its sha256 was computed from
MNIST's original files and from those of Zalando (as in Debian's package dataset-fashion-mnist).
"""

from __future__ import annotations

import gzip
import hashlib
import math
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np
from numpy.typing import NDArray

from smoothmix._io.files import open_to_read
from smoothmix.data.dataset import MemoryDataset, class_labels
from smoothmix.data.download import download
from smoothmix.data.source import (
    DataRequest,
    DownloadableSource,
    Downloader,
    advice_on_errors,
    missing_error,
    train_or_test,
)
from smoothmix.errors import DataError

GZIP_MAGIC = b"\x1f\x8b"


@dataclass(frozen=True)
class IdxFile:
    """One IDX file of bytes whose content is known beforehand."""

    stem: str
    """The name without its ending: `train-images`."""

    shape: tuple[int, ...]
    """Length of each axis."""

    sha256: str
    """Of the content, decompressed."""

    @property
    def size(self) -> int:
        """Bytes of the content: a magic number, the length of each axis, the numbers."""
        return 4 + 4 * len(self.shape) + math.prod(self.shape)

    @property
    def names(self) -> tuple[str, ...]:
        """The names under which people keep it; it is downloaded under the first."""
        with_dash = f"{self.stem}-idx{len(self.shape)}-ubyte"
        with_dot = f"{self.stem}.idx{len(self.shape)}-ubyte"
        return f"{with_dash}.gz", with_dash, f"{with_dot}.gz", with_dot


def read_idx(path: Path, expected: IdxFile) -> NDArray[np.uint8]:
    """The numbers of an IDX file, once they are known to be those expected."""
    # One byte more than expected is enough to recognise a longer file.
    content = read_at_most(path, expected.size + 1)
    if len(content) > expected.size:
        raise DataError(f"{path}: more than the {expected.size:,} bytes that {expected.stem} has")
    numbers = parse_idx(content, path)
    # Before the hash, whose message would not tell what kind of file this is.
    if numbers.shape != expected.shape:
        raise DataError(
            f"{path}: holds an array {numbers.shape} where {expected.stem} has {expected.shape}"
        )
    found = hashlib.sha256(content).hexdigest()
    if found != expected.sha256:
        raise DataError(
            f"{path}: altered, or of another data set (sha256 of the content {found[:16]}…, "
            f"expected {expected.sha256[:16]}…)"
        )
    return numbers


def read_at_most(path: Path, limit: int) -> bytes:
    """Up to `limit` bytes of a file, decompressed if it is gzipped."""
    try:
        with open_to_read(path) as file:
            is_gzipped = file.read(2) == GZIP_MAGIC
            file.seek(0)
            # Browsers unpack some .gz files and keep the name, so only the content can tell.
            if is_gzipped:
                return gzip.GzipFile(fileobj=file).read(limit)
            return file.read(limit)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path}: truncated or damaged ({error})") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error


def intact(path: Path, expected: IdxFile) -> bool:
    """Whether a file is the one expected."""
    try:
        read_idx(path, expected)
    except DataError:
        return False
    return True


def parse_idx(content: bytes, source: Path | str) -> NDArray[np.uint8]:
    """The array in an IDX file of bytes.

    >>> parse_idx(bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 8, 9]), "three labels")
    array([7, 8, 9], dtype=uint8)
    """
    # Two zero bytes, the type (8: unsigned bytes) and the number of axes.
    if len(content) < 4 or content[:3] != b"\x00\x00\x08" or not 1 <= content[3] <= 4:
        start = content[:4].hex(" ") or "nothing"
        raise DataError(f"{source}: not an IDX file of bytes (it begins with {start})")
    header_size = 4 + 4 * content[3]
    shape = tuple(int.from_bytes(content[at : at + 4], "big") for at in range(4, header_size, 4))
    announced = math.prod(shape)
    following = max(0, len(content) - header_size)
    if len(content) != header_size + announced:
        raise DataError(
            f"{source}: truncated or damaged (its header announces {announced:,} numbers, "
            f"{following:,} follow)"
        )
    # Beside a zero the other sides may be too large even for an array without numbers.
    if 0 in shape:
        raise DataError(f"{source}: holds no numbers (its header announces an array {shape})")
    return np.frombuffer(content, dtype=np.uint8, offset=header_size).reshape(shape)


@final
@dataclass(frozen=True, kw_only=True)
class IdxSource(DownloadableSource):
    """A data set of grey images in IDX files."""

    folders: tuple[str, ...]
    """Where under the data folder its files may be; downloads go to the first."""

    mirrors: tuple[str, ...]
    """Addresses to which a file's name is appended."""

    files: Mapping[str, tuple[IdxFile, IdxFile]]
    """Images and labels of each split."""

    class_names: tuple[str, ...]

    def load(self, request: DataRequest) -> MemoryDataset:
        split = train_or_test(request)
        image_file, label_file = self.files[split]
        image_path = self._locate(request, image_file)
        label_path = self._locate(request, label_file)
        with advice_on_errors(request):
            images = read_idx(image_path, image_file)
            labels = read_idx(label_path, label_file)
            return MemoryDataset(
                name=request.name,
                split=split,
                class_names=self.class_names,
                labels=class_labels(labels, len(self.class_names), label_path),
                pixels=images[:, np.newaxis],
                augmentation=self.augmentation,
            )

    def found(self, request: DataRequest) -> bool:
        return all(self._candidates(request, file) for file in self._all_files())

    def fetch(self, request: DataRequest, downloader: Downloader) -> list[Path]:
        return [self._fetch(request, file, downloader) for file in self._all_files()]

    def _fetch(self, request: DataRequest, file: IdxFile, downloader: Downloader) -> Path:
        candidates = self._candidates(request, file)
        if candidates and intact(candidates[0], file):
            return candidates[0]
        # Into the folder that is searched first, so that a damaged file elsewhere is not used.
        target = request.data_dir / self.folders[0] / file.names[0]
        return download(target, self.mirrors, lambda path: read_idx(path, file), downloader)

    def _all_files(self) -> Iterator[IdxFile]:
        for pair in self.files.values():
            yield from pair

    def _candidates(self, request: DataRequest, file: IdxFile) -> list[Path]:
        candidates = []
        for folder in self.folders:
            for name in file.names:
                path = request.data_dir / folder / name
                if path.is_file():
                    candidates.append(path)
        return candidates

    def _locate(self, request: DataRequest, file: IdxFile) -> Path:
        candidates = self._candidates(request, file)
        if not candidates:
            searched = [request.data_dir / folder for folder in self.folders]
            raise missing_error(request, file.names[0], searched)
        return candidates[0]


def files_like_mnist(sha256: Mapping[str, str]) -> dict[str, tuple[IdxFile, IdxFile]]:
    """The files of a data set with MNIST's names and shapes, from the sha256 of each."""
    # The test files are called t10k, after their ten thousand images.
    files = {}
    for split, stem, count in (("train", "train", 60_000), ("test", "t10k", 10_000)):
        images = IdxFile(f"{stem}-images", (count, 28, 28), sha256[f"{stem}-images"])
        labels = IdxFile(f"{stem}-labels", (count,), sha256[f"{stem}-labels"])
        files[split] = (images, labels)
    return files


MNIST = IdxSource(
    description="handwritten digits, LeCun, Cortes and Burges (1998)",
    images={"train": 60_000, "test": 10_000},
    shape=(1, 28, 28),
    num_classes=10,
    preset="mnist/0.50/gaussian",
    folders=("mnist", "MNIST/raw", "", "raw"),
    mirrors=(
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
    ),
    files=files_like_mnist(
        {
            "train-images": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            "train-labels": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            "t10k-images": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            "t10k-labels": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        }
    ),
    class_names=tuple("0123456789"),
)

FASHION_MNIST = IdxSource(
    description="pieces of clothing, Xiao, Rasul and Vollgraf (2017)",
    images={"train": 60_000, "test": 10_000},
    shape=(1, 28, 28),
    num_classes=10,
    preset="mnist/0.50/gaussian",
    folders=("fashion-mnist", "fashion_mnist", "FashionMNIST/raw", "", "raw"),
    mirrors=(
        "https://storage.googleapis.com/tensorflow/tf-keras-datasets/",
        "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
    ),
    files=files_like_mnist(
        {
            "train-images": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
            "train-labels": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
            "t10k-images": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
            "t10k-labels": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
        }
    ),
    class_names=(
        "t-shirt/top",
        "trouser",
        "pullover",
        "dress",
        "coat",
        "sandal",
        "shirt",
        "sneaker",
        "bag",
        "ankle boot",
    ),
)
