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
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
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
    block_runs,
)
from smoothmix.noise.streams import DrawRange, Pixels
from smoothmix.noise.thresholds import BITS, LARGEST, ONE_AT_A_TIME, Thresholds

Integers = NDArray[np.int32]
Positions = NDArray[np.int64]

MAX_LEVELS = 65_535
EIGHT_BIT = 255

PREFIX_BITS = 16
PREFIXES = 2**PREFIX_BITS
PREFIXES_PER_WORD = BITS // PREFIX_BITS
PREFIXES_PER_BLOCK = PREFIXES_PER_WORD * WORDS_PER_BLOCK
REST_BITS = BITS - PREFIX_BITS
LARGEST_REST = 2**REST_BITS - 1

# The second word of the counter. Streams of other noise have their number there, which never
# reaches 2**63: grid noise shares no random number with them, not even under the same seed.
PREFIX_PART = 2**63
REST_PART = 2**63 + 1

PIXELS_PER_CHUNK = 2**15
"""So many pixels are looked up at a time: their arrays and the table fit into the cache."""

PIXELS_PER_PIECE = 2**21
"""So many pixels are completed at a time, which limits the memory that this takes.

Fewer would take longer: further bits cost as many calls of numpy for a few pixels as for many.
"""

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
        return clip_of(float(sigma))

    def levels_of(self, image: Pixels) -> Integers:
        """The integers a of an image with pixels a / levels; other images are refused."""
        pixels = np.asarray(image)
        if pixels.dtype == np.float32 and pixels.size and 0 <= pixels.min() <= pixels.max() <= 1:
            # Nearly all images have the floats of their integers, which is quick to see.
            quotients = np.rint(pixels * np.float32(self.levels))
            integers: Integers = quotients.astype(np.int32)
            quotients /= np.float32(self.levels)
            if np.array_equal(quotients, pixels):
                return integers
        return self._nearest_levels(pixels)

    def _nearest_levels(self, image: NDArray[Any]) -> Integers:
        """The same for images in other floats, or by other rounding."""
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

    def noisy_images(
        self, image: Pixels, draws: DrawRange, *, sigma: float, out: Pixels | None = None
    ) -> Noisy:
        self._check(sigma)
        base = self.levels_of(image)
        search = prepared_search(float(sigma), self.levels)
        return scaled_sums(base, draws, search, bounds_of(search.thresholds), out=out)

    def sample(self, draws: DrawRange, shape: tuple[int, ...], *, sigma: float) -> Pixels:
        """The noise alone, J / levels without clipping; only attacks add it as floats."""
        self._check(sigma)
        base = np.zeros(shape, dtype=np.int32)
        search = prepared_search(float(sigma), self.levels)
        # No J lies so far out.
        limit = 16 * MAX_SPREAD
        return scaled_sums(base, draws, search, (-limit, limit)).pixels

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


def bounds_of(thresholds: Thresholds) -> tuple[int, int]:
    """The least and the largest sum of pixel and noise after clipping."""
    k = clip_of(thresholds.sigma)
    return -k * thresholds.levels, (k + 1) * thresholds.levels


@lru_cache(maxsize=64)
def clip_of(sigma: float) -> int:
    """k: noisy pixels are clipped to [-k, k + 1], by the exact value of sigma."""
    return max(1, math.ceil(6 * Fraction(sigma)))


def scaled_sums(
    base: Integers,
    draws: DrawRange,
    search: Search,
    bounds: tuple[int, int],
    *,
    out: Pixels | None = None,
) -> Noisy:
    """(base + J) / levels, clipped, for each of the draws."""
    if out is None:
        out = np.empty((draws.count, *base.shape), dtype=np.float32)
    levels = search.thresholds.levels
    ambiguous = [np.empty(0, dtype=np.int64)]
    per_piece = max(1, PIXELS_PER_PIECE // base.size)
    for start in range(0, draws.count, per_piece):
        count = min(per_piece, draws.count - start)
        piece = replace(draws, first=draws.first + start, count=count)
        sums, found = integer_sums(base.ravel(), piece, search, bounds)
        write_floats(sums.reshape(count, *base.shape), out[start : start + count], levels)
        ambiguous.append(start + found)
    return Noisy(out, np.concatenate(ambiguous))


def write_floats(integers: NDArray[np.integer[Any]], target: Pixels, levels: int) -> None:
    """Write integers / levels, each by one division of exact numbers.

    These are the floats that data sets make of 8-bit pixels.
    """
    if target.flags.c_contiguous:
        # Numpy divides floats fastest. In chunks, they are still in the cache when it does.
        per_chunk = max(1, PIXELS_PER_CHUNK // integers[0].size)
        for start in range(0, len(integers), per_chunk):
            chunk = target[start : start + per_chunk]
            chunk[...] = integers[start : start + per_chunk]
            chunk /= np.float32(levels)
        return
    # Where the layout is another one, such as channels last, a second pass would cost more.
    np.divide(integers, np.float32(levels), out=target, dtype=np.float32, casting="unsafe")


def integer_sums(
    base: Integers, draws: DrawRange, search: Search, bounds: tuple[int, int]
) -> tuple[NDArray[np.integer[Any]], Positions]:
    """base + J, clipped, as an array [draws, pixels], and which of the draws are ambiguous."""
    size = base.size
    sums = np.empty((draws.count, size), dtype=search.table.dtype)
    positions, codes = look_up(sums, base.astype(sums.dtype), draws, search)
    draw = positions // size
    noise, is_ambiguous = search.complete(codes, draw_rests(draws, draw, size))
    noise += base[positions - draw * size]
    # Prefixes that decide never lead beyond 4.3 sigma: only these sums can need clipping.
    sums.reshape(-1)[positions] = noise.clip(*bounds)
    return sums, np.unique(draw[np.flatnonzero(is_ambiguous)])


def look_up(
    sums: NDArray[np.integer[Any]],
    base: NDArray[np.integer[Any]],
    draws: DrawRange,
    search: Search,
) -> tuple[Positions, NDArray[np.integer[Any]]]:
    """Write base + J by the prefix of each pixel.

    Where the prefix does not decide J, the sum is wrong. The positions of these pixels are
    returned, and the codes of their prefixes.
    """
    count, size = sums.shape
    blocks_per_draw = -(-size // PREFIXES_PER_BLOCK)
    address = Address(draws.seed, PREFIX_PART, draws.item, int(draws.domain))
    generator = address.generator(draws.first * blocks_per_draw)
    per_chunk = max(1, PIXELS_PER_CHUNK // size)
    positions = []
    codes = []
    for start in range(0, count, per_chunk):
        chunk = sums[start : start + per_chunk]
        prefixes = next_prefixes(generator, len(chunk), blocks_per_draw, size)
        # The mode spares a check: no prefix lies outside of the table.
        search.table.take(prefixes, out=chunk, mode="clip")
        undecided = np.flatnonzero(chunk < search.codes_end)
        positions.append(start * size + undecided)
        codes.append(chunk.reshape(-1)[undecided])
        chunk += base
    return np.concatenate(positions), np.concatenate(codes)


def next_prefixes(
    generator: Philox, count: int, blocks_per_draw: int, size: int
) -> NDArray[np.uint16]:
    """The prefixes of all pixels of the next draws, as an array [count, size]."""
    words = generator.random_raw(count * blocks_per_draw * WORDS_PER_BLOCK)
    # In memory as little-endian, so that the view takes the lowest bits first on any machine.
    prefixes = words.astype("<u8", copy=False).view("<u2")
    return prefixes.reshape(count, blocks_per_draw * PREFIXES_PER_BLOCK)[:, :size]


@dataclass(frozen=True, eq=False)
class Search:
    """J by the bits of u, for one sigma and one number of levels."""

    thresholds: Thresholds

    values: Words
    """The thresholds, each with its exact prefix; later bits have the error of `thresholds`."""

    table: NDArray[np.integer[Any]]
    """J by prefix, or a code: a number below `codes_end`, for prefixes that do not decide J."""

    first_code: int
    """The code of the first prefix that does not decide J. The next one's is greater by 1."""

    undecided: NDArray[np.uint64]
    """These prefixes, in the order of their codes."""

    below: Positions
    """By code, how many thresholds have a smaller prefix."""

    inside: Positions
    """By code, how many thresholds have this prefix: at least one."""

    @property
    def codes_end(self) -> int:
        """The number after the last code."""
        return self.first_code + self.undecided.size

    @cached_property
    def first_rest(self) -> Words:
        """By code, the further bits of the first threshold with this prefix."""
        rests: Words = self.values[self.below] & np.uint64(LARGEST_REST)
        return rests

    @cached_property
    def first_noise(self) -> Integers:
        """By code, J below that threshold."""
        return (self.thresholds.lowest + self.below).astype(np.int32)

    @cached_property
    def has_several(self) -> NDArray[np.bool_]:
        """By code, whether more than one threshold has this prefix."""
        return self.inside > 1

    @cached_property
    def is_plain(self) -> bool:
        """Whether the thresholds have no error, and the usual prefix has a single one."""
        return self.thresholds.margin == 0 and bool(np.median(self.inside) == 1)

    def complete(
        self, codes: NDArray[np.integer[Any]], rests: Words
    ) -> tuple[Integers, NDArray[np.bool_]]:
        """J of each u with the prefix of a code and these further bits; whether u is ambiguous."""
        index = codes.astype(np.int64) - self.first_code
        if not self.is_plain:
            low = self.below[index]
            u = self._u(index, rests)
            return self._checked(u, count_up_to(self.values, u, low, low + self.inside[index]))
        # One comparison decides where a prefix has a single threshold.
        threshold = self.first_rest[index]
        noise = self.first_noise[index] + (rests >= threshold)
        is_ambiguous = rests == threshold
        several = np.flatnonzero(self.has_several[index])
        if several.size:
            u = self._u(index[several], rests[several])
            count = np.searchsorted(self.values, u, side="right")
            noise[several], is_ambiguous[several] = self._checked(u, count)
        return noise, is_ambiguous

    def _u(self, index: Positions, rests: Words) -> Words:
        u: Words = (self.undecided[index] << np.uint64(REST_BITS)) | rests
        return u

    def _checked(self, u: Words, count: Positions) -> tuple[Integers, NDArray[np.bool_]]:
        """J by the number of `values` up to each u, and whether u is ambiguous."""
        values = self.values
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
    with ONE_AT_A_TIME:
        return _search(sigma, levels)


@lru_cache(maxsize=8)
def _search(sigma: float, levels: int) -> Search:
    thresholds = Thresholds(sigma, levels)
    values = exact_prefixes(thresholds)
    starts = np.arange(1, PREFIXES, dtype=np.uint64) << np.uint64(REST_BITS)
    inner = np.searchsorted(values, starts, side="left")
    below = np.concatenate([[0], inner])
    inside = np.diff(below, append=values.size)
    # A prefix decides J if no threshold begins with it.
    undecided = np.flatnonzero(inside)
    table, first_code = coded_table(thresholds, thresholds.lowest + below, undecided)
    return Search(
        thresholds=thresholds,
        values=values,
        table=table,
        first_code=first_code,
        undecided=undecided.astype(np.uint64),
        below=below[undecided],
        inside=inside[undecided],
    )


def coded_table(
    thresholds: Thresholds, numbers: Positions, undecided: Positions
) -> tuple[NDArray[np.integer[Any]], int]:
    """The numbers by prefix, with codes below all of them in place of some; the first code."""
    # Short integers are faster, where they hold the codes and all sums with pixels.
    dtype: type[np.int16] | type[np.int32] = np.int16
    limits = np.iinfo(dtype)
    largest = thresholds.highest + thresholds.levels
    if largest > limits.max or limits.min + undecided.size > thresholds.lowest:
        dtype = np.int32
    first_code = int(np.iinfo(dtype).min)
    table: NDArray[Any] = numbers.astype(dtype)
    table[undecided] = first_code + np.arange(undecided.size)
    return table, first_code


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
    pixels = np.bincount(draw, minlength=draws.count)
    # Every draw takes whole blocks, the first ones of its own.
    blocks = -(-pixels // WORDS_PER_BLOCK)
    starts = (draws.first + np.arange(draws.count)) * blocks_per_draw
    words = block_runs(address, starts, blocks)
    # The position of each pixel among all of them, and the words that earlier draws left over.
    unused = WORDS_PER_BLOCK * blocks - pixels
    skipped = np.cumsum(unused) - unused
    rests: Words = words[np.arange(draw.size) + skipped[draw]] >> np.uint64(PREFIX_BITS)
    return rests
