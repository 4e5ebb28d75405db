"""The classes of a data set by the numbers that a network has for them: matched by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import TypeVar

import numpy as np

from smoothmix._io.text import counted
from smoothmix.data.dataset import MAX_CLASSES, Dataset
from smoothmix.data.image_files import FolderDataset
from smoothmix.errors import DataError, UsageError

AnyDataset = TypeVar("AnyDataset", bound=Dataset)

LONGEST_RECORD = 2**15
"""Bytes of class names that settings record, which are files of at most 64 kilobytes."""

NAMES_LISTED = 20
"""Names that a message lists."""


def recorded_names(dataset: Dataset) -> tuple[str, ...]:
    """The class names that the settings of a run record; none if they are too long for that."""
    length = sum(len(name.encode()) + len("'', ") for name in dataset.class_names)
    if length > LONGEST_RECORD:
        return ()
    return dataset.class_names


def parse_mapping(texts: Sequence[str] | None) -> dict[str, str]:
    """The names in the values of an option, such as `cats=cat`.

    >>> parse_mapping(["cats=cat,dogs=dog", "wolf=dog"])
    {'cats': 'cat', 'dogs': 'dog', 'wolf': 'dog'}
    """
    mapping: dict[str, str] = {}
    for text in texts or ():
        for pair in text.split(","):
            own, equals, networks = pair.partition("=")
            if not own or not equals or not networks:
                raise UsageError(f"classes are written folder=class, such as cats=cat, got {pair}")
            if own in mapping:
                raise UsageError(f"classes: {own} is mapped twice")
            mapping[own] = networks
    return mapping


def match_classes(
    dataset: AnyDataset, class_names: Sequence[str], mapping: Mapping[str, str] | None = None
) -> AnyDataset:
    """The data set with the numbers that a network of these `class_names` has for its classes.

    Classes are matched by name, and `mapping` gives the network's name for one of the data set. A
    class that the network does not have is an error. A data set that only has numbers for its
    classes, such as an .npz file, keeps them.
    """
    mapping = mapping or {}
    _require_known_mapping(dataset, class_names, mapping)
    only_numbers = all(name == str(number) for number, name in enumerate(dataset.class_names))
    if only_numbers and not mapping:
        return dataset
    wanted = [mapping.get(name, name) for name in dataset.class_names]
    known = {name: number for number, name in enumerate(class_names)}
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise _unknown_classes(dataset, unknown, class_names)
    return renumbered(dataset, [known[name] for name in wanted], class_names)


def renumbered(
    dataset: AnyDataset, numbers: Sequence[int], class_names: Sequence[str] = ()
) -> AnyDataset:
    """The data set with `numbers[label]` in the place of each label.

    Without `class_names`, classes that the data set does not have are named by their numbers.
    """
    if len(numbers) != dataset.num_classes:
        raise DataError(
            f"{dataset.name}: has {counted(dataset.num_classes, 'class folder')}, and "
            f"{len(numbers)} are on record"
        )
    if not all(0 <= number < MAX_CLASSES for number in numbers):
        raise DataError(f"{dataset.name}: numbers of classes must lie in [0, {MAX_CLASSES:,})")
    if not class_names:
        names = [str(number) for number in range(max(numbers) + 1)]
        for number, name in zip(numbers, dataset.class_names, strict=True):
            names[number] = name
        class_names = names
    kept = tuple(numbers)
    # Recorded only where it matters: files of data sets with the network's order have no such line.
    if kept == tuple(range(len(kept))):
        kept = ()
    if not kept and tuple(class_names) == dataset.class_names:
        return dataset
    labels = np.array(numbers, dtype=np.int64)[dataset.labels]
    return replace(dataset, labels=labels, class_names=tuple(class_names), class_numbers=kept)


def match_shape(dataset: Dataset, shape: Sequence[int]) -> Dataset:
    """The data set, if its images have the `shape` that a network was trained on.

    Grey files are read as colour for a network that takes colour.
    """
    if dataset.shape == tuple(shape):
        return dataset
    channels, *size = shape
    # Exact: each of the three channels is the grey value.
    if isinstance(dataset, FolderDataset) and not dataset.deep and channels == 3:
        dataset = replace(dataset, channels=3)
    if dataset.shape == tuple(shape):
        return dataset
    advice = "resize them"
    if list(dataset.shape[1:]) == size:
        advice = "convert them"
    raise DataError(
        f"{dataset.name}: has images {_size(dataset.shape)} (channels, height, width), and the "
        f"network was trained on {_size(shape)}: {advice}"
    )


def _require_known_mapping(
    dataset: Dataset, class_names: Sequence[str], mapping: Mapping[str, str]
) -> None:
    for own, networks in mapping.items():
        if own not in dataset.class_names:
            raise UsageError(
                f"--classes {own}={networks}: {dataset.name} has no class {own} "
                f"({_listed(dataset.class_names)})"
            )
        if networks not in class_names:
            raise UsageError(
                f"--classes {own}={networks}: the network has no class {networks} "
                f"({_listed(class_names)})"
            )


def _unknown_classes(
    dataset: Dataset, unknown: Sequence[str], class_names: Sequence[str]
) -> DataError:
    close = get_close_matches(unknown[0], class_names, n=1)
    example = (close or list(class_names))[0]
    return DataError(
        f"{dataset.name}: the network has no class {_listed(unknown)}; it has "
        f"{_listed(class_names)}: rename or remove these classes, or name the network's by "
        f"--classes {unknown[0]}={example}"
    )


def _listed(names: Sequence[str]) -> str:
    listed = ", ".join(names[:NAMES_LISTED])
    if len(names) > NAMES_LISTED:
        listed += f" and {len(names) - NAMES_LISTED:,} more"
    return listed


def _size(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))
