"""Data sets by name, by path and by address: facts in one place, and anybody's own."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest

from smoothmix import presets, registry
from smoothmix.data import DATASETS, DataRequest, Dataset, MemoryDataset, Source, describe, load
from smoothmix.data.registry import DataRegistry
from smoothmix.errors import UsageError
from tests.conftest import ROOT, Run

OUTSIDE = """
from dataclasses import dataclass

import numpy as np

from smoothmix.data import DataRequest, Dataset, MemoryDataset, Source


@dataclass(frozen=True, kw_only=True)
class Stripes(Source):
    def load(self, request: DataRequest) -> Dataset:
        labels = np.arange(60) % 2
        pixels = np.zeros((60, 1, 28, 28), dtype=np.uint8)
        pixels[labels == 0, :, ::2] = 255
        pixels[labels == 1, :, :, ::2] = 255
        return MemoryDataset(
            name=request.name, split=request.split, class_names=("rows", "columns"),
            labels=labels, pixels=pixels,
        )


STRIPES = Stripes(description="horizontal and vertical stripes", num_classes=2)
NOT_A_SOURCE = 5
"""


@dataclass(frozen=True, kw_only=True)
class Dots(Source):
    """Two black images."""

    def load(self, request: DataRequest) -> Dataset:
        return MemoryDataset(
            name=request.name,
            split=request.split,
            class_names=("a", "b"),
            labels=np.array([0, 1]),
            pixels=np.zeros((2, 1, 4, 4), dtype=np.uint8),
        )


DOTS = Dots(description="two black images", preset="mnist/0.50/gaussian")


def test_the_facts_of_a_data_set_are_true() -> None:
    """What is announced before a file is read, of those that every machine has."""
    for summary in describe():
        if not summary.source.included:
            continue
        for split, count in summary.source.images.items():
            dataset = load(summary.name, split)
            assert (len(dataset), dataset.shape) == (count, summary.source.shape)
            assert dataset.num_classes == summary.source.num_classes
            assert dataset.augmentation == summary.source.augmentation
    assert load("sample").num_classes == 10


def test_facts_fit_each_other() -> None:
    assert len(DATASETS) >= 7
    for name in DATASETS:
        source = DATASETS[name]
        assert source.description
        if source.preset is not None:
            presets.get(source.preset)
        if source.pixel_statistics is not None:
            assert source.shape is not None
            assert [len(values) for values in source.pixel_statistics] == [source.shape[0]] * 2


def test_every_data_set_is_in_the_guide() -> None:
    guide = (ROOT / "docs" / "data.md").read_text()
    (table,) = re.findall(r"(?:^\|.*\n){4,}", guide, flags=re.MULTILINE)
    documented = set()
    for row in table.splitlines():
        documented.update(re.findall(r"`([^`]+)`", row.split("|")[1]))
    assert documented == {*DATASETS, "package.module:name"}


def test_a_data_set_from_outside_is_used_by_its_address(smoothmix: Run, tmp_path: Path) -> None:
    (tmp_path / "outside_stripes.py").write_text(OUTSIDE)
    data = "outside_stripes:STRIPES"
    checked = smoothmix("data", "check", data)
    assert checked.code == 0, checked.err
    assert "60 images 1x28x28, 2 classes" in checked.out
    train = ["train", "--data", data, "--network", "lenet", "--sigma", 0.5]
    trained = smoothmix(*train, "--out", "run", "--epochs-scale", 0.05)
    assert trained.code == 0, trained.err
    certified = smoothmix("certify", "run", "--max", 2, "--n", 200, "--n0", 20)
    assert certified.code == 0, certified.err
    predicted = smoothmix("predict", "run", "--max", 2, "--n", 50)
    assert predicted.code == 0, predicted.err
    refused = smoothmix("data", "check", "outside_stripes:NOT_A_SOURCE")
    assert refused.code == 2
    assert "is not a smoothmix.data.Source" in refused.err


def test_an_installed_package_gives_its_data_set_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = DataRegistry("data set", group="smoothmix.data", own={"sample": DATASETS["sample"]})
    entry = EntryPoint("dots", "tests.data.test_registry:DOTS", "smoothmix.data")
    monkeypatch.setattr("smoothmix.registry.entry_points", lambda group: [entry])
    assert list(registry) == ["sample", "dots"]
    assert registry["dots"] is DOTS


def test_a_path_is_not_taken_for_an_address() -> None:
    assert DATASETS["folder:mine"] is DATASETS["folder:PATH"]
    assert DATASETS["npz:mine"] is DATASETS["npz:PATH"]
    with pytest.raises(UsageError, match="nor is there a module zip to import"):
        DATASETS["zip:mine"]
    with pytest.raises(UsageError, match=r"add --import no_such\.package to the command"):
        DATASETS["no_such.package:DATA"]
    registry.trust("no_such.package")
    with pytest.raises(UsageError, match=r"cannot import no_such\.package"):
        DATASETS["no_such.package:DATA"]
