"""Grid noise equals the slow reference bit for bit, is exact at thresholds, well distributed."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from smoothmix.data.dataset import to_float
from smoothmix.errors import UsageError
from smoothmix.noise import GAUSSIAN, Domain, DrawRange, GridNoise
from smoothmix.noise.grid import (
    PIXELS_PER_PIECE,
    PREFIX_PART,
    REST_PART,
    Search,
    prepared_search,
)
from smoothmix.noise.philox import Address, contiguous_blocks, scattered_blocks
from smoothmix.noise.streams import stream
from smoothmix.noise.thresholds import LARGEST, Thresholds
from tests.noise import reference
from tests.prove import grid as proofs

SETTINGS = [(0.01, 255), (0.12, 255), (0.25, 255), (0.5, 255), (1.0, 255), (0.5, 1), (0.3, 2)]
SETTINGS += [(10.0, 255), (0.5, 1023), (0.25, 4095), (0.12, 65535), (0.5, 65535)]


search_of = cache(prepared_search)
"""More of them than the package keeps at a time."""


def image_on_grid(shape: tuple[int, ...], levels: int, seed: int = 0) -> NDArray[np.float32]:
    integers = np.random.default_rng(seed).integers(0, levels, shape, endpoint=True)
    return (integers.astype(np.float32) / np.float32(levels)).astype(np.float32)


@settings(deadline=None, max_examples=25)
@given(
    which=st.sampled_from(SETTINGS),
    shape=st.sampled_from([(1, 1, 1), (3, 2, 2), (1, 4, 4), (1, 5, 7), (3, 5, 5)]),
    seed=st.integers(0, 2**128 - 1),
    item=st.sampled_from([0, 1, 9_999, 2**40, 2**63 - 1]),
    first=st.sampled_from([0, 1, 31, 32, 99_999, 2**33]),
    count=st.integers(1, 3),
)
@example((0.5, 255), (1, 28, 28), 0, 0, 0, 2)
def test_equals_the_slow_reference(
    which: tuple[float, int], shape: tuple[int, ...], seed: int, item: int, first: int, count: int
) -> None:
    sigma, levels = which
    noise = GridNoise(levels=levels)
    image = image_on_grid(shape, levels, seed=seed)
    draws = DrawRange(seed, Domain.ESTIMATION, item, first, count)
    noisy = noise.noisy_images(image, draws, sigma=sigma)
    assert noisy.pixels.dtype == np.float32
    assert noisy.pixels.shape == (count, *shape)
    assert noisy.ambiguous.size == 0
    base = noise.levels_of(image).ravel().tolist()
    domain = int(Domain.ESTIMATION)
    for position in range(count):
        draw = first + position
        integers = reference.noise_of_draw(seed, domain, item, draw, image.size, sigma, levels)
        expected = reference.noisy_pixels(base, integers, sigma, levels)
        assert noisy.pixels[position].ravel().tolist() == expected


@pytest.mark.parametrize("levels", [255, 65535])
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 5, 5), (1, 1, 1)])
def test_a_draw_is_the_same_wherever_ranges_are_cut(levels: int, shape: tuple[int, ...]) -> None:
    noise = GridNoise(levels=levels)
    image = image_on_grid(shape, levels)
    whole = noise.noisy_images(image, DrawRange(1, Domain.SELECTION, 7, 3, 130), sigma=0.5).pixels
    for start, stop in [(0, 1), (0, 44), (17, 129), (129, 130)]:
        draws = DrawRange(1, Domain.SELECTION, 7, 3 + start, stop - start)
        part = noise.noisy_images(image, draws, sigma=0.5).pixels
        np.testing.assert_array_equal(part, whole[start:stop])
    other = noise.noisy_images(image, DrawRange(1, Domain.ESTIMATION, 7, 3, 130), sigma=0.5).pixels
    assert (other != whole).mean() > 0.2


def test_large_images_are_made_in_pieces() -> None:
    noise = GridNoise()
    image = image_on_grid((3, 400, 400), 255)
    assert 5 * image.size > PIXELS_PER_PIECE
    whole = noise.noisy_images(image, DrawRange(1, Domain.SELECTION, 7, 5, 6), sigma=0.5).pixels
    last = noise.noisy_images(image, DrawRange(1, Domain.SELECTION, 7, 10, 1), sigma=0.5).pixels
    np.testing.assert_array_equal(last[0], whole[5])


@given(
    seed=st.integers(0, 2**128 - 1),
    upper=st.tuples(*[st.integers(0, 2**64 - 1)] * 3),
    blocks=st.lists(st.integers(0, 2**64 - 2), min_size=1, max_size=5),
)
def test_scattered_blocks_are_those_of_numpy(
    seed: int, upper: tuple[int, int, int], blocks: list[int]
) -> None:
    address = Address(seed, *upper)
    scattered = scattered_blocks(address, np.array(blocks, dtype=np.uint64))
    for column, block in enumerate(blocks):
        expected = contiguous_blocks(address, block, 1)
        np.testing.assert_array_equal(scattered[:, column], expected)


def test_words_are_shared_with_no_other_noise() -> None:
    """The same seed, domain and item: Gaussian streams and both parts of the grid are disjoint."""
    parts = [PREFIX_PART, REST_PART]
    words = [contiguous_blocks(Address(5, part, 3, 1), 0, 20_000) for part in parts]
    for number in range(4):
        generator = stream(5, Domain.ESTIMATION, 3, number).bit_generator
        words.append(np.asarray(generator.random_raw(80_000)))
    together = np.concatenate(words)
    assert np.unique(together).size == together.size
    # Streams are numbered by draws, which never reach the numbers of the parts.
    assert min(parts) >= 2**63


@pytest.mark.parametrize(("sigma", "levels"), [*SETTINGS, (1e-300, 255)])
def test_thresholds_are_exact_within_their_margin(sigma: float, levels: int) -> None:
    thresholds = search_of(sigma, levels).thresholds
    values = thresholds.values
    assert values[0] == 0
    assert values[-1] == LARGEST
    assert (values[1:] >= values[:-1]).all()
    assert values.size == thresholds.highest - thresholds.lowest + 1
    chosen = np.random.default_rng(0).integers(0, values.size, 100)
    edges = [0, 1, values.size // 2 - 1, values.size // 2, values.size - 2, values.size - 1]
    for position in {*chosen.tolist(), *edges} & set(range(values.size)):
        j = thresholds.lowest + position
        exact = thresholds.exact(j)
        if sigma > 1e-100:
            assert exact == reference.threshold(j, sigma, levels) or j == thresholds.highest
        assert abs(int(values[position]) - exact) <= thresholds.margin


@pytest.mark.parametrize("levels", [255, 65535])
def test_eight_bit_thresholds_have_no_error(levels: int) -> None:
    assert (Thresholds(0.5, levels).margin == 0) == (levels == 255)


def completed(search: Search, u: list[int]) -> tuple[list[int], list[bool]]:
    words = np.array(u, dtype=np.uint64)
    prefixes = (words >> np.uint64(48)).astype(np.uint16)
    rests = words & np.uint64(2**48 - 1)
    numbers, ambiguous = search.complete(search.table[prefixes], rests)
    return numbers.tolist(), ambiguous.tolist()


@pytest.mark.parametrize(("sigma", "levels"), SETTINGS)
def test_only_thresholds_are_ambiguous(sigma: float, levels: int) -> None:
    search = search_of(sigma, levels)
    thresholds = search.thresholds
    reach = min(3, thresholds.highest - 1)
    for j in {-reach, -1, 0, reach, thresholds.lowest // 2, thresholds.highest // 2}:
        value = thresholds.exact(j)
        numbers, ambiguous = completed(search, [value - 1, value, value + 1])
        assert ambiguous == [False, True, False]
        assert numbers == [j, j + 1, j + 1]


@pytest.mark.parametrize(("sigma", "levels"), SETTINGS)
def test_the_ends_of_all_random_integers(sigma: float, levels: int) -> None:
    search = search_of(sigma, levels)
    numbers, ambiguous = completed(search, [0, 5, LARGEST - 5, LARGEST])
    assert ambiguous[0]
    assert ambiguous[-1]
    assert numbers[1] == reference.rounded_normal(5, sigma, levels)
    assert numbers[2] == reference.rounded_normal(LARGEST - 5, sigma, levels)


def test_ambiguous_draws_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thresholds are moved to the random integers of two pixels, which makes these ambiguous."""
    draws = DrawRange(0, Domain.ESTIMATION, 4, 10, 50)
    image = np.zeros((1, 28, 28), dtype=np.float32)
    noise = GridNoise()
    before = noise.noisy_images(image, draws, sigma=0.5).pixels
    seen: list[NDArray[np.uint64]] = []
    complete = Search.complete

    def at_threshold(
        self: Search, codes: NDArray[np.int16], rests: NDArray[np.uint64]
    ) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
        rests = rests.copy()
        for position in (0, rests.size - 1):
            rests[position] = self.first_rest[int(codes[position]) - self.first_code]
        seen.append(rests)
        return complete(self, codes, rests)

    monkeypatch.setattr(Search, "complete", at_threshold)
    noisy = noise.noisy_images(image, draws, sigma=0.5)
    assert seen[0].size > 100
    # Every draw has some pixels whose prefix does not decide, the first and the last one too.
    assert noisy.ambiguous.tolist() == [0, 49]
    np.testing.assert_array_equal(noisy.pixels[1:-1], before[1:-1])


@pytest.mark.parametrize("levels", [1, 2, 255, 1023, 65535])
def test_one_float_for_each_grid_point(levels: int) -> None:
    """The float of a sum is the one that data sets make of the same integer."""
    noise = GridNoise(levels=levels)
    image = image_on_grid((1, 16, 16), levels)
    pixels = noise.noisy_images(image, DrawRange(0, Domain.STUDY, 0, 0, 20), sigma=0.5).pixels
    integers = np.rint(pixels.astype(np.float64) * levels)
    np.testing.assert_array_equal(pixels, integers.astype(np.float32) / np.float32(levels))
    assert not np.signbit(pixels[pixels == 0]).any()
    by_torch = torch.from_numpy(integers).to(torch.float32).div_(levels).numpy()
    np.testing.assert_array_equal(pixels, by_torch)


def test_images_of_data_sets_lie_on_the_grid() -> None:
    bytes_ = np.arange(256, dtype=np.uint8).reshape(1, 1, 16, 16)
    image = to_float(bytes_)[0].numpy()
    np.testing.assert_array_equal(GridNoise().levels_of(image), bytes_[0])
    # Without noise to speak of, they come back as they were, bit for bit.
    draws = DrawRange(0, Domain.STUDY, 0, 0, 3)
    noisy = GridNoise().noisy_images(image, draws, sigma=1e-6).pixels
    np.testing.assert_array_equal(noisy, np.repeat(image[None], 3, axis=0))
    # Other libraries multiply by 1/255 instead.
    multiplied = (bytes_[0] * np.float32(1 / 255)).astype(np.float32)
    np.testing.assert_array_equal(GridNoise().levels_of(multiplied), bytes_[0])


@pytest.mark.parametrize("pixel", [0.5, 1e-6, 1.0 + 1 / 255, -1 / 255, math.nan, math.inf, 1e30])
def test_images_off_the_grid_are_refused(pixel: float) -> None:
    image = np.zeros((1, 2, 2), dtype=np.float32)
    image[0, 1, 0] = pixel
    with pytest.raises(UsageError, match=r'noise="gaussian" \(--noise gaussian\)'):
        GridNoise().levels_of(image)


def test_sums_are_clipped(monkeypatch: pytest.MonkeyPatch) -> None:
    def far_out(
        self: Search, codes: NDArray[np.int16], rests: NDArray[np.uint64]
    ) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
        signs = np.where(np.arange(rests.size) % 2, 1, -1)
        return (signs * 5000).astype(np.int32), np.zeros(rests.size, dtype=np.bool_)

    monkeypatch.setattr(Search, "complete", far_out)
    image = np.ones((1, 28, 28), dtype=np.float32)
    for sigma, k in [(0.01, 1), (0.25, 2), (0.5, 3), (1.0, 6)]:
        noise = GridNoise()
        assert noise.clip(sigma) == k
        draws = DrawRange(0, Domain.STUDY, 0, 0, 50)
        pixels = noise.noisy_images(image, draws, sigma=sigma).pixels
        assert pixels.min() == -k
        assert pixels.max() == k + 1


def test_k_follows_from_the_exact_value_of_sigma() -> None:
    third = 1 / 3
    assert GridNoise().clip(third) == 2
    assert GridNoise().clip(math.nextafter(0.5, 1)) == 4
    assert GridNoise().clip(0.01) == 1


@pytest.mark.parametrize("levels", [0, -1, 65536, 2.5, "255"])
def test_levels_that_cannot_be_are_refused(levels: int) -> None:
    with pytest.raises(UsageError, match="levels must be"):
        GridNoise(levels=levels)


def test_a_sigma_too_large_for_the_grid_is_refused() -> None:
    image = np.zeros((1, 1, 1), dtype=np.float32)
    draws = DrawRange(0, Domain.STUDY, 0, 0, 1)
    with pytest.raises(UsageError, match="with 65535 levels, sigma must be at most 16"):
        GridNoise(levels=65535).noisy_images(image, draws, sigma=17.0)
    with pytest.raises(UsageError, match="sigma must be a positive number"):
        GridNoise().noisy_images(image, draws, sigma=0.0)


def test_noise_alone_is_what_images_get() -> None:
    draws = DrawRange(3, Domain.ATTACK, 1, 0, 40)
    alone = GridNoise().sample(draws, (3, 7, 7), sigma=0.25)
    black = np.zeros((3, 7, 7), dtype=np.float32)
    np.testing.assert_array_equal(alone, GridNoise().noisy_images(black, draws, sigma=0.25).pixels)


def test_noise_that_is_scaled_is_refused() -> None:
    with pytest.raises(UsageError, match='choose noise="gaussian"'):
        GridNoise().fill(np.random.default_rng(0), np.empty(3, dtype=np.float32))


def test_radii_are_those_of_gaussian_noise() -> None:
    p = np.linspace(0.01, 0.999, 50)
    for sigma, radius in product((0.25, 1.0), (0.1, 2.0)):
        np.testing.assert_array_equal(
            GridNoise().radius(p, sigma=sigma), GAUSSIAN.radius(p, sigma=sigma)
        )
        expected = GAUSSIAN.probability(radius, sigma=sigma)
        assert GridNoise().probability(radius, sigma=sigma) == expected


@cache
def sample(sigma: float, levels: int) -> proofs.Sample:
    return proofs.collect(sigma, levels, 3_000_000)


@pytest.mark.parametrize("check", proofs.CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize(("sigma", "levels"), [(0.25, 255), (0.5, 65535)])
def test_distribution_of_a_sample(check: proofs.Check, sigma: float, levels: int) -> None:
    """What `make prove` does with a billion draws."""
    findings = list(check(sample(sigma, levels)))
    assert findings
    for finding in findings:
        assert finding.p_value > proofs.LEAST_P, finding


@pytest.mark.parametrize("wrong", ["wider", "moved", "dependent"])
def test_the_proofs_notice_noise_that_is_wrong(wrong: str) -> None:
    """Otherwise they would prove nothing."""
    found = sample(0.25, 255)
    if wrong == "wider":
        found = replace(found, sigma=0.2515)
    elif wrong == "moved":
        # One zero in ten becomes a one.
        counts = found.counts.copy()
        moved = counts[found.reach] // 10
        counts[found.reach] -= moved
        counts[found.reach + 1] += moved
        found = replace(found, counts=counts)
    else:
        (name, table), *_ = found.pairs.items()
        shifted = table + table.sum() // 2000 * np.eye(proofs.CODES, dtype=np.int64)
        found = replace(found, pairs={name: shifted})
    findings = [finding for check in proofs.CHECKS for finding in check(found)]
    assert min(finding.p_value for finding in findings) < proofs.LEAST_P
