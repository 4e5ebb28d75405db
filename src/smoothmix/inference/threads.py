"""How many threads a forward uses."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_lock = threading.Lock()
_usual_threads: list[int] = []
"""Torch's number of threads outside of `one_thread_per_forward`, once per context that is open."""


@contextmanager
def one_thread_per_forward() -> Iterator[int]:
    """Torch limited to one thread; yields how many it had, to run as many forwards at once.

    A sum that is split over threads may round differently for each number of threads. Splitting
    the work by batches instead gives the same votes on any number of cores, and lets each core
    work in its own cache.
    """
    with _lock:
        # A context that opens while another is open would find a limit of 1, and restore that.
        threads = _usual_threads[0] if _usual_threads else torch.get_num_threads()
        _usual_threads.append(threads)
    torch.set_num_threads(1)
    try:
        yield threads
    finally:
        torch.set_num_threads(threads)
        with _lock:
            _usual_threads.pop()
