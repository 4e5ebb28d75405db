"""Memory that is freed and needed again a moment later.

An optimisation of glibc's allocator for the whole process. The library never applies it by itself;
the command line does. Your own program may call `keep_freed_memory()`.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache

# The options' numbers in glibc's malloc.h.
M_TRIM_THRESHOLD = -1
M_TOP_PAD = -2
M_MMAP_THRESHOLD = -3

LARGEST_KEPT = 2**30
"""Blocks up to this size come from the heap, which keeps them when they are freed."""

MOST_KEPT = 2**31 - 1
"""Free memory at the end of the heap beyond this goes back to the system."""

TAKEN_AT_ONCE = 2**26
"""By so much the heap grows at least."""


@cache
def keep_freed_memory() -> bool:
    """Let this process keep the memory of freed tensors for the next ones; whether it could.

    By default glibc returns large blocks to the system at once, and gets them back page by page,
    each of them cleared: up to a fifth of the time of a network on a CPU. The largest amount that
    the process holds hardly changes, but it is held for longer.

    Nothing is changed where the environment configures malloc (`MALLOC_*`, `GLIBC_TUNABLES`), or
    where the C library is not glibc.
    """
    if _is_configured_by_environment():
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):
        # Another C library, or another system.
        return False
    options = {
        M_MMAP_THRESHOLD: LARGEST_KEPT,
        M_TRIM_THRESHOLD: MOST_KEPT,
        M_TOP_PAD: TAKEN_AT_ONCE,
    }
    return all(mallopt(option, value) == 1 for option, value in options.items())


def _is_configured_by_environment() -> bool:
    if "GLIBC_TUNABLES" in os.environ:
        return True
    return any(name.startswith("MALLOC_") for name in os.environ)
