"""What training tells while it goes on, and the file that keeps it."""

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
    """Counted from 1, as people do."""
    loss: float
    parts: dict[str, float]
    accuracy: float
    """Share of test images, each with one noise, that the network classifies right."""
    learning_rate: float
    images_per_second: float
    seconds: float


@dataclass(frozen=True, kw_only=True)
class StepProgress:
    """Where the loop is; sent after every step."""

    epoch: int
    epochs: int
    step: int
    steps: int
    loss: float


@dataclass(frozen=True, kw_only=True)
class Listeners:
    """What is to be told while training goes on."""

    on_step: Callable[[StepProgress], None] = lambda progress: None
    on_epoch: Callable[[EpochMetrics], None] = lambda metrics: None
    on_resume: Callable[[State], None] = lambda state: None


def append_line(path: Path, metrics: EpochMetrics) -> None:
    """Add an epoch to metrics.jsonl."""
    try:
        with path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(asdict(metrics)) + "\n")
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:  # of a full disk it is not said which file did not fit
        raise OSError(error.errno, error.strerror, str(path)) from error


def keep_lines(path: Path, count: int) -> None:
    """Drop the lines of epochs that will be trained again."""
    if path.exists():
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        if len(lines) > count:
            atomic_write(path, "".join(lines[:count]).encode())
