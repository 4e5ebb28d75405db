"""Real faults of the files of a training run: full disks, damage, folders without access."""

from __future__ import annotations

import ctypes
import resource
import shutil
from pathlib import Path

import pytest

from smoothmix._process.signals import Stopped, StopRequest
from smoothmix.config import RunConfig
from smoothmix.errors import CheckpointError, SmoothmixError
from smoothmix.runs.folder import RunFolder
from smoothmix.training.checkpoint import load_state
from smoothmix.training.metrics import EpochMetrics, Listeners, append_line
from smoothmix.training.run import open_run
from tests.conftest import Run
from tests.helpers.processes import TRAIN, Jobs, tiny_run, train_here


def stopped_run(config: RunConfig, folder: Path) -> RunFolder:
    """A run that was stopped with two checkpoints on disk."""
    stop = StopRequest()
    listeners = Listeners(on_epoch=lambda metrics: stop.stop())
    with (
        open_run(config, folder, stop=stop, listeners=listeners) as trainer,
        pytest.raises(Stopped),
    ):
        trainer.run()
    return RunFolder(folder)


def test_a_full_disk_leaves_the_checkpoint_before(tmp_path: Path, jobs: Jobs) -> None:
    config = tiny_run(tmp_path)
    whole = train_here(config, tmp_path / "whole")
    folder = stopped_run(config, tmp_path / "run")
    before, files = folder.state.read_bytes(), sorted(folder.state.parent.iterdir())

    def full() -> None:  # no file may grow beyond a megabyte, and a state has more
        resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, 2**20))

    job = jobs.smoothmix(*TRAIN, "run", before=full)
    assert job.wait() == 1, job.output
    assert "state.pt: the checkpoint could not be written (" in job.output
    assert "the one before is untouched" in job.output
    assert folder.state.read_bytes() == before
    assert sorted(folder.state.parent.iterdir()) == files, "no half file is left"
    assert train_here(config, tmp_path / "run") == whole


def test_a_full_disk_is_said_with_the_file_that_did_not_fit(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").symlink_to("/dev/full")
    metrics = EpochMetrics(
        epoch=1,
        loss=0.1,
        parts={},
        accuracy=0.5,
        learning_rate=0.1,
        images_per_second=1.0,
        seconds=1.0,
    )
    with pytest.raises(OSError, match=r"No space left on device: '.*metrics.jsonl'"):
        append_line(tmp_path / "metrics.jsonl", metrics)


def test_what_a_killed_writer_has_left_is_removed_by_the_next_start(
    tmp_path: Path, jobs: Jobs
) -> None:
    tiny_run(tmp_path, epochs=3)
    checkpoints = tmp_path / "run" / "checkpoint"
    checkpoints.mkdir(parents=True)
    (checkpoints / ".state.pt.0123abcd.tmp").write_bytes(b"half a state")
    assert jobs.smoothmix(*TRAIN, "run").wait() == 0
    assert sorted(path.name for path in checkpoints.iterdir()) == [
        "state-previous.pt",
        "state.pt",
        "weights.safetensors",
    ]


@pytest.mark.parametrize("made_again", [False, True])
def test_a_run_whose_folder_is_deleted_is_saved_elsewhere(tmp_path: Path, made_again: bool) -> None:
    config = tiny_run(tmp_path)
    whole = train_here(config, tmp_path / "whole")
    folder = tmp_path / "run"

    def delete(metrics: EpochMetrics) -> None:
        if metrics.epoch == 1:
            shutil.rmtree(folder)
            if made_again:
                folder.mkdir()

    with (
        open_run(config, folder, listeners=Listeners(on_epoch=delete)) as trainer,
        pytest.raises(SmoothmixError, match="was deleted or replaced while") as caught,
    ):
        trainer.run()
    rescued = tmp_path / "run-rescued-1"
    assert f"saved in {rescued}: run the same command with --out {rescued}" in str(caught.value)
    assert load_state(RunFolder(rescued).state).epoch == 2
    assert train_here(config, rescued) == whole
    assert not list(folder.rglob("*")), "nothing is written into what somebody else made"


def flip(path: Path, where: float) -> None:
    """Change one bit of a file."""
    content = bytearray(path.read_bytes())
    content[int(where * len(content))] ^= 16
    path.unlink()  # another name of the file keeps what it has
    path.write_bytes(content)


@pytest.mark.parametrize("harm", ["flipped", "cut", "empty"])
def test_a_damaged_checkpoint_gives_way_to_the_one_before(tmp_path: Path, harm: str) -> None:
    config = tiny_run(tmp_path)
    whole = train_here(config, tmp_path / "whole")
    folder = stopped_run(config, tmp_path / "run")
    before = load_state(folder.previous_state)
    assert (before.epoch, before.step) == (1, 0)
    assert (load_state(folder.state).epoch, load_state(folder.state).step) == (1, 1)
    if harm == "flipped":
        flip(folder.state, 0.5)
        with pytest.raises(
            CheckpointError, match=r"state.pt: cannot be read .*part .* does not have the checksum"
        ):
            load_state(folder.state)
    else:
        content = folder.state.read_bytes()
        folder.state.unlink()
        folder.state.write_bytes(content[: len(content) // 2] if harm == "cut" else b"")
    with pytest.warns(
        UserWarning,
        match="set aside as state-damaged.pt, and training resumes from the checkpoint before",
    ):
        assert train_here(config, tmp_path / "run") == whole
    assert folder.damaged_state.exists()


def test_two_damaged_checkpoints_are_refused(tmp_path: Path, smoothmix: Run) -> None:
    folder = stopped_run(tiny_run(tmp_path), tmp_path / "run")
    flip(folder.state, 0.5)
    flip(folder.previous_state, 0.5)
    refused = smoothmix(*TRAIN, "run")
    assert refused.code == 1
    assert "state.pt: cannot be read as a checkpoint (its part data/" in refused.err
    assert folder.state.exists()
    assert folder.previous_state.exists()


def test_a_state_that_is_deleted_begins_the_run_anew(tmp_path: Path) -> None:
    config = tiny_run(tmp_path)
    folder = stopped_run(config, tmp_path / "run")
    folder.state.unlink()
    with open_run(config, tmp_path / "run") as trainer:
        assert trainer.state.epoch == 0
    assert not folder.previous_state.exists()


def test_damaged_weights_and_settings_are_refused_with_what_is_wrong(
    tmp_path: Path, smoothmix: Run
) -> None:
    folder = RunFolder(tmp_path / "run")
    train_here(tiny_run(tmp_path, epochs=1), folder.path)
    weights, settings = folder.weights.read_bytes(), folder.config.read_text()
    for content in (weights[: len(weights) // 2], b"", b"\xff" * 64):
        folder.weights.write_bytes(content)
        refused = smoothmix("certify", "run", "--n0", 5, "--n", 20, "--max", 1)
        assert refused.code == 1
        assert "weights.safetensors is damaged, cut short or no safetensors file" in refused.err
    folder.weights.write_bytes(weights)
    for content, wrong in (
        (settings[: len(settings) // 2], "config.toml"),
        ("epochs = 3", "unknown"),
        ("\0", "TOML"),
    ):
        folder.config.write_text(content)
        for arguments in ((*TRAIN, "run"), ("certify", "run")):
            refused = smoothmix(*arguments)
            assert refused.code != 0
            assert "config.toml" in refused.err
            assert wrong in refused.err, refused.err


def test_a_folder_that_cannot_be_written_is_refused(
    tmp_path: Path, jobs: Jobs, smoothmix: Run
) -> None:
    tiny_run(tmp_path)
    (tmp_path / "run").mkdir(mode=0o555)

    def obey() -> None:
        """Root may write anywhere until it drops CAP_DAC_OVERRIDE (PR_CAPBSET_DROP)."""
        ctypes.CDLL(None).prctl(24, 1, 0, 0, 0)

    job = jobs.smoothmix(*TRAIN, "run", before=obey)
    assert job.wait() == 2, job.output
    assert job.output == "smoothmix: run: cannot be written (Permission denied)\n"
    (tmp_path / "file").write_text("not a folder")
    refused = smoothmix(*TRAIN, "file/run")
    assert refused.code == 1
    assert refused.err == "smoothmix: file/run: Not a directory\n"
