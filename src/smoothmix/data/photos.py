"""Images without labels: any files, prepared as the images that a network was trained on."""

from __future__ import annotations

import glob
import os
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, final

import numpy as np

from smoothmix._io.files import read_limited
from smoothmix._io.text import counted
from smoothmix.config import UNLABELLED, Preparation
from smoothmix.data.folders import (
    ImageForm,
    image_forms,
    preparation_note,
    refuse_files,
    some_names,
)
from smoothmix.data.image_files import SUFFIXES, FolderDataset
from smoothmix.data.resizing import middle, prepared_size, require_room, scaled, scaled_size
from smoothmix.errors import DataError, UsageError

if TYPE_CHECKING:
    from PIL import Image

NAME = "images"
"""Name of the data set in certificate files."""

LARGEST_LIST = 2**26
"""Bytes of a list of image files: a million paths."""

SHORT_SIDES = {"imagenet": 256}
"""What training on a data set scaled short sides to, before it cropped the middle."""


AS_IT_IS = "certified as they are"
"""What is noted where nothing has to be done."""


def find_images(places: Sequence[str]) -> list[Path]:
    """The image files that files, patterns, folders (with those inside) and lists name.

    A list is a .txt file with one path in each line, relative to the list's folder.
    """
    found: list[Path] = []
    for place in places:
        found.extend(_named_by(place))
    if not found:
        raise DataError(f"no image files ({', '.join(SUFFIXES)}) in {', '.join(places)}")
    # Without repetitions, in order: a pattern may name what a folder holds.
    return list(dict.fromkeys(path.absolute() for path in found))


def _named_by(place: str) -> Iterable[Path]:
    path = Path(place).expanduser()
    if path.is_dir():
        return _inside(path)
    if path.is_file() and path.suffix.lower() == ".txt":
        return _listed(path)
    if path.is_file():
        return [path]
    # A pattern may be absolute, which Path.glob refuses.
    matches = sorted(glob.glob(str(path), recursive=True))  # noqa: PTH207
    if not matches:
        raise UsageError(f"--images {place}: there is no such file or folder")
    return [Path(match) for match in matches if Path(match).suffix.lower() in SUFFIXES]


def _inside(folder: Path) -> list[Path]:
    """The image files of a folder, with those inside; a warning names other visible files."""
    found = []
    others = []
    for path in sorted(folder.rglob("*")):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if hidden or not path.is_file():
            continue
        if path.suffix.lower() in SUFFIXES:
            found.append(path)
        else:
            others.append(path.relative_to(folder).as_posix())
    if others:
        warnings.warn(
            f"{folder}: {counted(len(others), 'file')} left out, of other formats "
            f"({some_names(others)})",
            stacklevel=2,
        )
    return found


def _listed(path: Path) -> list[Path]:
    try:
        lines = read_limited(path, LARGEST_LIST).decode().splitlines()
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read as a list of image files ({error})") from error
    return [path.parent / line.strip() for line in lines if line.strip()]


def prepared(
    image: Image.Image,
    *,
    shape: Sequence[int],
    trained_on: str = "",
    preparation: Preparation | None = None,
) -> tuple[Image.Image, str]:
    """One image as `load_images` makes it, and how that was."""
    _, height, width = shape
    way = _way([image.size], shape=shape, trained_on=trained_on, preparation=preparation)
    if way.short_side is not None:
        image = scaled(image, way.short_side)
    return middle(image, (height, width)), way.note


def load_images(
    places: Sequence[str],
    *,
    shape: Sequence[int],
    class_names: Sequence[str],
    trained_on: str = "",
    preparation: Preparation | None = None,
) -> FolderDataset:
    """Images without labels, of the `shape` that a network takes; `note` says how they are made.

    Images are turned upright, scaled and cropped in 8 bits: as the run has recorded it
    (`preparation`), or else as those of the data set `trained_on`. Certificates are about the
    images so prepared.
    """
    paths = find_images(places)
    root = Path(os.path.commonpath([path.parent for path in paths]))
    files = [path.relative_to(root).as_posix() for path in paths]
    forms = image_forms(root, files)
    channels, height, width = shape
    try:
        way = _way(
            [form.size for form in forms],
            shape=shape,
            trained_on=trained_on,
            preparation=preparation,
        )
    except DataError as error:
        raise DataError(f"{root}: {error}") from None
    _require_room(root, files, forms, way, (width, height))
    return FolderDataset(
        name=NAME,
        split="test",
        class_names=tuple(class_names),
        labels=np.full(len(files), UNLABELLED, dtype=np.int64),
        note=way.note,
        root=root,
        files=tuple(files),
        channels=channels,
        size=(height, width),
        preparation=preparation,
        short_side=way.short_side,
        cropped=way.cropped,
        upright=True,
    )


@final
@dataclass(frozen=True, kw_only=True)
class _Way:
    """How images of any size become images of the network's size: the middle, after scaling."""

    short_side: int | None
    """Pixels to which the short side is scaled; None leaves images as large as they are."""
    cropped: bool
    """Whether the middle is cropped."""
    note: str


def _way(
    sizes: Sequence[tuple[int, int]],
    *,
    shape: Sequence[int],
    trained_on: str,
    preparation: Preparation | None,
) -> _Way:
    """How images of these sizes (width, height) are prepared for a network."""
    _, height, width = shape
    if preparation is not None and preparation.resizes:
        note = preparation_note(preparation)
        if preparation.crop is None and _others(sizes, preparation, (width, height)):
            # Training had images of one ratio only, and cropped nothing.
            note = f"cropped to the middle {width}x{height} after they were {note}"
        return _Way(short_side=preparation.resize, cropped=True, note=note)
    if all(size == (width, height) for size in sizes):
        return _Way(short_side=None, cropped=False, note=AS_IT_IS)
    # Other shapes would be cropped to a stripe, or filled with pixels that nobody took.
    if height != width:
        raise DataError(f"the network takes images of {width}x{height} pixels: resize them")
    short_side = SHORT_SIDES.get(trained_on, height)
    note = (
        f"scaled to {short_side} pixels on the short side and cropped to {width}x{height} in "
        "8 bits: certificates are about the images so prepared"
    )
    return _Way(short_side=short_side, cropped=True, note=note)


def _others(
    sizes: Sequence[tuple[int, int]], preparation: Preparation, wanted: tuple[int, int]
) -> bool:
    """Whether images of any of these sizes have another than wanted, once they are prepared."""
    return any(prepared_size(size, preparation) != wanted for size in sizes)


def _require_room(
    root: Path,
    files: Sequence[str],
    forms: Sequence[ImageForm],
    way: _Way,
    part: tuple[int, int],
) -> None:
    """Refuse images from which the network's size cannot be cropped, all in one error."""
    problems = []
    for file, form in zip(files, forms, strict=True):
        try:
            size = form.size
            if way.short_side is not None:
                size = scaled_size(size, way.short_side)
            require_room(size, part)
        except DataError as error:
            problems.append(DataError(f"{root / file}: {error}"))
    refuse_files(root, problems, len(files))
