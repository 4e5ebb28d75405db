"""A wish to stop that is honoured at the next safe point: what a cluster's SIGTERM is answered with. No torch."""

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

REQUEUE = 75
"""Exit code of a run that was stopped in time and wants to be started again: EX_TEMPFAIL of sysexits.h."""

INTERRUPTED = 130
"""Exit code of what a person broke off, as shells have it: 128 + SIGINT."""


class Stopped(SmoothmixError):  # noqa: N818 - nothing went wrong
    """The run ended early because it was told to, with its state on disk."""

    exit_code = REQUEUE


class Interrupted(Stopped):
    """The same by a person's Ctrl-C, who need not be asked to start it again."""

    exit_code = INTERRUPTED


class _Now(BaseException):
    """SIGTERM where it arrives, in work that need not be finished. Like KeyboardInterrupt it is no Exception: whoever
    catches errors there must not take it for one."""


TOLD_TO_STOP = (KeyboardInterrupt, _Now, GeneratorExit)
"""How work that can be left at once hears that it should be."""


@dataclass
class StopRequest:
    """Whether someone has asked for an end."""

    asked: bool = False
    by_hand: bool = False
    """Whether it was a person, by Ctrl-C."""
    _breakable: bool = False

    def ask(self) -> None:
        """Ask for it. Work that may be broken off ends here and now."""
        self.asked = True
        if self._breakable:
            self._breakable = False
            raise _Now

    def interrupt(self) -> None:
        """Ask for it by Ctrl-C. Whoever does so twice does not want to wait."""
        if self.asked:
            raise KeyboardInterrupt
        self.by_hand = True
        self.ask()

    def unless_asked(self, work: Callable[[], T]) -> T | None:
        """What some work without lasting effects gives, or None if an end is asked for before it is done.

        The time between SIGTERM and SIGKILL is short, and an evaluation may be long.
        """
        if self.asked:
            return None
        try:
            self._breakable = True
            result = work()
            self._breakable = False
        except _Now:
            return None
        finally:
            self._breakable = False
        return result


@contextmanager
def sigterm_raises() -> Iterator[None]:
    """While the block runs, SIGTERM leaves it at once, and `Stopped` comes out of it: for work that may be left.

    Only the first does: a second one must not break off what is being saved because of it.
    """
    heard = False

    def leave() -> None:
        nonlocal heard
        if not heard:
            heard = True
            raise _Now

    try:
        with _hearing(signal.SIGTERM, leave):
            yield
    except _Now as now:
        raise Stopped(
            "stopped by SIGTERM; what was done is on disk, and the same command goes on from there"
        ) from now


@contextmanager
def stop_on_sigterm() -> Iterator[StopRequest]:
    """While the block runs, SIGTERM asks for an end instead of ending the process in the middle of something.

    Slurm sends it 30 seconds before SIGKILL, and torchrun hands it on to the processes it has started.
    """
    request = StopRequest()
    with _hearing(signal.SIGTERM, request.ask):
        yield request


@contextmanager
def stop_on_interrupt(request: StopRequest, tell: Callable[[], None]) -> Iterator[None]:
    """While the block runs, the first Ctrl-C asks for an end at the next safe point, which `tell` may say."""

    def answer() -> None:
        if not request.asked:
            tell()
        request.interrupt()

    with _hearing(signal.SIGINT, answer):
        yield


@contextmanager
def _hearing(what: signal.Signals, answer: Callable[[], None]) -> Iterator[None]:
    if (
        threading.current_thread() is not threading.main_thread()
    ):  # only the main thread can hear signals
        yield
        return
    owner = os.getpid()

    def hear(number: int, frame: FrameType | None) -> None:
        if os.getpid() == owner:  # processes that read pictures are ended by their owner
            answer()

    before = signal.signal(what, hear)
    try:
        yield
    finally:
        signal.signal(what, before)
