"""The training loop: addressed steps, exact resumption after real kills, and refusals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from smoothmix import data, methods, presets
from smoothmix._process.world import World
from smoothmix.certify.smoothed import Smoothed
from smoothmix.config import RunConfig
from smoothmix.errors import CheckpointError, UsageError
from smoothmix.networks import noisy
from smoothmix.networks.noisy import noisy_accuracy
from smoothmix.networks.weights import state_hash
from smoothmix.noise.streams import Domain, DrawRange, standard_normal
from smoothmix.runs.folder import RunFolder
from smoothmix.runs.load import build_network, load_run
from smoothmix.runs.options import TrainingOptions
from smoothmix.runs.schedule import extend_epochs
from smoothmix.training.checkpoint import State, load_state
from smoothmix.training.metrics import EpochMetrics, Listeners
from smoothmix.training.run import open_run
from smoothmix.training.trainer import Trainer
from tests.conftest import Run, command
from tests.helpers.methods import CLASSIFYING

QUICK = presets.get("quick/gaussian").config


@pytest.fixture
def tiny(tmp_path: Path) -> RunConfig:
    """A run on 160 images of the sample."""
    sample = data.load("sample", "train")
    x, y = (sample.images(range(160)).numpy() * 255).round().astype(np.uint8), sample.labels[:160]
    np.savez(tmp_path / "tiny.npz", x=x, y=y)
    recipe = replace(QUICK.recipe, epochs=3, batch=32)
    return replace(QUICK, data=f"npz:{tmp_path / 'tiny.npz'}", recipe=recipe, preset="")


def train(
    config: RunConfig,
    folder: Path,
    *,
    checkpoint_minutes: float | None = None,
    listeners: Listeners | None = None,
) -> str:
    """Train to the end; the hash of the weights."""
    execution = TrainingOptions(checkpoint_minutes=checkpoint_minutes)
    with open_run(config, folder, execution, listeners=listeners) as trainer:
        trainer.run()
    return state_hash(load_run(folder)[1])


def metrics_of(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


class Stop(Exception):  # noqa: N818 - nothing went wrong
    """Raised in the middle of training, where a process might die."""


def stop_at(epoch: int, step: int) -> Listeners:
    def on_step(progress: object) -> None:
        if (progress.epoch, progress.step) == (epoch, step):  # type: ignore[attr-defined]
            raise Stop

    return Listeners(on_step=on_step)


@pytest.mark.parametrize("method", sorted(CLASSIFYING))
def test_a_stopped_run_ends_with_the_same_weights(
    tiny: RunConfig, tmp_path: Path, method: str
) -> None:
    fast = {
        "smoothadv": {"steps": 2},
        "macer": {"copies": 4},
        "smoothmix": {"steps": 2, "copies": 2},
    }
    config = replace(tiny, method={"name": method, "sigma": 0.5, **fast.get(method, {})})
    whole = train(config, tmp_path / "whole")
    for epoch, step in ((0, 1), (1, 2), (2, 3)):
        with pytest.raises(Stop):
            train(
                config, tmp_path / "parts", checkpoint_minutes=1e-9, listeners=stop_at(epoch, step)
            )
    assert train(config, tmp_path / "parts") == whole
    for a, b in zip(metrics_of(tmp_path / "whole"), metrics_of(tmp_path / "parts"), strict=True):
        assert (a["epoch"], a["loss"], a["parts"], a["accuracy"]) == (
            b["epoch"],
            b["loss"],
            b["parts"],
            b["accuracy"],
        )


def test_a_run_killed_for_real_ends_with_the_same_weights(tiny: RunConfig, tmp_path: Path) -> None:
    config = replace(tiny, recipe=replace(tiny.recipe, epochs=30))
    whole = train(config, tmp_path / "whole")
    config.save(tmp_path / "config.toml")
    argv = command("train", "--config", tmp_path / "config.toml", "--out", tmp_path / "killed")
    argv = [*argv, "--checkpoint-minutes", "0.0001"]
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
    }  # sums round differently on more threads than the tests have
    for lines in (2, 11):
        process = subprocess.Popen(
            argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment
        )
        metrics, deadline = tmp_path / "killed" / "metrics.jsonl", time.monotonic() + 60
        while time.monotonic() < deadline and (
            not metrics.exists() or metrics.read_text().count("\n") < lines
        ):
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=30)
    state = load_state(RunFolder(tmp_path / "killed").state)
    assert 0 < state.epoch < 30, "it was really interrupted"
    assert train(config, tmp_path / "killed") == whole
    assert len(metrics.read_text().splitlines()) == 30
    assert not (tmp_path / "killed" / "train.lock").exists()


def test_seeds_decide_the_run(tiny: RunConfig, tmp_path: Path) -> None:
    same, again = (train(tiny, tmp_path / name) for name in ("a", "b"))
    other = train(replace(tiny, recipe=replace(tiny.recipe, seed=1)), tmp_path / "c")
    assert same == again != other


def test_training_leaves_the_global_random_numbers_alone(tiny: RunConfig, tmp_path: Path) -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    train(tiny, tmp_path / "run")
    assert torch.equal(torch.rand(3), expected)


def test_it_learns_and_says_so(tmp_path: Path) -> None:
    recipe = replace(QUICK.recipe, epochs=2, learning_rate=0.05)
    train(replace(QUICK, recipe=recipe, method={"name": "gaussian", "sigma": 0.25}), tmp_path)
    metrics = metrics_of(tmp_path)
    assert [m["epoch"] for m in metrics] == [1, 2]
    assert metrics[1]["accuracy"] > 0.6
    assert metrics[1]["loss"] < metrics[0]["loss"]
    assert metrics[0]["learning_rate"] == 0.05
    assert metrics[0]["images_per_second"] > 0


def test_bf16_trains_with_full_precision_weights(tiny: RunConfig, tmp_path: Path) -> None:
    half = train(replace(tiny, recipe=replace(tiny.recipe, precision="bf16")), tmp_path / "half")
    assert half != train(tiny, tmp_path / "full")
    assert all(
        value.dtype == torch.float32 for value in load_run(tmp_path / "half")[1].parameters()
    )


def test_a_folder_of_another_run_is_refused_with_what_differs(
    tiny: RunConfig, tmp_path: Path
) -> None:
    train(tiny, tmp_path / "run")
    other = replace(tiny, recipe=replace(tiny.recipe, learning_rate=0.5))
    with pytest.raises(
        UsageError, match=f"learning_rate is {tiny.recipe.learning_rate} there and 0.5 here"
    ):
        train(other, tmp_path / "run")
    with pytest.raises(UsageError, match=r"method name is gaussian there and smoothmix here"):
        train(replace(tiny, method={"name": "smoothmix", "sigma": 0.5}), tmp_path / "run")


def test_a_broken_checkpoint_is_refused(tiny: RunConfig, tmp_path: Path) -> None:
    with pytest.raises(Stop):
        train(tiny, tmp_path / "run", checkpoint_minutes=1e-9, listeners=stop_at(0, 3))
    state = RunFolder(tmp_path / "run").state
    RunFolder(tmp_path / "run").previous_state.unlink()
    whole = state.read_bytes()
    for broken in (whole[: len(whole) // 2], b"", b"nonsense"):
        state.write_bytes(broken)
        with pytest.raises(CheckpointError, match=r"state.pt: cannot be read as a checkpoint"):
            train(tiny, tmp_path / "run")


def test_an_unfinished_run_says_what_to_do(tiny: RunConfig, tmp_path: Path) -> None:
    with pytest.raises(Stop):
        train(tiny, tmp_path / "run", checkpoint_minutes=1e-9, listeners=stop_at(0, 3))
    with pytest.raises(
        UsageError, match="training has not ended; run the same `smoothmix train` command again"
    ):
        load_run(tmp_path / "run")
    with pytest.raises(UsageError, match="is no run folder"):
        load_run(tmp_path)


def test_noisy_accuracy_is_that_of_a_slow_loop(
    tiny: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(tiny, tmp_path / "run")
    model, dataset = load_run(tmp_path / "run")[1], data.load(tiny.data, "test")
    right = 0
    model.eval()
    for i in range(len(dataset)):
        draws = DrawRange(0, Domain.EVALUATION, 0, i, 1)
        noise = torch.from_numpy(standard_normal(draws, dataset.shape))
        right += int(model(dataset.images([i]) + 0.5 * noise).argmax() == dataset.labels[i])
    whole = noisy_accuracy(model, dataset, sigma=0.5, seed=0)
    assert whole == pytest.approx(right / len(dataset), abs=0.01)
    monkeypatch.setattr(noisy, "EVALUATION_BATCH", 7)
    parts = [
        noisy_accuracy(model, dataset, sigma=0.5, seed=0, world=World(rank, 3)) for rank in range(3)
    ]
    assert all(0 < part < whole for part in parts)
    assert sum(parts) == pytest.approx(whole, abs=0.01)


def test_the_command_trains_resumes_and_says_when_it_is_done(
    smoothmix: Run, tiny: RunConfig, tmp_path: Path
) -> None:
    tiny.save(tmp_path / "c.toml")
    first = smoothmix("train", "--config", "c.toml", "--out", "run", "--epochs", 1)
    assert first.code == 0, first.err
    assert "epoch 1 of 1" in first.err
    again = smoothmix("train", "--config", "c.toml", "--out", "run", "--epochs", 1)
    assert "is trained already" in again.err
    assert RunConfig.load(tmp_path / "run" / "config.toml").recipe.epochs == 1


def test_a_run_that_begins_anew_begins_its_metrics_anew(tiny: RunConfig, tmp_path: Path) -> None:
    train(tiny, tmp_path / "run")
    RunFolder(tmp_path / "run").state.unlink()
    RunFolder(tmp_path / "run").weights.unlink()
    train(tiny, tmp_path / "run")
    assert [line["epoch"] for line in metrics_of(tmp_path / "run")] == [1, 2, 3]


def test_a_finished_run_without_its_state_is_finished(
    tiny: RunConfig, tmp_path: Path, smoothmix: Run
) -> None:
    """As one that was copied for certification, or is in results/."""
    train(tiny, tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    folder.state.unlink()
    weights, metrics = folder.weights.read_bytes(), folder.metrics.read_bytes()
    with open_run(tiny, tmp_path / "run") as trainer:
        assert trainer.finished
        assert trainer.run() is None
    again = smoothmix("train", "--config", "run/config.toml", "--out", "run")
    assert "run: is trained already (delete run/checkpoint to train it again)" in again.err
    assert (folder.weights.read_bytes(), folder.metrics.read_bytes()) == (weights, metrics)


def test_what_a_network_was_trained_on_is_part_of_the_run(
    tiny: RunConfig, tmp_path: Path, smoothmix: Run
) -> None:
    train(replace(tiny, train_split="test"), tmp_path / "run")
    with pytest.raises(UsageError, match="train_split is test there and train here"):
        train(tiny, tmp_path / "run")
    done = smoothmix("certify", "run", "--n0", 5, "--n", 20, "--max", 1)
    assert "warning: the network was trained on these very images" in done.err
    sample = data.load("sample", "test")
    np.savez(
        tmp_path / "tiny.npz",
        x=(sample.images(range(50)).numpy() * 255).astype(np.uint8),
        y=sample.labels[:50],
    )
    with pytest.raises(UsageError, match="data_hash is"):
        train(replace(tiny, train_split="test"), tmp_path / "run")


def test_images_that_a_network_cannot_take_are_refused(tiny: RunConfig, tmp_path: Path) -> None:
    np.savez(tmp_path / "rect.npz", x=np.zeros((20, 20, 28), dtype=np.uint8), y=np.arange(20) % 10)
    with pytest.raises(UsageError, match="lenet takes square images, not 20x28"):
        train(replace(tiny, data=f"npz:{tmp_path / 'rect.npz'}"), tmp_path / "run")


def test_resuming_is_exact_with_batchnorm_augmentation_dropout_workers_and_bf16(
    tmp_path: Path,
) -> None:
    rng = np.random.default_rng(0)
    pixels, labels = rng.integers(0, 256, (48, 3, 32, 32), dtype=np.uint8), np.arange(48) % 10
    colour = data.MemoryDataset(
        name="made",
        split="train",
        class_names=tuple("0123456789"),
        labels=labels,
        pixels=pixels,
        augmentation="flip-shift",
    )
    method = methods.make("consistency", sigma=0.25)
    recipe = replace(QUICK.recipe, epochs=2, batch=16, precision="bf16")
    config = replace(
        QUICK, data="made", network="cifar_resnet20", normalisation="cifar10", recipe=recipe
    )

    def run(folder: Path, listeners: Listeners) -> Trainer:
        torch.manual_seed(0)
        model = torch.nn.Sequential(build_network(config), torch.nn.Dropout(0.3))
        trainer = Trainer(
            config=config,
            folder=RunFolder(folder),
            method=method,
            train=colour,
            test=colour,
            model=model,
            device=torch.device("cpu"),
            workers=2,
            checkpoint_minutes=1e-9,
            listeners=listeners,
        )
        trainer.resume()
        trainer.run()
        return trainer

    whole = run(tmp_path / "whole", Listeners())
    with pytest.raises(Stop):
        run(tmp_path / "parts", stop_at(1, 3))
    before = load_state(RunFolder(tmp_path / "parts").state)
    assert (before.epoch, before.step) == (1, 2)
    parts = run(tmp_path / "parts", Listeners())
    for name, value in whole.model.state_dict().items():
        assert torch.equal(value, parts.model.state_dict()[name]), name
    assert metrics_of(tmp_path / "parts")[1]["seconds"] >= before.seconds, (
        "the time before the stop counts too"
    )


def test_a_batch_too_small_for_its_chunks_is_refused(tiny: RunConfig, tmp_path: Path) -> None:
    config = replace(
        tiny, method={"name": "smoothmix", "sigma": 0.5}, recipe=replace(tiny.recipe, batch=3)
    )
    with pytest.raises(
        UsageError, match="160 images in batches of 3 leave no step of 4 chunks to take"
    ):
        train(config, tmp_path / "run")


def test_a_run_keeps_every_setting_of_its_method(tiny: RunConfig, tmp_path: Path) -> None:
    train(replace(tiny, method={"name": "smoothmix", "sigma": 0.5, "steps": 1}), tmp_path / "run")
    kept = RunConfig.load(tmp_path / "run" / "config.toml").method
    assert (kept["eta"], kept["warmup_epochs"], kept["fidelity"], kept["steps"]) == (
        5.0,
        10,
        "official",
        1,
    )


def test_listeners_are_called_as_documented_and_change_no_weight(
    tiny: RunConfig, tmp_path: Path
) -> None:
    config = replace(tiny, recipe=replace(tiny.recipe, epochs=2))
    steps = []
    epochs = []
    resumed = []

    def on_epoch(metrics: EpochMetrics) -> None:
        epochs.append(metrics.epoch)
        # As a listener may: it certifies, and draws random numbers of torch's.
        images = trainer.test.images(range(2))
        Smoothed(trainer.model, sigma=0.5, num_classes=10).certify(images, n=50)
        torch.rand(3)
        if metrics.epoch == 1:
            raise ConnectionError("the tracker is away")

    def on_resume(state: State) -> None:
        # Training changes it from here on.
        resumed.append((state.epoch, state.step))

    listeners = Listeners(on_step=steps.append, on_epoch=on_epoch, on_resume=on_resume)
    folder = tmp_path / "heard"
    with (
        pytest.raises(ConnectionError),
        open_run(config, folder, listeners=listeners) as trainer,
    ):
        trainer.run()
    with open_run(config, folder, listeners=listeners) as trainer:
        trainer.run()
    assert [state.step for state in steps] == 2 * list(range(1, 6))
    assert [state.epoch for state in steps] == [0] * 5 + [1] * 5
    assert epochs == [1, 2]
    assert resumed == [(1, 0)]
    assert state_hash(load_run(folder)[1]) == train(config, tmp_path / "alone")


def test_an_extended_run_ends_as_if_it_had_been_longer_from_the_start(
    tiny: RunConfig, tmp_path: Path, smoothmix: Run
) -> None:
    recipe = replace(tiny.recipe, epochs=2, drops=(1, 3))
    replace(tiny, recipe=recipe).save(tmp_path / "short.toml")
    replace(tiny, recipe=replace(recipe, epochs=5)).save(tmp_path / "long.toml")
    assert smoothmix("train", "--config", "long.toml", "--out", "long").code == 0
    command = ("train", "--config", "short.toml", "--out", "run")
    assert smoothmix(*command).code == 0
    short = state_hash(load_run(tmp_path / "run")[1])
    refused = smoothmix("train", "--config", "long.toml", "--out", "run")
    assert "or --extend-epochs to train this run for more epochs" in refused.err

    # Two extensions, the second one stopped in its middle.
    extended = smoothmix("train", "--extend-epochs", 1, "--out", "run")
    assert "learning rate 0.002 in epoch 3; drops stay after epochs [1, 3]" in extended.err
    longer = made_longer(RunConfig.load(tmp_path / "run" / "config.toml"), 3)
    with pytest.raises(Stop):
        train(longer, tmp_path / "run", checkpoint_minutes=1e-9, listeners=stop_at(4, 2))
    with pytest.raises(UsageError, match="training has not ended"):
        load_run(tmp_path / "run")
    assert smoothmix("train", "--extend-epochs", 3, "--out", "run").code == 0
    # Once more, in each of its forms: nothing is left to train.
    for options in (("--config", "short.toml"), ()):
        again = smoothmix("train", *options, "--extend-epochs", 3, "--out", "run")
        assert "is trained already" in again.err

    config, network = load_run(tmp_path / "run")
    assert (config.recipe.epochs, config.extended_epochs) == (5, 3)
    assert state_hash(network) == state_hash(load_run(tmp_path / "long")[1])
    losses = [[line["loss"] for line in metrics_of(tmp_path / name)] for name in ("run", "long")]
    assert losses[0] == losses[1]
    # The networks that were finished before are kept.
    kept = RunFolder(tmp_path / "run").weights_after(2)
    network.load_state_dict(load_file(kept))
    assert state_hash(network) == short
    assert RunFolder(tmp_path / "run").weights_after(3).exists()


def made_longer(config: RunConfig, epochs: int) -> RunConfig:
    return replace(extend_epochs(config, epochs), notes=())


def test_a_run_without_a_checkpoint_is_not_extended(
    tiny: RunConfig, tmp_path: Path, smoothmix: Run
) -> None:
    train(replace(tiny, recipe=replace(tiny.recipe, epochs=1)), tmp_path / "run")
    state = RunFolder(tmp_path / "run").state
    state.unlink()
    before = state_hash(load_run(tmp_path / "run")[1])
    refused = smoothmix("train", "--extend-epochs", 1, "--out", "run")
    assert "has no checkpoint to continue from (state.pt is missing)" in refused.err
    assert state_hash(load_run(tmp_path / "run")[1]) == before
