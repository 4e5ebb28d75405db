"""What training processes tell each other, foremost gradients in memory that they share."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from torch.distributed import HashStore

from smoothmix._process.signals import StopRequest
from smoothmix._process.world import World
from smoothmix.errors import SmoothmixError
from smoothmix.training import _shared_memory as exchange
from smoothmix.training import parallel as team
from smoothmix.training._shared_memory import shared_mean
from tests.conftest import ROOT, command
from tests.helpers.processes import Job, Jobs, tiny_run, until_saved, weights_in


def ranks(jobs: Jobs, case: str, world_size: int) -> list[Job]:
    script = [sys.executable, str(ROOT / "tests" / "helpers" / "shared_memory.py"), case]
    return jobs.ranks([script] * world_size, PYTHONPATH=str(ROOT))


@pytest.mark.skipif(
    sys.platform != "linux" or len(os.sched_getaffinity(0)) < 2, reason="takes two cores of a Linux"
)
def test_cores_are_counted_over_all_processes_also_where_each_is_bound_to_one() -> None:
    sleepers = [subprocess.Popen(["sleep", "60"]) for _ in range(3)]
    first, second, *_ = sorted(os.sched_getaffinity(0))
    try:
        for sleeper, core in zip(sleepers, (first, second, second), strict=True):
            os.sched_setaffinity(sleeper.pid, {core})
        assert exchange._cores(sleeper.pid for sleeper in sleepers) == 2
    finally:
        for sleeper in sleepers:
            sleeper.kill()
            sleeper.wait()


@pytest.mark.parametrize("world_size", [2, 5])
def test_every_process_has_the_mean(jobs: Jobs, world_size: int) -> None:
    """To the last bit, for every size, whoever is late; with five, torch's own mean would round by position."""
    for job in ranks(jobs, "equals_the_mean", world_size):
        assert job.wait() == 0, job.said


def test_a_killed_process_is_noticed(jobs: Jobs) -> None:
    *others, killed = ranks(jobs, "one_is_killed", 3)
    assert killed.wait() == -signal.SIGKILL
    for job in others:
        assert job.wait() == 0, job.said
        assert "it ended in the middle of a step" in job.said


def test_a_process_that_leaves_and_lives_on_is_noticed(jobs: Jobs) -> None:
    for rank, job in enumerate(ranks(jobs, "left_by_one", 3)):
        assert job.wait() == 0, job.said
        assert ("it left in the middle of a run" in job.said) == (rank != 1)


def test_batches_are_the_same_with_and_without_cores_to_spare(tmp_path: Path, jobs: Jobs) -> None:
    tiny_run(tmp_path)
    for job in ranks(jobs, "prepares_in_two_ways", 2):
        assert job.wait() == 0, job.said
    assert weights_in(tmp_path / "spare") == weights_in(tmp_path / "busy")


def test_processes_that_never_come_are_not_waited_for_without_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(team, "PATIENCE", timedelta(seconds=0.2))
    with pytest.raises(SmoothmixError, match=r"rank 1, 2 did not come within 0:00:00.2"):
        team.meet(HashStore(), World(0, 3), StopRequest())
    with pytest.raises(SmoothmixError, match="rank 0 did not come within"):
        team.meet(HashStore(), World(2, 3), StopRequest())


def test_training_says_that_another_process_is_gone(tmp_path: Path, jobs: Jobs) -> None:
    """Without a launcher that would end the others."""
    tiny_run(tmp_path, epochs=10_000)
    training = command("train", "--config", "config.toml", "--out", "run", "--device", "cpu")
    first, second = jobs.ranks([list(training)] * 2)
    until_saved(tmp_path / "run")
    second.process.kill()
    assert first.wait() == SmoothmixError.exit_code
    assert "smoothmix: another process of the run is gone (" in first.said
    assert "the same command goes on from the last checkpoint" in first.said


def test_processes_do_something_useful_while_they_wait(jobs: Jobs) -> None:
    for job in ranks(jobs, "busy_while_waiting", 3):
        assert job.wait() == 0, job.said


@pytest.mark.parametrize("case", ["one_cannot", "memory_of_another", "buffers_of_rank_0"])
def test_all_processes_follow_one(jobs: Jobs, case: str) -> None:
    """All do without shared memory where one cannot use it; all evaluate with the statistics of rank 0."""
    for job in ranks(jobs, case, 3):
        assert job.wait() == 0, job.said


def test_processes_on_several_machines_share_no_memory() -> None:
    with shared_mean(World(0, 4, 0, 2)) as mean:
        assert mean is None
