"""Trees of folders, one for each class: ImageNet, and the user's own pictures."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import final

import numpy as np

from smoothmix.data.pictures import GREY, SUFFIXES, FolderDataset, open_picture
from smoothmix.data.source import Request, Source, Stored
from smoothmix.errors import DataError, UsageError

SPLIT_FOLDERS = {"train": ("train",), "test": ("test", "val"), "val": ("val", "test")}
"""The folders that may hold a split, the preferred one first."""

NO_TEXT = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
"""What a terminal would obey, and how bytes that are no text appear in a name: neither can be a class of a report."""

IMAGENET_IMAGES = {"train": 1_281_167, "val": 50_000}
IMAGENET_PLACES = ("imagenet", "imagenet-sample", "")


@cache
def wnids() -> tuple[str, ...]:
    """ImageNet's 1000 classes by their WordNet ids, in the order that everybody numbers them.

    >>> wnids().index("n01440764"), len(wnids())
    (0, 1000)
    """
    return tuple(
        (resources.files("smoothmix.data") / "imagenet_wnids.txt").read_text("ascii").split()
    )


def visible(folder: Path) -> list[str]:
    """The names in a folder, sorted, without hidden ones such as the `._name` that macOS leaves behind."""
    try:
        names = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
    except OSError as error:
        raise DataError(f"{folder}: cannot be read ({error.strerror})") from error
    odd = next((name for name in names if NO_TEXT.search(name)), None)
    if odd is not None:
        raise DataError(f"{folder}: has a name that is no plain text, {odd!r}: rename it")
    return names


def class_folders(root: Path) -> list[str]:
    """The names of the folders in `root`, sorted as text: the same numbers as torchvision's ImageFolder gives them."""
    return [name for name in visible(root) if (root / name).is_dir()]


def pictures(root: Path, classes: Iterable[str]) -> list[str]:
    """The pictures in the class folders of `root` as `class/file`, class by class, each sorted by name."""
    return [
        f"{name}/{file}"
        for name in classes
        for file in visible(root / name)
        if Path(file).suffix.lower() in SUFFIXES
    ]


def labels_of(
    files: Iterable[str], classes: Sequence[str]
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The class number of each `class/file`."""
    number = {name: label for label, name in enumerate(classes)}
    return np.array([number[file.partition("/")[0]] for file in files], dtype=np.int64)


def common_form(root: Path, files: Sequence[str]) -> tuple[int, tuple[int, int]]:
    """Channels (grey pictures count as colour where one has colour), and the height and width that all must have."""
    with open_picture(root / files[0]) as first:
        size = first.size
    channels = 1
    for file in files:
        with open_picture(root / file) as picture:
            channels = channels if picture.mode in GREY else 3
            if picture.size != size:
                raise DataError(
                    f"{root}: pictures must have one size, but {files[0]} has {size[0]}x{size[1]} and {file} has "
                    f"{picture.size[0]}x{picture.size[1]}: resize them"
                )
    return channels, size[::-1]


def split_folders(request: Request) -> tuple[str, ...]:
    """The folders that may hold the split asked for."""
    if request.split not in SPLIT_FOLDERS:
        raise UsageError(
            f"{request.name} has the splits train and test (or val), not {request.split!r}"
        )
    return SPLIT_FOLDERS[request.split]


def classes_by_split(root: Path) -> dict[str, list[str]]:
    """The splits in a folder with the class folders of each; none where it holds the classes itself."""
    # Only folders of folders are splits: a folder `train` that holds pictures is a class of vehicles.
    return {
        name: classes
        for name in ("train", "test", "val")
        if (root / name).is_dir() and (classes := class_folders(root / name))
    }


def split_root(request: Request) -> Path:
    """The folder that holds the class folders of the split asked for: the path itself if it has no splits."""
    wanted, splits = split_folders(request), classes_by_split(request.path)
    if not splits:
        return request.path
    chosen = next((name for name in wanted if name in splits), None)
    if chosen is None:
        raise DataError(
            f"{request.path}: there is no folder {' or '.join(wanted)} with folders of classes"
        )
    for other, classes in splits.items():
        if different := sorted(set(classes) ^ set(splits[chosen])):
            here, lacking = (other, chosen) if different[0] in classes else (chosen, other)
            raise DataError(
                f"{request.path}: every split must have the same classes, but {here} has a folder {different[0]} "
                f"and {lacking} has none"
            )
    return request.path / chosen


@final
@dataclass(frozen=True, kw_only=True)
class ImageNetSource(Stored):
    """ImageNet (ILSVRC2012), or as many of its classes and pictures as there are."""

    def load(self, request: Request) -> FolderDataset:
        folder = "train" if "train" in split_folders(request) else "val"
        places = [request.data_dir / place for place in IMAGENET_PLACES]
        root = next((place / folder for place in places if (place / folder).is_dir()), None)
        if root is None:
            looked = ", ".join(str(place) for place in places)
            raise DataError(
                f"{request.name}: no folder {folder} (looked in {looked}): {self._advice(request)}"
            )
        found = class_folders(root)
        unknown = sorted(set(found) - set(wnids()))
        if unknown or not found:
            what = (
                f"{unknown[0]} is none of ImageNet's 1000 classes"
                if unknown
                else "there are no class folders"
            )
            raise DataError(
                f"{root}: {what}: pictures belong into folders such as {root / wnids()[0]}"
            )
        # Class by class, as the field numbers them: every 100th image of the published logs is meant so.
        files = pictures(root, found)
        total = IMAGENET_IMAGES[folder]
        return FolderDataset(
            name=request.name,
            split="train" if folder == "train" else "test",
            class_names=wnids(),
            labels=labels_of(files, wnids()),
            augmentation="resized-crop",
            note=None
            if len(files) == total
            else f"{len(files):,} of {total:,} images, {len(found)} of 1000 classes",
            root=root,
            files=tuple(files),
            channels=3,
            size=(224, 224),
            short_side=256,
        )

    def found(self, request: Request) -> bool:
        roots = (
            request.data_dir / place / split
            for place in IMAGENET_PLACES
            for split in IMAGENET_IMAGES
        )
        return any(
            not set(wnids()).isdisjoint(class_folders(root)) for root in roots if root.is_dir()
        )

    def _advice(self, request: Request) -> str:
        where = request.data_dir / IMAGENET_PLACES[0]
        return (
            f"get ILSVRC2012 from https://image-net.org and put its pictures into {where}/train/<wnid>/ and "
            f"{where}/val/<wnid>/, or point --data-dir at a folder that has them"
        )


@final
@dataclass(frozen=True, kw_only=True)
class FolderSource(Source):
    """The user's own pictures of one size, in a folder for each class."""

    def load(self, request: Request) -> FolderDataset:
        if not request.path.is_dir():
            where = f" in {Path.cwd()}" if not request.path.is_absolute() else ""
            raise DataError(
                f"{request.path}: there is no such folder{where}; --data folder:PATH says where it is now"
            )
        root = split_root(request)
        classes = class_folders(root)
        files = pictures(root, classes)
        if not files:
            raise DataError(f"{root}: no pictures ({', '.join(SUFFIXES)}) in folders of classes")
        channels, size = common_form(root, files)
        return FolderDataset(
            name=request.name,
            split=_told_split(request, root),
            class_names=tuple(classes),
            labels=labels_of(files, classes),
            root=root,
            files=tuple(files),
            channels=channels,
            size=size,
        )

    def splits(self, request: Request) -> tuple[str, ...]:
        both = request.path.is_dir() and {"test", "val"} <= set(classes_by_split(request.path))
        return ("train", "test", "val") if both else ("train", "test")


def _told_split(request: Request, root: Path) -> str:
    """The split that a folder holds: `val` serves as `test` where there is none, and is another part where there is."""
    if request.split == "train":
        return "train"
    return (
        "val"
        if root == request.path / "val" and "test" in classes_by_split(request.path)
        else "test"
    )


IMAGENET = ImageNetSource(
    images="1,281,167 train, 50,000 val",
    shape="3x224x224",
    classes="1000",
    origin="ILSVRC2012, Russakovsky et al. (2015), to be had with an account at https://image-net.org",
)

FOLDER = FolderSource(
    images="any number",
    shape="any, grey or colour",
    classes="one a folder",
    origin="your own pictures of one size: PATH/train/<class>/*, PATH/test/<class>/*, or PATH/<class>/*",
)
