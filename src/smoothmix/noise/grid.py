"""Gaussian noise on a grid of pixel values, sampled exactly: certificates true in floating point.

Let f be the network as it runs, in floats. Certified is F(v) = f(G(v) / L), where G rounds L v to
integers and clips them to [-L k, L (k + 1)], with k = max(1, ceil(6 sigma)). F is a function of
real vectors v, so Cohen's theorem holds for F with its usual radius. For an image x with pixels
a / L and Gaussian noise d, the integers G(x + d) are clip(a + J), where J rounds L d. Independent
J of exactly this distribution are therefore all that sampling needs; `thresholds.py` says how
random integers give them. The sum a + J becomes a float once, and each grid point has one float.

Random bits: a pixel takes 16 bits, the prefix of its u, four pixels to a word of Philox, from the
lowest bits to the highest. Each draw begins at a block of its own, and any range of draws is one
contiguous range of blocks. Nearly every prefix decides J. The pixels of a draw whose prefix does
not (about 1 % of them with 255 levels) take, in their order, one word each of another range of
blocks, which this draw has for itself. The upper 48 bits of that word complete u. So no two pixels
share a bit, whatever their prefixes are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar, final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from smoothmix.config import require, require_sigma
from smoothmix.errors import UsageError
from smoothmix.noise.base import Noisy
from smoothmix.noise.gaussian import NormalRadius
from smoothmix.noise.philox import (
    WORDS_PER_BLOCK,
    Address,
    Words,
    contiguous_blocks,
    scattered_blocks,
)
from smoothmix.noise.streams import DrawRange, Pixels
from smoothmix.noise.thresholds import BITS, Thresholds, exact_thresholds

Integers = NDArray[np.int32]
Positions = NDArray[np.int64]

MAX_LEVELS = 65_535
EIGHT_BIT = 255

PREFIX_BITS = 16
PREFIXES = 2**PREFIX_BITS
PREFIXES_PER_WORD = BITS // PREFIX_BITS
PREFIXES_PER_BLOCK = PREFIXES_PER_WORD * WORDS_PER_BLOCK
REST_BITS = BITS - PREFIX_BITS

# The second word of the counter. Streams of other noise have their number there, which never
# reaches 2**63: grid noise shares no random number with them, not even under the same seed.
PREFIX_PART = 2**63
REST_PART = 2**63 + 1

UNDECIDED = np.iinfo(np.int32).min
"""Stands in tables for prefixes that do not decide J."""

PIXELS_PER_CHUNK = 2**15
"""So many pixels are computed at a time: their arrays and the table fit into the cache."""

TOLERANCE = 2 * float(np.finfo(np.float32).eps)
"""Floats this near to a grid point count as on it: other libraries divide with other rounding."""

MAX_SPREAD = 2**20
"""Largest levels * sigma. Below it all integers are exact in float32, and tables stay small."""


@final
@dataclass(frozen=True)
class GridNoise(NormalRadius):
    """Independent normal deviates, rounded together with the pixel to a multiple of 1 / levels.

    Images must lie on the grid. Radii are those of Gaussian noise, and hold without any error from
    rounding; see the text of this module.

    >>> round(float(GridNoise().radius(0.99, sigma=0.5)), 4)
    1.1632
    """

    name: ClassVar[str] = "grid"
    scheme: ClassVar[str] = "philox4x64-grid-16-48"

    levels: int = EIGHT_BIT
    """Steps between 0 and 1: 255 for 8-bit images."""

    def __post_init__(self) -> None:
        possible = isinstance(self.levels, int) and 1 <= self.levels <= MAX_LEVELS
        require(possible, f"levels must be 1 to {MAX_LEVELS}, got {self.levels!r}")

    def clip(self, sigma: float) -> int:
        """k: noisy pixels are clipped to [-k, k + 1], which is k units beyond black and white."""
        self._check(sigma)
        return max(1, math.ceil(6 * Fraction(sigma)))

    def levels_of(self, image: Pixels) -> Integers:
        """The integers a of an image with pixels a / levels; other images are refused."""
        pixels = np.asarray(image, dtype=np.float64)
        nearest = np.rint(pixels * self.levels)
        # Comparisons with NaN are false, so that it is refused as well.
        on_grid = np.abs(pixels - nearest / self.levels) <= TOLERANCE
        in_range = (nearest >= 0) & (nearest <= self.levels)
        wrong = np.flatnonzero(~(on_grid & in_range))
        if wrong.size:
            raise UsageError(
                f"grid noise needs pixels that are multiples of 1/{self.levels} in [0, 1], but one "
                f"is {pixels.flat[wrong[0]]:.7g}: round the images first, choose another number of "
                'levels, or choose noise="gaussian" (--noise gaussian), whose certificates are not '
                "exact in floating point"
            )
        return nearest.astype(np.int32)

    def noisy_images(self, image: Pixels, draws: DrawRange, *, sigma: float) -> Noisy:
        base = self.levels_of(image)
        k = self.clip(sigma)
        bounds = (-k * self.levels, (k + 1) * self.levels)
        return self._scaled_sums(base, draws, sigma, bounds)

    def sample(self, draws: DrawRange, shape: tuple[int, ...], *, sigma: float) -> Pixels:
        """The noise alone, J / levels without clipping; only attacks add it as floats."""
        self._check(sigma)
        # No J lies so far out.
        limit = 16 * MAX_SPREAD
        base = np.zeros(shape, dtype=np.int32)
        return self._scaled_sums(base, draws, sigma, (-limit, limit)).pixels

    def fill(self, generator: Generator, out: Pixels) -> None:
        """Refused: on a grid, noise of one sigma is no multiple of noise of another."""
        raise UsageError(
            'grid noise cannot be drawn at standard deviation 1 and scaled: choose noise="gaussian"'
        )

    def _check(self, sigma: float) -> None:
        require_sigma(sigma)
        require(
            self.levels * sigma <= MAX_SPREAD,
            f"with {self.levels} levels, sigma must be at most {MAX_SPREAD / self.levels:.4g}, "
            f"got {sigma:g}",
        )

    def _scaled_sums(
        self, base: Integers, draws: DrawRange, sigma: float, bounds: tuple[int, int]
    ) -> Noisy:
        """(base + J) / levels, clipped, for each of the draws."""
        search = prepared_search(float(sigma), self.levels)
        size = base.size
        pixels = np.empty((draws.count, size), dtype=np.float32)
        prefixes = draw_prefixes(draws, size)
        flat_base = base.ravel()
        unknown = []
        per_chunk = max(1, PIXELS_PER_CHUNK // max(1, size))
        for start in range(0, draws.count, per_chunk):
            chunk = slice(start, min(start + per_chunk, draws.count))
            sums = search.table.take(prefixes[chunk], mode="clip")
            undecided = np.flatnonzero(sums == UNDECIDED)
            rests = draw_rests(draws, start, undecided, size)
            draw, pixel = np.divmod(undecided, size)
            found, ambiguous = search.complete(prefixes[start + draw, pixel], rests)
            sums += flat_base
            # Prefixes alone never lead beyond 4.3 sigma: only these can need clipping.
            sums[draw, pixel] = np.clip(flat_base[pixel] + found, *bounds)
            pixels[chunk] = sums
            unknown.append(start + np.unique(draw[ambiguous]))
        # One division of an exact integer: the floats that data sets make of 8-bit pixels.
        pixels /= np.float32(self.levels)
        shaped = pixels.reshape(draws.count, *base.shape)
        return Noisy(shaped, np.concatenate([np.empty(0, np.int64), *unknown]))


@dataclass(frozen=True, eq=False)
class Search:
    """J by the bits of u, for one sigma and one number of levels."""

    thresholds: Thresholds

    table: Integers
    """J by prefix, or UNDECIDED."""

    def complete(
        self, prefixes: NDArray[np.uint16], rests: Words
    ) -> tuple[Integers, NDArray[np.bool_]]:
        """J of each u that has this prefix and these further bits, and whether u is ambiguous."""
        u = (prefixes.astype(np.uint64) << np.uint64(REST_BITS)) | rests
        values = self.thresholds.values
        above = np.searchsorted(values, u, side="right")
        # u is never below the first threshold, which is 0.
        ambiguous = values[above - 1] == u
        return (self.thresholds.lowest + above).astype(np.int32), ambiguous


@lru_cache(maxsize=8)
def prepared_search(sigma: float, levels: int) -> Search:
    """The search for one sigma and one number of levels; made once."""
    thresholds = exact_thresholds(sigma, levels)
    # A prefix decides J if no threshold begins with it.
    starts = (np.arange(PREFIXES, dtype=np.uint64)) << np.uint64(REST_BITS)
    ends = starts + np.uint64(2**REST_BITS - 1)
    below = np.searchsorted(thresholds.values, starts, side="left")
    up_to_end = np.searchsorted(thresholds.values, ends, side="right")
    numbers = (thresholds.lowest + below).astype(np.int32)
    table = np.where(below == up_to_end, numbers, UNDECIDED).astype(np.int32)
    return Search(thresholds, table)


def draw_prefixes(draws: DrawRange, size: int) -> NDArray[np.uint16]:
    """The prefixes of all pixels, as an array [count, size]."""
    blocks = -(-size // PREFIXES_PER_BLOCK)
    address = Address(draws.seed, PREFIX_PART, draws.item, int(draws.domain))
    words = contiguous_blocks(address, draws.first * blocks, draws.count * blocks)
    # In memory as little-endian, so that the view takes the lowest bits first on any machine.
    prefixes = words.astype("<u8", copy=False).view("<u2")
    return prefixes.reshape(draws.count, blocks * PREFIXES_PER_BLOCK)[:, :size]


def draw_rests(draws: DrawRange, start: int, undecided: Positions, size: int) -> Words:
    """The further bits of pixels whose prefixes do not decide.

    `undecided` has the positions of all such pixels of some draws, in order; position 0 is the
    first pixel of draw number `start` of the range.
    """
    if not undecided.size:
        return np.empty(0, dtype=np.uint64)
    of_draw = undecided // size
    rank = np.arange(undecided.size) - np.searchsorted(of_draw, of_draw)
    block, word = np.divmod(rank, WORDS_PER_BLOCK)
    blocks_per_draw = -(-size // WORDS_PER_BLOCK)
    block += (draws.first + start + of_draw) * blocks_per_draw
    # Each block is computed once, for its first word.
    is_first = word == 0
    address = Address(draws.seed, REST_PART, draws.item, int(draws.domain))
    blocks = scattered_blocks(address, block[is_first].astype(np.uint64))
    rests: Words = blocks[word, np.cumsum(is_first) - 1] >> np.uint64(PREFIX_BITS)
    return rests
