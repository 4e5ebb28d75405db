"""Image files in one folder per class: ImageNet, and the user's own."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import final

import numpy as np

from smoothmix._io.text import counted
from smoothmix.config import Preparation
from smoothmix.data.image_files import (
    GREY_MODES,
    SUFFIXES,
    FolderDataset,
    is_deep,
    open_image,
    orientation,
    upright_size,
)
from smoothmix.data.resizing import prepared_size
from smoothmix.data.source import DataRequest, LocalSource, Source
from smoothmix.errors import DataError, UsageError, shown

SPLIT_FOLDERS = {"train": ("train",), "test": ("test", "val"), "val": ("val", "test")}
"""The folders that may hold a split, the preferred one first."""

NOT_TEXT = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
"""Control characters, and how bytes that are not text appear in a name."""

NAMES_LISTED = 20
"""Files that a message lists."""

SIZES_LISTED = 3
"""Files that a message lists where photos of as many sizes as files are what one expects."""

IMAGENET_FOLDERS = ("imagenet", "imagenet-sample", "")


@cache
def wnids() -> tuple[str, ...]:
    """ImageNet's 1000 classes by their WordNet ids, in the usual order.

    >>> wnids().index("n01440764"), len(wnids())
    (0, 1000)
    """
    file = resources.files("smoothmix.data") / "imagenet_wnids.txt"
    return tuple(file.read_text("ascii").split())


def visible_names(folder: Path) -> list[str]:
    """The sorted names in a folder, without hidden ones such as macOS's `._name`."""
    try:
        names = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
    except OSError as error:
        raise DataError(f"{folder}: cannot be read ({error.strerror})") from error
    for name in names:
        # It would become the name of a class, and a terminal would obey it.
        if NOT_TEXT.search(name):
            raise DataError(f"{folder}: has a name that is not plain text, {name!r}: rename it")
    return names


def class_folders(root: Path) -> list[str]:
    """The folders in `root`, sorted as text: numbered as by torchvision's ImageFolder."""
    return [name for name in visible_names(root) if (root / name).is_dir()]


def image_files(root: Path, classes: Iterable[str]) -> list[str]:
    """The image files in the class folders as `class/file`, class by class, sorted by name."""
    files = []
    for class_name in classes:
        for name in visible_names(root / class_name):
            # By suffix: opening the 1.3 million files of ImageNet takes minutes.
            if Path(name).suffix.lower() in SUFFIXES:
                files.append(f"{class_name}/{name}")
    return files


def labels_of(
    files: Iterable[str], classes: Sequence[str]
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The class number of each `class/file`."""
    number = {name: label for label, name in enumerate(classes)}
    return np.array([number[file.partition("/")[0]] for file in files], dtype=np.int64)


def left_out(root: Path, classes: Iterable[str], files: Iterable[str]) -> list[str]:
    """What the class folders hold besides their images: other formats, hidden files, folders."""
    used = set(files)
    found = []
    for class_name in classes:
        names = sorted(path.name for path in (root / class_name).iterdir())
        for name in names:
            if f"{class_name}/{name}" not in used:
                found.append(f"{class_name}/{name}")
    return found


def warn_of_left_out(root: Path, names: Sequence[str]) -> None:
    """Warn of what may have been meant as an image; hidden files are `data check`'s to list."""
    visible = [name for name in names if not name.partition("/")[2].startswith(".")]
    if visible:
        warnings.warn(
            f"{root}: {counted(len(visible), 'file')} left out, of other formats or in deeper "
            f"folders: {some_names(visible)}",
            stacklevel=4,
        )


def some_names(names: Sequence[str], most: int = NAMES_LISTED) -> str:
    """The first names of a list, and how many more there are."""
    listed = ", ".join(shown(name, 100) for name in names[:most])
    if len(names) > most:
        listed += f" and {len(names) - most:,} more"
    return listed


def refuse_files(root: Path, problems: Sequence[DataError], total: int) -> None:
    """Raise one error for all files that cannot be used, if there are any."""
    if not problems:
        return
    if len(problems) == 1:
        raise problems[0]
    listed = "; ".join(str(problem) for problem in problems[:NAMES_LISTED])
    if len(problems) > NAMES_LISTED:
        listed += f"; and {len(problems) - NAMES_LISTED:,} more"
    raise DataError(f"{root}: {len(problems):,} of {total:,} images cannot be used: {listed}")


@final
@dataclass(frozen=True, kw_only=True)
class ImageForm:
    """What the header of an image file says."""

    size: tuple[int, int]
    """Width and height, upright."""

    colour: bool
    deep: bool
    """Whether it is grey of 16 bits."""

    turned: bool
    """Whether it must be turned upright."""


def image_forms(root: Path, files: Sequence[str]) -> list[ImageForm]:
    """The forms of all files, or one error that names all that are no images."""
    forms = []
    problems = []
    # Only headers are read here; pixels are decoded when they are needed.
    for file in files:
        try:
            image = open_image(root / file)
        except DataError as error:
            problems.append(error)
            continue
        with image:
            deep = is_deep(image)
            form = ImageForm(
                size=upright_size(image),
                colour=not deep and image.mode not in GREY_MODES,
                deep=deep,
                turned=orientation(image) != 1,
            )
            forms.append(form)
    refuse_files(root, problems, len(files))
    return forms


def common_size(
    root: Path,
    files: Sequence[str],
    forms: Sequence[ImageForm],
    preparation: Preparation | None = None,
) -> tuple[int, int]:
    """Width and height of all images once they are prepared; several sizes are refused."""
    _require_one_depth(root, files, forms)
    if forms[0].deep:
        _require_only_cropped(root, preparation)
    sizes = []
    problems = []
    for file, form in zip(files, forms, strict=True):
        try:
            sizes.append(prepared_size(form.size, preparation))
        except DataError as error:
            problems.append(DataError(f"{root / file}: {error}"))
    refuse_files(root, problems, len(files))
    _require_one_size(root, files, sizes, preparation)
    return sizes[0]


def _require_one_depth(root: Path, files: Sequence[str], forms: Sequence[ImageForm]) -> None:
    """Refuse images of 8 bits among those of 16 bits."""
    others = []
    for file, form in zip(files, forms, strict=True):
        if form.deep != forms[0].deep:
            others.append(f"{file} has {_bits_text(form)}")
    if others:
        raise DataError(
            f"{root}: images must all have 8 bits or all 16 bits, but {files[0]} has "
            f"{_bits_text(forms[0])} and {some_names(others)}: convert them"
        )


def _require_only_cropped(root: Path, preparation: Preparation | None) -> None:
    """Refuse to compute with images of 16 bits, which are read as they are or cropped."""
    if preparation is None:
        return
    if preparation.resize is not None or preparation.channels == 3:
        raise DataError(
            f"{root}: images of 16 bits can be cropped, but not {preparation}: convert them to "
            "8 bits"
        )


def _require_one_size(
    root: Path,
    files: Sequence[str],
    sizes: Sequence[tuple[int, int]],
    preparation: Preparation | None,
) -> None:
    others = []
    for file, size in zip(files, sizes, strict=True):
        if size != sizes[0]:
            others.append(f"{file} has {_size_text(size)}")
    if not others:
        return
    advice = "resize them, or let a run do it: --resize 32 --crop 32"
    if preparation is not None and preparation.resize is not None:
        # Once the middle is cropped, sizes cannot differ any more.
        advice = f"crop the middle as well: --crop {min(min(size) for size in sizes)}"
    raise DataError(
        f"{root}: images must have one size, but {files[0]} has {_size_text(sizes[0])} "
        f"and {some_names(others, SIZES_LISTED)}: {advice}"
    )


def _size_text(size: tuple[int, int]) -> str:
    width, height = size
    return f"{width}x{height}"


def _bits_text(form: ImageForm) -> str:
    if form.deep:
        return "16 bits"
    return "8 bits"


def preparation_note(preparation: Preparation) -> str:
    """What certificates of prepared images are about, in words that follow `images were`."""
    how = str(preparation)
    if preparation.resize is not None:
        how += ", in 8 bits"
    return f"{how}: certificates are about the images so prepared"


def split_folders(request: DataRequest) -> tuple[str, ...]:
    """The folders that may hold the requested split."""
    if request.split not in SPLIT_FOLDERS:
        raise UsageError(
            f"{request.name} has the splits train and test (or val), not {request.split!r}"
        )
    return SPLIT_FOLDERS[request.split]


def classes_by_split(root: Path) -> dict[str, list[str]]:
    """The class folders of each split; empty where the folder holds the classes itself."""
    splits = {}
    for name in ("train", "test", "val"):
        # Only folders of folders are splits: a folder `train` of images is a class of vehicles.
        if (root / name).is_dir() and (classes := class_folders(root / name)):
            splits[name] = classes
    return splits


def split_root(request: DataRequest) -> Path:
    """The folder with the class folders of the requested split: the path itself if unsplit."""
    folders = split_folders(request)
    splits = classes_by_split(request.path)
    if not splits:
        return request.path
    chosen = next((name for name in folders if name in splits), None)
    if chosen is None:
        raise DataError(
            f"{request.path}: there is no folder {' or '.join(folders)} with folders of classes"
        )
    # Classes are numbered by their order, so other folders would shift the labels.
    for other, classes in splits.items():
        _require_same_classes(request.path, (chosen, splits[chosen]), (other, classes))
    return request.path / chosen


def _require_same_classes(
    root: Path, chosen: tuple[str, list[str]], other: tuple[str, list[str]]
) -> None:
    different = sorted(set(chosen[1]) ^ set(other[1]))
    if not different:
        return
    having, lacking = chosen[0], other[0]
    if different[0] in other[1]:
        having, lacking = lacking, having
    raise DataError(
        f"{root}: every split must have the same classes, but {having} has a folder "
        f"{different[0]} and {lacking} has none"
    )


@final
@dataclass(frozen=True, kw_only=True)
class ImageNetSource(LocalSource):
    """ImageNet (ILSVRC2012), or as many of its classes and images as there are."""

    def load(self, request: DataRequest) -> FolderDataset:
        # The labels of ImageNet's test images are not public: results are on the validation set.
        folder, split = "val", "test"
        if "train" in split_folders(request):
            folder, split = "train", "train"
        root = self._root(request, folder)
        classes = self._classes(root)
        # Class by class, the usual numbering: the published logs have every 100th image of it.
        files = image_files(root, classes)
        note = None
        total = self.images[folder]
        if len(files) != total:
            note = f"{len(files):,} of {total:,} images, {len(classes)} of 1000 classes"
        return FolderDataset(
            name=request.name,
            split=split,
            class_names=wnids(),
            # Numbered among all 1000 classes, as networks expect, also if some are missing.
            labels=labels_of(files, wnids()),
            augmentation=self.augmentation,
            note=note,
            root=root,
            files=tuple(files),
            channels=3,
            # The usual evaluation: the middle 224x224 of images with a short side of 256.
            size=(224, 224),
            short_side=256,
        )

    def found(self, request: DataRequest) -> bool:
        for place in IMAGENET_FOLDERS:
            for split in self.images:
                root = request.data_dir / place / split
                if root.is_dir() and not set(wnids()).isdisjoint(class_folders(root)):
                    return True
        return False

    def _root(self, request: DataRequest, folder: str) -> Path:
        searched = [request.data_dir / place for place in IMAGENET_FOLDERS]
        for place in searched:
            if (place / folder).is_dir():
                return place / folder
        target = searched[0]
        raise DataError(
            f"{request.name}: no folder {folder} (looked in {', '.join(map(str, searched))}): "
            "get ILSVRC2012 from https://image-net.org and put its images into "
            f"{target}/train/<wnid>/ and {target}/val/<wnid>/, or point --data-dir at a folder "
            "that has them"
        )

    def _classes(self, root: Path) -> list[str]:
        found = class_folders(root)
        unknown = sorted(set(found) - set(wnids()))
        if unknown:
            problem = f"{unknown[0]} is none of ImageNet's 1000 classes"
        elif not found:
            problem = "there are no class folders"
        else:
            return found
        raise DataError(f"{root}: {problem}: images belong in folders such as {root / wnids()[0]}")


@final
@dataclass(frozen=True, kw_only=True)
class FolderSource(Source):
    """The user's own images in one folder per class: of one size, or resized to one."""

    def load(self, request: DataRequest) -> FolderDataset:
        if not request.path.is_dir():
            # A run records the path that it was trained on, and the folder may have moved.
            where = ""
            if not request.path.is_absolute():
                where = f" in {Path.cwd()}"
            raise DataError(
                f"{request.path}: there is no such folder{where}; "
                "give its current location with --data folder:PATH"
            )
        root = split_root(request)
        classes = class_folders(root)
        files = image_files(root, classes)
        if not files:
            raise DataError(f"{root}: no image files ({', '.join(SUFFIXES)}) in folders of classes")
        forms = image_forms(root, files)
        preparation = request.preparation
        width, height = common_size(root, files, forms, preparation)
        channels = 1
        if any(form.colour for form in forms):
            channels = 3
        note = None
        short_side = None
        if preparation is not None:
            channels = preparation.channels or channels
            note = f"images {preparation_note(preparation)}"
            short_side = preparation.resize
        others = left_out(root, classes, files)
        warn_of_left_out(root, others)
        return FolderDataset(
            name=request.name,
            split=_loaded_split(request, root),
            class_names=tuple(classes),
            labels=labels_of(files, classes),
            augmentation=self.augmentation,
            root=root,
            files=tuple(files),
            channels=channels,
            note=note,
            size=(height, width),
            preparation=preparation,
            short_side=short_side,
            cropped=preparation is not None and preparation.crop is not None,
            upright=any(form.turned for form in forms),
            deep=forms[0].deep,
            left_out=tuple(others),
        )

    def splits(self, request: DataRequest) -> tuple[str, ...]:
        if request.path.is_dir() and {"test", "val"} <= set(classes_by_split(request.path)):
            return ("train", "test", "val")
        return ("train", "test")


def _loaded_split(request: DataRequest, root: Path) -> str:
    """The split that a folder holds: `val` is the test split if there is no other."""
    if request.split == "train":
        return "train"
    if root == request.path / "val" and "test" in classes_by_split(request.path):
        return "val"
    return "test"


IMAGENET = ImageNetSource(
    description=(
        "ILSVRC2012, Russakovsky et al. (2015): download with an account at https://image-net.org"
    ),
    images={"train": 1_281_167, "val": 50_000},
    shape=(3, 224, 224),
    num_classes=1000,
    augmentation="resized-crop",
    pixel_statistics=((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    preset="imagenet/0.50/gaussian",
)

FOLDER = FolderSource(
    description=(
        "your own images: PATH/train/<class>/*, PATH/test/<class>/*, or PATH/<class>/*; of one "
        "size, or resized by --resize and --crop"
    ),
    takes_preparation=True,
)
