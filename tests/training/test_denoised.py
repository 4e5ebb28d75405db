"""A denoiser trained for a classifier of a run: settings, resumption, loading, certification."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import smoothmix as sm
from smoothmix import data
from smoothmix.config import RunConfig
from smoothmix.networks import build, build_denoiser, save_weights
from smoothmix.networks.registry import DENOISERS
from smoothmix.networks.weights import state_hash
from smoothmix.runs.folder import RunFolder
from smoothmix.runs.load import load_run
from tests.conftest import Run


@pytest.fixture
def classifier(tmp_path: Path) -> Path:
    """A run of a LeNet that was not trained, on 64 images of the sample."""
    sample = data.load("sample", "train")
    np.savez(tmp_path / "tiny.npz", x=sample.pixels[:64, 0], y=sample.labels[:64])  # type: ignore[attr-defined]
    folder = RunFolder(tmp_path / "lenet")
    torch.manual_seed(0)
    save_weights(build("lenet"), folder.weights)
    RunConfig(
        data="npz:tiny.npz",
        network="lenet",
        method={"name": "gaussian", "sigma": 0.001},
        image_shape=(1, 28, 28),
    ).save(folder.config)
    return folder.path


OPTIONS = ("--sigma", 0.25, "--batch", 32)


def test_a_denoiser_is_trained_saved_loaded_and_certified(classifier: Path, smoothmix: Run) -> None:
    train = ("train", "--classifier", "lenet", *OPTIONS, "--out", "run")
    done = smoothmix(*train, "--data", "npz:tiny.npz", "--network", "lenet")
    assert "--network does not go with --classifier" in done.err
    # Without a recipe of its own, the data set takes that of the classifier's network.
    assert smoothmix(*train, "--epochs", 2).code == 0
    config, network = load_run(classifier.parent / "run")
    assert config.denoiser == "unet"
    assert config.fine_tuning is not None
    assert config.fine_tuning.freeze == ("classifier",)
    assert isinstance(network, sm.Denoised)
    assert not network.training
    # The classifier is the one of the run, to the last bit.
    _, original = load_run(classifier)
    assert state_hash(network.classifier) == state_hash(original)
    done = smoothmix("certify", "run", "--n", 100, "--max", 2)
    assert (done.code, done.err) == (0, done.err)
    assert sm.certificates.read(classifier.parent / "run" / "certificates.tsv").rows


def test_training_in_parts_gives_the_same_denoiser(classifier: Path, smoothmix: Run) -> None:
    options = ("train", "--classifier", "lenet", *OPTIONS, "--set", "objective=stability")
    assert smoothmix(*options, "--epochs", 2, "--out", "whole").code == 0
    assert smoothmix(*options, "--epochs", 1, "--out", "parts").code == 0
    refused = smoothmix(*options, "--epochs", 2, "--out", "parts")
    assert "epochs is 1 there and 2 here" in refused.err


def test_settings_that_do_not_go_together_are_refused(classifier: Path, smoothmix: Run) -> None:
    def error(*options: object) -> str:
        return smoothmix("train", *options, "--out", "refused").err

    preset = ("--data", "sample", "--sigma", 0.25)
    assert "--method denoiser needs --classifier" in error(*preset, "--method", "denoiser")
    assert "macer trains a classifier itself" in error(
        *preset, "--classifier", "lenet", "--method", "macer"
    )
    assert "--denoiser goes with --classifier" in error(*preset, "--denoiser", "unet")
    assert "unknown denoiser 'unett': did you mean 'unet'" in error(
        "--classifier", "lenet", *OPTIONS, "--denoiser", "unett"
    )
    assert not (classifier.parent / "refused").exists()


@pytest.mark.parametrize("name", DENOISERS)
@pytest.mark.parametrize("channels", [1, 3])
def test_denoisers_keep_the_shape(name: str, channels: int) -> None:
    torch.manual_seed(0)
    denoiser = build_denoiser(name, channels=channels, size=12)
    images = torch.rand(2, channels, 12, 12)
    assert denoiser(images).shape == images.shape
    count = sum(parameter.numel() for parameter in denoiser.parameters())
    if channels == 1:
        assert f"{count / 1e6:.2f} M" in DENOISERS[name].description


def test_sizes_that_a_unet_cannot_halve_twice_are_refused() -> None:
    with pytest.raises(sm.SmoothmixError, match="multiples of 4, not 30: use dncnn"):
        build_denoiser("unet", channels=1, size=30)


def test_denoised_is_what_it_says() -> None:
    classifier = nn.Sequential(nn.Flatten(), nn.Linear(16, 3))
    denoiser = nn.Conv2d(1, 1, 3, padding=1)
    network = sm.Denoised(copy.deepcopy(denoiser), copy.deepcopy(classifier)).eval()
    images = torch.randint(256, (5, 1, 4, 4)) / 255
    assert torch.equal(network(images), classifier(denoiser(images)))
    smoothed = sm.Smoothed(network, sigma=0.25, num_classes=3)
    certified = smoothed.certify(images, n=200, seed=0)
    # To the certificate it is one classifier: a module written by hand gets the same votes.
    plain = nn.Sequential(denoiser, *classifier)
    other = sm.Smoothed(plain, sigma=0.25, num_classes=3).certify(images, n=200, seed=0)
    assert np.array_equal(certified.counts, other.counts)


def test_replacing_the_classifier_is_noticed(classifier: Path, smoothmix: Run) -> None:
    options = ("train", "--classifier", "lenet", *OPTIONS, "--epochs", 1, "--out", "run")
    assert smoothmix(*options).code == 0
    torch.manual_seed(1)
    folder = RunFolder(classifier)
    save_weights(build("lenet"), folder.weights)
    replace(RunConfig.load(folder.config), weights_sha256="").save(folder.config)
    assert "weights_sha256 is" in smoothmix(*options).err
