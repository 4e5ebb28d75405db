"""Models of transformers: real ones with random weights, saved to a folder; timm's settings."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import smoothmix as sm
from smoothmix import models
from smoothmix.models.hugging_face import normalisation_in, size_in
from smoothmix.models.timm_models import normalised
from tests.conftest import Run, command
from tests.helpers.draws import counted_votes, logits_of, noisy_inputs

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

MEAN, STD = [0.4, 0.5, 0.6], [0.2, 0.3, 0.25]
LABELS = {0: "cat", 1: "dog", 2: "bird"}
PROCESSOR = {
    "image_processor_type": "ViTImageProcessor",
    "do_normalize": True,
    "do_rescale": True,
    "do_resize": True,
    "image_mean": MEAN,
    "image_std": STD,
    "rescale_factor": 1 / 255,
    "size": {"height": 32, "width": 32},
}


def vit(transformers: Any) -> nn.Module:
    config = transformers.ViTConfig(
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        image_size=32,
        patch_size=8,
        id2label=LABELS,
        # Larger than usual, so that random weights tell images apart.
        initializer_range=0.5,
    )
    return transformers.ViTForImageClassification(config)


def resnet(transformers: Any) -> nn.Module:
    config = transformers.ResNetConfig(
        embedding_size=8,
        hidden_sizes=[8, 16],
        depths=[1, 1],
        layer_type="basic",
        id2label=LABELS,
    )
    return transformers.ResNetForImageClassification(config)


@pytest.fixture
def transformers() -> Any:
    return pytest.importorskip("transformers", reason="needs smoothmix[hf]")


def saved(model: Any, folder: Path, **processor: Any) -> Path:
    model.save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps(PROCESSOR | processor))
    return folder


class Reference(nn.Module):
    """What the authors of such a model would write by hand."""

    def __init__(self, model: nn.Module, size: int) -> None:
        super().__init__()
        self.model = model
        self.size = size

    def forward(self, images: Tensor) -> Tensor:
        if images.shape[-1] != self.size:
            images = nn.functional.interpolate(
                images, size=(self.size, self.size), mode="bilinear", antialias=True
            )
        mean = torch.tensor(MEAN).view(3, 1, 1)
        std = torch.tensor(STD).view(3, 1, 1)
        logits: Tensor = self.model(pixel_values=(images - mean) / std).logits
        return logits


@pytest.mark.parametrize("make", [vit, resnet])
@pytest.mark.parametrize("pixels", [32, 40])
def test_a_saved_model_votes_like_the_original(
    transformers: Any, tmp_path: Path, make: Any, pixels: int
) -> None:
    torch.manual_seed(2)
    original = make(transformers).eval()
    folder = saved(original, tmp_path / "model")
    images = torch.randint(0, 256, (2, 3, pixels, pixels), dtype=torch.uint8)
    smoothed = sm.Smoothed.from_pretrained(str(folder), sigma=0.5, batch=100)
    assert smoothed.num_classes == 3
    assert not any(module.training for module in smoothed.model.modules())
    expected = sm.Smoothed(Reference(original, 32).eval(), sigma=0.5, num_classes=3, batch=100)
    found = smoothed.votes(images, n=300, seed=1)
    assert torch.equal(found, expected.votes(images, n=300, seed=1))
    assert (found.sum(1) == 300).all()
    # And draw by draw, on the noisy images themselves: counts could hide votes that changed places.
    loaded = smoothed.model
    for row, image in enumerate(images / 255):
        inputs = noisy_inputs(image, row, n=300, seed=1, sigma=0.5)
        logits = logits_of(loaded, inputs)
        assert torch.equal(logits.argmax(1), logits_of(Reference(original, 32), inputs).argmax(1))
        assert torch.equal(counted_votes(logits), found[row])


def test_names_of_classes_are_kept_and_the_command_certifies(
    transformers: Any, tmp_path: Path, smoothmix: Run
) -> None:
    torch.manual_seed(2)
    folder = saved(vit(transformers), tmp_path / "model")
    loaded = models.load(f"hf:{folder}")
    assert loaded.class_names == ("cat", "dog", "bird")
    assert loaded.num_classes == 3
    pixels = torch.randint(0, 256, (3, 3, 32, 32), dtype=torch.uint8).numpy()
    np.savez(tmp_path / "d.npz", x=pixels, y=np.array([0, 1, 2]))
    certify = ["certify", "--model", f"hf:{folder}", "--data", f"npz:{tmp_path / 'd.npz'}"]
    done = smoothmix(*certify, "--sigma", "0.5", "--n", "100", "--out", str(tmp_path / "c.tsv"))
    assert done.code == 0, done.err
    settings = sm.certificates.read(tmp_path / "c.tsv").settings
    assert settings is not None
    assert settings.model == f"hf:{folder}"
    assert any(name.startswith("transformers.") for name in settings.sources)


def test_a_model_of_the_hub_is_recorded_with_its_commit(transformers: Any, tmp_path: Path) -> None:
    # As the hub's own library keeps downloads: a folder per commit, and which one a branch is.
    repository = tmp_path / "hub" / "models--me--vit"
    (repository / "refs").mkdir(parents=True)
    commits = {"main": "a" * 40, "old": "b" * 40}
    for branch, commit in commits.items():
        saved(vit(transformers), repository / "snapshots" / commit)
        (repository / "refs" / branch).write_text(commit)
    pixels = np.zeros((1, 32, 32, 3), dtype=np.uint8)
    np.savez(tmp_path / "d.npz", x=pixels, y=np.array([0]))
    environment = {
        **os.environ,
        "HF_HOME": str(tmp_path),
        "HF_HUB_CACHE": str(tmp_path / "hub"),
        "HF_HUB_OFFLINE": "1",
    }
    hashes = set()
    for branch, options in (("main", ()), ("old", ("--revision", "old"))):
        own = ("--model", "hf:me/vit", *options, "--data", "npz:d.npz", "--sigma", 0.5)
        # In a process of its own: the library reads these settings once, when it is imported.
        done = subprocess.run(
            command("certify", *own, "--n", 20, "--n0", 5, "--out", f"{branch}.tsv"),
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        settings = sm.certificates.read(tmp_path / f"{branch}.tsv").settings
        assert settings is not None
        assert settings.model == f"hf:me/vit@{commits[branch]}"
        hashes.add(settings.model_hash)
    assert len(hashes) == 2


def test_folders_are_matched_by_name_and_photos_need_no_run(
    transformers: Any, tmp_path: Path, smoothmix: Run
) -> None:
    torch.manual_seed(2)
    folder = saved(vit(transformers), tmp_path / "model")
    generator = np.random.default_rng(0)
    # In the order of the alphabet, which is not the model's.
    for name in ("bird", "cat", "dog"):
        (tmp_path / "pets" / "test" / name).mkdir(parents=True)
        pixels = generator.integers(0, 256, (32, 32, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "pets" / "test" / name / "1.png")
    own = ("--model", f"hf:{folder}", "--sigma", "0.5", "--n", "100")
    done = smoothmix("certify", *own, "--data", "folder:pets", "--out", "pets.tsv")
    assert done.code == 0, done.err
    assert "Loading weights" not in done.err
    rows = sm.certificates.read(tmp_path / "pets.tsv").rows
    assert [row.label for row in rows] == [2, 0, 1]
    done = smoothmix("certify", *own, "--images", "pets", "--out", "photos.tsv")
    assert done.code == 0, done.err
    lines = (tmp_path / "photos.table.tsv").read_text().splitlines()
    assert len(lines) == 4
    assert {line.split("\t")[2] for line in lines[1:]} <= {"abstained", "", *LABELS.values()}
    (tmp_path / "pets" / "test" / "bird").rename(tmp_path / "pets" / "test" / "birds")
    done = smoothmix("certify", *own, "--data", "folder:pets", "--out", "renamed.tsv")
    assert "--classes birds=bird" in done.err
    options = ("--data", "folder:pets", "--classes", "birds=bird", "--out", "renamed.tsv")
    assert smoothmix("certify", *own, *options).code == 0


def test_a_half_precision_model_runs_in_its_own_precision(
    transformers: Any, tmp_path: Path
) -> None:
    folder = saved(vit(transformers).to(torch.bfloat16), tmp_path / "model")
    module = models.load(f"hf:{folder}").module
    assert {weight.dtype for weight in module.parameters()} == {torch.bfloat16}
    images = torch.zeros(1, 3, 32, 32, dtype=torch.uint8)
    votes = sm.Smoothed(module, sigma=0.5, num_classes=3).votes(images, n=20, seed=1)
    assert int(votes.sum()) == 20


def test_pickles_and_models_without_a_head_are_refused(transformers: Any, tmp_path: Path) -> None:
    folder = saved(vit(transformers), tmp_path / "pickled")
    weights = folder / "model.safetensors"
    network = vit(transformers)
    torch.save(network.state_dict(), folder / "pytorch_model.bin")
    weights.unlink()
    with pytest.raises(sm.SmoothmixError, match="safetensors"):
        models.load(f"hf:{folder}")
    allowed = models.load(f"hf:{folder}", allow_pickle=True).module
    head = dict(network.named_parameters())["classifier.weight"]
    assert torch.equal(dict(allowed.named_parameters())["model.classifier.weight"], head)

    body = saved(vit(transformers).vit, tmp_path / "body")
    with pytest.raises(sm.SmoothmixError, match="no trained image classifier"):
        models.load(f"hf:{body}")
    with pytest.raises(sm.SmoothmixError, match="cannot be loaded"):
        models.load(f"hf:{tmp_path / 'nothing'}")


def test_code_in_a_folder_is_never_run(transformers: Any, tmp_path: Path) -> None:
    folder = saved(vit(transformers), tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    config["model_type"] = "mine"
    config["auto_map"] = {
        "AutoConfig": "mine.Config",
        "AutoModelForImageClassification": "mine.Model",
    }
    (folder / "config.json").write_text(json.dumps(config))
    marker = tmp_path / "ran"
    (folder / "mine.py").write_text(f"open({str(marker)!r}, 'w').close()\n")
    with pytest.raises(sm.SmoothmixError, match="cannot be loaded"):
        models.load(f"hf:{folder}")
    assert not marker.exists()


def test_settings_of_processors() -> None:
    images = torch.rand(1, 3, 4, 4)
    assert torch.equal(normalisation_in({"do_normalize": False}, "m")(images), images)
    for settings, size in (
        ({"size": {"height": 3, "width": 4}}, (3, 4)),
        ({"size": 5}, (5, 5)),
        ({"size": {"shortest_edge": 6}}, (6, 6)),
        ({"do_center_crop": True, "crop_size": {"height": 2, "width": 2}, "size": 6}, (2, 2)),
        ({"do_resize": False, "size": 5}, None),
    ):
        assert size_in(settings, "m") == size
    for wrong in ({"rescale_factor": 1 / 127.5}, {"rescale_offset": True}, {"image_mean": [0.5]}):
        with pytest.raises(sm.SmoothmixError, match="processor"):
            normalisation_in(wrong, "m")
    with pytest.raises(sm.SmoothmixError, match="is not known here"):
        size_in({"size": {"longest_edge": 6}}, "m")


def test_the_configuration_of_timm_gives_the_normalisation() -> None:
    # The format of `pretrained_cfg`, which every network of timm has.
    config = {"mean": (0.4, 0.5, 0.6), "std": (0.2, 0.3, 0.25), "input_size": (3, 8, 8)}
    images = torch.rand(2, 3, 8, 8)
    body = nn.Sequential(nn.Flatten(), nn.Linear(192, 4))
    mean, std = torch.tensor(MEAN).view(3, 1, 1), torch.tensor(STD).view(3, 1, 1)
    assert torch.equal(normalised(body, config)(images), body((images - mean) / std))
    with pytest.raises(sm.SmoothmixError, match="no mean or no std"):
        normalised(body, {})
