"""Locks: the same one through every link, and free as soon as its owner is gone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from smoothmix._io.locks import InUseError, exclusive, is_held, lock_path
from smoothmix.errors import UsageError

HOLD = """
import sys, time
from pathlib import Path
from smoothmix._io.locks import exclusive
with exclusive(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""

HOLD_WITH_CHILD = """
import os, sys, time
from pathlib import Path
from smoothmix._io.locks import exclusive
with exclusive(Path(sys.argv[1])):
    child = os.fork()
    if child == 0:
        time.sleep(600)
    print(child, flush=True)
    time.sleep(600)
"""


def start(script: str, output: Path) -> tuple[subprocess.Popen[str], str]:
    """A process that holds the lock of `output`, and its first line."""
    argv = [sys.executable, "-c", script, str(output)]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout:
        return process, process.stdout.readline().strip()


def by_folder_link(folder: Path) -> Path:
    (folder.parent / "folder-link").symlink_to(folder)
    return folder.parent / "folder-link" / "c.tsv"


def by_file_link(folder: Path) -> Path:
    (folder / "other.tsv").symlink_to("c.tsv")
    return folder / "other.tsv"


def by_file_link_from_another_folder(folder: Path) -> Path:
    (folder.parent / "elsewhere").mkdir()
    (folder.parent / "elsewhere" / "d.tsv").symlink_to(folder / "c.tsv")
    return folder.parent / "elsewhere" / "d.tsv"


def by_detour(folder: Path) -> Path:
    return folder / ".." / folder.name / "c.tsv"


@pytest.mark.parametrize(
    "other_way", [by_folder_link, by_file_link, by_file_link_from_another_folder, by_detour]
)
def test_every_path_to_an_output_has_the_same_lock(
    tmp_path: Path, other_way: Callable[[Path], Path]
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "c.tsv").touch()
    other = other_way(folder)
    with exclusive(folder / "c.tsv"):
        assert is_held(other)
        with pytest.raises(InUseError, match="another smoothmix process is writing it"):
            exclusive(other).__enter__()
    assert not is_held(other)
    with exclusive(other):
        assert is_held(folder / "c.tsv")


def test_an_output_and_its_settings_share_a_lock_and_neighbours_do_not(tmp_path: Path) -> None:
    assert lock_path(tmp_path / "c.tsv") == lock_path(tmp_path / "c.toml")
    with exclusive(tmp_path / "c.tsv"), exclusive(tmp_path / "d.tsv"):
        pass


def test_the_lock_stays_while_its_output_is_replaced(tmp_path: Path) -> None:
    output = tmp_path / "c.tsv"
    output.write_text("old")
    with exclusive(output):
        (tmp_path / "new").write_text("new")
        (tmp_path / "new").replace(output)
        with pytest.raises(InUseError):
            exclusive(output).__enter__()


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM, signal.SIGABRT])
def test_a_lock_ends_with_its_owner(tmp_path: Path, end: signal.Signals) -> None:
    output = tmp_path / "c.tsv"
    owner, line = start(HOLD, output)
    assert line == "held"
    assert is_held(output)
    owner.send_signal(end)
    owner.wait()
    assert lock_path(output).exists(), "a killed process leaves its lock file"
    assert not is_held(output)
    with exclusive(output):
        pass
    assert not lock_path(output).exists()


def test_a_child_that_outlives_the_owner_does_not_keep_the_lock(tmp_path: Path) -> None:
    """Processes that read images are forked while a run is locked, and may be orphaned."""
    owner, child = start(HOLD_WITH_CHILD, tmp_path / "c.tsv")
    try:
        assert is_held(tmp_path / "c.tsv")
        owner.kill()
        owner.wait()
        # The child closes its copy of the lock as soon as it runs.
        deadline = time.monotonic() + 30
        while is_held(tmp_path / "c.tsv") and time.monotonic() < deadline:
            time.sleep(0.01)
        os.kill(int(child), 0)  # still alive
        assert not is_held(tmp_path / "c.tsv")
    finally:
        os.kill(int(child), signal.SIGKILL)


def test_an_output_that_cannot_be_locked_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"c.tsv: cannot be written \(there is no folder"):
        exclusive(tmp_path / "nowhere" / "c.tsv").__enter__()
    assert not list(tmp_path.iterdir())


COUNT = """
import sys
from pathlib import Path
from smoothmix._io.locks import InUseError, exclusive
output = Path(sys.argv[1])
left = 150
while left:
    try:
        with exclusive(output):
            output.write_text(str(int(output.read_text()) + 1))
    except InUseError:
        continue
    left -= 1
"""


def test_no_two_processes_hold_a_lock_that_is_removed_and_made_again(tmp_path: Path) -> None:
    """Each one removes the lock file while the others are opening it."""
    output = tmp_path / "c.tsv"
    output.write_text("0")
    argv = [sys.executable, "-W", "error", "-c", COUNT, str(output)]
    processes = [subprocess.Popen(argv) for _ in range(4)]
    assert [process.wait(timeout=120) for process in processes] == [0] * 4
    assert output.read_text() == "600"
    assert not lock_path(output).exists()
