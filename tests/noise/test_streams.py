"""Addressed noise: the same wherever it is asked for, independent everywhere else, and normal."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.random import Generator
from scipy.stats import kstest, norm

from smoothmix.noise.philox import Address
from smoothmix.noise.streams import (
    DRAWS_PER_STREAM,
    SCHEME,
    Domain,
    DrawRange,
    fresh_seed,
    standard_normal,
    stream,
)

SHAPE = (1, 3, 2)


def gaussian(
    seed: int, domain: Domain, item: int, first: int, count: int, shape: tuple[int, ...]
) -> np.ndarray:
    return standard_normal(DrawRange(seed, domain, item, first, count), shape)


def draw(
    first: int, count: int, *, seed: int = 1, domain: Domain = Domain.ESTIMATION, item: int = 0
) -> np.ndarray:
    return gaussian(seed, domain, item, first, count, SHAPE)


@given(st.integers(0, 200), st.integers(1, 100), st.integers(0, 50), st.integers(0, 2**63 - 1))
def test_a_draw_is_the_same_in_whatever_range_it_is_asked_for(
    first: int, count: int, before: int, seed: int
) -> None:
    start = max(0, first - before)
    wider = draw(start, first + count + 5 - start, seed=seed)
    np.testing.assert_array_equal(
        draw(first, count, seed=seed), wider[first - start : first - start + count]
    )


def test_a_draw_is_its_own_stream_read_from_the_start() -> None:
    """The definition, without our function.

    Draw j is slice j mod 32 of the stream number j // 32.
    """
    whole = stream(9, Domain.SELECTION, 5, 2).standard_normal(
        (DRAWS_PER_STREAM, *SHAPE), dtype=np.float32
    )
    np.testing.assert_array_equal(
        gaussian(9, Domain.SELECTION, 5, 2 * DRAWS_PER_STREAM + 7, 1, SHAPE)[0], whole[7]
    )


@pytest.mark.parametrize("consumed", [0, 1, 2, 3, 7, 1000])
def test_a_generator_that_moves_is_as_a_new_one(consumed: int) -> None:
    address = Address(2**128 - 3, 5, 7, 1)
    generator = Address(3, 0, 0, 0).generator()
    # An odd number of halves of a word leaves one behind.
    Generator(generator).random(consumed, dtype=np.float32)
    address.move(generator, 11)
    found = Generator(generator).random(9, dtype=np.float32)
    expected = Generator(address.generator(11)).random(9, dtype=np.float32)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(generator.random_raw(6), address_words(address, 11, 5, 6))


def address_words(address: Address, block: int, skipped: int, count: int) -> np.ndarray:
    return np.asarray(address.generator(block).random_raw(skipped + count)[skipped:])


@pytest.mark.parametrize(
    "other",
    [
        {"seed": 2},
        {"domain": Domain.SELECTION},
        {"item": 1},
        {"seed": 1 + 2**63},
        {"seed": 1 + 2**64},
        {"seed": 1 + 2**127},
    ],
    ids=str,
)
def test_any_other_address_gives_other_noise(other: dict[str, int]) -> None:
    assert not np.intersect1d(draw(0, 64), draw(0, 64, **other)).size  # type: ignore[arg-type]


def test_no_two_addresses_share_any_number() -> None:
    """Streams overlap nowhere.

    Raw 64-bit words of many neighbouring addresses are all different.
    """
    words = [
        stream(seed, domain, item, number).bit_generator.random_raw(50)
        for seed in (0, 1)
        for domain in Domain
        for item in (0, 1, 2)
        for number in (0, 1, 2)
    ]
    assert np.unique(np.concatenate(words)).size == 50 * len(words)


def test_noise_is_standard_normal() -> None:
    numbers = gaussian(0, Domain.ESTIMATION, 0, 0, 4096, (10, 10)).ravel().astype(np.float64)
    size = numbers.size
    assert abs(numbers.mean()) < 5 / size**0.5
    assert abs(numbers.var() - 1) < 5 * (2 / size) ** 0.5
    assert abs((numbers**4).mean() - 3) < 5 * (96 / size) ** 0.5
    assert kstest(numbers[::7], norm.cdf).pvalue > 1e-4
    assert numbers.max() > 4, "the tails are there"


def test_noise_is_independent_across_pixels_draws_images_and_domains() -> None:
    base = gaussian(0, Domain.ESTIMATION, 0, 0, 20_000, (3,)).astype(np.float64)
    others = {
        "another image": gaussian(0, Domain.ESTIMATION, 1, 0, 20_000, (3,)),
        "another domain": gaussian(0, Domain.SELECTION, 0, 0, 20_000, (3,)),
        "another seed": gaussian(1, Domain.ESTIMATION, 0, 0, 20_000, (3,)),
        "the next draw": np.roll(base, 1, axis=0),
        "the next stream": np.roll(base, DRAWS_PER_STREAM, axis=0),
        "the next pixel": np.roll(base, 1, axis=1),
    }
    for what, other in others.items():
        correlations = (base * other).mean(axis=0)
        assert np.abs(correlations).max() < 5 / 20_000**0.5, what
        assert (
            np.abs(((base**2 - 1) * (other.astype(np.float64) ** 2 - 1)).mean(axis=0)).max()
            < 10 / 20_000**0.5
        ), what


@given(st.integers(0, 2**128 - 1))
def test_all_bits_of_a_seed_are_the_key_of_the_generator(seed: int) -> None:
    """The definition, without our function: the lower word of the key, then the upper one."""
    key = np.frombuffer(seed.to_bytes(16, "little"), dtype="<u8")
    counter = [0, 7, 5, Domain.ESTIMATION]
    expected = np.random.Philox(key=key, counter=counter).random_raw(4)
    generator = stream(seed, Domain.ESTIMATION, 5, 7)
    np.testing.assert_array_equal(generator.bit_generator.random_raw(4), expected)


@pytest.mark.parametrize("seed", [-1, 2**128])
def test_seeds_that_cannot_be_are_refused_without_naming_them(seed: int) -> None:
    with pytest.raises(ValueError, match="seed") as refused:
        stream(seed, Domain.ORDER)
    assert str(seed) not in str(refused.value)


def test_fresh_seeds_differ() -> None:
    assert 0 <= fresh_seed() < 2**63
    assert fresh_seed() != fresh_seed()


@pytest.mark.parametrize(
    ("address", "digest"),
    [
        ((0, Domain.ESTIMATION, 0, 0, 64, (1, 28, 28)), "34888c999e16fd56"),
        ((123456789, Domain.SELECTION, 9999, 99_990, 20, (3, 32, 32)), "dac5f810d555467a"),
        ((2**63 - 1, Domain.TRAINING, 89, 59_904, 96, (4, 1, 28, 28)), "99cb75eae152d18e"),
    ],
    ids=str,
)
def test_the_noise_is_what_its_name_has_always_meant(address: tuple[int, ...], digest: str) -> None:
    """If these ever change, old files cannot be continued, and SCHEME needs a new name."""
    noise = gaussian(*address)  # type: ignore[arg-type]
    assert hashlib.sha256(noise.tobytes()).hexdigest()[:16] == digest, SCHEME
