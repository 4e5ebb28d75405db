"""Image files of any size become images of one size, as a run has recorded it, in 8 bits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from smoothmix.data import (
    AUGMENTATION_NUMBERS,
    FolderDataset,
    Preparation,
    check,
    load,
    load_images,
)
from smoothmix.data.augment import crop_box
from smoothmix.data.photos import prepared
from smoothmix.errors import DataError, UsageError

SIZES = {"cat/a.png": (50, 40), "cat/b.png": (33, 90), "dog/a.png": (24, 24)}
"""Width and height of each file."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for seed, (file, (width, height)) in enumerate(SIZES.items()):
        path = tmp_path / "pets" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(path)
    return tmp_path / "pets"


def in_bytes(dataset: FolderDataset, index: int) -> np.ndarray:
    """The pixels [H, W, C] of one image."""
    return (dataset.images([index])[0] * 255).round().numpy().astype(np.uint8).transpose(1, 2, 0)


def read(folder: Path, preparation: Preparation | None) -> FolderDataset:
    dataset = load(f"folder:{folder}", preparation=preparation)
    assert isinstance(dataset, FolderDataset)
    return dataset


@pytest.mark.parametrize("channels", [1, 3])
def test_images_are_scaled_cropped_and_converted_in_bytes(folder: Path, channels: int) -> None:
    dataset = read(folder, Preparation(resize=32, crop=20, channels=channels))
    assert dataset.shape == (channels, 20, 20)
    assert dataset.levels == 255
    scaled = {"cat/a.png": (40, 32), "cat/b.png": (32, 87), "dog/a.png": (32, 32)}
    for index, (file, size) in enumerate(scaled.items()):
        with Image.open(folder / file) as image:
            converted = image.convert("L" if channels == 1 else "RGB")
        left, top = round((size[0] - 20) / 2), round((size[1] - 20) / 2)
        whole = np.asarray(converted.resize(size, Image.Resampling.BILINEAR))
        expected = whole[top : top + 20, left : left + 20].reshape(20, 20, channels)
        np.testing.assert_array_equal(in_bytes(dataset, index), expected)


def test_cropping_alone_leaves_pixels_as_they_are(folder: Path) -> None:
    dataset = read(folder, Preparation(crop=24))
    with Image.open(folder / "cat/a.png") as image:
        expected = np.asarray(image)[8:32, 13:37]
    np.testing.assert_array_equal(in_bytes(dataset, 0), expected)
    with Image.open(folder / "dog/a.png") as image:
        np.testing.assert_array_equal(in_bytes(dataset, 2), np.asarray(image))


def test_scaling_alone_keeps_the_ratio_of_the_sides(tmp_path: Path) -> None:
    for number, size in enumerate([(60, 40), (90, 60)]):
        path = tmp_path / str(number) / "a.png"
        path.parent.mkdir()
        Image.new("L", size, 10 * number).save(path)
    assert read(tmp_path, Preparation(resize=20)).shape == (1, 20, 30)


def test_the_note_says_what_certificates_are_about(folder: Path) -> None:
    note = read(folder, Preparation(resize=32, crop=20)).note
    assert note == (
        "images scaled to 32 pixels on the short side and cropped to the middle 20x20, in 8 bits: "
        "certificates are about the images so prepared"
    )


def test_other_preparations_of_the_same_files_are_other_data(folder: Path) -> None:
    ways = [
        Preparation(resize=32, crop=20),
        Preparation(resize=30, crop=20),
        Preparation(resize=32, crop=21),
        Preparation(resize=32, crop=20, channels=1),
        Preparation(crop=20),
    ]
    assert len({read(folder, way).fingerprint for way in ways}) == len(ways)
    assert read(folder, ways[0]).fingerprint == read(folder, ways[0]).fingerprint


def test_augmentation_crops_from_the_whole_file(folder: Path) -> None:
    # As ImageNet's: what the middle leaves out is seen in training.
    dataset = replace(read(folder, Preparation(resize=32, crop=20)), augmentation="resized-crop")
    numbers = np.random.default_rng(0).random((1, AUGMENTATION_NUMBERS))
    numbers[0, 0] = 0.9
    with Image.open(folder / "cat/b.png") as image:
        part = image.crop(crop_box(33, 90, numbers[0]))
        expected = np.asarray(part.resize((20, 20), Image.Resampling.BILINEAR))
    found = (dataset.training_images([1], numbers)[0] * 255).round().numpy().astype(np.uint8)
    np.testing.assert_array_equal(found.transpose(1, 2, 0), expected)


def test_images_of_several_sizes_are_refused_with_what_to_do(folder: Path) -> None:
    with pytest.raises(
        DataError, match=r"cat/a.png has 50x40 and cat/b.png has 33x90, .*--resize 32 --crop 32"
    ):
        read(folder, None)
    # The sides have other ratios.
    with pytest.raises(
        DataError, match=r"cat/a.png has 40x32 and cat/b.png has 32x87, .*as well: --crop 32"
    ):
        read(folder, Preparation(resize=32))
    with pytest.raises(DataError, match=r"have one size, .*--resize 32 --crop 32"):
        read(folder, Preparation(channels=1))


def test_a_folder_is_checked_as_a_run_would_prepare_it(folder: Path) -> None:
    assert not any(split.ok for split in check(f"folder:{folder}"))
    for split in check(f"folder:{folder}", preparation=Preparation(resize=32, crop=28)):
        assert split.ok, split.message
        assert "3 images 3x28x28" in split.message


def test_of_many_images_of_several_sizes_a_few_are_named(tmp_path: Path) -> None:
    for side in range(10, 20):
        path = tmp_path / "x" / f"{side}.png"
        path.parent.mkdir(exist_ok=True)
        Image.new("L", (side, side)).save(path)
    with pytest.raises(DataError, match=r"10\.png has 10x10 and .*/13\.png has 13x13 and 6 more: "):
        read(tmp_path, None)


def test_images_that_are_too_small_are_refused_all_at_once(folder: Path) -> None:
    with pytest.raises(
        DataError,
        match=r"2 of 3 images cannot be used: .*b\.png: 33x90 pixels .*a\.png: 24x24 pixels are "
        r"too few to crop 36x36 from them: .*--resize",
    ):
        read(folder, Preparation(crop=36))


def test_images_of_16_bits_are_cropped_but_not_computed_with(tmp_path: Path) -> None:
    path = tmp_path / "x" / "a.png"
    path.parent.mkdir()
    pixels = np.random.default_rng(0).integers(0, 65_536, (9, 9), dtype=np.uint16)
    Image.fromarray(pixels).save(path)
    dataset = read(tmp_path, Preparation(crop=5))
    found = (dataset.images([0])[0, 0].double() * 65_535).round().numpy()
    np.testing.assert_array_equal(found, pixels[2:7, 2:7])
    for way in (Preparation(resize=5), Preparation(channels=3)):
        with pytest.raises(DataError, match=r"16 bits can be cropped, but not .*: convert them"):
            read(tmp_path, way)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "needs resize, crop or channels"),
        ({"resize": 0}, "resize must be at least 1, got 0"),
        ({"crop": -1}, "crop must be at least 1, got -1"),
        ({"resize": 28, "crop": 32}, r"crop must be at most resize \(28\), got 32"),
        ({"channels": 2}, "channels must be 1 or 3, got 2"),
    ],
)
def test_a_preparation_that_makes_no_sense_is_refused(values: dict[str, int], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Preparation(**values)


def test_data_sets_of_one_size_are_not_resized() -> None:
    with pytest.raises(UsageError, match="sample has images of one size: only image files of your"):
        load("sample", preparation=Preparation(resize=20))


def test_photos_and_single_images_are_prepared_as_for_training(folder: Path) -> None:
    way = Preparation(resize=32, crop=20)
    trained = read(folder, way)
    photos = load_images([str(folder)], shape=(3, 20, 20), class_names="ab", preparation=way)
    assert photos.note is not None
    assert photos.note.startswith("scaled to 32 pixels on the short side and cropped")
    for index, file in enumerate(SIZES):
        expected = in_bytes(trained, index)
        np.testing.assert_array_equal(in_bytes(photos, index), expected)
        with Image.open(folder / file) as image:
            one, note = prepared(image, shape=(3, 20, 20), preparation=way)
        np.testing.assert_array_equal(np.asarray(one), expected)
        assert note == photos.note
    # Also an image that has the network's size already: training would have scaled it too.
    Image.new("RGB", (20, 20)).save(folder / "small.png")
    small = load_images(
        [str(folder / "small.png")], shape=(3, 20, 20), class_names="ab", preparation=way
    )
    assert (small.short_side, small.cropped) == (32, True)


def test_photos_that_are_too_small_are_refused(folder: Path) -> None:
    with pytest.raises(DataError, match=r"dog/a\.png: 24x24 pixels are too few"):
        load_images(
            [str(folder)], shape=(3, 30, 30), class_names="ab", preparation=Preparation(crop=30)
        )


def test_photos_of_another_ratio_than_the_training_are_cropped_and_the_note_says_so(
    tmp_path: Path,
) -> None:
    way = Preparation(resize=20)
    for name, size in (("same", (60, 40)), ("longer", (80, 40))):
        Image.new("L", size, 7).save(tmp_path / f"{name}.png")
        photos = load_images(
            [str(tmp_path / f"{name}.png")], shape=(1, 20, 30), class_names="ab", preparation=way
        )
        assert photos.images([0]).shape == (1, 1, 20, 30)
        assert photos.note is not None
        cropped = "cropped to the middle 30x20 after they were scaled to 20" in photos.note
        assert cropped == (name == "longer")


def test_channels_alone_leave_photos_to_the_size_of_the_network(folder: Path) -> None:
    way = Preparation(channels=1)
    photos = load_images([str(folder)], shape=(1, 20, 20), class_names="ab", preparation=way)
    assert (photos.short_side, photos.size, photos.channels) == (20, (20, 20), 1)
