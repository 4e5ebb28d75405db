"""How much faster two processes train than one: Gaussian LeNet, batches of 256, one thread a process.

python -m benchmarks.scaling_training [repeats]

Each way is the command as a person runs it, on the embedded sample; the rate is that of the training loop after its
first epoch, from metrics.jsonl. The ways take turns, so that what else the machine does hits them alike. Two processes
that know nothing of each other, with half a batch each, show what the machine has to give: no two can do better.
Ratios are to one process on one core, since two processes have two. A process that is free to use another core has its
next batch prepared there: a line of its own shows what that is worth.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

BASE = "one process, one core"
BATCH = 256
TARGET = 1.6
"""What two processes are to reach."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """The speed of one way to use processes of one thread."""

    way: str
    images_per_second: float
    ratio: float
    """How many times faster than one process."""


def measure(repeats: int = 3) -> list[Row]:
    """One process, two together, two apart: medians over `repeats` runs of each, taken in turns."""
    ways: dict[str, Callable[[], float]] = {
        BASE: on_one_core,
        "one process, free": alone,
        "two together": together,
        "two apart": apart,
    }
    rates: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(repeats):
        for way, run in ways.items():
            rates[way].append(run())
    medians = {way: statistics.median(found) for way, found in rates.items()}
    return [Row(way=way, images_per_second=rate, ratio=rate / medians[BASE]) for way, rate in medians.items()]


def on_one_core() -> float:
    """Images a second of one process that has one core."""
    free = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(free)})  # what is started inherits it
    try:
        return alone()
    finally:
        os.sched_setaffinity(0, free)


def alone() -> float:
    """Images a second of one process."""
    return _rate_of_runs([[]], batch=BATCH)


def together() -> float:
    """Images a second of two processes that share each batch."""
    return _rate_of_runs([["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]], batch=BATCH)


def apart() -> float:
    """Images a second of two processes that train a network each."""
    return _rate_of_runs([[], []], batch=BATCH // 2)


def _rate_of_runs(launchers: list[list[str]], *, batch: int) -> float:
    """The rates of some runs at the same time, added up."""
    with tempfile.TemporaryDirectory() as folder:
        runs = [Path(folder) / str(number) for number in range(len(launchers))]
        started = [_start(launcher, run, batch) for launcher, run in zip(launchers, runs, strict=True)]
        codes = [process.wait() for process in started]
        if any(codes):
            raise RuntimeError(f"a run has failed: {launchers}")
        return sum(map(_rate, runs))


def _start(launcher: list[str], run: Path, batch: int) -> subprocess.Popen[bytes]:
    command = ["train", "quick/gaussian", "--epochs", "6", "--device", "cpu", "--batch", str(batch), "--out", str(run)]
    return subprocess.Popen(
        [sys.executable, *launcher, "-m", "smoothmix", *command],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def _rate(run: Path) -> float:
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return statistics.median(float(json.loads(line)["images_per_second"]) for line in lines[1:])


def main() -> None:
    """Measure and print."""
    for row in measure(int(sys.argv[1]) if len(sys.argv) > 1 else 3):
        print(f"{row.way:22} {row.images_per_second:8,.0f} images/s {row.ratio:6.2f}x", flush=True)
    print(f"target for two together: {TARGET}x")


if __name__ == "__main__":
    main()
