"""Files are replaced whole or not at all."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from smoothmix._io.files import atomic_write, replace_file


def test_writing_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    atomic_write(path, b"old")
    with pytest.raises(KeyboardInterrupt), replace_file(path) as temporary:
        raise KeyboardInterrupt(temporary.write_bytes(b"half of the n"))
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_content_is_on_the_disk_before_the_name_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, seen = tmp_path / "file", []
    monkeypatch.setattr(
        os, "fsync", lambda file: seen.append((stat.S_ISDIR(os.fstat(file).st_mode), path.exists()))
    )
    atomic_write(path, b"new")
    assert seen == [(False, False), (True, True)]


def test_a_file_is_replaced_through_a_link_and_others_may_read_it(tmp_path: Path) -> None:
    path, link = tmp_path / "file", tmp_path / "link"
    path.touch()
    link.symlink_to(path)
    atomic_write(link, b"new")
    assert (link.is_symlink(), path.read_bytes()) == (True, b"new")
    (tmp_path / "usual").touch()
    assert path.stat().st_mode == (tmp_path / "usual").stat().st_mode
