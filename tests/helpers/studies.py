"""Models and runs that the tests of the studies share, some with a smoothed form that is known."""

from __future__ import annotations

import csv
import io
import math
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from smoothmix.certify.smoothed import Smoothed
from smoothmix.config import Recipe, RunConfig
from smoothmix.data import MemoryDataset, load
from smoothmix.networks.weights import save_weights
from smoothmix.runs.folder import RunFolder
from smoothmix.runs.load import build_network
from smoothmix.studies import NamedClassifier, VoteSettings

PIXELS = 64
"""So many that L2 distances of 1 or 2 are small steps in every pixel, and nothing is clamped."""
VOTES = VoteSettings(n=4000, seed=3)


class HalfSpace(nn.Module):
    """Class 0 where the projection on a unit direction is above that of middle grey, else 1.

    Its smoothed form is known: class 0 has probability Phi(margin / sigma), also after any move,
    with the margin that is left. Every ascent from label 0 goes straight down the direction.
    """

    def __init__(self, classes: int = 2) -> None:
        super().__init__()
        signs = torch.tensor([1.0, -1.0]).repeat(PIXELS // 2)
        self.direction = nn.Parameter(signs / math.sqrt(PIXELS))
        self.classes = classes

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        height = (x.flatten(1) - 0.5) @ self.direction
        never = torch.full((len(x), self.classes - 2), -100.0, device=x.device)
        return torch.cat([torch.stack([height, -height], dim=1), never], dim=1)


def named(name: str, network: nn.Module, *, sigma: float, classes: int) -> NamedClassifier:
    return NamedClassifier(
        name, Smoothed(network, sigma=sigma, num_classes=classes, noise="gaussian")
    )


def half_space(name: str = "half", *, sigma: float = 0.5, classes: int = 2) -> NamedClassifier:
    return named(name, HalfSpace(classes), sigma=sigma, classes=classes)


def images(*margins: float, label: int = 0, name: str = "lines", classes: int = 2) -> MemoryDataset:
    """An image for each margin: grey but for a step along the direction."""
    direction = HalfSpace().direction.detach().numpy()
    pixels = (0.5 + np.array(margins)[:, None] * direction).astype(np.float32)
    return MemoryDataset(
        name=name,
        split="test",
        class_names=tuple("abcdefgh"[:classes]),
        labels=np.full(len(margins), label, dtype=np.int64),
        pixels=pixels.reshape(len(margins), 1, 8, 8),
    )


def deviations(share: float | NDArray[np.float64], p: float | NDArray[np.float64], n: int) -> Any:
    """How many binomial deviations a share of n votes lies from the probability."""
    return np.abs(np.asarray(share) - p) / np.sqrt(np.maximum(p * (1 - np.asarray(p)), 1 / n) / n)


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def small_model() -> NamedClassifier:
    """A network that has learned a little, as each test of real data needs it."""
    return named("small", trained(), sigma=0.5, classes=10)


def config(**changed: Any) -> RunConfig:
    settings: dict[str, Any] = {
        "data": "sample",
        "network": "lenet",
        "method": {"name": "gaussian", "sigma": 0.5},
        "recipe": Recipe(epochs=1),
        "image_shape": (1, 28, 28),
    }
    return RunConfig(**(settings | changed))


@cache
def learned() -> dict[str, torch.Tensor]:
    """Weights after so few steps that some digits are right and some are not."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network, data = build_network(config()), load("sample", "train")
        optimiser = torch.optim.Adam(network.parameters(), lr=2e-3)
        for step in range(30):
            chosen = np.arange(64 * step, 64 * (step + 1))
            x = data.images(chosen)
            logits = network(x + 0.5 * torch.randn_like(x))
            loss = nn.functional.cross_entropy(logits, torch.from_numpy(data.labels[chosen]))
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
    return network.state_dict()


def trained() -> nn.Module:
    network = build_network(config())
    network.load_state_dict(learned())
    return network


def run_folder(where: Path, network: nn.Module | None = None, **changed: Any) -> Path:
    """A run as training leaves it; without a network, as it is before that."""
    config(**changed).save(RunFolder(where).config)
    if network:
        save_weights(network, RunFolder(where).weights)
    return where
