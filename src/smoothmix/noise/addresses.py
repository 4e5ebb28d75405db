"""Random numbers by address: what is drawn depends on what it is for, never on who drew what before.

Every number comes from the counter-based generator Philox (Salmon et al., 2011). The seed is its key, and
the address (domain, item, grain) is the upper part of its 256-bit counter, so that two addresses can never
share a number: the streams are disjoint by construction, not by luck of a hash. numpy's Ziggurat turns them
into normal deviates, nearly all by integer arithmetic and a table, so that they do not depend on the vector unit
that a processor happens to have.
"""

from __future__ import annotations

import secrets
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

GRAIN = 32
"""Draws that share one stream. Part of the definition of the noise: changing it changes every draw."""

SCHEME = "philox4x64-ziggurat-32"
"""Name of this way to address noise, recorded with every certificate file."""

SEED_BITS = 64


class Domain(IntEnum):
    """What a random number is for. Numbers of different domains are independent for the same seed."""

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


def fresh_seed() -> int:
    """A seed from the operating system's entropy, for results that nobody could have prepared for."""
    return secrets.randbits(63)


def stream(seed: int, domain: Domain, item: int = 0, grain: int = 0) -> np.random.Generator:
    """The generator at one address. It holds 2**64 blocks of numbers before it would touch the next address.

    >>> bool(stream(1, Domain.ORDER).random() == stream(1, Domain.ORDER).random())
    True
    """
    if not 0 <= seed < 2**SEED_BITS:
        raise ValueError(f"seed must lie in [0, 2**{SEED_BITS}), got {seed}")
    key = np.array([seed, 0], dtype=np.uint64)
    counter = np.array([0, grain, item, int(domain)], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=counter))


def gaussian(
    seed: int, domain: Domain, item: int, first: int, count: int, shape: tuple[int, ...]
) -> NDArray[np.float32]:
    """Standard normal draws `first` to `first + count - 1` of one item, as an array [count, *shape].

    Draw j is the same whichever range it is asked for in. `item` is an image in certification and an epoch in
    training, where a draw is then the position of a sample in that epoch.
    """
    noise = np.empty((count, *shape), dtype=np.float32)
    last = first + count
    for grain in range(first // GRAIN, -(-last // GRAIN)):
        start, stop = grain * GRAIN, (grain + 1) * GRAIN
        generator = stream(seed, domain, item, grain)
        if first <= start and stop <= last:
            generator.standard_normal(out=noise[start - first : stop - first], dtype=np.float32)
        else:
            whole = generator.standard_normal((GRAIN, *shape), dtype=np.float32)
            low, high = max(first, start), min(last, stop)
            noise[low - first : high - first] = whole[low - start : high - start]
    return noise
