"""Processes that train together: they start, exchange buffers and notice a lost one."""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path

import pytest
from torch.distributed import HashStore

from smoothmix._process.signals import StopRequest
from smoothmix._process.world import World
from smoothmix.errors import SmoothmixError
from smoothmix.training import parallel
from tests.conftest import ROOT, command
from tests.helpers.processes import TRAIN, Jobs, tiny_run, until_saved, weights_in


def test_processes_that_never_come_are_not_waited_for_without_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(parallel, "PATIENCE", timedelta(seconds=0.2))
    with pytest.raises(SmoothmixError, match=r"rank 1, 2 did not start within 0:00:00.2"):
        parallel.meet(HashStore(), World(0, 3), StopRequest())
    with pytest.raises(SmoothmixError, match="rank 0 did not start within"):
        parallel.meet(HashStore(), World(2, 3), StopRequest())


def test_training_says_that_another_process_is_gone(tmp_path: Path, jobs: Jobs) -> None:
    """Without a launcher that would end the others."""
    tiny_run(tmp_path, epochs=10_000)
    training = command("train", "--config", "config.toml", "--out", "run", "--device", "cpu")
    first, second = jobs.ranks([list(training)] * 2)
    until_saved(tmp_path / "run")
    second.process.kill()
    assert first.wait() == SmoothmixError.exit_code
    assert "smoothmix: another process of the run is gone (" in first.output
    assert "run the same command again to resume from the last checkpoint" in first.output


@pytest.mark.parametrize("case", ["means_in_rank_order", "buffers_of_rank_0"])
def test_all_processes_get_the_same_numbers(jobs: Jobs, case: str) -> None:
    """Gradients to the last bit, for every size; BatchNorm statistics are those of rank 0."""
    script = [sys.executable, str(ROOT / "tests" / "helpers" / "exchanges.py"), case]
    for job in jobs.ranks([script] * 5, PYTHONPATH=str(ROOT)):
        assert job.wait() == 0, job.output


def test_three_processes_that_were_stopped_end_with_the_same_weights(
    tmp_path: Path, jobs: Jobs
) -> None:
    tiny_run(tmp_path, epochs=6)
    whole = jobs.torchrun("--standalone --nproc-per-node 3", *TRAIN, "whole")
    assert whole.wait() == 0, whole.output
    options = ("--checkpoint-minutes", "1e-9")
    stopped = jobs.torchrun("--standalone --nproc-per-node 3", *TRAIN, "stopped", *options)
    until_saved(tmp_path / "stopped")
    stopped.process.terminate()
    assert stopped.wait() != 0, "it was really stopped"
    again = jobs.torchrun("--standalone --nproc-per-node 3", *TRAIN, "stopped")
    assert again.wait() == 0, again.output
    assert weights_in(tmp_path / "stopped") == weights_in(tmp_path / "whole")
