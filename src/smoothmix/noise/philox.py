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
# The constants of Philox4x64: the multipliers of the words 0 and 2, and the steps of the key.
MULTIPLIERS = np.array([[0xD2E7470EE14C6C93], [0xCA5A826395121157]], dtype=np.uint64)
KEY_STEPS = (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)

LOW_HALF = np.uint64(2**32 - 1)
HALF = np.uint64(32)
MULTIPLIERS_LOW = MULTIPLIERS & LOW_HALF
MULTIPLIERS_HIGH = MULTIPLIERS >> HALF


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
    even = np.empty((2, blocks.size), dtype=np.uint64)
    odd = np.empty((2, blocks.size), dtype=np.uint64)
    # numpy counts up before it makes a block, so that block b belongs to the counter b + 1.
    even[0] = blocks + np.uint64(1)
    odd[0] = address.part
    even[1] = address.item
    odd[1] = address.domain
    key = key_words(address.seed)
    for _ in range(ROUNDS):
        high, low = _multiply(even)
        # Each half gets the product of the other one.
        even = high[::-1] ^ odd
        even ^= np.array(key, dtype=np.uint64)[:, None]
        odd = low[::-1]
        key = ((key[0] + KEY_STEPS[0]) % WORD, (key[1] + KEY_STEPS[1]) % WORD)
    return np.stack([even[0], odd[0], even[1], odd[1]])


def _multiply(words: Words) -> tuple[Words, Words]:
    """The upper and the lower 64 bits of the words times their multipliers, by 32-bit halves."""
    word_high = words >> HALF
    word_low = words & LOW_HALF
    # No sum below exceeds 64 bits: (2**32 - 1)**2 + 2 * (2**32 - 1) = 2**64 - 1.
    middle = word_low * MULTIPLIERS_LOW
    middle >>= HALF
    middle += word_high * MULTIPLIERS_LOW
    word_low *= MULTIPLIERS_HIGH
    word_low += middle & LOW_HALF
    word_low >>= HALF
    middle >>= HALF
    word_high *= MULTIPLIERS_HIGH
    word_high += middle
    word_high += word_low
    return word_high, words * MULTIPLIERS
