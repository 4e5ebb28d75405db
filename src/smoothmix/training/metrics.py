"""What training reports while it runs, and metrics.jsonl, which records it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from smoothmix._io.files import atomic_write

if TYPE_CHECKING:
    from smoothmix.training.checkpoint import State


@dataclass(frozen=True, kw_only=True)
class EpochMetrics:
    """One line of metrics.jsonl."""

    epoch: int
    """Counted from 1."""
    loss: float
    parts: dict[str, float]
    accuracy: float
    """Share of test images, each with one noise sample, that are classified correctly."""
    learning_rate: float
    images_per_second: float
    seconds: float


@dataclass(frozen=True, kw_only=True)
class StepProgress:
    """Where the training loop is; reported after every step."""

    epoch: int
    epochs: int
    step: int
    steps: int
    loss: float


def _ignore(report: object) -> None:
    """The listener that does nothing."""


@dataclass(frozen=True, kw_only=True)
class Listeners:
    """Functions that training calls while it runs."""

    on_step: Callable[[StepProgress], None] = _ignore
    on_epoch: Callable[[EpochMetrics], None] = _ignore
    on_resume: Callable[[State], None] = _ignore


def append_line(path: Path, metrics: EpochMetrics) -> None:
    """Add an epoch to metrics.jsonl."""
    try:
        with path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(asdict(metrics)) + "\n")
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        # The error of a full disk does not name the file.
        raise OSError(error.errno, error.strerror, str(path)) from error


def keep_lines(path: Path, count: int) -> None:
    """Drop the lines of epochs that will be trained again."""
    if not path.exists():
        return
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    if len(lines) > count:
        atomic_write(path, "".join(lines[:count]).encode())
