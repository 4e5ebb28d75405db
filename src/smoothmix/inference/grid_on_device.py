"""Grid noise drawn on a GPU or another accelerator: the integers of `noise/grid.py`, by torch.

A processor makes noise at about 200 million pixels per second and core, which an accelerator would
wait for. Philox needs only integers, so the device itself draws the same bits from the same
addresses. All shapes are known in advance, and nothing waits for the host: the work of a batch can
be recorded as a CUDA graph, and is, where these exist.

Two things are left to the processor, since they would need a shape that depends on data: draws with
a random integer so near to a threshold that only exact arithmetic decides (the ambiguous ones are
among them), and draws in which far more prefixes than usual decide nothing. Both are counted in
ages, not in runs. The device marks such draws, and the sampler then draws that batch again on the
processor.

This was tested with torch's CPU backend and with fake tensors, not on a GPU. Therefore
`grid_on_device` compares the first pixels of a device with numpy's, and does without it if they
differ.
"""

from __future__ import annotations

import math
import threading
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from smoothmix.noise.grid import (
    LARGEST_REST,
    PREFIX_BITS,
    PREFIX_PART,
    PREFIXES,
    PREFIXES_PER_BLOCK,
    PREFIXES_PER_WORD,
    REST_BITS,
    REST_PART,
    GridNoise,
    Search,
    bounds_of,
    prepared_search,
)
from smoothmix.noise.philox import (
    KEY_STEPS,
    MULTIPLIERS,
    ROUNDS,
    WORD,
    WORDS_PER_BLOCK,
    key_words,
)
from smoothmix.noise.streams import Domain, DrawRange

LOW_HALF = 2**32 - 1
SIGN = -(2**63)

SPREADS = 10
"""Room for so many standard deviations more of undecided prefixes than a draw has on average."""

PIXELS_AT_ONCE = 2**22
"""So many pixels of a batch are drawn at once, for which a device needs about 600 MB."""

CHECKED_DRAWS = 40
"""Draws that are compared with numpy's before a device is used."""

Shape = tuple[int, ...]


def signed(word: int) -> int:
    """The number from -2**63 to 2**63 - 1 with the bits of a 64-bit word: torch computes in these.

    >>> signed(2**64 - 1)
    -1
    """
    return (word + 2**63) % WORD - 2**63


class OnDevice(NamedTuple):
    """Noisy images on a device."""

    pixels: Tensor

    is_open: Tensor
    """By draw, whether it is left to the processor, and its pixels mean nothing."""


def address_words(draws: DrawRange) -> Tensor:
    """What `GridOnDevice.draw` needs to know of a range: key, item, domain and first draw."""
    lower, upper = key_words(draws.seed)
    words = [lower, upper, draws.item, int(draws.domain), draws.first]
    return torch.tensor([signed(word) for word in words])


def philox(counter: Sequence[Tensor | int], key: tuple[Tensor, Tensor]) -> list[Tensor]:
    """The four words of the blocks with these counters: Philox4x64-10, in wrapping integers."""
    first, second, third, fourth = counter
    multipliers = [int(word) for word in MULTIPLIERS[:, 0]]
    for number in range(ROUNDS):
        high, low = _product(torch.as_tensor(first), multipliers[0])
        other_high, other_low = _product(torch.as_tensor(third), multipliers[1])
        first = other_high ^ second ^ (key[0] + signed(number * KEY_STEPS[0] % WORD))
        third = high ^ fourth ^ (key[1] + signed(number * KEY_STEPS[1] % WORD))
        second, fourth = other_low, low
    return [torch.as_tensor(word) for word in (first, second, third, fourth)]


def _product(words: Tensor, multiplier: int) -> tuple[Tensor, Tensor]:
    """The upper and the lower 64 bits of the words times a multiplier, by 32-bit halves."""
    word_low = words & LOW_HALF
    word_high = _upper_half(words)
    low = multiplier & LOW_HALF
    high = multiplier >> 32
    middle = word_high * low + _upper_half(word_low * low)
    other_middle = word_low * high + (middle & LOW_HALF)
    upper = word_high * high + _upper_half(middle) + _upper_half(other_middle)
    return upper, words * signed(multiplier)


def _upper_half(words: Tensor) -> Tensor:
    """The upper 32 bits as a number; torch's own shift would continue the sign."""
    return (words >> 32) & LOW_HALF


@final
@dataclass(frozen=True, eq=False)
class GridOnDevice:
    """Draws noisy images of one sigma and one number of levels on one device."""

    search: Search
    device: torch.device
    dtype: torch.dtype
    """The type of the pixels."""
    thresholds: Tensor = field(init=False, repr=False)
    """In the order of signed integers: their sign bits are flipped."""
    undecided: Tensor = field(init=False, repr=False)
    """By prefix, whether it does not decide J."""
    floats: Tensor = field(init=False, repr=False)
    """The pixel of each sum from the least to the largest."""

    def __post_init__(self) -> None:
        search = self.search
        undecided = np.zeros(PREFIXES, dtype=np.bool_)
        undecided[search.undecided] = True
        low, high = bounds_of(search.thresholds)
        # Divided by numpy: a GPU may multiply by the reciprocal, which rounds otherwise.
        floats = np.arange(low, high + 1).astype(np.float32)
        floats /= np.float32(search.thresholds.levels)
        tables = {
            "thresholds": torch.from_numpy(search.values.view(np.int64)) ^ SIGN,
            "undecided": torch.from_numpy(undecided),
            "floats": torch.from_numpy(floats).to(self.dtype),
        }
        for name, table in tables.items():
            object.__setattr__(self, name, table.to(self.device))

    def capacity(self, size: int) -> int:
        """So many pixels of a draw can have a prefix that does not decide; a multiple of 4."""
        mean: float = size * self.search.undecided.size / PREFIXES
        enough = mean + SPREADS * math.sqrt(mean) + WORDS_PER_BLOCK
        return WORDS_PER_BLOCK * math.ceil(min(size, enough) / WORDS_PER_BLOCK)

    def draw(
        self,
        base: Tensor,
        address: Tensor,
        *,
        count: int,
        capacity: int,
        channels_last: bool = False,
    ) -> OnDevice:
        """Noisy images by the integers of an image [C, H, W], for draws from an address on."""
        size = base.numel()
        prefixes = self._prefixes(address, count, size)
        undecided = self.undecided[prefixes]
        rests, is_open = self._rests(address, undecided, capacity)
        # Decided prefixes have no threshold, so that any further bits give their J.
        u = ((prefixes << REST_BITS) | rests) ^ SIGN
        above = torch.searchsorted(self.thresholds, u, right=True)
        is_near = (self._is_near(u, above) & undecided).any(1)
        low, high = bounds_of(self.search.thresholds)
        sums = base.reshape(1, size) + (above + self.search.thresholds.lowest)
        positions = sums.clamp(low, high).sub_(low).reshape(count, *base.shape)
        memory_format = torch.contiguous_format
        if channels_last:
            memory_format = torch.channels_last
        # Pixels get the layout of their positions.
        pixels = self.floats[positions.contiguous(memory_format=memory_format)]
        return OnDevice(pixels, is_open | is_near)

    def _prefixes(self, address: Tensor, count: int, size: int) -> Tensor:
        """The prefixes of all pixels, as an array [count, size]."""
        blocks_per_draw = -(-size // PREFIXES_PER_BLOCK)
        words = _words(address, PREFIX_PART, blocks_per_draw, count, blocks_per_draw)
        shifts = PREFIX_BITS * torch.arange(PREFIXES_PER_WORD, device=self.device)
        prefixes: Tensor = (words[:, :, None] >> shifts) & (PREFIXES - 1)
        return prefixes.reshape(count, -1)[:, :size]

    def _rests(self, address: Tensor, undecided: Tensor, capacity: int) -> tuple[Tensor, Tensor]:
        """The further bits of each pixel, and which draws have too few of them."""
        count, size = undecided.shape
        blocks_per_draw = -(-size // WORDS_PER_BLOCK)
        words = _words(address, REST_PART, blocks_per_draw, count, capacity // WORDS_PER_BLOCK)
        rests = (words >> PREFIX_BITS) & LARGEST_REST
        # The number of each pixel among those of its draw that need a word.
        rank = undecided.cumsum(1) - 1
        return rests.gather(1, rank.clamp(0, capacity - 1)), rank[:, -1] >= capacity

    def _is_near(self, u: Tensor, above: Tensor) -> Tensor:
        """Whether a threshold is as near as its error, so that only exact ones decide."""
        margin = self.search.thresholds.margin
        below_u = u - self.thresholds[above - 1]
        above_u = self.thresholds[above.clamp(max=len(self.thresholds) - 1)] - u
        # Distances of 2**63 and more appear as negative numbers.
        near_lower = (below_u >= 0) & (below_u <= margin)
        near_upper = (above_u >= 0) & (above_u <= margin)
        return near_lower | near_upper


def _words(address: Tensor, part: int, blocks_per_draw: int, count: int, blocks: int) -> Tensor:
    """The words of the first blocks of each draw, as an array [count, 4 * blocks]."""
    device = address.device
    lower, upper, item, domain, first = address.unbind()
    draw = first + torch.arange(count, device=device)
    # numpy counts up before it makes a block, so that block b belongs to the counter b + 1.
    block = draw[:, None] * blocks_per_draw + torch.arange(1, blocks + 1, device=device)
    part_word = torch.full_like(block, signed(part))
    counter = [block, part_word, item.expand_as(block), domain.expand_as(block)]
    return torch.stack(philox(counter, (lower, upper)), dim=2).reshape(count, -1)


# Repeating the work of a batch


@final
class BatchDrawer:
    """Draws batches of one size on a device, from any thread; by a CUDA graph where there are."""

    def __init__(self, grid: GridOnDevice, shape: Shape, count: int, *, channels_last: bool):
        self._grid = grid
        self._channels_last = channels_last
        self._capacity = grid.capacity(math.prod(shape))
        self._base = torch.zeros(shape, dtype=torch.int64, device=grid.device)
        self._address = torch.zeros(5, dtype=torch.int64, device=grid.device)
        per_piece = max(1, PIXELS_AT_ONCE // math.prod(shape))
        self._pieces = []
        for start in range(0, count, per_piece):
            offset = torch.tensor([0, 0, 0, 0, start], device=grid.device)
            self._pieces.append((offset, min(per_piece, count - start)))
        self._lock = threading.Lock()
        self._replay = self._run
        if grid.device.type == "cuda":  # pragma: no cover - no GPU was at hand
            self._replay = recorded(self._run, grid.device)

    def _run(self) -> OnDevice:
        pixels = []
        is_open = []
        for offset, count in self._pieces:
            piece = self._grid.draw(
                self._base,
                self._address + offset,
                count=count,
                capacity=self._capacity,
                channels_last=self._channels_last,
            )
            pixels.append(piece.pixels)
            is_open.append(piece.is_open)
        return OnDevice(torch.cat(pixels), torch.cat(is_open))

    def draw(self, base: Tensor, draws: DrawRange) -> OnDevice:
        """Noisy images for the integers of an image, and a range of as many draws."""
        address = address_words(draws)
        if self._grid.device.type == "cuda":  # pragma: no cover
            # From pinned memory, copies do not wait for the work before them.
            base, address = base.pin_memory(), address.pin_memory()
        with self._lock:
            self._base.copy_(base, non_blocking=True)
            self._address.copy_(address, non_blocking=True)
            pixels, is_open = self._replay()
            # A graph writes its next batch to the same memory.
            return OnDevice(pixels.clone(), is_open.clone())


def recorded(
    run: Callable[[], OnDevice], device: torch.device
) -> Callable[[], OnDevice]:  # pragma: no cover - needs a GPU
    """The work as a CUDA graph, which saves the launch of some hundred small kernels.

    Where recording fails, the work itself.
    """
    try:
        with torch.cuda.device(device):
            warm_up = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            warm_up.wait_stream(torch.cuda.current_stream(device))
            with torch.cuda.stream(warm_up):
                run()
            torch.cuda.current_stream(device).wait_stream(warm_up)
            graph = torch.cuda.CUDAGraph()
            # Other threads may use the device meanwhile.
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                outputs = run()
    except RuntimeError:
        return run

    def replay() -> OnDevice:
        graph.replay()
        return outputs

    return replay


@lru_cache(maxsize=16)
def batch_drawer(grid: GridOnDevice, shape: Shape, count: int, channels_last: bool) -> BatchDrawer:
    """The drawer of batches of this size; made once."""
    return BatchDrawer(grid, shape, count, channels_last=channels_last)


# Whether to use a device at all


@lru_cache(maxsize=16)
def grid_on_device(
    noise: GridNoise, sigma: float, device: torch.device, dtype: torch.dtype
) -> GridOnDevice | None:
    """Grid noise on a device; None, with a warning, where it does not give numpy's pixels."""
    try:
        grid = GridOnDevice(prepared_search(float(sigma), noise.levels), device, dtype)
        is_right = gives_pixels_of_numpy(grid, noise)
        reason = "its pixels are others"
    except (RuntimeError, NotImplementedError) as error:
        is_right = False
        reason = next(iter(str(error).splitlines()), type(error).__name__)
    if is_right:
        return grid
    warnings.warn(
        f"grid noise cannot be drawn on {device} ({reason}), so the processor draws it, which is "
        "slower; the votes are the same",
        stacklevel=1,
    )
    return None


def gives_pixels_of_numpy(grid: GridOnDevice, noise: GridNoise) -> bool:
    """Whether a device draws the noisy images that numpy draws, bit for bit."""
    shape = (3, 9, 7)
    image = np.linspace(0, 1, math.prod(shape)).reshape(shape)
    integers = np.rint(image * noise.levels).astype(np.int32)
    pixels = integers.astype(np.float32) / np.float32(noise.levels)
    # A key whose words have their highest bits set, which wrapping integers get wrong first.
    draws = DrawRange(2**128 - 3, Domain.STUDY, 5, 2**33, CHECKED_DRAWS)
    expected = noise.noisy_images(pixels, draws, sigma=grid.search.thresholds.sigma)
    drawer = BatchDrawer(grid, shape, CHECKED_DRAWS, channels_last=False)
    found = drawer.draw(torch.from_numpy(integers), draws)
    is_closed = ~found.is_open.cpu()
    same = torch.from_numpy(expected.pixels).to(grid.dtype) == found.pixels.cpu()
    return bool(same[is_closed].all()) and bool(is_closed.any())
