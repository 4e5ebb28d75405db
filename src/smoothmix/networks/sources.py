"""The source files of a network's own code."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

from torch import nn

from smoothmix._io.files import FileTooLargeError, read_limited
from smoothmix.models.outside import outside_parts

LARGEST_SOURCE = 2**24
"""Bytes of a source file; a larger one is no code that anyone wrote."""

RECORDED_ELSEWHERE = ("torch", "smoothmix")
"""Packages whose versions certificate files record anyway."""


def source_hashes(model: nn.Module) -> dict[str, str]:
    """SHA-256 of the source files that define a network's classes, by the name of their module.

    >>> source_hashes(nn.Linear(2, 2))
    {}
    """
    found = {type(module).__module__ for module in model.modules()}
    # The code of a black box is the function that it calls.
    found.update(part.source_module for part in outside_parts(model))
    names = sorted(found)
    hashes = {}
    for name in names:
        if not name or name.partition(".")[0] in RECORDED_ELSEWHERE:
            continue
        source = getattr(sys.modules.get(name), "__file__", None)
        # Code may also come from a notebook, a frozen program or a compiled module.
        if source is None or not source.endswith(".py"):
            continue
        try:
            content = read_limited(Path(source), LARGEST_SOURCE)
        except (OSError, FileTooLargeError):
            continue
        hashes[name] = hashlib.sha256(content).hexdigest()
    return hashes
