"""The recorded logits of a network on probe images, which tell two networks of one file apart.

Weights say nothing about code: the same weights in other code vote differently. A probe is one text
in the settings of a file. It holds logits, and the processor and the version of torch that computed
them. The same processor, software and engine give the same bits, so that nothing less passes there;
others round differently.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
from numpy.typing import NDArray

from smoothmix.config import require

RANDOM = "random"
"""The probe of a network that gives other logits each time."""

CLOSE_LOGITS = 1e-3
"""Relative difference of probes that rounding explains: another processor, another library."""

MOST_NUMBERS = 2048
"""Logits in one probe: for 1,000 classes they take 11 kilobytes of text."""

SHORT_IMAGES = 2
SHORT_CLASSES = 4
"""How many images and classes the probes of earlier versions had."""

_PATTERN = re.compile(r"(\d{1,4})x(\d{1,4}) logits on ([^:]{1,200}): ([A-Za-z0-9+/]+={0,2})")

Logits = NDArray[np.float32]


def probe_text(logits: Logits, *, computed_on: str) -> str:
    """The text that records logits [images, classes].

    Of more logits than `MOST_NUMBERS`, fewer images are recorded, and evenly spaced classes.

    >>> probe_text(np.array([[0.5, -1], [2, 3]], dtype=np.float32), computed_on="Intel, torch 2.13")
    '2x2 logits on Intel, torch 2.13: AAAAPwAAgL8AAABAAABAQA=='
    """
    rows = logits.reshape(len(logits), -1)
    rows = rows[:, _spread(rows.shape[1], MOST_NUMBERS // SHORT_IMAGES)]
    images, classes = rows.shape
    rows = rows[: min(images, MOST_NUMBERS // max(1, classes))]
    numbers = base64.b64encode(rows.astype("<f4").tobytes()).decode()
    # A colon ends the description when the text is read.
    where = " ".join(computed_on.replace(":", " ").split())[:200]
    return f"{len(rows)}x{classes} logits on {where}: {numbers}"


def short_probe_text(logits: Logits) -> str:
    """The text of earlier versions: some logits of two images, with five digits each."""
    rows = logits.reshape(len(logits), -1)[:SHORT_IMAGES].astype(np.float64)
    chosen = rows[:, _spread(rows.shape[1], SHORT_CLASSES)]
    return " ".join(f"{value:.5g}" for value in chosen.flatten())


def _spread(classes: int, most: int) -> NDArray[np.int64]:
    """Classes from the first to the last, at most so many.

    The four classes of earlier versions are among the 1,024 that are chosen of more.
    """
    count = min(classes, most)
    return np.arange(count, dtype=np.int64) * (classes - 1) // max(1, count - 1)


@final
@dataclass(frozen=True)
class Probe:
    """A recorded probe; wrong text is refused."""

    text: str

    def __post_init__(self) -> None:
        if self.text in ("", RANDOM) or self._match:
            finite = bool(np.isfinite(self.logits).all())
        else:
            finite = all(map(math.isfinite, self.short))
        require(finite, f"trial must be the logits of a network, got {self.text[:40]!r}")

    @property
    def is_random(self) -> bool:
        """Whether the network gave other logits each time."""
        return self.text == RANDOM

    @property
    def computed_on(self) -> str:
        """The processor and the version of torch; empty where they are not known."""
        if self._match is None:
            return ""
        return self._match[3]

    @cached_property
    def logits(self) -> Logits:
        """The logits [images, classes]; none in probes of earlier versions."""
        if self._match is None:
            return np.empty((0, 0), dtype=np.float32)
        images, classes = int(self._match[1]), int(self._match[2])
        try:
            numbers = np.frombuffer(base64.b64decode(self._match[4], validate=True), dtype="<f4")
            return numbers.reshape(images, classes).astype(np.float32)
        except (ValueError, binascii.Error):
            # Refused on construction, like every number that is not finite.
            return np.full((1, 1), np.nan, dtype=np.float32)

    @cached_property
    def short(self) -> tuple[float, ...]:
        """What earlier versions recorded of the same network; nothing where it is not known."""
        text = self.text
        if self.is_random:
            return ()
        if self._match is not None:
            text = short_probe_text(self.logits)
        try:
            return tuple(float(part) for part in text.split())
        except ValueError:
            return (math.nan,)

    @cached_property
    def _match(self) -> re.Match[str] | None:
        return _PATTERN.fullmatch(self.text)


def probe_difference(there: str, here: str) -> str:
    """Why two probes of the same weights are not those of one network; empty if they may be."""
    old = Probe(there)
    new = Probe(here)
    if old.is_random or new.is_random:
        return (
            "the network draws random numbers, so that nothing shows whether it is still the same: "
            "such a network is certified by one process in one go"
        )
    # A file of an early version has no probe, which proves nothing.
    if not old.short or not new.short:
        return ""
    other = (
        "the network has the same weights and gives other logits: "
        "its code or its settings have changed"
    )
    if not old.logits.size or not new.logits.size:
        return "" if _close(old.short, new.short) else other
    if old.logits.shape != new.logits.shape or not _close(old.logits, new.logits):
        return other
    if _same_bits(old, new) or old.computed_on != new.computed_on:
        return ""
    gap = float(np.abs(old.logits - new.logits).max())
    return (
        f"the network has the same weights and gives other logits (by up to {gap:.2g}) on the same "
        f"processor with the same software ({old.computed_on}): its code or its settings have "
        "changed"
    )


def have_same_bits(there: str, here: str) -> bool:
    """Whether two probes hold the same logits, all of them to the last bit."""
    old = Probe(there)
    new = Probe(here)
    # An early version recorded less than this, which proves less.
    return bool(old.logits.size) and _same_bits(old, new)


def probe_deviation(there: str, here: str) -> float:
    """The largest difference of two probes, relative to the largest logit; 0 if one is unknown.

    >>> probe_deviation("2 -4", "2 -4.001") < 0.001
    True
    """
    old, new = Probe(there), Probe(here)
    before, now = np.asarray(old.short), np.asarray(new.short)
    if old.logits.size and old.logits.shape == new.logits.shape:
        before, now = old.logits.astype(np.float64), new.logits.astype(np.float64)
    if not before.size or before.shape != now.shape or not before.any():
        return 0.0
    return float(np.abs(before - now).max() / np.abs(before).max())


def _same_bits(old: Probe, new: Probe) -> bool:
    return old.logits.tobytes() == new.logits.tobytes()


def _close(there: NDArray[np.float32] | tuple[float, ...], here: object) -> bool:
    old = np.asarray(there, dtype=np.float64)
    new = np.asarray(here, dtype=np.float64)
    if old.shape != new.shape:
        return False
    allowed = CLOSE_LOGITS * np.abs(old).max() + 1e-6
    return bool((np.abs(old - new) <= allowed).all())
