"""Networks run on noisy images: logits for training and attacks, and the accuracy under noise."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from smoothmix._process.world import SINGLE_PROCESS, World
from smoothmix.networks.modes import device_of, eval_mode
from smoothmix.networks.registry import Network
from smoothmix.noise.addresses import Domain, DrawRange, standard_normal

if TYPE_CHECKING:
    from smoothmix.data import Dataset


def noisy_logits(model: nn.Module, x: Tensor, noise: Tensor) -> Tensor:
    """Logits [copies, batch, classes] of x + noise, where noise is [copies, batch, ...]: one forward for all.

    They are in float32 or better, so that what is computed from them is too when the network runs in bf16.
    """
    return _by_copy(model((x + noise).flatten(0, 1)), noise)


def noisy_forward(model: nn.Module, noise: Tensor) -> Callable[[Tensor], Tensor]:
    """x -> logits of x + noise as `noisy_logits` gives them, for many x under one noise and without weight gradients.

    A network of ours begins with an affine map, A(x + d) = A(x) + L(d). Its part of the noise is computed once, and
    A sees each image once instead of once a copy; so does its gradient, the dearest of an attack. One copy has nothing
    to gain from that.
    """
    front = model.front() if isinstance(model, Network) and len(noise) > 1 else None
    if front is None:
        return lambda x: noisy_logits(model, x, noise)
    affine, linear, rest = front
    with torch.no_grad():
        mapped = linear(noise.flatten(0, 1))
    offset = mapped.unflatten(0, noise.shape[:2])  # type: ignore[no-untyped-call]
    return lambda x: _by_copy(rest((affine(x) + offset).flatten(0, 1)), noise)


def _by_copy(logits: Tensor, noise: Tensor) -> Tensor:
    return logits.to(torch.promote_types(logits.dtype, torch.float32)).view(*noise.shape[:2], -1)


EVALUATED_IMAGES = 10_000
EVALUATION_BATCH = 500


def noisy_accuracy(
    model: nn.Module, dataset: Dataset, *, sigma: float, seed: int, world: World = SINGLE_PROCESS
) -> float:
    """Share of images, each with one noise, that the network classifies right; of very many, an even selection.

    With several processes, this one's part of it: their sum is the accuracy.
    """
    device = device_of(model)
    chosen = np.arange(0, len(dataset), -(-len(dataset) // EVALUATED_IMAGES))
    right = 0
    with eval_mode(model), torch.inference_mode():
        for first in range(0, len(chosen), EVALUATION_BATCH)[world.rank :: world.size]:
            indices = chosen[first : first + EVALUATION_BATCH]
            draws = DrawRange(seed, Domain.EVALUATION, item=0, first=first, count=len(indices))
            noise = torch.from_numpy(standard_normal(draws, dataset.shape))
            x = noise.mul_(sigma).add_(dataset.images(indices))
            logits: Tensor = model(x.to(device, memory_format=torch.channels_last))
            right += int((logits.argmax(1).cpu().numpy() == dataset.labels[indices]).sum())
    return right / len(chosen)
