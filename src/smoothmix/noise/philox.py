"""Raw words of Philox4x64-10 (Salmon et al., 2011): a contiguous range, or blocks anywhere.

A block is four 64-bit words: the keyed bijection of one 256-bit counter. numpy's generator makes
contiguous blocks fast, but needs a new generator for each jump. `scattered_blocks` computes any
set of blocks at once, with numpy's integer arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.random import Philox
from numpy.typing import NDArray

Words = NDArray[np.uint64]

WORD = 2**64

WORDS_PER_BLOCK = 4
ROUNDS = 10
# The constants of Philox4x64: two multipliers, and what is added to the key in each round.
MULTIPLIERS = (0xD2E7470EE14C6C93, 0xCA5A826395121157)
KEY_STEPS = (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)

LOW_HALF = np.uint64(2**32 - 1)
HALF = np.uint64(32)


def key_words(seed: int) -> tuple[int, int]:
    """The lower and the upper 64 bits of a 128-bit key; public seeds have no upper ones."""
    # The value is not part of the message: it may be the key of a secret seed.
    if not 0 <= seed < 2**128:
        raise ValueError("seed must lie in [0, 2**128)")
    return seed % WORD, seed // WORD


@dataclass(frozen=True, slots=True)
class Address:
    """Where 2**64 blocks begin: the key, and the upper three words of the counter."""

    # Not shown: it may be the key of a secret seed.
    seed: int = field(repr=False)
    part: int
    item: int
    domain: int

    def generator(self, block: int = 0) -> Philox:
        """numpy's generator, which begins with the first word of a block."""
        key = np.array(key_words(self.seed), dtype=np.uint64)
        counter = np.array([block, self.part, self.item, self.domain], dtype=np.uint64)
        return Philox(key=key, counter=counter)


def contiguous_blocks(address: Address, first: int, count: int) -> Words:
    """The words of `count` blocks from block `first` on, as an array [4 * count]."""
    words: Words = address.generator(first).random_raw(WORDS_PER_BLOCK * count)
    return words


def scattered_blocks(address: Address, blocks: Words) -> Words:
    """The words of the blocks with these numbers, as an array [4, number of blocks].

    They are those of `contiguous_blocks`, which a test compares word by word.
    """
    # numpy counts up before it makes a block, so that block b belongs to the counter b + 1.
    words = [blocks + np.uint64(1)]
    for upper in (address.part, address.item, address.domain):
        words.append(np.full_like(blocks, upper))
    key = key_words(address.seed)
    for _ in range(ROUNDS):
        words = _round(words, key)
        key = ((key[0] + KEY_STEPS[0]) % WORD, (key[1] + KEY_STEPS[1]) % WORD)
    return np.stack(words)


def _round(words: list[Words], key: tuple[int, int]) -> list[Words]:
    high_0, low_0 = _multiply(words[0], MULTIPLIERS[0])
    high_2, low_2 = _multiply(words[2], MULTIPLIERS[1])
    high_2 ^= words[1]
    high_2 ^= np.uint64(key[0])
    high_0 ^= words[3]
    high_0 ^= np.uint64(key[1])
    return [high_2, low_2, high_0, low_0]


def _multiply(words: Words, multiplier: int) -> tuple[Words, Words]:
    """The upper and the lower 64 bits of 128-bit products, by way of 32-bit halves."""
    factor_high = np.uint64(multiplier >> 32)
    factor_low = np.uint64(multiplier & 0xFFFFFFFF)
    word_high = words >> HALF
    word_low = words & LOW_HALF
    # No sum below exceeds 64 bits: (2**32 - 1)**2 + 2 * (2**32 - 1) = 2**64 - 1.
    middle = word_low * factor_low
    middle >>= HALF
    middle += word_high * factor_low
    word_low *= factor_high
    word_low += middle & LOW_HALF
    word_low >>= HALF
    middle >>= HALF
    word_high *= factor_high
    word_high += middle
    word_high += word_low
    return word_high, words * np.uint64(multiplier)
