"""Images without labels: any files, prepared as the images that a network was trained on."""

from __future__ import annotations

import glob
import os
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from smoothmix._io.text import counted
from smoothmix.config import UNLABELLED
from smoothmix.data.folders import image_forms, some_names
from smoothmix.data.image_files import SUFFIXES, FolderDataset, centre_crop
from smoothmix.errors import DataError, UsageError

if TYPE_CHECKING:
    from PIL import Image

NAME = "images"
"""Name of the data set in certificate files."""

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
        lines = path.read_text("utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read as a list of image files ({error})") from error
    return [path.parent / line.strip() for line in lines if line.strip()]


def prepared(
    image: Image.Image, *, shape: Sequence[int], trained_on: str = ""
) -> tuple[Image.Image, str]:
    """One image as `load_images` makes it, and how that was."""
    _, height, width = shape
    if image.size == (width, height):
        return image, AS_IT_IS
    if height != width:
        raise DataError(f"the network takes images of {width}x{height} pixels: resize it")
    short_side = SHORT_SIDES.get(trained_on, height)
    return centre_crop(image, short_side, (height, width)), _scaling(short_side, width, height)


def _scaling(short_side: int, width: int, height: int) -> str:
    return (
        f"scaled to {short_side} pixels on the short side and cropped to {width}x{height} in "
        "8 bits: certificates are about the images so prepared"
    )


def load_images(
    places: Sequence[str],
    *,
    shape: Sequence[int],
    class_names: Sequence[str],
    trained_on: str = "",
) -> FolderDataset:
    """Images without labels, of the `shape` that a network takes; `note` says how they are made.

    Images are turned upright, scaled and cropped in 8 bits, as those of the data set `trained_on`.
    Certificates are about the images so prepared.
    """
    paths = find_images(places)
    root = Path(os.path.commonpath([path.parent for path in paths]))
    files = [path.relative_to(root).as_posix() for path in paths]
    forms = image_forms(root, files)
    channels, height, width = shape
    short_side = None
    note = AS_IT_IS
    if any(form.size != (width, height) for form in forms):
        # Other shapes would be cropped to a stripe, or filled with pixels that nobody took.
        if height != width:
            raise DataError(
                f"{root}: the network takes images of {width}x{height} pixels: resize them"
            )
        short_side = SHORT_SIDES.get(trained_on, height)
        note = _scaling(short_side, width, height)
    return FolderDataset(
        name=NAME,
        split="test",
        class_names=tuple(class_names),
        labels=np.full(len(files), UNLABELLED, dtype=np.int64),
        note=note,
        root=root,
        files=tuple(files),
        channels=channels,
        size=(height, width),
        short_side=short_side,
        upright=True,
    )
