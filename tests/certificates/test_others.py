"""Files of others beside or in place of ours are refused before anything in them changes."""

from __future__ import annotations

import errno
import fcntl
from pathlib import Path

import pytest

from smoothmix import certificates
from smoothmix._io.locks import exclusive, is_held
from smoothmix.certificates import read, writing
from smoothmix.certificates.file import header_of
from smoothmix.certificates.shards import split_run
from smoothmix.errors import SmoothmixError, UsageError
from tests.conftest import Run
from tests.helpers.certification import run_settings

SETTINGS = run_settings(maximum=3)
HEADER = header_of(SETTINGS.columns)


@pytest.mark.parametrize(
    "theirs",
    [
        "idx\tlabel\tpredict\tradius\tcorrect\ttime\n0\t7\t7\t0.5\t1\t0:00:01",
        "name\tvalue\nthis\t1\nlast line without an end",
        "one line without an end",
        "idx of something else",
    ],
    ids=["a log of the field", "a table", "a line", "a line like ours"],
)
def test_a_file_that_is_not_ours_is_not_touched(tmp_path: Path, theirs: str) -> None:
    path = tmp_path / "mydata.tsv"
    path.write_text(theirs)
    with pytest.raises(SmoothmixError, match=r"mydata\.tsv"), writing(path, SETTINGS):
        pass
    assert path.read_text() == theirs
    assert [file.name for file in tmp_path.iterdir()] == ["mydata.tsv"]


@pytest.mark.parametrize("left", ["", HEADER[:7], HEADER, HEADER + "0\t7\t7\t0.3"])
def test_what_a_killed_run_has_left_is_resumed(tmp_path: Path, left: str) -> None:
    path = tmp_path / "c.tsv"
    with writing(path, SETTINGS):
        pass
    path.write_text(left)
    with writing(path, SETTINGS) as writer:
        assert writer.remaining == list(SETTINGS.indices)
    assert path.read_text() in ("", HEADER)


def test_settings_of_something_else_are_not_overwritten(tmp_path: Path, smoothmix: Run) -> None:
    theirs = tmp_path / "exp1.toml"
    theirs.write_text('data = "mnist"\n')
    own = tmp_path / "c.tsv"
    with writing(own, SETTINGS):
        own.write_text(HEADER)
    for write in (
        lambda: writing(tmp_path / "exp1.tsv", SETTINGS).__enter__(),
        lambda: certificates.save(read(own), tmp_path / "exp1.tsv"),
        lambda: split_run(tmp_path / "exp1.tsv", SETTINGS, requested=2, default=2),
    ):
        with pytest.raises(
            UsageError, match=r"exp1\.toml, which exists and is something else or damaged"
        ):
            write()
    refused = smoothmix("certificates", "recompute", "c.tsv", "--alpha", 0.01, "--out", "exp1.tsv")
    assert (refused.code, "exp1.toml: exists already; choose another --out" in refused.err) == (
        2,
        True,
    )
    assert theirs.read_text() == 'data = "mnist"\n'


def test_a_lock_file_of_something_else_stays(tmp_path: Path) -> None:
    theirs = tmp_path / "poetry.lock"
    theirs.write_text("packages")
    with exclusive(tmp_path / "poetry.tsv"):
        pass
    assert theirs.read_text() == "packages"


def test_a_file_system_without_locks_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with (
        pytest.warns(
            UserWarning, match=r"c.tsv: its file system has no locks \(Function not implemented\)"
        ),
        exclusive(tmp_path / "c.tsv"),
    ):
        assert not is_held(tmp_path / "c.tsv")
    assert not list(tmp_path.iterdir())
