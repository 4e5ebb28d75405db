"""One process at a time per output: a lock that ends with its owner, however that ends.

The lock is a file of its own beside the output, never the output itself: an atomic replacement
gives the output another inode, and a lock on the old inode would guard nothing.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from smoothmix.errors import SmoothmixError, UsageError

try:
    import fcntl
    import resource
except ImportError:  # pragma: no cover - Windows has neither
    fcntl = None  # type: ignore[assignment]
    resource = None  # type: ignore[assignment]

OTHER_OPEN_FILES = 128
"""Open files that a process needs besides its locks."""


class InUseError(UsageError):
    """Another process is writing this output right now."""


def lock_path(output: Path) -> Path:
    """The lock file of an output: the same one through every link to it.

    The suffix is replaced, so that `c.tsv` and its settings `c.toml` share the lock `c.lock`.
    """
    # The folder's device and inode plus the resolved name identify the output. A file of that
    # name in that folder has exactly this identity, and also works between machines that
    # share the file system, unlike a lock in a temporary folder.
    return Path(os.path.realpath(output)).with_suffix(".lock")


@contextmanager
def exclusive(output: Path, *, name: str | None = None) -> Iterator[None]:
    """Hold the lock of `output` while the block runs; raises `InUseError` if another holds it.

    `name` is what messages call the output, by default its path.
    """
    path = lock_path(output)
    lock = _acquire(path, name or str(output))
    held = _status(path)
    try:
        yield
    finally:
        # Removed while it is still held: whoever opened it meanwhile finds after locking that
        # it has lost its name, and tries again. If the folder was deleted and made again, a
        # lock of this name may be that of another process.
        found = _status(path)
        if held is not None and found is not None and os.path.samestat(held, found):
            _remove_if_empty(path)
        lock.release()


def is_held(output: Path) -> bool:
    """Whether a process that is alive holds the lock of `output`."""
    if fcntl is None:
        return False
    try:
        descriptor = os.open(lock_path(output), os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        # Shared, so that any number of processes may check at the same time. filelock has no
        # shared locks, but uses the same flock.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False  # the file system has no locks
    finally:
        os.close(descriptor)
    return False


def allow_open_files(count: int) -> None:
    """Let this process hold `count` locks at once; the usual limit is 1024 open files."""
    if resource is None:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = count + OTHER_OPEN_FILES
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise SmoothmixError(
            f"merging {count} shards needs {needed} open files, and this system allows {hard} "
            "(ulimit -Hn): raise that limit, or use `smoothmix certificates merge`"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def _acquire(path: Path, name: str) -> FileLock:
    # filelock would make the folder, even for an output that is about to be refused.
    if not path.parent.is_dir():
        raise UsageError(f"{name}: cannot be written (there is no folder {path.parent})")
    # Without flock, filelock would fall back to a lock that outlives a killed owner.
    lock = FileLock(path, blocking=False, fallback_to_soft=False)
    try:
        lock.acquire()
    except Timeout:
        raise InUseError(f"{name}: another smoothmix process is writing it") from None
    except OSError as error:
        if not path.exists():
            raise UsageError(f"{name}: cannot be written ({error.strerror})") from error
        if not os.access(path, os.W_OK):
            raise UsageError(f"{name}: cannot be locked ({path.name}: {error.strerror})") from error
        warnings.warn(
            f"{name}: its file system has no locks ({error.strerror}): "
            "make sure that only one process writes it",
            stacklevel=4,
        )
    return lock


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:
        return None


def _remove_if_empty(path: Path) -> None:
    # Our lock files are empty; a file with content belongs to another program.
    # Windows cannot remove a file that is open: filelock removes it on release there.
    with suppress(OSError):
        if path.stat().st_size == 0:
            path.unlink()
