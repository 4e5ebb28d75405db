"""Augmentation against loops too plain to be wrong."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smoothmix.data import AUGMENTATION_NUMBERS, MemoryDataset
from smoothmix.data.augment import choose, crop_box, flip_shift
from smoothmix.errors import UsageError


def uniforms(count, seed=0):
    return np.random.default_rng(seed).random((count, AUGMENTATION_NUMBERS))


def random_images(count, channels=3, height=6, width=5):
    return np.random.default_rng(1).integers(
        1, 256, (count, channels, height, width), dtype=np.uint8
    )


def slow_flip_shift(images, numbers):
    batch, channels, height, width = images.shape
    result = np.zeros_like(images)
    for b in range(batch):
        down, right = math.floor(numbers[b, 1] * 9) - 4, math.floor(numbers[b, 2] * 9) - 4
        for c in range(channels):
            for row in range(height):
                for column in range(width):
                    target = width - 1 - column if numbers[b, 0] < 0.5 else column
                    if 0 <= row + down < height and 0 <= column + right < width:
                        result[b, c, row, target] = images[b, c, row + down, column + right]
    return result


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_flip_shift_is_the_slow_loop(dtype):
    images, numbers = random_images(64).astype(dtype), uniforms(64)
    before = images.copy()
    result = flip_shift(images, numbers)
    assert result.dtype == dtype
    np.testing.assert_array_equal(result, slow_flip_shift(images, numbers))
    np.testing.assert_array_equal(images, before)


def test_every_shift_and_both_flips_are_equally_likely():
    marker = np.zeros((40_000, 1, 9, 9), dtype=np.uint8)
    marker[:, :, 4, 4] = 1
    numbers = uniforms(len(marker))
    shifted = flip_shift(marker, numbers)
    where = np.bincount(shifted.reshape(len(marker), 81).argmax(1), minlength=81)
    assert shifted.sum() == len(marker)
    assert (np.abs(where - len(marker) / 81) < 5 * math.sqrt(len(marker) / 81)).all()
    assert abs((numbers[:, 0] < 0.5).mean() - 0.5) < 0.01


def test_a_number_next_to_one_still_chooses_the_last():
    for dtype in (np.float32, np.float64):
        almost = np.nextafter(np.ones(1, dtype), np.zeros(1, dtype))
        assert all(choose(almost, n)[0] == n - 1 for n in (1, 2, 3, 9, 225, 2**20 + 1))


def slow_crop(width, height, row):
    """By the definition: an area within (0.08, 1), a ratio within (3/4, 4/3), ten tries."""
    for attempt in range(10):
        area = (0.08 + 0.92 * row[3 + 2 * attempt]) * width * height
        ratio = (3 / 4) * (16 / 9) ** row[4 + 2 * attempt]
        across, down = round((area * ratio) ** 0.5), round((area / ratio) ** 0.5)
        if across <= width and down <= height:
            return across, down
    return None


@settings(max_examples=200, deadline=None)
@given(width=st.integers(1, 900), height=st.integers(1, 900), seed=st.integers(0, 2**32))
def test_crop_lies_inside_the_image_and_has_the_size_defined(width, height, seed):
    row = uniforms(1, seed)[0]
    left, top, right, bottom = crop_box(width, height, row)
    assert 0 <= left < right <= width
    assert 0 <= top < bottom <= height
    if min(width, height) >= 20 and (expected := slow_crop(width, height, row)):
        assert (right - left, bottom - top) == expected
        assert left == math.floor(row[2] * (width - expected[0] + 1))
        assert top == math.floor(row[1] * (height - expected[1] + 1))


def test_a_image_into_which_no_crop_fits_is_cropped_in_the_middle():
    row = np.full(AUGMENTATION_NUMBERS, 0.999)
    assert crop_box(1000, 30, row) == (480, 0, 520, 30)
    assert crop_box(30, 1000, np.where(np.arange(AUGMENTATION_NUMBERS) % 2, 0.999, 0.0)) == (
        0,
        480,
        30,
        520,
    )


def memory(augmentation, pixels):
    return MemoryDataset(
        name="made",
        split="train",
        class_names=("a",),
        labels=np.zeros(len(pixels), np.int64),
        pixels=pixels,
        augmentation=augmentation,
    )


def test_training_images_are_a_function_of_their_numbers_alone():
    images = random_images(20)
    dataset, numbers = memory("flip-shift", images), uniforms(20)
    whole = dataset.training_images(range(20), numbers)
    parts = [dataset.training_images([i], numbers[i : i + 1]) for i in range(20)]
    assert all((whole[i] == parts[i][0]).all() for i in range(20))
    np.testing.assert_allclose(whole.numpy() * 255, flip_shift(images, numbers), atol=1e-4)


def test_without_augmentation_training_images_are_the_images():
    dataset = memory("none", random_images(5))
    assert (dataset.training_images([3, 1], uniforms(2)) == dataset.images([3, 1])).all()


@pytest.mark.parametrize("wrong", [np.zeros((2, 3)), np.zeros((1, AUGMENTATION_NUMBERS))])
def test_numbers_of_the_wrong_shape_are_refused(wrong):
    with pytest.raises(ValueError, match="must have the shape"):
        memory("flip-shift", random_images(5)).training_images([0, 1], wrong)


def test_numbers_outside_the_unit_interval_are_refused():
    with pytest.raises(ValueError, match="must lie in"):
        memory("flip-shift", random_images(5)).training_images(
            [0], np.ones((1, AUGMENTATION_NUMBERS))
        )


def test_unknown_augmentation_is_refused():
    with pytest.raises(UsageError, match="not 'rotate'"):
        memory("rotate", random_images(5))
