"""Training on image files in folders, as ImageNet, and on colour images in memory, as CIFAR-10."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from smoothmix import certificates, data, networks
from smoothmix.certify import certify_dataset
from smoothmix.config import Preparation, RunConfig
from smoothmix.runs.load import load_run
from tests.conftest import Run, command


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Six made pictures of two ImageNet classes, of different sizes."""
    rng = np.random.default_rng(0)
    for number, wnid in enumerate(["n01440764", "n01443537"] * 3):
        folder = tmp_path / "imagenet" / "val" / wnid
        folder.mkdir(parents=True, exist_ok=True)
        size = (260 + 10 * number, 280, 3)
        Image.fromarray(rng.integers(0, 256, size, dtype=np.uint8)).save(
            folder / f"ILSVRC2012_val_{number:08}.JPEG"
        )
    return tmp_path


def test_a_resnet50_trains_on_pictures_that_are_decoded_by_workers(
    smoothmix: Run, pictures: Path
) -> None:
    options = (
        "--data-dir",
        pictures,
        "--train-split",
        "val",
        "--batch",
        3,
        "--epochs",
        1,
        "--workers",
        2,
    )
    done = smoothmix("train", "imagenet/0.50/smoothmix", *options, "--out", "run")
    assert done.code == 0, done.err
    metrics = json.loads((pictures / "run" / "metrics.jsonl").read_text())
    assert set(metrics["parts"]) == {"classification", "mix"}
    assert metrics["parts"]["classification"] > 1
    config = RunConfig.load(pictures / "run" / "config.toml")
    assert (config.num_classes, config.image_shape, config.normalisation) == (
        1000,
        (3, 224, 224),
        "imagenet",
    )
    certified = smoothmix(
        "certify", "run", "--data-dir", pictures, "--n0", 2, "--n", 10, "--skip", 3
    )
    assert certified.code == 0, certified.err
    rows = certificates.read(pictures / "run" / "certificates.tsv").rows
    assert [(row.idx, row.label) for row in rows] == [(0, 0), (3, 1)]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_picture_that_is_cut_ends_training_with_one_sentence(
    tmp_path: Path, workers: int
) -> None:
    for number in range(8):
        path = tmp_path / "mine" / f"{number % 2}" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(number).integers(0, 256, (28, 28), dtype=np.uint8)
        Image.fromarray(pixels).save(path)
    path.write_bytes(path.read_bytes()[:-200])
    options = (
        "--data",
        "folder:mine",
        "--network",
        "lenet",
        "--sigma",
        0.25,
        "--epochs",
        1,
        "--batch",
        2,
    )
    # In a process of its own: what it leaves behind when it ends is what matters.
    done = subprocess.run(
        command("train", *options, "--workers", workers, "--out", "run"),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1
    assert "1/7.png: damaged" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_cifar_resnet_trains_on_colour_images(smoothmix: Run, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    np.savez(
        tmp_path / "c.npz",
        x=rng.integers(0, 256, (40, 3, 32, 32), dtype=np.uint8),
        y=np.arange(40) % 10,
    )
    options = (
        "--data",
        "npz:c.npz",
        "--network",
        "cifar_resnet20",
        "--sigma",
        0.25,
        "--method",
        "consistency",
    )
    done = smoothmix(
        "train", *options, "--batch", 20, "--epochs", 1, "--out", "run", "--tensorboard"
    )
    assert done.code == 0, done.err
    assert "1 epoch," in done.err
    assert smoothmix("certify", "run", "--n0", 5, "--n", 50, "--max", 2).code == 0
    assert list((tmp_path / "run" / "tensorboard").glob("events*")), (
        "TensorBoard's events are there"
    )


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    """Photos of two classes in as many sizes as there are photos: bright on the left, or not."""
    rng = np.random.default_rng(0)
    for split in ("train", "test"):
        for number in range(16):
            height, width = rng.integers(40, 80, 2)
            pixels = rng.integers(0, 100, (height, width, 3), dtype=np.uint8)
            if number % 2:
                pixels[:, : width // 2] += 140
            path = tmp_path / "pets" / split / ("cat", "dog")[number % 2] / f"{number:02}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(path)
    return tmp_path


RESIZED = ("--resize", 32, "--crop", 28, "--channels", 1)
ABOUT = "scaled to 32 pixels on the short side, cropped to the middle 28x28 and read as grey"


def test_a_run_keeps_how_its_images_are_resized_and_every_command_does_the_same(
    smoothmix: Run, pets: Path
) -> None:
    options = ("--data", "folder:pets", "--network", "lenet", "--sigma", 0.25, "--batch", 8)
    train = ("train", *options, "--epochs", 16, "--workers", 0, "--out", "run")
    refused = smoothmix(*train)
    assert refused.code == 1
    assert "images must have one size" in refused.err
    assert "--resize 32 --crop 32" in refused.err
    done = smoothmix(*train, *RESIZED)
    assert done.code == 0, done.err
    assert f"note: images {ABOUT}, in 8 bits: certificates are about" in done.err
    config = RunConfig.load(pets / "run" / "config.toml")
    assert config.preparation == Preparation(resize=32, crop=28, channels=1)
    assert config.image_shape == (1, 28, 28)
    other = smoothmix(*train, "--resize", 30, "--crop", 28, "--channels", 1)
    assert other.code == 2
    assert "resize is 32 there and 30 here" in other.err

    # certify, verify and redraw: the images of the training.
    quick = ("--n0", 10, "--n", 200)
    certified = smoothmix("certify", "run", *quick)
    assert certified.code == 0, certified.err
    assert f"note: images {ABOUT}" in certified.err
    file = certificates.read(pets / "run" / "certificates.tsv")
    assert file.settings is not None
    assert file.settings.preparation == config.preparation
    assert "certificates are about the images so prepared" in file.settings.data_note
    assert sum(row.correct for row in file.rows) >= 14
    verified = smoothmix("certificates", "verify", "run", "--data", "folder:pets", "--redraw", 2)
    assert verified.code == 0, verified.err + verified.out
    assert "checked: the labels, against the data set folder:pets" in verified.out
    assert "all votes are the same" in verified.out
    # The page shows the images as they were certified.
    assert smoothmix("report", "run", "--out", "page.html").code == 0
    assert "they are not drawn" not in (pets / "page.html").read_text()

    # predict and photos: one file, prepared in the same way, gets the same votes.
    predicted = smoothmix("predict", "run", "--n", 100, "--max", 1)
    assert predicted.out.splitlines()[1].startswith("0\t0\t")
    photos = smoothmix("certify", "run", "--images", "pets/test/cat/00.png", *quick)
    assert photos.code == 0, photos.err
    assert f"images were {ABOUT}" in photos.out
    (row,) = certificates.read(pets / "run" / "images.tsv").rows
    assert row.counts == file.rows[0].counts

    # By hand, as documented.
    config, network = load_run(pets / "run")
    dataset = data.load(config.data, preparation=config.preparation)
    settings = file.settings.certification
    again = certify_dataset(network, dataset, settings, path=pets / "again.tsv", model_name="lenet")
    assert [row.counts for row in again.rows] == [row.counts for row in file.rows]

    # Options must not contradict the record, and arrays are of the network's size already.
    contradicted = smoothmix("certify", "run", "--resize", 40, "--out", "x.tsv", *quick)
    assert contradicted.code == 2
    assert "the run has recorded how its images were prepared" in contradicted.err
    np.savez(
        pets / "a.npz",
        x=(255 * dataset.images([0, 8])[:, 0].numpy()).round().astype("uint8"),
        y=np.array([0, 1]),
    )
    arrays = smoothmix("certify", "run", "--data", "npz:a.npz", "--out", "a.tsv", *quick)
    assert arrays.code == 0, arrays.err
    first, _ = certificates.read(pets / "a.tsv").rows
    assert first.counts == file.rows[0].counts


def test_a_model_without_a_run_gets_images_of_one_size_by_options(
    smoothmix: Run, pets: Path
) -> None:
    (pets / "tiny.py").write_text(
        "import torch\n"
        "class Tiny(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.w = torch.nn.Parameter(torch.ones(1))\n"
        "    def forward(self, x):\n"
        "        left = x[..., :14].mean((1, 2, 3)) - x[..., 14:].mean((1, 2, 3))\n"
        "        return self.w * torch.stack([0.27 - left, left - 0.27], 1)\n"
    )
    options = ("--model", "tiny:Tiny", "--data", "folder:pets", "--sigma", 0.25, "--n", 200)
    certify = ("certify", *options, "--out", "t.tsv")
    done = smoothmix(*certify, "--resize", 32, "--crop", 28)
    assert done.code == 0, done.err
    file = certificates.read(pets / "t.tsv")
    assert sum(row.correct for row in file.rows) == 16
    other = smoothmix(*certify, "--resize", 30, "--crop", 28)
    assert other.code == 2
    assert "preparation is scaled to 32 pixels" in other.err
    assert "data_hash" not in other.err


def test_an_imported_network_is_certified_on_images_as_it_was_trained(
    smoothmix: Run, pets: Path
) -> None:
    torch.manual_seed(0)
    torch.save(networks.build("lenet", num_classes=2).body.state_dict(), pets / "x.pt")
    own = ("--network", "lenet", "--num-classes", 2, "--sigma", 0.25, "--data", "folder:pets")
    assert smoothmix("import", "x.pt", *own, *RESIZED, "--out", "run").code == 0
    done = smoothmix("certify", "run", "--n0", 5, "--n", 50, "--max", 2)
    assert done.code == 0, done.err
    assert f"note: images {ABOUT}" in done.err


def test_settings_without_resizing_have_the_digest_of_before(
    smoothmix: Run, untrained_run: str, tmp_path: Path
) -> None:
    assert smoothmix("certify", untrained_run, "--n0", 10, "--n", 100, "--max", 1).code == 0
    text = (tmp_path / untrained_run / "certificates.toml").read_text()
    assert "preparation" not in text
    assert "preparation" not in (tmp_path / untrained_run / "config.toml").read_text()
