"""Damaged files: every reader returns a value or raises an error of ours. See `make fuzz`."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from smoothmix import certificates, data
from smoothmix.errors import DataError, SmoothmixError
from tests.fuzz import run as fuzz_run
from tests.helpers.fuzz_mutations import DAMAGES, mutate
from tests.helpers.fuzz_targets import TARGETS, Target, check

INPUTS = 200


@pytest.fixture(scope="module", params=TARGETS)
def case(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Target, Path]:
    """A reader, and a folder with what it needs beside the file."""
    target, folder = TARGETS[request.param], tmp_path_factory.mktemp("fuzz")
    target.beside(folder / target.file)
    return target, folder


def test_what_is_damaged_was_whole(case: tuple[Target, Path]) -> None:
    target, folder = case
    assert check(target, target.wrap(target.seeds()[0]), folder) == "read"


OPEN_NO_FILE = ("cifar-batch", "npz", "served-image", "log-archive")
"""Readers that get bytes or an open file from their target, and the one that leaves pipes out."""


@pytest.mark.parametrize("name", [name for name in TARGETS if name not in OPEN_NO_FILE])
def test_a_named_pipe_is_refused_at_once(name: str, tmp_path: Path) -> None:
    """Opening one waits for its other end: a folder from somebody else may hold one."""
    target = TARGETS[name]
    target.beside(tmp_path / target.file)
    os.mkfifo(tmp_path / target.file)
    with time_limit_by_the_clock(2), pytest.raises(SmoothmixError):
        target.read(tmp_path / target.file)


def test_a_named_pipe_of_arrays_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.npz")
    with time_limit_by_the_clock(2), pytest.raises(DataError, match="it is a pipe"):
        data.load(f"npz:{tmp_path / 'a.npz'}")


@pytest.mark.skipif(not Path("/dev/fd").is_dir(), reason="there are no such names")
def test_a_pipe_that_a_shell_makes_is_read() -> None:
    ours, theirs = os.pipe()
    os.write(theirs, TARGETS["log"].seeds()[0])
    os.close(theirs)
    try:
        assert len(certificates.read(Path(f"/dev/fd/{ours}")).rows) == 3
    finally:
        os.close(ours)


class WaitedTooLongError(BaseException):
    """No reader takes this one for an error of its file, as it may take a TimeoutError."""


@contextmanager
def time_limit_by_the_clock(seconds: float) -> Iterator[None]:
    """Raise in work that waits."""

    def stop(*_: object) -> None:
        raise WaitedTooLongError(f"more than {seconds} seconds")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# Each example is a stream of choices, so that a failure shrinks to the few damages that matter.
@settings(max_examples=INPUTS, deadline=None, suppress_health_check=list(HealthCheck))
@given(random=st.randoms(use_true_random=False))
def test_only_our_errors_come_out(case: tuple[Target, Path], random: Random) -> None:
    target, folder = case
    check(target, target.inputs(random), folder)


def test_the_same_seed_gives_the_same_inputs_and_every_damage_does_something() -> None:
    content = b'{"a": [1, 2.5], "b": "text"}\tand\nmore\n' * 3
    assert mutate(content, [content], Random(7)) == mutate(content, [content], Random(7))
    for damage in DAMAGES:
        assert any(damage(content, [content], Random(seed)) != content for seed in range(5)), damage
        assert isinstance(damage(b"", [b""], Random(0)), bytes)


def test_a_failure_is_counted_saved_and_fed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def reader(path: Path) -> None:
        if path.read_bytes() != b"12":
            raise KeyError("not ours")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(TARGETS, "made", Target("file", lambda: [b"12"], reader))
    monkeypatch.setattr("sys.argv", ["fuzz", "--inputs", "20", "made"])
    assert fuzz_run.main() == 1
    shown = capsys.readouterr()
    assert "KeyError: 'not ours'" in shown.err
    assert "20 inputs" in shown.out
    saved = sorted((tmp_path / ".fuzz").iterdir())
    assert f"--replay .fuzz/{saved[0].name[:5]}" in shown.err
    monkeypatch.setattr("sys.argv", ["fuzz", "--replay", str(saved[0]), "made"])
    with pytest.raises(KeyError):
        fuzz_run.main()


def test_pieces_of_a_run_feed_the_same_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    fed: list[bytes] = []

    def reader(path: Path) -> None:
        fed.append(path.read_bytes())

    monkeypatch.setitem(TARGETS, "made", Target("file", lambda: [b"12 and 13"], reader))
    for arguments in (
        ["--inputs", "30"],
        ["--inputs", "10"],
        ["--first", "11", "--inputs", "20"],
    ):
        monkeypatch.setattr("sys.argv", ["fuzz", *arguments, "made"])
        assert fuzz_run.main() == 0
    assert fed[:30] == fed[30:]
    assert len(set(fed)) > 20
