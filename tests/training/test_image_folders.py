"""Training on image files in folders, as ImageNet, and on colour images in memory, as CIFAR-10."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from smoothmix import certificates
from smoothmix.config import RunConfig
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
