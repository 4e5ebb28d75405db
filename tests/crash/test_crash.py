"""A sample of `make crash`: processes die at file operations, and the files are the same."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import islice
from pathlib import Path

from tests.conftest import ROOT
from tests.crash.points import Points
from tests.crash.run import Trial, sequence
from tests.crash.scenarios import SCENARIOS

SAMPLE = 22
"""As many as the weights of all scenarios sum up to."""


def run_python(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a process of its own: the program forks, which threads of other tests do not survive."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
        capture_output=True,
        text=True,
    )


def test_a_process_that_dies_anywhere_leaves_what_the_next_one_finishes() -> None:
    done = run_python("-m", "tests.crash.run", "--points", str(SAMPLE))
    assert done.returncode == 0, done.stderr[-2000:]
    assert f"{SAMPLE} trials in " in done.stdout
    assert f"(numbers 1 to {SAMPLE} of seed 0)" in done.stdout
    assert done.stdout.endswith(" 0 wrong\n")
    for name in SCENARIOS:
        assert name in done.stdout


def test_pieces_of_a_run_make_the_same_trials() -> None:
    trials = {}
    for name, scenario in SCENARIOS.items():
        trial = Trial.__new__(Trial)
        trial.name = name
        trial.scenario = scenario
        trial.operations = 5
        trials[name] = trial
    whole = list(islice(sequence(trials, 0), 200))
    assert whole[120:] == list(islice(sequence(trials, 0), 120, 200))
    for name in SCENARIOS:
        kills = [kills for each, kills in whole if each == name]
        assert sorted(kills[:5]) == [(1,), (2,), (3,), (4,), (5,)], "every operation once"
        assert {len(each) for each in kills[5:]} == {2, 3}
    assert whole != list(islice(sequence(trials, 1), 200))


BROKEN = """
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from smoothmix.certificates import settings
from tests.crash.run import Trial

def in_place(path, content):
    with Path(path).open("wb", buffering=0) as stream:
        stream.write(content)

settings.atomic_write = in_place
with TemporaryDirectory() as folder:
    trial = Trial("exact", Path(folder))
    print([bool(trial.problem([kill])) for kill in range(1, 8)])
"""


def test_settings_that_are_written_in_place_would_be_noticed() -> None:
    """A process that dies in the middle of such a write leaves settings that nobody can read."""
    broken = run_python("-c", BROKEN)
    found = broken.stdout.splitlines()[-1]
    assert "True" in found, broken.stderr


def test_every_operation_that_changes_files_is_counted(tmp_path: Path) -> None:
    points = Points(tmp_path, 0)
    # In a child, since audit hooks stay for the life of a process.
    report = tmp_path.parent / "report"
    child = os.fork()
    if child == 0:
        points.install()
        counts = []
        for change in (
            lambda: (tmp_path / "a").write_bytes(b"content"),
            lambda: (tmp_path / "a").rename(tmp_path / "b"),
            (tmp_path / "folder").mkdir,
            lambda: os.truncate(tmp_path / "b", 2),
            lambda: os.link(tmp_path / "b", tmp_path / "c"),
            (tmp_path / "b").unlink,
        ):
            before = points.count
            change()
            counts.append(points.count - before)
        report.write_text(repr(counts))
        os._exit(0)
    os.waitpid(child, 0)
    # Opening, and both halves of a write; everything else is one operation.
    assert report.read_text() == "[3, 1, 1, 1, 1, 1]"
