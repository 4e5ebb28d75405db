"""Noisy images are drawn straight into the memory layout that the network wants."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from smoothmix.inference.noisy import noisy_on_processor
from smoothmix.inference.prepare import prepare_network
from smoothmix.noise import NOISES, Domain, DrawRange
from tests.conftest import Linear

SHAPE = (3, 8, 6)


@pytest.mark.parametrize("name", list(NOISES))
@pytest.mark.parametrize("channels_last", [False, True])
def test_pixels_do_not_depend_on_the_layout(name: str, *, channels_last: bool) -> None:
    noise = NOISES[name]()
    image = torch.randint(0, 256, SHAPE, generator=torch.Generator().manual_seed(0)) / 255
    # More than one chunk of grid noise, and ranges that begin within a stream of other noise.
    draws = DrawRange(1, Domain.ESTIMATION, 2, 5, 300)
    network = prepare_network(Linear(784), (1, 28, 28), batch=8)
    network = replace(network, channels_last=channels_last)
    noisy = noisy_on_processor(noise, image, draws, sigma=0.5, network=network)
    assert noisy.pixels.is_contiguous(
        memory_format=torch.channels_last if channels_last else torch.contiguous_format
    )
    expected = noise.noisy_images(image.numpy(), draws, sigma=0.5)
    np.testing.assert_array_equal(noisy.pixels.numpy(), expected.pixels)
