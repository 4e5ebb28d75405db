"""A service in this process, with a small network, and images to send."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Iterator

import numpy as np
import pytest
from PIL import Image

import smoothmix as sm
from smoothmix.certify import Resident
from smoothmix.serve import Classifier
from tests.conftest import small_convnet

SHAPE = (1, 28, 28)
NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def png(size: tuple[int, int] = (28, 28), *, seed: int = 0, form: str = "PNG") -> bytes:
    """The bytes of an image with random grey values."""
    pixels = np.random.default_rng(seed).integers(0, 256, size[::-1], dtype=np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, form)
    return stream.getvalue()


def png_header(width: int, height: int) -> bytes:
    """A small PNG that claims any size."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        check = zlib.crc32(kind + content)
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", check)

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    body = chunk(b"IDAT", zlib.compress(b"\0" * 1000))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + body + chunk(b"IEND", b"")


def classifier_of(resident: Resident, *, max_draws: int = 10**7) -> Classifier:
    """What a service needs to know about an open classifier."""
    certification = sm.Certification(
        sigma=resident.smoothed.sigma,
        guarantee=sm.Anytime(sm.Stopping(max_draws=max_draws)),
        noise=resident.smoothed.distribution,
        batch=resident.smoothed.batch,
    )
    return Classifier(
        resident=resident,
        certification=certification.in_whole_batches(),
        name="small",
        class_names=NAMES,
    )


@pytest.fixture(scope="module")
def resident() -> Iterator[Resident]:
    """A small classifier that stays open for the tests of one file."""
    smoothed = sm.Smoothed(small_convnet(), sigma=0.1, num_classes=10, batch=64)
    with smoothed.resident(SHAPE) as opened:
        yield opened
