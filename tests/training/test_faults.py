"""What may happen to a training run, done for real: kills, signals, a second process, clocks."""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from smoothmix import presets
from smoothmix._process.signals import (
    REQUEUE_EXIT_CODE,
    Stopped,
    StopRequest,
    stop_on_interrupt,
    stop_on_sigterm,
)
from smoothmix.config import RunConfig
from smoothmix.runs.folder import RunFolder
from smoothmix.training import trainer as loop
from smoothmix.training.checkpoint import load_state
from smoothmix.training.run import open_run
from tests.conftest import Run, command
from tests.helpers.processes import (
    TRAIN,
    Jobs,
    free_port,
    jobs_in,
    tiny_run,
    train_here,
    until_saved,
    weights_in,
)


@pytest.fixture(scope="module")
def sample_run() -> RunConfig:
    """A run on the embedded sample that leaves time to be disturbed."""
    quick = presets.get("quick/gaussian").config
    return replace(quick, recipe=replace(quick.recipe, epochs=3, batch=500), preset="")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, sample_run: RunConfig) -> str:
    """The weights that two processes end with when nothing happens."""
    folder = tmp_path_factory.mktemp("undisturbed")
    sample_run.save(folder / "config.toml")
    with jobs_in(folder) as jobs:
        job = jobs.torchrun("--nproc-per-node 2", *TRAIN, "run")
        assert job.wait() == 0, job.output
    assert job.output.count("epoch 2 of 3:") == 1, "only rank 0 speaks"
    assert "2 processes share each batch of 500" in job.output
    assert "rank 1" not in job.output
    assert load_state(RunFolder(folder / "run").state).processes == 2
    return weights_in(folder / "run")


def test_a_killed_rank_is_restarted(
    tmp_path: Path, jobs: Jobs, sample_run: RunConfig, undisturbed: str
) -> None:
    """Rank 0 holds the lock, writes all files and speaks."""
    sample_run.save(tmp_path / "config.toml")
    job = jobs.torchrun("--nproc-per-node 2 --max-restarts 1", *TRAIN, "run")
    until_saved(tmp_path / "run")
    os.kill(jobs.rank(0), signal.SIGKILL)
    assert job.wait() == 0, job.output
    assert "resuming with epoch" in job.output
    assert weights_in(tmp_path / "run") == undisturbed


def test_two_nodes_train_and_survive_a_kill(
    tmp_path: Path, jobs: Jobs, sample_run: RunConfig, undisturbed: str
) -> None:
    """The restart counts of the two launchers then differ: only one has lost a process."""
    sample_run.save(tmp_path / "config.toml")
    endpoint = f"--rdzv-endpoint 127.0.0.1:{free_port()} --local-addr 127.0.0.1"
    common = f"--rdzv-backend c10d --rdzv-id test {endpoint}"
    options = f"--nnodes 2 --nproc-per-node 1 --max-restarts 1 {common}"
    nodes = [jobs.torchrun(f"{options} --node-rank {node}", *TRAIN, "run") for node in range(2)]
    until_saved(tmp_path / "run")
    os.kill(jobs.rank(1), signal.SIGKILL)
    assert [node.wait() for node in nodes] == [0, 0], "\n".join(node.output for node in nodes)
    assert "resuming with epoch" in nodes[0].output + nodes[1].output
    assert weights_in(tmp_path / "run") == undisturbed


def test_sigterm_stops_all_ranks_at_one_step(
    tmp_path: Path, jobs: Jobs, sample_run: RunConfig, undisturbed: str, smoothmix: Run
) -> None:
    """Also if only one is asked to, as in an evicted pod; without a launcher, as srun starts."""
    sample_run.save(tmp_path / "config.toml")
    ranks = jobs.ranks([list(command(*TRAIN, "run"))] * 2)
    until_saved(tmp_path / "run")
    ranks[1].process.terminate()
    assert [rank.wait() for rank in ranks] == [REQUEUE_EXIT_CODE, REQUEUE_EXIT_CODE]
    assert "stopped by SIGTERM in epoch" in ranks[0].output
    assert "is gone" not in ranks[0].output, "nobody was left waiting"
    assert "SIGTERM" not in ranks[1].output, "one speaks"
    state = load_state(RunFolder(tmp_path / "run").state)
    assert (state.processes, (state.epoch, state.step) > (0, 0)) == (2, True)
    again = smoothmix(*TRAIN, "run")
    assert again.code == 0, again.err
    assert f"resuming with epoch {state.epoch + 1}, after step {state.step}\n" in again.err
    assert "the number of processes is 1 now and was 2: sums may round differently" in again.err
    assert weights_in(tmp_path / "run") != undisturbed, "in the last digits"


def test_sigterm_is_answered_with_a_checkpoint_and_the_code_for_requeueing(
    tmp_path: Path, jobs: Jobs
) -> None:
    config = tiny_run(tmp_path, epochs=20)
    whole = train_here(config, tmp_path / "whole")
    job = jobs.smoothmix(*TRAIN, "run")
    until_saved(tmp_path / "run")
    job.process.terminate()
    assert job.wait() == REQUEUE_EXIT_CODE == 75
    assert "smoothmix: stopped by SIGTERM in epoch" in job.output
    assert "the checkpoint is saved; run the same command again to resume" in job.output
    state = load_state(RunFolder(tmp_path / "run").state)
    assert f"in epoch {state.epoch + 1} after step {state.step} of 5" in job.output
    assert train_here(config, tmp_path / "run") == whole


def test_ctrl_c_is_answered_with_a_checkpoint_too(tmp_path: Path, jobs: Jobs) -> None:
    config = tiny_run(tmp_path, epochs=20)
    job = jobs.smoothmix(*TRAIN, "run")
    until_saved(tmp_path / "run")
    job.process.send_signal(signal.SIGINT)
    assert job.wait() == 130
    assert "stopping after this step (Ctrl-C again: at once)" in job.output
    state = load_state(RunFolder(tmp_path / "run").state)
    assert (
        f"smoothmix: interrupted in epoch {state.epoch + 1} after step {state.step} of 5; "
        "the checkpoint" in job.output
    )
    assert train_here(config, tmp_path / "run") == train_here(config, tmp_path / "whole")


def test_a_second_ctrl_c_waits_for_nothing() -> None:
    stop = StopRequest()
    with stop_on_interrupt(stop, lambda: None):
        os.kill(os.getpid(), signal.SIGINT)
        assert (stop.requested, stop.by_keyboard) == (True, True)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_sigterm_to_those_who_read_pictures_too_is_answered_in_the_same_way(
    tmp_path: Path, jobs: Jobs
) -> None:
    """torchrun and Slurm send it to every process of a job."""
    config = tiny_run(tmp_path, epochs=20)
    job = jobs.smoothmix(*TRAIN, "run", "--workers", 2, before=os.setsid)
    until_saved(tmp_path / "run")
    os.killpg(job.process.pid, signal.SIGTERM)
    assert job.wait() == REQUEUE_EXIT_CODE, job.output
    assert train_here(config, tmp_path / "run") == train_here(config, tmp_path / "whole")


def test_sigterm_breaks_off_an_evaluation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tiny_run(tmp_path)
    whole = train_here(config, tmp_path / "whole")

    def endless(*args: object, **options: object) -> float:
        os.kill(os.getpid(), signal.SIGTERM)
        raise AssertionError("went on")

    with (
        monkeypatch.context() as patched,
        stop_on_sigterm() as stop,
        open_run(config, tmp_path / "run", stop=stop) as t,
    ):
        patched.setattr(loop, "noisy_accuracy", endless)
        with pytest.raises(Stopped, match="in epoch 1 after step 5 of 5"):
            t.run()
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert train_here(config, tmp_path / "run") == whole


DIES_EVALUATING = """
import os, signal, sys
from smoothmix.training import trainer
from smoothmix.cli import main
evaluate = trainer.noisy_accuracy
def die(*args, **options):
    if os.environ["RANK"] == "1":
        os.kill(os.getpid(), signal.SIGKILL)
    return evaluate(*args, **options)
trainer.noisy_accuracy = die
sys.exit(main(sys.argv[1:]))
"""


def test_a_rank_that_dies_in_an_evaluation_takes_no_step_with_it(
    tmp_path: Path, jobs: Jobs
) -> None:
    tiny_run(tmp_path)
    ranks = jobs.ranks([[sys.executable, "-c", DIES_EVALUATING, *TRAIN, "run"]] * 2)
    assert ranks[1].wait() == -signal.SIGKILL, ranks[1].output
    assert ranks[0].wait() != 0, ranks[0].output
    state = load_state(RunFolder(tmp_path / "run").state)
    assert (state.epoch, state.step) == (0, 5), "all steps of the first epoch"


def test_an_end_asked_for_before_the_first_step_is_an_end_after_it(tmp_path: Path) -> None:
    config, stop = tiny_run(tmp_path), StopRequest(requested=True)
    told = pytest.raises(Stopped, match="in epoch 1 after step 1 of 5")
    with open_run(config, tmp_path / "run", stop=stop) as trainer, told:
        trainer.run()
    assert load_state(RunFolder(tmp_path / "run").state).step == 1


def test_a_second_process_is_refused_while_the_first_lives(
    tmp_path: Path, jobs: Jobs, smoothmix: Run
) -> None:
    tiny_run(tmp_path, epochs=400)
    first = jobs.smoothmix(*TRAIN, "run")
    until_saved(tmp_path / "run")
    second = smoothmix(*TRAIN, "run")
    assert second.code == 2
    assert "run: another smoothmix process is writing it" in second.err
    first.process.kill()
    first.wait()
    assert (tmp_path / "run" / "train.lock").exists(), "what is left of the dead holds nobody up"
    with open_run(tiny_run(tmp_path, epochs=400), tmp_path / "run") as trainer:
        assert trainer.state.epoch >= 1


JUMPING = """
import itertools, time
true, jumps = time.time, itertools.cycle([0.0, 1e6, -1e6, 86400.0])
time.time = lambda: true() + next(jumps)
"""


def test_a_clock_that_jumps_changes_nothing(tmp_path: Path, jobs: Jobs) -> None:
    config = tiny_run(tmp_path)
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(JUMPING)
    job = jobs.smoothmix(
        *TRAIN, "run", "--checkpoint-minutes", 5, PYTHONPATH=str(tmp_path / "site")
    )
    assert job.wait() == 0, job.output
    assert weights_in(tmp_path / "run") == train_here(config, tmp_path / "still")
    for line in RunFolder(tmp_path / "run").metrics.read_text().splitlines():
        assert 0 < json.loads(line)["seconds"] < 60
