"""Image files as cameras and scanners write them: turned, of other formats, of 16 bits, damaged."""

from __future__ import annotations

import struct
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps

from smoothmix.data import MemoryDataset, check, image_files, load
from smoothmix.errors import DataError
from smoothmix.noise import GridNoise
from tests.conftest import Run

ORIENTATION = 0x0112


def noise(seed: int, shape: tuple[int, ...] = (6, 8, 3)) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def save(path: Path, array: NDArray[np.generic], **options: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(array).save(path, **options)


@pytest.mark.parametrize("suffix", ["jpg", "png", "webp", "tiff"])
@pytest.mark.parametrize("number", range(1, 9))
def test_images_are_turned_as_the_camera_was_held(tmp_path: Path, suffix: str, number: int) -> None:
    exif = Image.Exif()
    exif[ORIENTATION] = number
    path = tmp_path / "a" / f"0.{suffix}"
    save(path, noise(0), exif=exif)
    dataset = load(f"folder:{tmp_path}")
    with Image.open(path) as image:
        expected = np.asarray(ImageOps.exif_transpose(image).convert("RGB"))
    assert dataset.shape == (3, *expected.shape[:2])
    assert dataset.shape[1:] == ((8, 6) if number >= 5 else (6, 8))
    pixels = (dataset.images([0])[0] * 255).round().numpy().transpose(1, 2, 0)
    np.testing.assert_array_equal(pixels, expected)


def test_turned_images_have_another_fingerprint_than_in_earlier_versions(tmp_path: Path) -> None:
    """A file of certificates about images that were not turned must not be continued."""
    exif = Image.Exif()
    exif[ORIENTATION] = 3
    save(tmp_path / "a" / "0.jpg", noise(0), exif=exif)
    dataset = load(f"folder:{tmp_path}")
    assert dataset.fingerprint != replace(dataset, upright=False).fingerprint


@pytest.mark.parametrize(
    ("suffix", "options"),
    [
        ("tif", {}),
        ("tiff", {"compression": "tiff_lzw"}),
        ("tiff", {"compression": "tiff_deflate"}),
        ("webp", {"lossless": True}),
        ("TIF", {}),
    ],
)
def test_tiff_and_webp_are_read_exactly(
    tmp_path: Path, suffix: str, options: dict[str, object]
) -> None:
    save(tmp_path / "a" / f"0.{suffix}", noise(0), **options)
    pixels = load(f"folder:{tmp_path}").images([0])[0] * 255
    np.testing.assert_array_equal(pixels.round().numpy().transpose(1, 2, 0), noise(0))


@pytest.mark.parametrize("suffix", ["png", "tiff", "pgm"])
def test_grey_of_16_bits_stays_16_bits(tmp_path: Path, suffix: str) -> None:
    stored = np.random.default_rng(0).integers(0, 2**16, (6, 8), dtype=np.uint16)
    stored[0, :3] = (0, 1, 65535)
    save(tmp_path / "a" / f"0.{suffix}", stored)
    dataset = load(f"folder:{tmp_path}")
    assert (dataset.levels, dataset.shape) == (65535, (1, 6, 8))
    (image,) = dataset.images([0])
    assert image.dtype == torch.float32
    np.testing.assert_array_equal(GridNoise(65535).levels_of(image).reshape(6, 8), stored)
    assert all(found.ok for found in check(f"folder:{tmp_path}"))


def test_every_16_bit_value_of_an_array_lies_on_the_grid(tmp_path: Path) -> None:
    values = np.arange(2**16, dtype=">u2").reshape(1, 256, 256)
    np.savez(tmp_path / "x.npz", x=values, y=[0])
    dataset = load(f"npz:{tmp_path / 'x.npz'}")
    assert isinstance(dataset, MemoryDataset)
    assert dataset.levels == 65535
    levels = GridNoise(65535).levels_of(dataset.images([0])[0])
    np.testing.assert_array_equal(np.asarray(levels).ravel(), np.arange(2**16))


def test_16_bits_are_certified_by_their_own_grid(
    smoothmix: Run, untrained_run: str, tmp_path: Path
) -> None:
    for number in range(2):
        values = np.random.default_rng(number).integers(0, 2**16, (28, 28), dtype=np.uint16)
        save(tmp_path / "deep" / str(number) / "0.png", values)
    options = ("--data", "folder:deep", "--n0", 10, "--n", 50, "--out", "deep.tsv")
    done = smoothmix("certify", untrained_run, *options)
    assert done.code == 0, done.err
    assert "levels = 65535" in (tmp_path / "deep.toml").read_text()
    assert smoothmix("certificates", "verify", "deep.tsv").code == 0


def deep_colour_png() -> bytes:
    """A PNG of 16 bits per channel, which PIL can read but not write."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        check_sum = zlib.crc32(kind + content)
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", check_sum)

    header = struct.pack(">IIBBBBB", 8, 6, 16, 2, 0, 0, 0)
    rows = b"".join(b"\0" + bytes(8 * 3 * 2) for _ in range(6))
    pixels = chunk(b"IDAT", zlib.compress(rows))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + pixels + chunk(b"IEND", b"")


@pytest.mark.parametrize("suffix", ["png", "ppm"])
def test_colour_of_16_bits_is_refused_instead_of_halved(tmp_path: Path, suffix: str) -> None:
    (tmp_path / "a").mkdir()
    content = deep_colour_png()
    if suffix == "ppm":
        content = b"P6 8 6 65535\n" + bytes(6 * 8 * 3 * 2)
    (tmp_path / "a" / f"0.{suffix}").write_bytes(content)
    with pytest.raises(DataError, match=r"16 bits per channel.*uint16 arrays in an .npz file"):
        load(f"folder:{tmp_path}")


def test_all_bad_files_are_listed(tmp_path: Path) -> None:
    for number in range(6):
        save(tmp_path / "a" / f"{number}.png", noise(number))
    whole = (tmp_path / "a" / "2.png").read_bytes()
    # Headers that can be read, and pixels that cannot.
    for number in (2, 4):
        (tmp_path / "a" / f"{number}.png").write_bytes(whole[: len(whole) // 2])
    for found in check(f"folder:{tmp_path}"):
        assert not found.ok
        assert "2 of 6 images cannot be used" in found.message
        assert "2.png: damaged" in found.message
        assert "4.png: damaged" in found.message
    # No images at all.
    for number in (2, 4):
        (tmp_path / "a" / f"{number}.png").write_bytes(b"text")
    with pytest.raises(
        DataError, match=r"2 of 6 images cannot be used: .*2\.png: not a readable"
    ) as e:
        load(f"folder:{tmp_path}")
    assert "4.png: not a readable image" in str(e.value)
    # Images of other sizes.
    for number in (2, 4):
        save(tmp_path / "a" / f"{number}.png", noise(0, (5, number, 3)))
    with pytest.raises(DataError, match=r"a/0.png has 8x6 and a/2.png has 2x5, a/4.png has 4x5"):
        load(f"folder:{tmp_path}")


def test_a_bitmap_written_as_text_is_read(tmp_path: Path) -> None:
    """It has no largest value, which other images of its format have."""
    path = tmp_path / "a.ppm"
    path.write_bytes(b"P1\n4 2\n1 0 1 0 0 1 0 1\n")
    assert np.asarray(image_files.decode(path, 1)).tolist() == [[0, 255, 0, 255], [255, 0, 255, 0]]
