"""Grid noise drawn by torch is numpy's bit for bit, and asks nothing of the host meanwhile."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from smoothmix.certify.smoothed import Smoothed
from smoothmix.inference import grid_on_device as module
from smoothmix.inference.grid_on_device import (
    BatchDrawer,
    GridOnDevice,
    address_words,
    grid_on_device,
    philox,
    signed,
)
from smoothmix.inference.sampler import ImageDraws, Sampler
from smoothmix.noise import Domain, DrawRange, GridNoise
from smoothmix.noise.grid import prepared_search
from smoothmix.noise.philox import Address, scattered_blocks
from tests.conftest import small_convnet

CPU = torch.device("cpu")
SETTINGS = [(0.01, 255), (0.25, 255), (1.0, 255), (0.5, 1), (0.12, 4095), (0.12, 65535)]
SHAPE = (3, 5, 7)


def levels_and_image(
    shape: tuple[int, ...], levels: int
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    integers = np.random.default_rng(0).integers(0, levels, shape, endpoint=True, dtype=np.int32)
    return integers, (integers.astype(np.float32) / np.float32(levels)).astype(np.float32)


def drawn(
    grid: GridOnDevice, base: NDArray[np.int32], draws: DrawRange, *, channels_last: bool = False
) -> module.OnDevice:
    drawer = BatchDrawer(grid, base.shape, draws.count, channels_last=channels_last)
    return drawer.draw(torch.from_numpy(base), draws)


@given(
    seed=st.integers(0, 2**128 - 1),
    part=st.integers(0, 2**64 - 1),
    item=st.integers(0, 2**63 - 1),
    blocks=st.lists(st.integers(0, 2**62), min_size=1, max_size=4),
)
@settings(deadline=None, max_examples=50)
@example(2**128 - 1, 2**64 - 1, 2**63 - 1, [0, 2**62])
def test_words_are_those_of_numpy(seed: int, part: int, item: int, blocks: list[int]) -> None:
    numbers = np.array(blocks, dtype=np.uint64)
    expected = scattered_blocks(Address(seed, part, item, 3), numbers)
    block = torch.from_numpy((numbers + np.uint64(1)).view(np.int64))
    counter = [block, *(torch.tensor(signed(word)) for word in (part, item, 3))]
    key = (torch.tensor(signed(seed % 2**64)), torch.tensor(signed(seed // 2**64)))
    words = torch.stack(philox(counter, key))
    np.testing.assert_array_equal(words.numpy().view(np.uint64), expected)


@settings(deadline=None, max_examples=12)
@given(
    which=st.sampled_from(SETTINGS),
    shape=st.sampled_from([(1, 1, 1), SHAPE, (1, 28, 28)]),
    seed=st.integers(0, 2**128 - 1),
    item=st.sampled_from([0, 9_999, 2**63 - 1]),
    first=st.sampled_from([0, 31, 99_999, 2**33]),
    count=st.integers(1, 40),
)
def test_noisy_images_are_those_of_numpy(
    which: tuple[float, int],
    shape: tuple[int, ...],
    seed: int,
    item: int,
    first: int,
    count: int,
) -> None:
    sigma, levels = which
    noise = GridNoise(levels=levels)
    base, image = levels_and_image(shape, levels)
    draws = DrawRange(seed, Domain.ESTIMATION, item, first, count)
    grid = GridOnDevice(prepared_search(sigma, levels), CPU, torch.float32)
    found = drawn(grid, base, draws)
    assert not found.is_open.any()
    expected = noise.noisy_images(image, draws, sigma=sigma).pixels
    np.testing.assert_array_equal(found.pixels.numpy(), expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_precisions_and_layouts_are_those_of_a_conversion(dtype: torch.dtype) -> None:
    base, image = levels_and_image(SHAPE, 255)
    draws = DrawRange(1, Domain.SELECTION, 2, 3, 50)
    grid = GridOnDevice(prepared_search(0.5, 255), CPU, dtype)
    found = drawn(grid, base, draws, channels_last=True).pixels
    expected = GridNoise().noisy_images(image, draws, sigma=0.5).pixels
    assert found.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(found, torch.from_numpy(expected).to(dtype))


def test_batches_are_drawn_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    base, _ = levels_and_image(SHAPE, 255)
    draws = DrawRange(1, Domain.SELECTION, 2, 3, 50)
    grid = GridOnDevice(prepared_search(0.5, 255), CPU, torch.float32)
    whole = drawn(grid, base, draws).pixels
    monkeypatch.setattr(module, "PIXELS_AT_ONCE", 7 * base.size)
    assert torch.equal(drawn(grid, base, draws).pixels, whole)


def test_random_integers_at_a_threshold_are_left_to_the_processor() -> None:
    base, _ = levels_and_image(SHAPE, 255)
    draws = DrawRange(0, Domain.ESTIMATION, 0, 0, 30)
    search = prepared_search(0.5, 255)
    grid = GridOnDevice(search, CPU, torch.float32)
    seen = []
    searchsorted = torch.searchsorted

    def remembering(values: torch.Tensor, u: torch.Tensor, **options: bool) -> torch.Tensor:
        seen.append(u.clone())
        return searchsorted(values, u, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "searchsorted", remembering)
        drawn(grid, base, draws)
    u = seen[0].numpy() ^ -(2**63)
    prefixes = u.view(np.uint64) >> np.uint64(48)
    # A threshold is moved to the random integer of one undecided pixel.
    draw, pixel = np.argwhere(np.isin(prefixes, search.undecided))[20]
    moved = search.values.copy()
    place = np.searchsorted(moved, u.view(np.uint64)[draw, pixel])
    moved[place] = u.view(np.uint64)[draw, pixel]
    at_threshold = GridOnDevice(replace(search, values=moved), CPU, torch.float32)
    assert drawn(at_threshold, base, draws).is_open.nonzero().ravel().tolist() == [draw]


def test_nothing_waits_for_the_host_or_depends_on_data() -> None:
    """Tensors on the meta device have no numbers: to read one, or make a shape of some, fails."""
    grid = GridOnDevice(prepared_search(0.5, 255), torch.device("meta"), torch.bfloat16)
    drawer = BatchDrawer(grid, SHAPE, 16, channels_last=True)
    base = torch.zeros(SHAPE, dtype=torch.int32)
    found = drawer.draw(base, DrawRange(0, Domain.STUDY, 0, 0, 16))
    assert found.pixels.device.type == found.is_open.device.type == "meta"
    assert found.pixels.shape == (16, *SHAPE)
    assert found.pixels.dtype == torch.bfloat16
    assert found.is_open.shape == (16,)
    for reads_numbers in (torch.nonzero, torch.Tensor.item, torch.Tensor.cpu):
        with pytest.raises((NotImplementedError, RuntimeError)):
            reads_numbers(found.is_open.any())


@pytest.fixture(scope="module")
def counting() -> Iterator[Sampler]:
    model = small_convnet()
    smoothed = Smoothed(model, sigma=0.5, num_classes=10, noise="grid", batch=64)
    with smoothed.open((1, 28, 28), seed=3) as sampler:
        yield sampler


def test_votes_are_those_of_noise_from_the_processor(counting: Sampler) -> None:
    _, image = levels_and_image((1, 28, 28), 255)
    draws = ImageDraws(
        image=torch.from_numpy(image), index=4, domain=Domain.ESTIMATION, start=0, stop=200
    )
    expected = counting.tally([draws])
    on_device = replace(counting, draws_on_device=True)
    np.testing.assert_array_equal(on_device.tally([draws]), expected)
    ties = counting.near_ties(draws, tolerance=0.01)
    np.testing.assert_array_equal(on_device.near_ties(draws, tolerance=0.01), ties)


def test_what_the_device_leaves_open_the_processor_draws(
    counting: Sampler, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, image = levels_and_image((1, 28, 28), 255)
    draws = ImageDraws(
        image=torch.from_numpy(image), index=4, domain=Domain.ESTIMATION, start=0, stop=60
    )
    expected = counting.tally([draws])
    # Most draws have more undecided prefixes than this.
    monkeypatch.setattr(GridOnDevice, "capacity", lambda self, size: 8)
    module.batch_drawer.cache_clear()
    grid = grid_on_device(GridNoise(), 0.5, CPU, torch.float32)
    assert grid is not None
    base, _ = levels_and_image((1, 28, 28), 255)
    assert drawn(grid, base, DrawRange(3, Domain.ESTIMATION, 4, 0, 60)).is_open.any()
    on_device = replace(counting, draws_on_device=True)
    np.testing.assert_array_equal(on_device.tally([draws]), expected)
    module.batch_drawer.cache_clear()


def test_a_device_that_computes_otherwise_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROUNDS", 9)
    module.grid_on_device.cache_clear()
    with pytest.warns(UserWarning, match="the processor draws it"):
        assert grid_on_device(GridNoise(), 0.25, CPU, torch.float32) is None
    monkeypatch.undo()
    module.grid_on_device.cache_clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert grid_on_device(GridNoise(), 0.25, CPU, torch.float32) is not None


def test_the_address_has_the_bits_of_a_secret_key() -> None:
    draws = DrawRange(2**128 - 2, Domain.PREDICTION, 7, 11, 1)
    assert address_words(draws).tolist() == [-2, -1, 7, int(Domain.PREDICTION), 11]
