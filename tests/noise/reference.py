"""Grid noise as plainly as it can be written: one pixel at a time, in integers and mpmath.

It reads the same random bits as `smoothmix.noise.GridNoise`, from numpy's generator, and shares no
code with it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import cache

import mpmath
import numpy as np

LARGEST = 2**64 - 1


@cache
def threshold(j: int, sigma: float, levels: int) -> int:
    """floor(2**64 Phi((2 j + 1) / (2 levels sigma))), by 100 digits of the error function."""
    with mpmath.workdps(100):
        z = mpmath.mpf(2 * j + 1) / (2 * levels * mpmath.mpf(sigma))
        phi = mpmath.erfc(-z / mpmath.sqrt(2)) / 2
        return int(mpmath.floor(mpmath.ldexp(phi, 64)))


def rounded_normal(u: int, sigma: float, levels: int) -> int:
    """The least j whose threshold is above u, by bisection."""
    beyond = math.ceil(10 * levels * sigma) + 1
    low = -beyond
    high = beyond
    while low < high:
        middle = (low + high) // 2
        if threshold(middle, sigma, levels) > u:
            high = middle
        else:
            low = middle + 1
    return low


def words(seed: int, domain: int, item: int, part: int, block: int) -> Iterator[int]:
    """The random words of one part, from the first word of a block on."""
    generator = np.random.Philox(
        key=np.array([seed % 2**64, seed // 2**64], dtype=np.uint64),
        counter=np.array([block, part, item, domain], dtype=np.uint64),
    )
    while True:
        yield int(generator.random_raw())


def noise_of_draw(
    seed: int, domain: int, item: int, draw: int, size: int, sigma: float, levels: int
) -> list[int]:
    """J of every pixel of a draw."""
    prefix_words = words(seed, domain, item, 2**63, draw * math.ceil(size / 16))
    rest_words = words(seed, domain, item, 2**63 + 1, draw * math.ceil(size / 4))
    return list(noise_of_words(prefix_words, rest_words, size, sigma, levels))


def noise_of_words(
    prefix_words: Iterator[int], rest_words: Iterator[int], size: int, sigma: float, levels: int
) -> Iterator[int]:
    """J of one pixel after the other, four to a word of prefixes."""
    word = 0
    for pixel in range(size):
        if pixel % 4 == 0:
            word = next(prefix_words)
        start = (word >> (16 * (pixel % 4)) & 0xFFFF) << 48
        end = start + 2**48 - 1
        lowest = rounded_normal(start - 1, sigma, levels)
        if threshold(lowest, sigma, levels) > end:
            yield lowest
        else:
            yield rounded_normal(start + (next(rest_words) >> 16), sigma, levels)


def noisy_pixels(
    base: Sequence[int], noise: Sequence[int], sigma: float, levels: int
) -> list[float]:
    """The sum of integers, clipped, as the float that it becomes."""
    k = max(1, math.ceil(6 * Fraction(sigma)))
    clipped = [
        min(max(a + j, -k * levels), (k + 1) * levels) for a, j in zip(base, noise, strict=True)
    ]
    return [float(np.float32(value) / np.float32(levels)) for value in clipped]
