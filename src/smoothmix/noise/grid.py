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
import threading
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar, final

import numpy as np
from numpy.random import Generator, Philox
from numpy.typing import ArrayLike, NDArray

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
from smoothmix.noise.thresholds import BITS, LARGEST, Thresholds

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

PIXELS_PER_CHUNK = 2**15
"""So many pixels are looked up at a time: their arrays and the table fit into the cache."""

PIXELS_PER_PIECE = 2**20
"""So many pixels are completed at a time, which limits the memory that this takes."""

DENSE = 1 / 12
"""Where more pixels need further bits, all of their draw's words are made and some are used."""

TOLERANCE = 2 * float(np.finfo(np.float32).eps)
"""Floats this near to a grid point count as on it: other libraries divide with other rounding."""

MAX_SPREAD = 2**20
"""Largest levels * sigma. Below it all integers are exact in float32, and tables stay small."""

_PREPARING = threading.Lock()


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
        nearest = np.rint(np.clip(pixels, 0, 1) * self.levels)
        # Comparisons with NaN are false, so that it is refused as well.
        on_grid = np.abs(pixels - nearest / self.levels) <= TOLERANCE
        wrong = np.flatnonzero(~on_grid)
        if wrong.size:
            raise UsageError(
                f"grid noise needs pixels that are multiples of 1/{self.levels} in [0, 1], but one "
                f"is {pixels.flat[wrong[0]]:.7g}: round the images first, choose another number of "
                'levels, or choose noise="gaussian" (--noise gaussian), whose certificates are not '
                "exact in floating point"
            )
        return nearest.astype(np.int32)

    def require_image(self, image: ArrayLike) -> None:
        self.levels_of(np.asarray(image))

    @property
    def description(self) -> str:
        if self.levels == EIGHT_BIT:
            return "grid noise"
        return f"grid noise ({self.levels} levels)"

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
        pixels = np.empty((draws.count, base.size), dtype=np.float32)
        ambiguous = []
        per_piece = max(1, PIXELS_PER_PIECE // base.size)
        for start in range(0, draws.count, per_piece):
            count = min(per_piece, draws.count - start)
            piece = replace(draws, first=draws.first + start, count=count)
            target = pixels[start : start + count]
            found = fill_piece(target, base.ravel(), piece, search, bounds, levels=self.levels)
            ambiguous.append(start + found)
        positions = np.concatenate([np.empty(0, dtype=np.int64), *ambiguous])
        return Noisy(pixels.reshape(draws.count, *base.shape), positions)


def fill_piece(
    target: Pixels,
    base: Integers,
    draws: DrawRange,
    search: Search,
    bounds: tuple[int, int],
    *,
    levels: int,
) -> Positions:
    """Write noisy pixels into `target` [draws, pixels], and return which draws are ambiguous."""
    size = base.size
    blocks_per_draw = -(-size // PREFIXES_PER_BLOCK)
    address = Address(draws.seed, PREFIX_PART, draws.item, int(draws.domain))
    generator = address.generator(draws.first * blocks_per_draw)
    per_chunk = max(1, PIXELS_PER_CHUNK // size)
    scratch = np.empty((per_chunk, size), dtype=search.table.dtype)
    narrow_base = base.astype(search.table.dtype)
    positions = []
    undecided_prefixes = []
    for start in range(0, draws.count, per_chunk):
        count = min(per_chunk, draws.count - start)
        prefixes = next_prefixes(generator, count, blocks_per_draw, size)
        # The mode spares a check: no prefix lies outside of the table.
        sums = search.table.take(prefixes, out=scratch[:count], mode="clip")
        undecided = np.flatnonzero(sums == search.undecided)
        positions.append(start * size + undecided)
        undecided_prefixes.append(prefixes[np.divmod(undecided, size)])
        sums += narrow_base
        write_floats(sums, target[start : start + count], levels)
    draw, pixel = np.divmod(np.concatenate(positions), size)
    rests = draw_rests(draws, draw, size)
    noise, ambiguous = search.complete(np.concatenate(undecided_prefixes), rests)
    # Prefixes that decide never lead beyond 4.3 sigma: only these sums can need clipping.
    clipped = np.clip(base[pixel] + noise, *bounds)
    floats = np.empty(clipped.shape, dtype=np.float32)
    write_floats(clipped, floats, levels)
    target[draw, pixel] = floats
    return np.unique(draw[ambiguous])


def next_prefixes(
    generator: Philox, count: int, blocks_per_draw: int, size: int
) -> NDArray[np.uint16]:
    """The prefixes of all pixels of the next draws, as an array [count, size]."""
    words = generator.random_raw(count * blocks_per_draw * WORDS_PER_BLOCK)
    # In memory as little-endian, so that the view takes the lowest bits first on any machine.
    prefixes = words.astype("<u8", copy=False).view("<u2")
    return prefixes.reshape(count, blocks_per_draw * PREFIXES_PER_BLOCK)[:, :size]


def write_floats(integers: NDArray[np.integer[Any]], target: Pixels, levels: int) -> None:
    """Write integers / levels, each by one division of exact numbers.

    These are the floats that data sets make of 8-bit pixels.
    """
    target[...] = integers
    target /= np.float32(levels)


@dataclass(frozen=True, eq=False)
class Search:
    """J by the bits of u, for one sigma and one number of levels."""

    thresholds: Thresholds

    values: Words
    """The thresholds, each with its exact prefix; later bits have the error of `thresholds`."""

    table: NDArray[np.integer[Any]]
    """J by prefix, or `undecided`."""

    undecided: int
    """Stands in the table for prefixes that do not decide J."""

    below: Positions
    """By prefix, how many thresholds have a smaller one; at the end, how many there are."""

    def complete(
        self, prefixes: NDArray[np.uint16], rests: Words
    ) -> tuple[Integers, NDArray[np.bool_]]:
        """J of each u that has this prefix and these further bits, and whether u is ambiguous."""
        u = (prefixes.astype(np.uint64) << np.uint64(REST_BITS)) | rests
        values = self.values
        buckets = prefixes.astype(np.int64)
        count = count_up_to(values, u, self.below[buckets], self.below[buckets + 1])
        # The first threshold is 0, so that there always is one up to u.
        margin = np.uint64(self.thresholds.margin)
        near_lower = u - values[count - 1] <= margin
        near_upper = values[np.minimum(count, values.size - 1)] - u <= margin
        ambiguous = np.zeros(u.shape, dtype=np.bool_)
        # The few that are near a threshold, within its error, are compared with exact ones.
        for position in np.flatnonzero(near_lower | near_upper).tolist():
            exact = self.thresholds.exact_count(int(u[position]))
            count[position], ambiguous[position] = exact
        return (self.thresholds.lowest + count).astype(np.int32), ambiguous


def count_up_to(values: Words, u: Words, low: Positions, high: Positions) -> Positions:
    """How many of the sorted values are at most u, given that it is `low` to `high` > `low`."""
    middle = (low + high) // 2
    is_counted = values[middle] <= u
    low = np.where(is_counted, middle + 1, low)
    high = np.where(is_counted, high, middle)
    open_ones = np.flatnonzero(low < high)
    if open_ones.size:
        low[open_ones] = count_up_to(values, u[open_ones], low[open_ones], high[open_ones])
    return low


def prepared_search(sigma: float, levels: int) -> Search:
    """The search for one sigma and one number of levels; made once."""
    # Threads that begin together wait for one of them, instead of each making its own.
    with _PREPARING:
        return _search(sigma, levels)


@lru_cache(maxsize=8)
def _search(sigma: float, levels: int) -> Search:
    thresholds = Thresholds(sigma, levels)
    values = exact_prefixes(thresholds)
    starts = np.arange(1, PREFIXES, dtype=np.uint64) << np.uint64(REST_BITS)
    inner = np.searchsorted(values, starts, side="left")
    below = np.concatenate([[0], inner, [values.size]])
    # A prefix decides J if no threshold begins with it.
    is_decided = below[:-1] == below[1:]
    numbers = thresholds.lowest + below[:-1]
    # Short integers are faster, where they hold all sums with pixels.
    dtype: type[np.int16] | type[np.int32] = np.int16
    if thresholds.highest + levels > np.iinfo(np.int16).max:
        dtype = np.int32
    undecided = int(np.iinfo(dtype).min)
    table: NDArray[Any] = np.where(is_decided, numbers, undecided).astype(dtype)
    return Search(thresholds, values, table, undecided, below)


def exact_prefixes(thresholds: Thresholds) -> Words:
    """The thresholds, with exact values where their error leaves the prefix open."""
    margin = thresholds.margin
    if margin == 0:
        return thresholds.values
    values = thresholds.values.copy()
    rests = values & np.uint64(2**REST_BITS - 1)
    near_start = (rests < margin) & (values >= np.uint64(margin))
    near_end = (rests >= 2**REST_BITS - margin) & (values <= np.uint64(LARGEST - margin))
    for position in np.flatnonzero(near_start | near_end).tolist():
        values[position] = thresholds.exact(thresholds.lowest + position)
    return values


def draw_rests(draws: DrawRange, draw: Positions, size: int) -> Words:
    """The further bits of the pixels whose prefixes do not decide, in order.

    `draw` has the draw of each, as a position within the range.
    """
    blocks_per_draw = -(-size // WORDS_PER_BLOCK)
    address = Address(draws.seed, REST_PART, draws.item, int(draws.domain))
    # The number of each among those of its draw.
    per_draw = np.bincount(draw, minlength=draws.count)
    rank = np.arange(draw.size) - np.repeat(np.cumsum(per_draw) - per_draw, per_draw)
    block, word = np.divmod(rank, WORDS_PER_BLOCK)
    if draw.size > DENSE * draws.count * size:
        first = draws.first * blocks_per_draw
        words = contiguous_blocks(address, first, draws.count * blocks_per_draw)
        position = (draw * blocks_per_draw + block) * WORDS_PER_BLOCK + word
        return words[position] >> np.uint64(PREFIX_BITS)
    # Each block is computed once, for its first word.
    is_first = word == 0
    numbers = (draws.first + draw[is_first]) * blocks_per_draw + block[is_first]
    blocks = scattered_blocks(address, numbers.astype(np.uint64))
    rests: Words = blocks[word, np.cumsum(is_first) - 1] >> np.uint64(PREFIX_BITS)
    return rests
