"""Networks run on noisy images: logits for training and attacks, and the accuracy under noise."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from smoothmix._process.world import SINGLE_PROCESS, World
from smoothmix.networks.modes import device_of, eval_mode
from smoothmix.networks.network import Network, Split
from smoothmix.networks.pooling import can_pool, pooled_sum, quarters
from smoothmix.noise.streams import Domain, DrawRange, standard_normal

if TYPE_CHECKING:
    from smoothmix.data import Dataset


EVALUATED_IMAGES = 10_000
"""Most images that `noisy_accuracy` classifies."""

EVALUATION_BATCH = 500


def noisy_logits(model: nn.Module, x: Tensor, noise: Tensor) -> Tensor:
    """Logits [copies, batch, classes] of x + noise, with noise [copies, batch, ...].

    One forward serves all copies. The logits are in float32 or better also if the network runs in
    bf16, and so is what is computed from them.
    """
    return _by_copy(model((x + noise).flatten(0, 1)), noise)


def noisy_forward(model: nn.Module, noise: Tensor) -> Callable[[Tensor], Tensor]:
    """A function of x that returns the logits of x + noise, as `noisy_logits` does.

    It is for many x with the same noise, and gives no gradient for the first layer's weights.
    """
    split = None
    if isinstance(model, Network) and len(noise) > 1:
        split = model.split()
    if split is None:
        return lambda x: noisy_logits(model, x, noise)

    # The first layers are an affine map A with linear part L, and A(x + d) = A(x) + L(d). L(d) is
    # computed once. A(x), and its gradient, which is the most expensive of an attack, is computed
    # once per image instead of once per copy.
    with torch.no_grad():
        mapped = split.linear(noise.flatten(0, 1))
    offset = mapped.unflatten(0, noise.shape[:2])  # type: ignore[no-untyped-call]
    if split.after_pooling is not None and can_pool(mapped, len(noise)):
        return _pooled_forward(split, split.after_pooling, offset, noise)

    def forward(x: Tensor) -> Tensor:
        inner = split.affine(x) + offset
        return _by_copy(split.rest(inner.flatten(0, 1)), noise)

    return forward


def _pooled_forward(
    split: Split, after_pooling: nn.Module, offset: Tensor, noise: Tensor
) -> Callable[[Tensor], Tensor]:
    """`noisy_forward` of a network that pools its first maps, such as LeNet."""
    offsets = quarters(offset)

    def forward(x: Tensor) -> Tensor:
        pooled = pooled_sum(split.affine(x), offsets)
        return _by_copy(after_pooling(pooled.flatten(0, 1)), noise)

    return forward


def _by_copy(logits: Tensor, noise: Tensor) -> Tensor:
    precise = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return precise.view(*noise.shape[:2], -1)


def noisy_accuracy(
    model: nn.Module, dataset: Dataset, *, sigma: float, seed: int, world: World = SINGLE_PROCESS
) -> float:
    """Share of images that the network classifies correctly, each with one noise sample.

    Of more than `EVALUATED_IMAGES`, an even selection is classified. With several processes, each
    returns its part of the accuracy: their sum is the accuracy.
    """
    device = device_of(model)
    spacing = math.ceil(len(dataset) / EVALUATED_IMAGES)
    chosen = np.arange(0, len(dataset), spacing)
    batches = range(0, len(chosen), EVALUATION_BATCH)
    correct = 0
    with eval_mode(model), torch.inference_mode():
        for first in batches[world.rank :: world.size]:
            indices = chosen[first : first + EVALUATION_BATCH]
            draws = DrawRange(seed, Domain.EVALUATION, item=0, first=first, count=len(indices))
            noise = torch.from_numpy(standard_normal(draws, dataset.shape))
            x = noise.mul_(sigma).add_(dataset.images(indices))
            logits: Tensor = model(x.to(device, memory_format=torch.channels_last))
            predictions = logits.argmax(1).cpu().numpy()
            correct += int((predictions == dataset.labels[indices]).sum())
    return correct / len(chosen)
