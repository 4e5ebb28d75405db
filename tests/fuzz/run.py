"""Feed many damaged files to every reader (`make fuzz`), and save those that break one.

A run may be cut into pieces that add up to it:

    python -m tests.fuzz.run --inputs 20000
    python -m tests.fuzz.run --first 20001 --inputs 80000
"""

from __future__ import annotations

import argparse
import hashlib
import resource
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from tests.helpers.fuzz_targets import TARGETS, Target, check

INPUTS = 100_000
LONGEST = 10
"""Seconds that any reader may compute on a small file."""
MOST_GROWTH = 512
"""Megabytes by which all inputs of a reader together may make the process grow."""
FAILURES = Path(".fuzz")


@contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    """Raise in work that takes more processor time; other load on the machine does not count."""

    def stop(*_: object) -> None:
        raise TimeoutError(f"more than {seconds} seconds")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def fuzz(name: str, target: Target, inputs: int, seed: int, *, first: int = 1) -> Counter[str]:
    """What came of so many damaged files; number and seed decide what is in each."""
    found: Counter[str] = Counter()
    started, peak = time.monotonic(), megabytes()
    with TemporaryDirectory(prefix="smoothmix-fuzz-", dir=fast_folder()) as folder:
        target.beside(Path(folder) / target.file)
        for done in range(inputs):
            content = target.inputs(Random(f"{name} {seed} {first - 1 + done}"))
            try:
                with time_limit(LONGEST):
                    found[check(target, content, Path(folder))] += 1
            except Exception as error:  # noqa: BLE001 - what it is after
                found["FAILED"] += 1
                save(name, content, error, new=found["FAILED"] == 1)
            if done % 1000 == 999:
                show(name, done + 1, found, started, peak, end="\r")
    if megabytes() - peak > MOST_GROWTH:
        found["FAILED"] += 1
        print(f"{name}: the process has grown by {megabytes() - peak} MB", file=sys.stderr)
    show(name, inputs, found, started, peak, end="\n")
    return found


def show(
    name: str, inputs: int, found: Counter[str], started: float, peak: int, *, end: str
) -> None:
    """A line of progress; only the last one of a reader where nobody watches."""
    if end == "\n" or sys.stdout.isatty():
        rate = inputs / max(1e-9, time.monotonic() - started)
        outcomes = ", ".join(
            f"{found[kind]:,} {kind}" for kind in ("read", "refused", "FAILED") if found[kind]
        )
        grown = megabytes() - peak
        print(
            f"{name:20} {inputs:9,} inputs  {rate:7,.0f}/s  +{grown} MB  {outcomes}",
            end=f"    {end}",
            flush=True,
        )


def save(name: str, content: bytes, error: Exception, *, new: bool) -> None:
    """Keep what a reader did not survive, and say how to feed it again."""
    FAILURES.mkdir(exist_ok=True)
    path = FAILURES / f"{name}-{hashlib.sha256(content).hexdigest()[:12]}"
    path.write_bytes(content)
    if new:
        print(f"\n{name}: {type(error).__name__}: {str(error)[:200]}", file=sys.stderr)
        print(
            f"  again: .venv/bin/python -m tests.fuzz.run --replay {path} {name}", file=sys.stderr
        )


def megabytes() -> int:
    """The most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def fast_folder() -> Path | None:
    """A folder in memory where there is one."""
    shared = Path("/dev/shm")
    return shared if shared.is_dir() else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="readers; all if none is given")
    parser.add_argument("--inputs", type=int, default=INPUTS, help="damaged files for each reader")
    parser.add_argument("--first", type=int, default=1, help="number of the first one")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--replay", type=Path, help="a saved file to be fed to one reader")
    options = parser.parse_args()
    chosen = {name: TARGETS[name] for name in options.names or TARGETS}
    if options.replay:
        ((_, target),) = chosen.items()
        with TemporaryDirectory() as folder:
            target.beside(Path(folder) / target.file)
            print(check(target, options.replay.read_bytes(), Path(folder)))
        return 0
    failed = 0
    for name, target in chosen.items():
        found = fuzz(name, target, options.inputs, options.seed, first=options.first)
        failed += found["FAILED"]
    last = options.first + options.inputs - 1
    print(
        f"{len(chosen)} readers, inputs {options.first:,} to {last:,} of seed {options.seed} each, "
        f"{failed} failed"
    )
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
