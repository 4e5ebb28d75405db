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
Positions = NDArray[np.int64]

WORD = 2**64

WORDS_PER_BLOCK = 4
ROUNDS = 10
# The constants of Philox4x64: the multipliers of the words 0 and 2, and the steps of the key.
MULTIPLIERS = np.array([[0xD2E7470EE14C6C93], [0xCA5A826395121157]], dtype=np.uint64)
KEY_STEPS = (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)

FEW_RUNS = 48
"""So few runs of blocks, or..."""

LONG_RUN = 48
"""...runs of so many blocks are made faster by moving numpy's generator than all at once."""

EMPTY_BUFFER = np.zeros(WORDS_PER_BLOCK, dtype=np.uint64)

LOW_HALF = np.uint64(2**32 - 1)
HALF = np.uint64(32)
MULTIPLIER_HALVES = np.stack([MULTIPLIERS & LOW_HALF, MULTIPLIERS >> HALF])[:, None]


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
        return Philox(key=self._key, counter=self._counter(block))

    def move(self, generator: Philox, block: int = 0) -> None:
        """Let a generator continue with the first word of a block, which is faster than a new one.

        It is then as `generator(block)` makes it, whatever it was before.
        """
        generator.state = {
            "bit_generator": "Philox",
            "state": {"counter": self._counter(block), "key": self._key},
            # Nothing is left of the block before, nor half a word.
            "buffer": EMPTY_BUFFER,
            "buffer_pos": WORDS_PER_BLOCK,
            "has_uint32": 0,
            "uinteger": 0,
        }

    @property
    def _key(self) -> Words:
        return np.array(key_words(self.seed), dtype=np.uint64)

    def _counter(self, block: int) -> Words:
        return np.array([block, self.part, self.item, self.domain], dtype=np.uint64)


def contiguous_blocks(address: Address, first: int, count: int) -> Words:
    """The words of `count` blocks from block `first` on, as an array [4 * count]."""
    words: Words = address.generator(first).random_raw(WORDS_PER_BLOCK * count)
    return words


def block_runs(address: Address, starts: Positions, counts: Positions) -> Words:
    """The words of several runs of blocks one after the other, each in the order of its blocks."""
    total = int(counts.sum())
    if not total:
        return np.empty(0, dtype=np.uint64)
    if starts.size <= FEW_RUNS or total >= LONG_RUN * starts.size:
        return _runs_by_numpy(address, starts, counts)
    # The position of each block within its run.
    offset = np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
    blocks = np.repeat(starts, counts) + offset
    return scattered_blocks(address, blocks.astype(np.uint64)).T.reshape(-1)


def _runs_by_numpy(address: Address, starts: Positions, counts: Positions) -> Words:
    """`block_runs` with numpy's generator, moved from each run to the next one."""
    words = np.empty(WORDS_PER_BLOCK * int(counts.sum()), dtype=np.uint64)
    generator = address.generator()
    written = 0
    for start, count in zip(starts.tolist(), counts.tolist(), strict=True):
        address.move(generator, start)
        run = generator.random_raw(WORDS_PER_BLOCK * count)
        words[written : written + run.size] = run
        written += run.size
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
    product = _Product(blocks.size)
    low = np.empty_like(odd)
    for key in round_keys(address.seed):
        product.multiply(even, low=low)
        # Each half gets the product of the other one.
        np.bitwise_xor(product.high[::-1], odd, out=even)
        even ^= key
        odd, low = low[::-1], odd
    return np.stack([even[0], odd[0], even[1], odd[1]])


def round_keys(seed: int) -> Words:
    """The keys of all rounds, as an array [rounds, 2, 1]."""
    steps = np.arange(ROUNDS, dtype=np.uint64)[:, None] * np.array(KEY_STEPS, dtype=np.uint64)
    # Sums of 64-bit integers wrap around, as they should.
    keys: Words = steps + np.array(key_words(seed), dtype=np.uint64)
    return keys[:, :, None]


class _Product:
    """Two rows of words times their multipliers, as 128 bits.

    The memory is used again for every product. For few words, calls of numpy are what takes time:
    one of them makes the four products of halves.
    """

    def __init__(self, columns: int) -> None:
        # By the halves of the multiplier and of the word, lower ones first.
        self._products = np.empty((2, 2, 2, columns), dtype=np.uint64)
        self._halves = np.empty((2, 2, columns), dtype=np.uint64)
        self._scratch = np.empty((2, columns), dtype=np.uint64)

    @property
    def high(self) -> Words:
        """The upper 64 bits of the last product."""
        high: Words = self._products[1, 1]
        return high

    def multiply(self, words: Words, *, low: Words) -> None:
        """Compute `high`, and write the lower 64 bits into `low`."""
        np.bitwise_and(words, LOW_HALF, out=self._halves[0])
        np.right_shift(words, HALF, out=self._halves[1])
        np.multiply(self._halves, MULTIPLIER_HALVES, out=self._products)
        np.multiply(words, MULTIPLIERS, out=low)
        lowest, middle, other_middle, highest = self._products.reshape(4, 2, -1)
        # No sum below exceeds 64 bits: (2**32 - 1)**2 + 2 * (2**32 - 1) = 2**64 - 1.
        lowest >>= HALF
        middle += lowest
        np.bitwise_and(middle, LOW_HALF, out=self._scratch)
        other_middle += self._scratch
        # Both middle products at once.
        middles = self._products.reshape(4, 2, -1)[1:3]
        middles >>= HALF
        highest += middle
        highest += other_middle
