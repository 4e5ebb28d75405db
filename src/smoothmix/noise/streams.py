"""Random numbers by address: a draw depends on its purpose, never on what was drawn before it.

All numbers come from the counter-based generator Philox (Salmon et al., 2011). The seed is its
128-bit key, and the address (domain, item, number of the stream) is the upper part of its 256-bit
counter. Two addresses never share a number: their streams are disjoint by construction, not by the
luck of a hash. numpy's Ziggurat turns them into normal deviates, nearly all by integer arithmetic
and a table, so that they do not depend on the vector unit of the processor.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from smoothmix.noise.philox import Address

Pixels = NDArray[np.float32]

Fill = Callable[[Generator, Pixels], object]
"""Fills an array with random numbers from a generator."""

DRAWS_PER_STREAM = 32
"""Draws that share one stream. A change would change every draw: it is part of SCHEME."""

SCHEME = "philox4x64-ziggurat-32"
"""Name of this way to address Gaussian noise, recorded with every certificate file."""


class Domain(IntEnum):
    """The purpose of a random number. Numbers of different domains are independent."""

    SELECTION = 0
    ESTIMATION = 1
    PREDICTION = 2
    TRAINING = 3
    EVALUATION = 4
    ORDER = 5
    AUGMENTATION = 6
    MIXING = 7
    NETWORK = 8
    STUDY = 9
    ATTACK = 10


@dataclass(frozen=True, slots=True)
class DrawRange:
    """Draws `first` to `first + count - 1` of one item."""

    # Not shown: it may be the key of a secret seed.
    seed: int = field(repr=False)
    """Key of the generator: a public seed, or the 128 bits that a secret one gives."""

    domain: Domain
    """What the draws are for."""

    item: int
    """An image in certification; an epoch in training, where a draw is a position in the epoch."""

    first: int
    """Number of the first draw."""

    count: int
    """How many draws."""


def fresh_seed() -> int:
    """A seed from the operating system's entropy, which nobody can prepare an input for."""
    return secrets.randbits(63)


def stream(seed: int, domain: Domain, item: int = 0, number: int = 0) -> Generator:
    """The generator at one address. It has 2**64 blocks of numbers before the next address begins.

    >>> bool(stream(1, Domain.ORDER).random() == stream(1, Domain.ORDER).random())
    True
    """
    # The first word of the counter is left to the generator, which counts up there.
    return Generator(Address(seed, number, item, int(domain)).generator())


def fill_draws(fill: Fill, draws: DrawRange, shape: tuple[int, ...]) -> Pixels:
    """An array [count, *shape] of addressed draws, in which each is the same in every range.

    `fill` writes the numbers of one stream at a time, in the order of the array.
    """
    noise = np.empty((draws.count, *shape), dtype=np.float32)
    first = draws.first
    last = first + draws.count
    philox = Address(draws.seed, 0, draws.item, int(draws.domain)).generator()
    generator = Generator(philox)
    for number in range(first // DRAWS_PER_STREAM, -(-last // DRAWS_PER_STREAM)):
        start = number * DRAWS_PER_STREAM
        stop = start + DRAWS_PER_STREAM
        # One generator that moves from stream to stream: to make each anew takes longer.
        Address(draws.seed, number, draws.item, int(draws.domain)).move(philox)
        if first <= start and stop <= last:
            # Whole streams are written in place, without a copy.
            fill(generator, noise[start - first : stop - first])
            continue
        # A draw's numbers depend on all before it in the stream, so the whole stream is drawn.
        whole = np.empty((DRAWS_PER_STREAM, *shape), dtype=np.float32)
        fill(generator, whole)
        low = max(first, start)
        high = min(last, stop)
        noise[low - first : high - first] = whole[low - start : high - start]
    return noise


def standard_normal(draws: DrawRange, shape: tuple[int, ...]) -> Pixels:
    """Standard normal draws as an array [count, *shape].

    >>> draws = DrawRange(seed=0, domain=Domain.TRAINING, item=0, first=40, count=2)
    >>> standard_normal(draws, (1, 28, 28)).shape
    (2, 1, 28, 28)
    """
    return fill_draws(fill_normal, draws, shape)


def fill_normal(generator: Generator, out: Pixels) -> None:
    """Fill an array with standard normal numbers."""
    generator.standard_normal(out=out, dtype=np.float32)
