"""What a network answers to each draw of an image, for comparisons that counts would hide."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from smoothmix.noise import GRID, Domain, DrawRange

CLOSE = 1e-4
"""Draws whose two highest logits lie nearer than this may vote otherwise in another library."""


def noisy_inputs(image: Tensor, index: int, *, n: int, seed: int, sigma: float) -> Tensor:
    """The n noisy images that `Smoothed.votes` gives the network for image number `index`."""
    draws = DrawRange(seed, Domain.PREDICTION, index, 0, n)
    return torch.from_numpy(GRID.noisy_images(image.numpy(), draws, sigma=sigma).pixels)


def logits_of(model: nn.Module, inputs: Tensor, *, batch: int = 100) -> Tensor:
    """The logits of each input."""
    with torch.inference_mode():
        return torch.cat([model(part) for part in inputs.split(batch)])


def counted_votes(logits: Tensor) -> Tensor:
    """Votes by class."""
    return torch.bincount(logits.argmax(1), minlength=logits.shape[1])


def is_close(logits: Tensor) -> Tensor:
    """Which draws have two highest logits that nearly tie."""
    highest = logits.topk(2, dim=1).values
    return highest[:, 0] - highest[:, 1] <= CLOSE
