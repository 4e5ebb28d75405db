"""Temporary files: what killed writers left is removed by the next one, and nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from smoothmix._io.files import atomic_write, replace_file

WRITE = """
import sys, time
from pathlib import Path
from smoothmix._io.files import replace_file
with replace_file(Path(sys.argv[1])) as temporary:
    temporary.write_text("half")
    print("writing", flush=True)
    time.sleep(600)
"""


def hidden(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name.startswith("."))


def test_the_temporary_file_of_a_killed_writer_is_removed_by_the_next_one(tmp_path: Path) -> None:
    target = tmp_path / "c.toml"
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITE, str(target)], stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None
    with writer.stdout:
        writer.stdout.readline()
    left = hidden(tmp_path)
    assert len(left) == 1
    atomic_write(target, b"while it lives")
    assert hidden(tmp_path) == left, "it may still be writing"
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    atomic_write(target, b"after it died")
    assert hidden(tmp_path) == []


def test_files_that_are_not_surely_ours_stay(tmp_path: Path) -> None:
    others = [
        ".c.toml.tmp",
        ".c.toml.0123abcd",
        ".c.toml.0123abcg.tmp",
        ".c.toml.0123abcde.tmp",
        ".d.toml.0123abcd.tmp",
        "c.toml.0123abcd.tmp",
        ".c.toml.note.tmp",
    ]
    for name in others:
        (tmp_path / name).write_text("mine")
    (tmp_path / ".c.toml.00000000.tmp").symlink_to("others")
    (tmp_path / "others").write_text("mine")
    os.mkfifo(tmp_path / ".c.toml.11111111.tmp")
    atomic_write(tmp_path / "c.toml", b"new")
    for name in [*others, "others"]:
        assert (tmp_path / name).read_text() == "mine"


def test_two_writers_of_one_file_do_not_disturb_each_other(tmp_path: Path) -> None:
    target = tmp_path / "c.toml"
    with replace_file(target) as first, replace_file(target) as second:
        first.write_text("first")
        second.write_text("second")
    assert target.read_text() == "first"
    assert hidden(tmp_path) == []
