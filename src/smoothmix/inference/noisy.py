"""Noisy images for a prepared network: where it runs, and in the memory layout that it wants."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from smoothmix.inference.grid_on_device import batch_drawer, grid_on_device
from smoothmix.inference.prepared import PreparedNetwork
from smoothmix.noise import DrawRange, GridNoise, Noise

NONE_AMBIGUOUS = np.empty(0, dtype=np.int64)


class NoisyImages(NamedTuple):
    """Noisy images as a tensor [count, channels, height, width]."""

    pixels: Tensor

    ambiguous: NDArray[np.int64]
    """Positions of the draws that vote for nobody."""

    is_open: Tensor | None = None
    """On a device: which draws only the processor can draw."""

    def needs_processor(self) -> bool:
        """Whether the images have to be drawn again on the processor; waits for the device."""
        return self.is_open is not None and bool(self.is_open.any())


def noisy_on_processor(
    noise: Noise, image: Tensor, draws: DrawRange, *, sigma: float, network: PreparedNetwork
) -> NoisyImages:
    """Noisy images drawn by numpy, straight into the layout of the network."""
    memory_format = torch.contiguous_format
    if network.channels_last and image.dim() == 3:
        memory_format = torch.channels_last
    # From pinned memory, a GPU fetches them by itself.
    pin_memory = network.device.type == "cuda"
    pixels = torch.empty(
        (draws.count, *image.shape), memory_format=memory_format, pin_memory=pin_memory
    )
    noisy = noise.noisy_images(image.numpy(), draws, sigma=sigma, out=pixels.numpy())
    if pin_memory:  # pragma: no cover - no GPU was at hand
        pixels = pixels.to(network.device, non_blocking=True)
    return NoisyImages(pixels, noisy.ambiguous)


def noisy_on_device(
    noise: Noise, image: Tensor, draws: DrawRange, *, sigma: float, network: PreparedNetwork
) -> NoisyImages | None:
    """The same noisy images drawn where the network runs; None where that is not possible."""
    if not isinstance(noise, GridNoise) or image.dim() != 3:
        return None
    grid = grid_on_device(noise, sigma, network.device, network.dtype)
    if grid is None:
        return None
    drawer = batch_drawer(grid, tuple(image.shape), draws.count, network.channels_last)
    base = torch.from_numpy(noise.levels_of(image.numpy()))
    pixels, is_open = drawer.draw(base, draws)
    return NoisyImages(pixels, NONE_AMBIGUOUS, is_open)
