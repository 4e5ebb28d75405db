"""A large folder is hashed in full, once, and its files are not continued with other images."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from smoothmix import certificates
from smoothmix.certificates.partial import journal_path
from smoothmix.certificates.settings import differences
from smoothmix.data import content_hash as module
from smoothmix.data import image_files, load
from tests.helpers.certificates import our_file

FILES = [f"cat/{number}.bmp" for number in range(6)]


def put(folder: Path, changed: int = -1) -> None:
    """Images of one size in bytes, of which one may be another image."""
    (folder / "cat").mkdir(parents=True, exist_ok=True)
    for number, name in enumerate(FILES):
        grey = 200 if number == changed else number
        Image.fromarray(np.full((4, 4), grey, dtype=np.uint8)).save(folder / name)


@pytest.fixture
def sampled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Small limits instead of 256 MiB: every third file goes into the fingerprint."""
    monkeypatch.setattr(image_files, "HASH_ALL_BYTES", 100)
    monkeypatch.setattr(image_files, "HASH_SAMPLE_FILES", 2)
    monkeypatch.setattr(module, "_cache_folder", lambda: tmp_path / "cache")
    return tmp_path / "set"


def test_an_image_that_the_fingerprint_leaves_out_changes_the_content_hash(sampled: Path) -> None:
    put(sampled)
    before = load(f"folder:{sampled}", "test")
    first = (before.fingerprint, before.content_hash)
    put(sampled, changed=1)
    after = load(f"folder:{sampled}", "test")
    assert after.fingerprint == first[0], "this is why a second hash is needed"
    assert after.content_hash != first[1]
    assert len(first[1]) == 64


def test_a_small_folder_needs_none(tmp_path: Path) -> None:
    put(tmp_path / "set")
    assert load(f"folder:{tmp_path / 'set'}", "test").content_hash == ""
    assert load("sample", "test").content_hash == ""


def test_files_are_read_once_as_long_as_sizes_and_times_stay(
    sampled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(sampled)
    first = module.content_hash(sampled, FILES)
    opened = []
    plain = Path.open

    def counted(path: Path, *args: object, **more: object) -> object:
        if path.suffix == ".bmp":
            opened.append(path)
        return plain(path, *args, **more)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", counted)
    assert module.content_hash(sampled, FILES) == first
    assert not opened
    os.utime(sampled / FILES[2], ns=(0, 0))
    assert module.content_hash(sampled, FILES) == first
    assert len(opened) == len(FILES)


def test_a_cache_that_cannot_be_written_or_is_damaged_is_no_problem(
    sampled: Path, tmp_path: Path
) -> None:
    put(sampled)
    (tmp_path / "file").touch()
    expected = module.content_hash(sampled, FILES)
    assert module.content_hash(sampled, FILES, cache=tmp_path / "file") == expected
    (remembered,) = (tmp_path / "cache").iterdir()
    remembered.write_text(expected[:10])
    assert module.content_hash(sampled, FILES) == expected


def test_files_of_other_images_are_not_mixed_and_earlier_files_are_continued(
    tmp_path: Path,
) -> None:
    old = certificates.read(our_file(tmp_path / "c.tsv", [990])).settings
    assert old is not None
    one = replace(old, data_content_hash="1" * 64)
    two = replace(old, data_content_hash="2" * 64)
    assert differences(one, two) == [
        "data_content_hash is 111111111111... there and 222222222222... here"
    ]
    assert not differences(old, one)
    path = tmp_path / "c.tsv"
    assert journal_path(path, one) != journal_path(path, two)
