"""Training that starts from trained weights: the head, frozen parts, and a rate for the body."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from smoothmix import data
from smoothmix.config import FineTuning, RunConfig
from smoothmix.errors import CheckpointError, UsageError
from smoothmix.networks import build, save_weights
from smoothmix.networks.parts import (
    freeze,
    head_of,
    head_parameters,
    keep_frozen_modules,
    parameter_groups,
)
from smoothmix.networks.starting import load_start
from smoothmix.runs.load import load_run
from tests.conftest import Run


def small() -> nn.Module:
    torch.manual_seed(0)
    body = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU())
    return nn.Sequential(body, nn.Flatten(), nn.Linear(12, 5), nn.Softmax(1))


def test_the_head_is_the_last_layer_with_weights() -> None:
    assert head_of(small()) == "2"
    assert head_parameters(small()) == {"2.weight", "2.bias"}
    assert head_of(build("cifar_resnet20")) == "body.fc"


def test_frozen_parts_neither_learn_nor_take_statistics() -> None:
    network = small()
    freeze(network, ["body"])
    trained = [name for name, value in network.named_parameters() if value.requires_grad]
    assert trained == ["2.weight", "2.bias"]
    keep_frozen_modules(network.train())
    assert not network[0][1].training
    assert network[2].training
    with pytest.raises(UsageError, match=r"--freeze head: no parameter .*its parts are 0, 2"):
        freeze(network, ["head"])
    with pytest.raises(UsageError, match="leaves nothing to train"):
        freeze(small(), ["0", "2"])


def test_names_of_our_networks_are_those_of_their_body() -> None:
    network = build("cifar_resnet20")
    freeze(network, ["layer1", "conv1"])
    frozen = [name for name, value in network.named_parameters() if not value.requires_grad]
    assert all(name.startswith(("body.layer1.", "body.conv1.")) for name in frozen)
    assert len(frozen) == 1 + 3 * 6


def test_groups_hold_every_parameter_once() -> None:
    network = small()
    assert len(parameter_groups(network, None, learning_rate=0.1)) == 1
    tuning = FineTuning(body_rate=0.001)
    head, body = parameter_groups(network, tuning, learning_rate=0.1)
    assert len(head["params"]) == 2
    assert len(head["params"]) + len(body["params"]) == len(list(network.parameters()))
    assert (head["rate_factor"], body["rate_factor"]) == (1.0, pytest.approx(0.01))
    with pytest.raises(UsageError, match="no effect on a body that is frozen"):
        FineTuning(body_rate=0.1, freeze=("body",))


def test_a_head_of_other_classes_stays_fresh(tmp_path: Path) -> None:
    torch.manual_seed(0)
    source = build("lenet")
    save_weights(source, tmp_path / "w.safetensors")
    torch.save({"state_dict": source.body.state_dict()}, tmp_path / "theirs.pth")
    for file in ("w.safetensors", "theirs.pth"):
        same = build("lenet")
        assert load_start(same, tmp_path / file) == ""
        assert torch.equal(same.body.fc2.weight, source.body.fc2.weight)
        other = build("lenet", num_classes=3)
        before = other.body.fc2.weight.clone()
        assert load_start(other, tmp_path / file) == "fc2"
        assert torch.equal(other.body.fc2.weight, before)
        assert torch.equal(other.body.conv1.weight, source.body.conv1.weight)
        with pytest.raises(CheckpointError, match="of another shape"):
            load_start(build("lenet", num_classes=3), tmp_path / file, whole=True)
    with pytest.raises(CheckpointError, match="does not fit the network"):
        load_start(build("cifar_resnet20"), tmp_path / "w.safetensors")


def test_images_are_augmented_on_request(tmp_path: Path, smoothmix: Run) -> None:
    sample = data.load("sample", "train")
    np.savez(tmp_path / "tiny.npz", x=sample.pixels[:64, 0], y=sample.labels[:64])  # type: ignore[attr-defined]
    options = ("--data", "npz:tiny.npz", "--network", "lenet", "--sigma", 0.25, "--batch", 32)
    for name in ("none", "flip-shift"):
        out = ("--epochs", 1, "--augmentation", name, "--out", name)
        assert smoothmix("train", *options, *out).code == 0
        assert load_run(tmp_path / name)[0].augmentation == name
    weights = [load_run(tmp_path / name)[1].body.conv1.weight for name in ("none", "flip-shift")]
    assert not torch.equal(*weights)
    refused = smoothmix("train", *options, "--augmentation", "resized-crop", "--out", "other")
    assert "images in memory have the augmentations none and flip-shift" in refused.err


def test_a_run_is_fine_tuned_and_resumed(tmp_path: Path, smoothmix: Run) -> None:
    sample = data.load("sample", "train")
    np.savez(tmp_path / "tiny.npz", x=sample.pixels[:64, 0], y=sample.labels[:64] % 3)  # type: ignore[attr-defined]
    torch.manual_seed(0)
    source = build("lenet")
    save_weights(source, tmp_path / "w.safetensors")
    options = ("--data", "npz:tiny.npz", "--network", "lenet", "--sigma", 0.25, "--batch", 32)
    frozen = (*options, "--weights", "w.safetensors", "--freeze", "body", "--epochs", 1)
    assert smoothmix("train", *frozen, "--out", "frozen").code == 0
    config, network = load_run(tmp_path / "frozen")
    assert "started from w.safetensors, with a new fc2" in config.notes
    assert torch.equal(network.body.conv1.weight, source.body.conv1.weight)
    assert network.body.fc2.weight.shape == (3, 500)

    slow = (*options, "--weights", "w.safetensors", "--body-rate", 0.0001, "--epochs", 1)
    assert smoothmix("train", *slow, "--out", "slow").code == 0
    assert smoothmix("train", "--extend-epochs", 1, "--out", "slow").code == 0
    config, network = load_run(tmp_path / "slow")
    assert config.fine_tuning is not None
    assert config.fine_tuning.body_rate == 0.0001
    moved = (network.body.conv1.weight - source.body.conv1.weight).abs().max()
    assert 0 < moved < 0.001
    assert RunConfig.load(tmp_path / "slow" / "config.toml") == config
    refused = smoothmix("train", *options, "--epochs", 1, "--out", "slow")
    assert "w.safetensors there and not set here" in refused.err
