"""One process at a time on one file: a lock that dies with its owner, however that dies."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from smoothmix.errors import SmoothmixError, UsageError

try:
    import fcntl
except (
    ImportError
):  # pragma: no cover - Windows has no flock; two writers are then the user's own risk
    fcntl = None  # type: ignore[assignment]

try:
    import resource
except ImportError:  # pragma: no cover - nor has it such a limit
    resource = None  # type: ignore[assignment]

OTHER_FILES = 128
"""Open files that a process has besides its locks."""


class InUseError(UsageError):
    """Something that another process is at work on at this moment."""


@contextmanager
def exclusive(path: Path, *, what: str) -> Iterator[None]:
    """Hold the lock file `path` while the block runs; refused at once if another process holds it."""
    descriptor = _acquire(path, what)
    try:
        yield
    finally:
        # Removed while still held: whoever opened it meanwhile sees that it is no longer the file at this path.
        # Not so on Windows, where nothing is held, and no open file can be removed: there it stays.
        if (
            fcntl is not None and os.fstat(descriptor).st_size == 0
        ):  # ours are empty; another's may have the name
            path.unlink(missing_ok=True)
        os.close(descriptor)


def is_held(path: Path) -> bool:
    """Whether a process that is alive holds the lock file `path`; one left by the dead does not count."""
    if fcntl is None or not path.exists():
        return False
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        # Shared, so that any number of processes may look at the same time.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False  # no locks on this file system
    finally:
        os.close(descriptor)
    return False


def allow_open_files(count: int) -> None:
    """Let this process hold so many locks at once: 1024 open files is the usual limit, and may be raised."""
    if resource is None:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + OTHER_FILES
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    if hard != resource.RLIM_INFINITY and hard < wanted:
        raise SmoothmixError(
            f"{count} parts need {wanted} open files to be put together, and this system allows {hard} (ulimit -Hn): "
            "raise that, or use `smoothmix certificates merge`"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _acquire(path: Path, what: str) -> int:
    while True:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise UsageError(f"{what}: cannot be written ({error.strerror})") from error
        if fcntl is None or (_lock(descriptor, what) and _is_current(descriptor, path)):
            return descriptor
        os.close(descriptor)


def _lock(descriptor: int, what: str) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise InUseError(f"{what}: another smoothmix process is writing it") from None
    except OSError as error:
        warnings.warn(
            f"{what}: its file system has no locks ({error.strerror}): see to it that only one process writes it",
            stacklevel=5,
        )
    return True


def _is_current(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
