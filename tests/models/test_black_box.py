"""Functions that give labels: their votes, what is checked about them, and what is recorded."""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import smoothmix as sm
from smoothmix.data import MemoryDataset
from smoothmix.models import BlackBox
from smoothmix.noise import Domain, DrawRange, GridNoise
from tests.conftest import ROOT

SHAPE = (1, 8, 8)
LEVELS = 16
"""The digits of scikit-learn have 17 shades of grey."""

Images = NDArray[np.float32]


def brighter_half(images: Images) -> NDArray[np.int64]:
    """0 where the left half is brighter, 1 where the right one is."""
    left = images[..., :4].sum((1, 2, 3))
    right = images[..., 4:].sum((1, 2, 3))
    return (right > left).astype(np.int64)


def smoothed_halves(labels_of: Any = brighter_half, **options: Any) -> sm.Smoothed:
    noise = GridNoise(LEVELS)
    return sm.Smoothed.from_function(labels_of, sigma=0.5, num_classes=2, noise=noise, **options)


def some_images(count: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(5)
    return torch.randint(0, LEVELS + 1, (count, *SHAPE), generator=generator) / LEVELS


def test_a_classifier_of_scikit_learn_is_certified_on_digits() -> None:
    datasets = pytest.importorskip("sklearn.datasets", reason="needs scikit-learn")
    linear_model = pytest.importorskip("sklearn.linear_model")
    pixels, labels = datasets.load_digits(return_X_y=True)
    scaled = (pixels / LEVELS).astype(np.float32)
    classifier = linear_model.LogisticRegression(max_iter=200).fit(scaled[:1000], labels[:1000])

    def labels_of(images: Images) -> Any:
        return classifier.predict(images.reshape(len(images), -1))

    noise = GridNoise(LEVELS)
    smoothed = sm.Smoothed.from_function(
        labels_of, sigma=0.25, num_classes=10, noise=noise, batch=100
    )
    images = torch.from_numpy(scaled[1000:1020]).view(-1, *SHAPE)
    certified = smoothed.certify(images, n=1_000, seed=3)

    # The same draws, made and classified without any of our machinery but the noise.
    for row in range(3):
        draws = DrawRange(3, Domain.ESTIMATION, row, 0, 1_000)
        noisy = noise.noisy_images(images[row].numpy(), draws, sigma=0.25)
        expected = np.bincount(classifier.predict(noisy.pixels.reshape(1_000, -1)), minlength=10)
        assert certified.counts[row].tolist() == expected.tolist()
    right = certified.prediction == torch.from_numpy(labels[1000:1020])
    assert right.sum() >= 14
    assert (certified.radius[right] > 0).all()
    assert certified.squared is not None


def test_a_function_has_no_gradient() -> None:
    model = BlackBox(brighter_half, num_classes=2)
    with pytest.raises(sm.SmoothmixError, match="gives outputs and no gradients"):
        model(some_images(1).requires_grad_())
    with torch.inference_mode():
        assert model(some_images(1)).shape == (1, 2)


def test_torch_functions_batches_and_threads_change_no_vote() -> None:
    def in_torch(images: torch.Tensor) -> torch.Tensor:
        assert isinstance(images, torch.Tensor)
        return torch.from_numpy(brighter_half(images.numpy()))

    images = some_images(3)
    expected = smoothed_halves().votes(images, n=700, seed=1)
    assert (expected.sum(1) == 700).all()
    assert 0 < int(expected[:, 0].sum()) < 2100
    for options in (
        {"labels_of": in_torch, "arrays": "torch"},
        {"concurrency": 5, "batch": 64},
        {"labels_of": lambda images: brighter_half(images).tolist()},
    ):
        votes = smoothed_halves(**options).votes(images, n=700, seed=1)
        assert torch.equal(votes, expected), options


@pytest.mark.parametrize("concurrency", [1, 6])
def test_as_many_calls_run_at_once_as_allowed_and_no_more(concurrency: int) -> None:
    # More than this machine has threads: a remote service computes elsewhere.
    lock = threading.Lock()
    running = 0
    most = 0

    def slow(images: Images) -> NDArray[np.int64]:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.02)
        with lock:
            running -= 1
        return brighter_half(images)

    smoothed_halves(slow, concurrency=concurrency, batch=16).votes(some_images(1), n=400, seed=1)
    assert most == concurrency


def test_batches_of_large_images_are_not_cut() -> None:
    sizes = []

    def count(images: Images) -> NDArray[np.int64]:
        sizes.append(len(images))
        return np.zeros(len(images), dtype=np.int64)

    smoothed = sm.Smoothed.from_function(count, sigma=0.5, num_classes=2, batch=32)
    smoothed.votes(torch.zeros(1, 3, 256, 256), n=64, seed=1)
    assert sizes[-2:] == [32, 32]


def test_what_is_no_label_is_refused() -> None:
    wrong = {
        "labels from 2 to 2": lambda images: np.full(len(images), 2),
        "one label for each": lambda images: np.zeros((len(images), 1), dtype=int),
        "such as scores.argmax": lambda images: np.zeros((len(images), 2)),
        "such as cat": lambda images: np.array(["cat"] * len(images)),
        "whole numbers": lambda images: np.zeros(len(images)),
        "no service": _raise,
    }
    for message, labels_of in wrong.items():
        with pytest.raises(sm.SmoothmixError, match=message):
            smoothed_halves(labels_of).votes(some_images(1), n=10)
    with pytest.raises(sm.SmoothmixError, match="a black box is a function, not int"):
        smoothed_halves(3)
    with pytest.raises(sm.SmoothmixError, match="concurrency must be at least 1"):
        smoothed_halves(concurrency=0)
    with pytest.raises(sm.SmoothmixError, match="arrays must be numpy or torch"):
        smoothed_halves(arrays="jax")


def _raise(images: Images) -> NDArray[np.int64]:
    raise ConnectionError("no service")


def test_labels_that_depend_on_the_other_images_are_refused() -> None:
    def above_the_average(images: Images) -> NDArray[np.int64]:
        brightness = images.mean((1, 2, 3))
        return (brightness > brightness.mean()).astype(np.int64)

    with pytest.raises(sm.SmoothmixError, match="depends on the others in its batch"):
        smoothed_halves(above_the_average).votes(some_images(1), n=10)


def test_labels_that_change_from_call_to_call_are_reported() -> None:
    generator = np.random.default_rng(0)

    def guess(images: Images) -> NDArray[np.int64]:
        return generator.integers(0, 2, len(images))

    with pytest.warns(UserWarning, match="cannot be reproduced"):
        smoothed_halves(guess).votes(some_images(1), n=10)


def test_a_file_records_the_function_and_is_resumed_with_the_same_one_only(tmp_path: Path) -> None:
    pixels = (some_images(4) * 255).round().to(torch.uint8).numpy()
    dataset = MemoryDataset(
        name="halves",
        split="test",
        class_names=("left", "right"),
        labels=np.array([0, 1, 0, 1]),
        pixels=pixels,
    )
    certification = sm.Certification(sigma=0.5, guarantee=sm.FixedDraws(200))

    def certify(labels_of: Any, version: str) -> sm.certificates.Certificates:
        model = BlackBox(labels_of, num_classes=2, version=version)
        return sm.certify_dataset(
            model, dataset, certification, path=tmp_path / "c.tsv", model_name="halves"
        )

    first = certify(brighter_half, "v1")
    assert first.settings is not None
    assert first.settings.engine == "function"
    assert __name__ in first.settings.sources
    assert "64x2 logits" in first.settings.probe
    assert certify(brighter_half, "v1").rows == first.rows
    with pytest.raises(sm.SmoothmixError, match="model_hash"):
        certify(brighter_half, "v2")
    with pytest.raises(sm.SmoothmixError, match="gives other logits"):
        certify(lambda images: 1 - brighter_half(images), "v1")


def test_the_code_on_the_page_about_models_runs() -> None:
    page = (ROOT / "docs" / "models.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    assert len(blocks) == 3
    exec(compile("".join(blocks), "models.md", "exec"), {})
