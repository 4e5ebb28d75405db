"""Networks of transformers that are trained further: real ones with random weights."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from smoothmix.config import RunConfig
from smoothmix.errors import SmoothmixError
from smoothmix.models import load
from smoothmix.models.trainable import library_facts
from smoothmix.networks import build, state_hash
from smoothmix.runs.load import load_run
from tests.conftest import Run
from tests.models.test_pretrained import MEAN, STD, saved, transformers, vit

__all__ = ["transformers"]

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


@pytest.fixture
def folder(transformers: Any, tmp_path: Path) -> Path:
    torch.manual_seed(0)
    generator = np.random.default_rng(0)
    x = generator.integers(256, size=(16, 16, 16, 3), dtype=np.uint8)
    np.savez(tmp_path / "photos.npz", x=x, y=np.arange(16) % 2)
    return saved(vit(transformers), tmp_path / "vit")


OPTIONS = ("--data", "npz:photos.npz", "--sigma", 0.25, "--epochs", 1, "--batch", 8)


def test_a_pretrained_model_is_trained_saved_and_loaded_without_its_folder(
    folder: Path, smoothmix: Run
) -> None:
    original = load(f"hf:{folder}").module
    command = ("train", "--network", "hf:vit", *OPTIONS, "--freeze", "body", "--out", "run")
    assert smoothmix(*command).code == 0
    assert "is trained already" in smoothmix(*command).err
    text = (folder.parent / "run" / "config.toml").read_text()
    assert 'normalisation = "0.4,0.5,0.6/0.2,0.3,0.25"' in text
    shutil.rmtree(folder)
    config, network = load_run(folder.parent / "run")
    assert "started from hf:vit, with a new classifier" in config.notes
    images = torch.rand(2, 3, 16, 16)
    assert network(images).shape == (2, 2)
    # The body is the original one, preprocessing included: only the head is another.
    theirs = original.model.vit(  # type: ignore[operator]
        pixel_values=original.normalise(  # type: ignore[operator]
            torch.nn.functional.interpolate(images, size=(32, 32), mode="bilinear", antialias=True)
        )
    ).last_hidden_state
    ours = network.body.model.vit(  # type: ignore[operator, union-attr]
        pixel_values=torch.nn.functional.interpolate(
            network.normalise(images),  # type: ignore[operator]
            size=(32, 32),
            mode="bilinear",
            antialias=True,
        )
    ).last_hidden_state
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
    assert smoothmix("certify", "run", "--n", 50, "--max", 1).code == 0


def test_the_first_weights_of_a_library_are_recorded_and_compared(
    folder: Path, smoothmix: Run, transformers: Any
) -> None:
    command = ("train", "--network", "hf:vit", *OPTIONS, "--freeze", "body", "--out", "run")
    assert smoothmix(*command).code == 0
    path = folder.parent / "run" / "config.toml"
    tuning = RunConfig.load(path).fine_tuning
    assert tuning is not None
    source = transformers.AutoModelForImageClassification.from_pretrained(folder)
    assert tuning.weights_sha256 == state_hash(source)
    # Other weights under the same name make another run.
    with torch.no_grad():
        source.vit.embeddings.cls_token += 1
    source.save_pretrained(folder)
    other = smoothmix(*command)
    assert other.code == 2
    assert f"weights_sha256 is {tuning.weights_sha256} there and {state_hash(source)}" in other.err
    # Runs of earlier versions have recorded none, and are resumed as before.
    text = path.read_text().replace(f'weights_sha256 = "{tuning.weights_sha256}"\n', "")
    path.write_text(text)
    assert "is trained already" in smoothmix(*command).err


def test_a_model_without_a_head_gets_a_new_one(
    folder: Path, smoothmix: Run, transformers: Any
) -> None:
    # As the large pretrained ones on the hub: transformers adds a random head for two classes.
    body = saved(vit(transformers).vit, folder.parent / "body")
    command = ("train", "--network", f"hf:{body.name}", *OPTIONS, "--out", "run")
    done = smoothmix(*command)
    assert done.code == 0, done.err
    assert "started from hf:body, with a new classifier" in done.err
    assert "Loading weights" not in done.err
    # Its random numbers are no part of what the run started from.
    assert "is trained already" in smoothmix(*command).err
    refused = smoothmix("train", "--classifier", "hf:body", *OPTIONS, "--out", "denoised")
    assert refused.code == 1
    assert "does not fit the network: it lacks classifier." in refused.err


def test_a_denoiser_for_a_pretrained_model(folder: Path, smoothmix: Run) -> None:
    command = ("train", "--classifier", "hf:vit", *OPTIONS, "--out", "run")
    refused = smoothmix(*command)
    # Its three classes are not the two of the data, and its head must not be a random one.
    assert "does not fit the network" in refused.err
    arrays = dict(np.load(folder.parent / "photos.npz"))
    np.savez(folder.parent / "photos.npz", x=arrays["x"], y=np.arange(16) % 3)
    assert smoothmix(*command, "--extend-epochs", 1).code == 0
    _, network = load_run(folder.parent / "run")
    images = torch.rand(2, 3, 16, 16)
    original = load(f"hf:{folder}").module
    torch.testing.assert_close(network.classifier(images), original(images), rtol=1e-4, atol=1e-4)  # type: ignore[operator]


def test_facts_are_small_and_hold_no_code(folder: Path) -> None:
    facts = library_facts(f"hf:{folder}")
    settings = json.loads(facts.settings)
    assert settings["model_type"] == "vit"
    assert not {"auto_map", "id2label"} & settings.keys()
    assert facts.normalisation == f"{','.join(map(str, MEAN))}/{','.join(map(str, STD))}"
    with pytest.raises(SmoothmixError, match="are not a JSON object"):
        build("hf:vit", num_classes=2, settings="[1]", normalisation="none")
    with pytest.raises(SmoothmixError, match="cannot make the network"):
        build("hf:vit", num_classes=2, settings='{"model_type": "none"}', normalisation="none")
    config = RunConfig(data="sample", network="hf:x", method={"name": "gaussian", "sigma": 0.5})
    assert config.network_settings == ""


def test_a_model_that_is_not_there_is_an_error(folder: Path, smoothmix: Run) -> None:
    done = smoothmix("train", "--network", "hf:./nowhere", *OPTIONS, "--out", "run")
    assert done.code != 0
    assert "hf:./nowhere: cannot be loaded" in done.err
