"""Networks of timm with random weights, in the process that `test_timm.py` starts for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import smoothmix as sm
from smoothmix import models
from smoothmix.config import RunConfig
from smoothmix.runs.load import load_run
from tests.conftest import Run
from tests.helpers.draws import counted_votes, is_close, logits_of, noisy_inputs
from tests.helpers.torchvision import import_timm

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

NAME = "test_resnet"


@pytest.fixture
def timm() -> Any:
    return import_timm()


@pytest.fixture
def weights(timm: Any, tmp_path: Path) -> Path:
    """Those of a network of four classes."""
    torch.manual_seed(2)
    path = tmp_path / "w.safetensors"
    save_file(timm.create_model(NAME, num_classes=4).state_dict(), path)
    return path


@pytest.fixture
def photos(tmp_path: Path) -> str:
    """Eight images of two classes: dark ones and bright ones."""
    labels = np.arange(8) % 2
    noise = np.random.default_rng(0).integers(0, 100, (8, 64, 64, 3))
    x = (noise + 150 * labels[:, None, None, None]).astype(np.uint8)
    np.savez(tmp_path / "photos.npz", x=x, y=labels)
    return "npz:photos.npz"


@pytest.mark.parametrize("name", [NAME, "test_vit", "resnet10t"])
def test_a_network_votes_like_the_original(timm: Any, name: str, tmp_path: Path) -> None:
    torch.manual_seed(2)
    model = timm.create_model(name, num_classes=4).eval()
    save_file(model.state_dict(), tmp_path / "w.safetensors")
    loaded = models.load(f"timm:{name}", weights=tmp_path / "w.safetensors", num_classes=4)
    assert loaded.num_classes == 4
    config = model.pretrained_cfg
    assert loaded.shape == config["input_size"]
    expected = nn.Sequential(sm.Normalise(config["mean"], config["std"]), model)
    images = torch.randint(0, 256, (1, *config["input_size"]), dtype=torch.uint8)
    smoothed = sm.Smoothed(loaded.module, sigma=0.5, num_classes=4, batch=10)
    inputs = noisy_inputs(images[0] / 255, 0, n=20, seed=1, sigma=0.5)
    logits = logits_of(expected, inputs, batch=10)
    assert torch.equal(logits_of(loaded.module, inputs, batch=10).argmax(1), logits.argmax(1))
    # A batch of another shape may round otherwise.
    moved = (smoothed.votes(images, n=20, seed=1)[0] - counted_votes(logits)).abs().sum()
    assert int(moved) <= 2 * int(is_close(logits).sum())


def test_the_command_certifies_with_a_file_of_weights(
    timm: Any, weights: Path, photos: str, smoothmix: Run, tmp_path: Path
) -> None:
    own = ("--model", f"timm:{NAME}", "--weights", weights, "--num-classes", 4, "--sigma", 0.25)
    quick = ("--data", photos, "--n0", 5, "--n", 50, "--max", 2)
    done = smoothmix("certify", *own, *quick, "--out", "c.tsv")
    assert done.code == 0, done.err
    file = sm.certificates.read(tmp_path / "c.tsv")
    assert file.settings is not None
    assert file.settings.model == f"timm:{NAME}"
    assert any(name.startswith("timm.") for name in file.settings.sources)
    # The size of images without labels is the one that timm has on record, 160 pixels.
    Path("one.png").write_bytes(_png())
    done = smoothmix("certify", *own, "--images", "one.png", "--n0", 5, "--n", 20)
    assert done.code == 0, done.err
    assert "scaled to 160 pixels on the short side" in done.out


def _png() -> bytes:
    import io

    from PIL import Image

    stream = io.BytesIO()
    Image.new("RGB", (200, 180), (250, 250, 250)).save(stream, "PNG")
    return stream.getvalue()


def test_a_network_is_trained_further_and_loaded_again(
    timm: Any, weights: Path, photos: str, smoothmix: Run, tmp_path: Path
) -> None:
    options = ("--data", photos, "--sigma", 0.25, "--epochs", 1, "--batch", 4)
    start = ("--weights", weights, "--freeze", "body")
    done = smoothmix("train", "--network", f"timm:{NAME}", *options, *start, "--out", "run")
    assert done.code == 0, done.err
    config = RunConfig.load(tmp_path / "run" / "config.toml")
    known = timm.get_pretrained_cfg(NAME).to_dict()
    mean, std = (",".join(f"{value:g}" for value in known[key]) for key in ("mean", "std"))
    assert config.normalisation == f"{mean}/{std}"
    assert any("with a new fc" in note for note in config.notes)
    weights.unlink()
    _, network = load_run(tmp_path / "run")
    assert network(torch.rand(2, 3, 64, 64)).shape == (2, 2)
    done = smoothmix("certify", "run", "--n0", 5, "--n", 50, "--max", 2)
    assert done.code == 0, done.err


def test_a_name_that_timm_does_not_know_is_an_error(
    timm: Any, weights: Path, photos: str, smoothmix: Run
) -> None:
    name = "timm:no_such_network"
    with pytest.raises(sm.SmoothmixError, match="timm cannot make it"):
        models.load(name, weights=weights)
    done = smoothmix("train", "--network", name, "--data", photos, "--sigma", 0.25, "--out", "run")
    assert done.code == 2
    assert f"{name}: timm knows no network of that name" in done.err


def test_weights_are_asked_for(timm: Any) -> None:
    with pytest.raises(sm.SmoothmixError, match="--weights"):
        models.load(f"timm:{NAME}")
