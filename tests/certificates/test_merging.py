"""`certificates merge` computes every row again before it goes into the merged file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from smoothmix import certificates
from smoothmix.certificates import settings_path
from smoothmix.errors import CertificateError
from tests.conftest import Run
from tests.helpers.certificates import our_file


def two_shards(folder: Path) -> list[Path]:
    """Images 0 and 2 in one file, image 1 in another."""
    paths = []
    whole = certificates.read(our_file(folder / "whole.tsv", [990, 700, 980]))
    for number in (1, 2):
        path = folder / f"part-{number}.tsv"
        lines = whole.path.read_text().splitlines(keepends=True)
        path.write_text(lines[0] + "".join(lines[1:][number - 1 :: 2]))
        settings = settings_path(whole.path).read_text()
        shard = f'images = 3\nshard = "{number}/2"'
        settings_path(path).write_text(settings.replace("images = 3", shard))
        paths.append(path)
    return paths


def test_right_shards_are_merged(tmp_path: Path, smoothmix: Run) -> None:
    parts = two_shards(tmp_path)
    assert smoothmix("certificates", "merge", *parts, "--out", "all.tsv").code == 0
    assert (tmp_path / "all.tsv").read_text() == (tmp_path / "whole.tsv").read_text()


def test_a_merge_that_was_killed_before_its_rows_is_repeated(
    tmp_path: Path, smoothmix: Run
) -> None:
    parts = two_shards(tmp_path)
    merge = ("certificates", "merge", *parts, "--out", "all.tsv")
    assert smoothmix(*merge).code == 0
    expected = (tmp_path / "all.tsv").read_text()
    assert "exists already" in smoothmix(*merge).err
    (tmp_path / "all.tsv").unlink()
    assert smoothmix(*merge).code == 0
    assert (tmp_path / "all.tsv").read_text() == expected
    # Settings of another file are not replaced.
    (tmp_path / "all.tsv").unlink()
    settings = tmp_path / "all.toml"
    settings.write_text(settings.read_text().replace("seed = 0", "seed = 1"))
    assert "all.toml: exists already" in smoothmix(*merge).err


@pytest.mark.parametrize(
    ("pattern", "new", "sentence"),
    [
        # A radius that its votes do not give, a vote too many, a class that nobody has.
        (r"\t1\t1\t0\.\d+\t", "\t1\t1\t9.900000\t", "says radius 9.9, but its votes give"),
        ("1:990", "1:991", "has 1001 votes, where it says n=1000"),
        ("1:990", "7:990", "has a class of 2 or more"),
    ],
)
def test_a_row_that_does_not_follow_from_its_votes_is_not_merged(
    tmp_path: Path, smoothmix: Run, pattern: str, new: str, sentence: str
) -> None:
    parts = two_shards(tmp_path)
    changed, count = re.subn(pattern, new, parts[0].read_text(), count=1)
    assert count == 1
    parts[0].write_text(changed)
    refused = smoothmix("certificates", "merge", *parts, "--out", "all.tsv")
    assert refused.code == 1
    assert "part-1.tsv: image 0: " in refused.err
    assert sentence in refused.err
    assert not (tmp_path / "all.tsv").exists()
    assert not (tmp_path / "all.toml").exists()
    with pytest.raises(CertificateError, match=sentence):
        certificates.merge([certificates.read(path) for path in parts])
