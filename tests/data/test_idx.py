"""MNIST and Fashion-MNIST: every layout people have, every way a file can be wrong."""

from __future__ import annotations

import gzip
import hashlib
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smoothmix.data import load
from smoothmix.data.idx import FASHION_MNIST, MNIST, IdxFile, intact, parse_idx, read_idx
from smoothmix.data.source import DataRequest
from smoothmix.errors import DataError, SmoothmixError, UsageError

SHARED = Path(__file__).parents[3] / "shared" / "data"
FASHION = Path("/usr/share/datasets")


def idx(array):
    return (
        bytes([0, 0, 8, array.ndim])
        + struct.pack(f">{array.ndim}I", *array.shape)
        + array.tobytes()
    )


def expected(stem, content, shape):
    return IdxFile(stem, shape, hashlib.sha256(content).hexdigest())


IMAGES = np.random.default_rng(0).integers(0, 256, (6, 4, 5), dtype=np.uint8)
LABELS = np.arange(6, dtype=np.uint8)
CONTENT = {"train-images": idx(IMAGES), "train-labels": idx(LABELS)}
FILES = (
    expected("train-images", CONTENT["train-images"], (6, 4, 5)),
    expected("train-labels", CONTENT["train-labels"], (6,)),
)
TINY = replace(MNIST, files={"train": FILES})


def write(folder, mark="-", suffix=".gz"):
    folder.mkdir(parents=True, exist_ok=True)
    for file in FILES:
        content = CONTENT[file.stem]
        path = folder / f"{file.stem}{mark}idx{len(file.shape)}-ubyte{suffix}"
        path.write_bytes(gzip.compress(content) if suffix else content)


def tiny(data_dir, source=TINY):
    return source.load(DataRequest(name="mnist", split="train", data_dir=data_dir))


@pytest.mark.parametrize("suffix", [".gz", ""])
@pytest.mark.parametrize("mark", ["-", "."])
@pytest.mark.parametrize("folder", ["", "mnist", "MNIST/raw", "raw"])
def test_every_layout_gives_the_same_data(tmp_path, folder, mark, suffix):
    write(tmp_path / folder, mark, suffix)
    dataset = tiny(tmp_path)
    np.testing.assert_array_equal(dataset.labels, LABELS)
    np.testing.assert_array_equal(dataset.pixels[:, 0], IMAGES)
    assert (dataset.shape, dataset.num_classes, dataset.augmentation) == ((1, 4, 5), 10, "none")
    content = b"uint8 (6, 1, 4, 5)" + IMAGES.tobytes() + LABELS.astype("<i8").tobytes()
    assert dataset.fingerprint == hashlib.sha256(content).hexdigest()[:16]


@pytest.mark.parametrize(
    "folder", ["", "fashion-mnist", "fashion_mnist", "FashionMNIST/raw", "raw"]
)
def test_fashion_has_its_own_folders(tmp_path, folder):
    write(tmp_path / folder)
    assert len(tiny(tmp_path, replace(FASHION_MNIST, files={"train": FILES}))) == 6


def test_own_folder_goes_before_files_that_lie_about(tmp_path):
    write(tmp_path / "mnist")
    (tmp_path / "train-images-idx3-ubyte").write_bytes(b"of another data set")
    assert len(tiny(tmp_path)) == 6


def test_gz_that_a_browser_unpacked_is_read(tmp_path):
    write(tmp_path)
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(CONTENT["train-images"])
    assert len(tiny(tmp_path)) == 6


def test_missing_files_are_named_with_what_to_do(tmp_path):
    with pytest.raises(DataError) as error:
        tiny(tmp_path)
    assert str(error.value) == (
        "mnist: train-images-idx3-ubyte.gz not found "
        f"(looked in {tmp_path}/mnist, {tmp_path}/MNIST/raw, {tmp_path}, {tmp_path}/raw): "
        "run `smoothmix data fetch mnist` or point --data-dir at a folder that has it"
    )


PACKED = gzip.compress(CONTENT["train-images"], mtime=0)
ALTERED = CONTENT["train-images"][:-1] + bytes([CONTENT["train-images"][-1] ^ 1])
OTHER_SHAPE = idx(IMAGES.reshape(6, 5, 4))


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (PACKED[:-20], "truncated or damaged"),
        (PACKED[:-4] + b"oops", "truncated or damaged"),
        (PACKED[:12] + b"\xff" * 30, "truncated or damaged"),
        (
            gzip.compress(CONTENT["train-images"][:-1], mtime=0),
            "header announces 120 numbers, 119 follow",
        ),
        (
            gzip.compress(CONTENT["train-images"] + b"x", mtime=0),
            "more than the 136 bytes that train-images has",
        ),
        (gzip.compress(bytes(50_000_000), mtime=0), "more than the 136 bytes"),
        (b"", "not an IDX file of bytes \\(it begins with nothing\\)"),
        (b"<html>", "not an IDX file of bytes \\(it begins with 3c 68 74 6d\\)"),
        (b"\x00\x00\x08\x03\x00\x00", "truncated or damaged"),
        (ALTERED, "altered, or of another data set \\(sha256"),
        (OTHER_SHAPE, "holds an array \\(6, 5, 4\\) where train-images has \\(6, 4, 5\\)"),
    ],
)
def test_wrong_files_get_one_sentence_with_file_and_advice(tmp_path, content, sentence):
    write(tmp_path)
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(content)
    with pytest.raises(DataError, match=sentence) as error:
        tiny(tmp_path)
    assert str(error.value).startswith(str(path))
    assert str(error.value).endswith(
        "run `smoothmix data fetch mnist` or point --data-dir at a folder that has it"
    )
    assert "\n" not in str(error.value)
    assert not intact(path, FILES[0])


def test_a_folder_in_the_place_of_a_file_is_not_found(tmp_path):
    (tmp_path / "train-images-idx3-ubyte").mkdir()
    with pytest.raises(DataError, match="not found"):
        tiny(tmp_path)


def test_unreadable_file_is_a_data_error(tmp_path):
    with pytest.raises(DataError, match="cannot be read"):
        read_idx(tmp_path, FILES[0])


def test_labels_out_of_range_and_counts_that_differ_are_refused(tmp_path):
    for labels, sentence in (
        (
            np.array([0, 1, 10, 3, 4, 5], np.uint8),
            "label 10 of image 2 is not one of the classes 0 to 9",
        ),
        (np.arange(5, dtype=np.uint8), "6 images do not match 5 labels"),
    ):
        write(tmp_path)
        (tmp_path / "train-labels-idx1-ubyte.gz").write_bytes(idx(labels))
        files = (FILES[0], expected("train-labels", idx(labels), labels.shape))
        with pytest.raises(DataError, match=sentence):
            tiny(tmp_path, replace(MNIST, files={"train": files}))


def test_there_is_no_split_val(tmp_path):
    with pytest.raises(UsageError, match="mnist has the splits train and test, not 'val'"):
        load("mnist", "val", data_dir=tmp_path)


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=40) | st.binary(max_size=30).map(lambda tail: b"\x00\x00\x08" + tail))
def test_any_bytes_are_an_array_or_a_data_error(content):
    try:
        array = parse_idx(content, "made")
    except SmoothmixError:
        return
    assert idx(array) == content


@settings(max_examples=60, deadline=None)
@given(at=st.integers(0, len(PACKED) - 1), value=st.integers(0, 255))
def test_one_altered_byte_never_gives_other_images(tmp_path_factory, at, value):
    path = tmp_path_factory.getbasetemp() / "altered.gz"
    path.write_bytes(PACKED[:at] + bytes([value]) + PACKED[at + 1 :])
    try:
        array = read_idx(path, FILES[0])
    except SmoothmixError:
        return
    np.testing.assert_array_equal(array, IMAGES)


@pytest.mark.shared
def test_real_mnist():
    train, test = (load("mnist", split, data_dir=SHARED) for split in ("train", "test"))
    assert (len(train), len(test)) == (60_000, 10_000)
    assert train.labels[:5].tolist() == [5, 0, 4, 1, 9]
    assert (train.fingerprint, test.fingerprint) == ("74bda37832117316", "7e06f44daa3cc41b")
    assert abs(train.images(range(2000)).mean().item() - 0.1307) < 0.003


@pytest.mark.shared
def test_mnist_is_not_taken_for_fashion():
    with pytest.raises(DataError, match="altered, or of another data set"):
        load("fashion-mnist", data_dir=SHARED / "mnist")


@pytest.mark.skipif(
    not (FASHION / "fashion-mnist").is_dir(),
    reason="Debian's dataset-fashion-mnist is not installed",
)
def test_real_fashion_mnist():
    dataset = load("fashion-mnist", data_dir=FASHION)
    assert (len(dataset), dataset.class_names[dataset.labels[0]]) == (10_000, "ankle boot")
