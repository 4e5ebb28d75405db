"""How far a long task has come: one value for every callback that reports it. No torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """How much of a task is done."""

    done: float
    """Units that are finished, with the finished fraction of the current one where it is known."""
    total: float
    """Units in all."""
    note: str = ""
    """A few words on the current unit, such as `epoch 3, loss 0.412`."""


OnProgress = Callable[[Progress], None]
"""A callback that is called with the progress of a task, first when it starts or resumes."""


def ignore_progress(progress: Progress) -> None:
    """The callback for callers that do not want to know."""
