"""How many threads a forward uses.

Torch keeps its number of threads per thread: what one thread sets holds for itself, and for threads
that use torch for the first time later on. The threads of a host program must not inherit our limit
for good, so the number for new threads is set back at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch

from smoothmix._process.forks import ForkSafeLock

T = TypeVar("T")


class _Limited(threading.local):
    """What one thread knows about the contexts of `one_thread_per_forward` that it has open."""

    usual: int | None = None
    """The thread's number outside of all of them; None where none is open."""

    depth: int = 0


_limited = _Limited()


@contextmanager
def one_thread_per_forward() -> Iterator[int]:
    """Torch limited to one thread, in this thread; yields its number, to run so many forwards.

    A sum that is split over threads may round differently for each number of threads. Splitting
    the work by batches instead gives the same votes on any number of cores, and lets each core
    work in its own cache.
    """
    if _limited.usual is None:
        _limited.usual = torch.get_num_threads()
    # A context that opens while another is open would find a limit of 1, and restore that.
    usual = _limited.usual
    _limited.depth += 1
    set_threads_of_this_thread(1)
    try:
        yield usual
    finally:
        _limited.depth -= 1
        # Only the last one to close lifts the limit: the others still need it.
        if _limited.depth == 0:
            _limited.usual = None
            set_threads_of_this_thread(usual)


def set_threads_of_this_thread(count: int) -> None:
    """Let torch use so many threads in this thread; others keep their number, new ones get theirs.

    Between two statements below, a new thread of the program could still inherit `count`: torch has
    no function that sets the number for one thread alone.
    """
    if torch.get_num_threads() == count:
        return
    with _setting:
        for_new_threads = _in_new_thread(torch.get_num_threads)
        torch.set_num_threads(count)
        _in_new_thread(lambda: torch.set_num_threads(for_new_threads))
    # Torch may have been built with threads of its own, whose number is the same everywhere.
    if torch.get_num_threads() != count:
        torch.set_num_threads(count)


def _in_new_thread(function: Callable[[], T]) -> T:
    results: list[T] = []
    thread = threading.Thread(target=lambda: results.append(function()))
    thread.start()
    thread.join()
    return results[0]


_setting = ForkSafeLock()
"""Torch's number of threads is read, changed and set back by one thread at a time."""
