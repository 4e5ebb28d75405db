"""The user's own arrays: the layouts accepted, and every reason to refuse."""

from __future__ import annotations

import io
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smoothmix.data import load
from smoothmix.data.npz import read_arrays
from smoothmix.errors import DataError, SmoothmixError, UsageError

IMAGES = np.random.default_rng(0).integers(0, 256, (5, 3, 6, 7), dtype=np.uint8)
LABELS = np.array([0, 3, 1, 2, 1])


@pytest.fixture
def save(tmp_path):
    def write(**arrays):
        path = tmp_path / "my.npz"
        np.savez_compressed(path, **arrays)
        return f"npz:{path}"

    return write


@pytest.mark.parametrize(
    ("images", "shape"),
    [
        (IMAGES[:, 0], (1, 6, 7)),
        (IMAGES[:, :1], (1, 6, 7)),
        (IMAGES, (3, 6, 7)),
        (IMAGES.transpose(0, 2, 3, 1), (3, 6, 7)),
        (IMAGES[..., :3], (3, 6, 3)),
    ],
)
def test_layouts(save, images, shape):
    dataset = load(save(x=images, y=LABELS))
    assert (dataset.shape, dataset.num_classes, len(dataset)) == (shape, 4, 5)
    expected = IMAGES[:, : shape[0], :, : shape[2]]
    np.testing.assert_array_equal(dataset.pixels, expected)
    np.testing.assert_array_equal(
        dataset.images([4, 0]).numpy(), expected[[4, 0]].astype(np.float32) / 255
    )


def test_name_is_as_given_and_path_is_relative_to_where_one_is(save, tmp_path, monkeypatch):
    save(x=IMAGES, y=LABELS)
    monkeypatch.chdir(tmp_path)
    assert load("npz:my.npz").name == "npz:my.npz"


def test_same_content_has_the_same_fingerprint_in_either_layout(save):
    first = load(save(x=IMAGES, y=LABELS)).fingerprint
    assert (
        load(save(x=IMAGES.transpose(0, 2, 3, 1), y=LABELS.astype(np.uint8))).fingerprint == first
    )
    assert load(save(x=IMAGES, y=LABELS[::-1])).fingerprint != first
    assert load(save(x=IMAGES ^ 1, y=LABELS)).fingerprint != first


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_floats_stay_floats(save, dtype):
    images = np.random.default_rng(0).random((5, 6, 7)).astype(dtype)
    dataset = load(save(x=images, y=LABELS))
    assert dataset.pixels.dtype == np.float32
    np.testing.assert_array_equal(dataset.images(range(5))[:, 0].numpy(), images.astype(np.float32))


def test_splits_and_classes_over_both(save):
    name = save(x_train=IMAGES, y_train=LABELS, x_test=IMAGES[:2], y_test=LABELS[:1].repeat(2))
    assert [
        (len(load(name, split)), load(name, split).num_classes) for split in ("train", "test")
    ] == [(5, 4), (2, 4)]


def test_x_and_y_serve_either_split(save):
    name = save(x=IMAGES, y=LABELS)
    assert load(name, "train").fingerprint == load(name, "test").fingerprint
    with pytest.raises(UsageError, match="has the splits train and test, not 'val'"):
        load(name, "val")


NAN = np.full((5, 6, 7), np.nan)


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"y": LABELS}, "it needs arrays x_test and y_test, or x and y for either split"),
        ({"x": IMAGES}, "it needs arrays"),
        ({"x_train": IMAGES, "y_train": LABELS}, "it needs arrays x_test and y_test"),
        ({"x": IMAGES[:4], "y": LABELS}, "4 images do not match 5 labels"),
        ({"x": IMAGES[:0], "y": LABELS[:0]}, "there are no images"),
        ({"x": IMAGES[0, 0], "y": LABELS}, "but their shape is \\(6, 7\\)"),
        (
            {"x": IMAGES[:, [0, 1], :, :], "y": LABELS},
            "with 1 or 3 channels, but their shape is \\(5, 2, 6, 7\\)",
        ),
        ({"x": IMAGES[:, :, :0], "y": LABELS}, "but their shape is \\(5, 3, 0, 7\\)"),
        (
            {"x": IMAGES.astype(np.int64), "y": LABELS},
            "must be uint8, uint16, or floats in \\[0, 1\\], but they are int64",
        ),
        (
            {"x": IMAGES.astype(np.float32), "y": LABELS},
            "must lie in \\[0, 1\\], but they range from 0 to 255: divide",
        ),
        ({"x": NAN, "y": LABELS}, "must lie in \\[0, 1\\]"),
        ({"x": -np.ones((5, 6, 7)), "y": LABELS}, "must lie in \\[0, 1\\]"),
        ({"x": IMAGES, "y": LABELS - 1}, "y: label -1 of image 0 is not one of the classes"),
        ({"x": IMAGES, "y": LABELS * 10**12}, "label 3000000000000 of image 1"),
        (
            {"x": IMAGES, "y": np.full(5, 2**64 - 1, dtype=np.uint64)},
            "label 18446744073709551615 of image 0",
        ),
        (
            {"x": IMAGES, "y": LABELS.astype(float)},
            "labels must be one whole number per image, but these are float64",
        ),
        ({"x": IMAGES, "y": LABELS[:, None]}, "of shape \\(5, 1\\)"),
        (
            {"x": IMAGES, "y": np.array([{}] * 5)},
            "not a readable .npz file of plain arrays \\(Object arrays cannot",
        ),
    ],
)
def test_what_cannot_be_used_is_refused_with_the_file(save, tmp_path, arrays, sentence):
    with pytest.raises(DataError, match=sentence) as error:
        load(save(**arrays))
    assert str(tmp_path / "my.npz") in str(error.value)


def test_files_that_are_no_npz(tmp_path):
    path = tmp_path / "my.npz"
    with pytest.raises(DataError, match="cannot be read \\(No such file"):
        load(f"npz:{path}")
    with pytest.raises(DataError, match="cannot be read \\(Is a directory"):
        load(f"npz:{tmp_path}")
    for content in (b"", b"text", b"PK\x03\x04 broken", b"\x80\x02}."):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"not a readable \.npz|truncated or damaged"):
            load(f"npz:{path}")
    with path.open("wb") as file:
        np.save(file, IMAGES)
    with pytest.raises(DataError, match=r"a single array; save images and labels with numpy.savez"):
        load(f"npz:{path}")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x", b"some text")
    with pytest.raises(DataError, match="x is not an array"):
        load(f"npz:{path}")


def small_npz():
    buffer = io.BytesIO()
    np.savez(buffer, x=IMAGES[:1, 0], y=LABELS[:1])
    return buffer.getvalue()


SMALL = small_npz()


@settings(max_examples=200, deadline=None)
@given(
    at=st.integers(0, len(SMALL) - 1),
    value=st.binary(min_size=1, max_size=4),
    keep=st.integers(0, 4 * len(SMALL)),
)
def test_damaged_files_are_read_or_refused(at, value, keep):
    damaged = (SMALL[:at] + value + SMALL[at + len(value) :])[:keep]
    try:
        read_arrays(io.BytesIO(damaged), "made", ("x", "y"))
    except SmoothmixError:
        return
