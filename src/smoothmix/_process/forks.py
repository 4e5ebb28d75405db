"""Locks that `fork` waits for, so that a child finds none of them taken.

A child has a copy of every lock but only one thread. A lock that another thread held at that moment
stays locked in the child for ever, and what it protects stays half done: a network that is being
traced, or is in eval mode for a moment, or a table of noise. `fork` therefore waits until no thread
holds a lock of ours: for the end of one trace, one table, or one forward pass of a network that has
no copies.
"""

from __future__ import annotations

import os
import threading

_fork_waits_for: list[ForkSafeLock] = []
"""All locks of this kind. No thread takes one while it holds another."""


class ForkSafeLock:
    """A lock that no other thread holds while the process forks.

    It is reentrant, because the code that it protects is anyone's, and may fork itself.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        _fork_waits_for.append(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()


class _Forking(threading.local):
    """What a thread that forks has taken: other threads may make locks meanwhile."""

    taken: tuple[ForkSafeLock, ...] = ()


_forking = _Forking()


def _before_fork() -> None:
    _forking.taken = tuple(_fork_waits_for)
    for lock in _forking.taken:
        lock.__enter__()


def _after_fork() -> None:
    for lock in reversed(_forking.taken):
        lock.__exit__()
    _forking.taken = ()


# Windows has no fork.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork
    )
