"""Die at one file operation: every open, write, sync, rename and so on below a folder is counted.

A process is killed just before an operation, or in the middle of a write. Python announces most
operations to audit hooks; writes and syncs, which it does not announce, are wrapped.
"""

from __future__ import annotations

import builtins
import io
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

ANNOUNCED = {
    "open": 0,
    "os.mkdir": 0,
    "os.remove": 0,
    "os.rename": 0,
    "os.truncate": 0,
    # The new name, since the old one may lie elsewhere.
    "os.link": 1,
}
"""Events of audit hooks, and which of their arguments is a path."""


class Points:
    """Counts the operations below a folder, and ends the process before one of them."""

    def __init__(self, folder: Path, fatal: int) -> None:
        self.folder = str(folder)
        self.fatal = fatal
        """The number of the operation that the process does not survive; 0 for none."""
        self.count = 0

    def pass_one(self) -> None:
        """Count an operation that is about to happen."""
        self.count += 1
        if self.count == self.fatal:
            os.kill(os.getpid(), signal.SIGKILL)

    def is_below(self, path: object) -> bool:
        """Whether a path is one of those that count."""
        if not isinstance(path, (str, os.PathLike)):
            return False
        return Path.cwd().joinpath(path).is_relative_to(self.folder)

    def install(self) -> None:
        """Count from now on, in this process and for the rest of its life."""
        sys.addaudithook(self._audit)
        builtins.open = self._wrapped_open(builtins.open)  # type: ignore[assignment]
        io.open = builtins.open  # type: ignore[assignment]
        os.fsync = self._wrapped_fsync(os.fsync)  # type: ignore[assignment]
        torch.save = self._wrapped_save(torch.save)

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        position = ANNOUNCED.get(event)
        if position is None:
            return
        # Reading changes nothing, so that dying before it is dying before the next change.
        if event == "open" and not _writes(*arguments):
            return
        if self.is_below(arguments[position]):
            self.pass_one()

    def _wrapped_fsync(self, fsync: Callable[[int], None]) -> Callable[[int], None]:
        def counted(descriptor: int) -> None:
            self.pass_one()
            fsync(descriptor)

        return counted

    def _wrapped_save(self, save: Callable[..., None]) -> Callable[..., None]:
        # torch writes by C++ code, where nothing can be counted.
        def counted(content: object, path: Path) -> None:
            if not self.is_below(path):
                save(content, path)
                return
            packed = io.BytesIO()
            save(content, packed)
            Path(path).write_bytes(packed.getvalue())

        return counted

    def _wrapped_open(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        def counted(
            path: Any, mode: str = "r", buffering: int = -1, *rest: Any, **more: Any
        ) -> Any:
            if mode.strip("bt") == "r" or not self.is_below(path):
                return plain(path, mode, buffering, *rest, **more)
            raw = _CountedFile(self, path, mode)
            if buffering == 0:
                return raw
            kind: Any = io.BufferedRandom if "+" in mode else io.BufferedWriter
            buffered = kind(raw)
            if "b" in mode:
                return buffered
            return io.TextIOWrapper(buffered, encoding="utf-8")

        return counted


class _CountedFile(io.FileIO):
    """A file each of whose writes is two points: before it, and in the middle of it."""

    def __init__(self, points: Points, path: Any, mode: str) -> None:
        super().__init__(path, mode.replace("b", "").replace("t", ""))
        self.points = points

    def write(self, content: Any) -> int:
        data = bytes(content)
        self.points.pass_one()
        in_the_middle = self.points.count + 1 == self.points.fatal
        if in_the_middle:
            super().write(data[: len(data) // 2])
        self.points.pass_one()
        return super().write(data)

    def truncate(self, size: int | None = None) -> int:
        self.points.pass_one()
        return super().truncate(size)


def _writes(_path: object, mode: object, flags: object) -> bool:
    if isinstance(mode, str):
        # Counted where the file is wrapped as well: opening it may create it.
        return mode.strip("bt") != "r"
    return isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
