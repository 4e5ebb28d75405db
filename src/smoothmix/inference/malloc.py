"""Memory of this process that is freed and needed again a moment later."""

from __future__ import annotations

import ctypes
import os
from functools import cache

TRIM_THRESHOLD, TOP_PAD, MMAP_THRESHOLD = -1, -2, -3
"""What glibc's malloc.h calls M_TRIM_THRESHOLD, M_TOP_PAD and M_MMAP_THRESHOLD."""

LARGEST_KEPT = 2**30
MOST_KEPT = 2**31 - 1
TAKEN_AT_ONCE = 2**26


@cache
def keep_freed_memory() -> bool:
    """Let the process keep the memory of tensors that are freed, for the next ones; whether that could be arranged.

    By default, glibc gives large pieces back to the system at once, and gets them back page by page, each cleared:
    up to a fifth of the time of a network on a processor. What the process holds at most hardly changes, only for how
    long.
    Someone who has set malloc by the environment is left alone.
    """
    if "GLIBC_TUNABLES" in os.environ or any(name.startswith("MALLOC_") for name in os.environ):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):  # not glibc
        return False
    wanted = {MMAP_THRESHOLD: LARGEST_KEPT, TRIM_THRESHOLD: MOST_KEPT, TOP_PAD: TAKEN_AT_ONCE}
    return all(mallopt(option, value) == 1 for option, value in wanted.items())
