"""Python's search for reference cycles, paused while many small objects are made."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collection_paused() -> Iterator[None]:
    """Do not search for cycles meanwhile, nor afterwards in what was made meanwhile.

    Rows of certificates form no cycles, and searching millions of them again and again takes a
    quarter of the time of reading. For commands: a process that goes on may want its memory back.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()
