"""Stopping on request: SIGTERM and Ctrl-C end the work at a point where its state is on disk.

There are two kinds of work. Training stops at the next safe point: `stop_on_sigterm` records the
request, and the training loop reads it. Certification can stop anywhere, because each finished
image is already on disk: `sigterm_raises` leaves it at once. No torch.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import TypeVar

from smoothmix.errors import SmoothmixError

T = TypeVar("T")

REQUEUE_EXIT_CODE = 75
"""A run that stopped in time and can be started again: EX_TEMPFAIL of sysexits.h."""

INTERRUPTED_EXIT_CODE = 130
"""A run that a person interrupted: 128 + SIGINT, as shells report it."""


class Stopped(SmoothmixError):  # noqa: N818 - nothing went wrong
    """The run ended early on request, with its state on disk."""

    exit_code = REQUEUE_EXIT_CODE


class Interrupted(Stopped):
    """The run ended early because a person pressed Ctrl-C."""

    exit_code = INTERRUPTED_EXIT_CODE


# A BaseException, like KeyboardInterrupt: code that catches errors must not catch this.
class _StopNow(BaseException):
    """SIGTERM, raised where it arrives."""


STOP_EXCEPTIONS = (KeyboardInterrupt, _StopNow, GeneratorExit)
"""What work that can be left at once receives when it should stop."""


@dataclass
class StopRequest:
    """Whether the run has been asked to stop."""

    requested: bool = False
    by_keyboard: bool = False
    """Whether a person asked for it, by Ctrl-C."""
    _can_leave: bool = False

    def stop(self) -> None:
        """Request the stop; work within `run_unless_stopped` is left at once."""
        self.requested = True
        if self._can_leave:
            self._can_leave = False
            raise _StopNow

    def interrupt(self) -> None:
        """Request the stop by Ctrl-C; a second Ctrl-C does not wait for a safe point."""
        if self.requested:
            raise KeyboardInterrupt
        self.by_keyboard = True
        self.stop()

    def run_unless_stopped(self, work: Callable[[], T]) -> T | None:
        """The result of `work`, or None if a stop is requested before it ends.

        `work` must have no lasting effects, because it may be left anywhere.
        """
        # The time between SIGTERM and SIGKILL is short, and an evaluation may take long.
        if self.requested:
            return None
        try:
            self._can_leave = True
            result = work()
            self._can_leave = False
        except _StopNow:
            return None
        finally:
            self._can_leave = False
        return result


@contextmanager
def sigterm_raises() -> Iterator[None]:
    """While the block runs, SIGTERM leaves it at once, and `Stopped` is raised after it."""
    received = False

    def leave() -> None:
        nonlocal received
        # A second SIGTERM must not break off what is being saved because of the first.
        if not received:
            received = True
            raise _StopNow

    try:
        with _signal_handler(signal.SIGTERM, leave):
            yield
    except _StopNow as stop:
        raise Stopped(
            "stopped by SIGTERM; finished work is on disk: run the same command to resume"
        ) from stop


@contextmanager
def stop_on_sigterm() -> Iterator[StopRequest]:
    """While the block runs, SIGTERM requests a stop instead of ending the process.

    Slurm sends it 30 seconds before SIGKILL; torchrun forwards it to the processes it started.
    """
    request = StopRequest()
    with _signal_handler(signal.SIGTERM, request.stop):
        yield request


@contextmanager
def stop_on_interrupt(request: StopRequest, on_request: Callable[[], None]) -> Iterator[None]:
    """While the block runs, the first Ctrl-C calls `on_request` and requests a stop."""

    def handle() -> None:
        if not request.requested:
            on_request()
        request.interrupt()

    with _signal_handler(signal.SIGINT, handle):
        yield


@contextmanager
def _signal_handler(number: signal.Signals, handle: Callable[[], None]) -> Iterator[None]:
    # Python lets only the main thread install signal handlers.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    owner = os.getpid()

    def handler(_number: int, _frame: FrameType | None) -> None:
        # Forked processes that read images inherit the handler; their owner ends them.
        if os.getpid() == owner:
            handle()

    previous = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, previous)
