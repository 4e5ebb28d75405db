"""All 128 bits of a key reach every generator of noise."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smoothmix.noise import NOISES, Domain, DrawRange
from smoothmix.noise.philox import Address, contiguous_blocks, scattered_blocks

IMAGE = np.full((1, 4, 4), 0.6, dtype=np.float32)


@given(st.integers(0, 2**128 - 1))
def test_grid_noise_takes_its_words_from_the_whole_key(seed: int) -> None:
    """The definition, without our function: the lower word of the key, then the upper one."""
    key = np.frombuffer(seed.to_bytes(16, "little"), dtype="<u8")
    words = np.random.Philox(key=key, counter=[3, 7, 5, 1]).random_raw(8)
    address = Address(seed, 7, 5, 1)
    np.testing.assert_array_equal(contiguous_blocks(address, 3, 2), words)
    blocks = scattered_blocks(address, np.array([3, 4], dtype=np.uint64))
    np.testing.assert_array_equal(blocks.T.ravel(), words)


@pytest.mark.parametrize("name", ["gaussian", "grid", "uniform", "laplace"])
def test_no_noise_ignores_the_upper_half_of_a_key(name: str) -> None:
    noise = NOISES[name]()
    seen = []
    for seed in (5, 5 + 2**64, 5 + 2**127):
        draws = DrawRange(seed, Domain.ESTIMATION, 0, 0, 8)
        assert str(seed) not in repr(draws)
        seen.append(noise.noisy_images(IMAGE, draws, sigma=0.5).pixels.tobytes())
    assert len(set(seen)) == 3
