"""How much faster two processes train than one: Gaussian LeNet, batches of 256, one thread each.

python -m benchmarks.scaling_training [turns]

Each way is a real command on the embedded sample; the rate is that of the training loop after its
first epoch, from metrics.jsonl. The ways take turns, and ratios are taken within a turn, so that
other load affects all of them; the range of the ratios shows how much load there was.

Two independent processes with half a batch each show what the machine can do: no two can do
better. Ratios are to one process on one core, since two processes have two. A process that may
use another core has its next batch prepared there, which a line of its own shows.
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
EPOCHS = 10
TARGET = 1.6
"""The ratio that two processes should reach."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """The speed of one way to use processes of one thread."""

    way: str
    images_per_second: float
    """The median over turns."""
    ratios: tuple[float, ...]
    """How many times faster than one process on one core, in each turn."""

    def __str__(self) -> str:
        ratio = statistics.median(self.ratios)
        span = f"({min(self.ratios):.2f} to {max(self.ratios):.2f})"
        return f"{self.way:22} {self.images_per_second:8,.0f} images/s {ratio:6.2f}x {span}"


def measure(turns: int = 5) -> list[Row]:
    """One process, two together, two independent ones, in turns."""
    ways: dict[str, Callable[[], float]] = {
        BASE: on_one_core,
        "one process, free": alone,
        "two together": together,
        "two independent": independent,
    }
    rates = [{way: run() for way, run in ways.items()} for _ in range(turns)]
    return [
        Row(
            way=way,
            images_per_second=statistics.median(turn[way] for turn in rates),
            ratios=tuple(turn[way] / turn[BASE] for turn in rates),
        )
        for way in ways
    ]


def on_one_core() -> float:
    """Images per second of one process that has one core."""
    free = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(free)})  # what is started inherits it
    try:
        return alone()
    finally:
        os.sched_setaffinity(0, free)


def alone() -> float:
    """Images per second of one process."""
    return _rate_of_runs([[]], batch=BATCH)


def together() -> float:
    """Images per second of two processes that share each batch."""
    return _rate_of_runs(
        [["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]], batch=BATCH
    )


def independent() -> float:
    """Images per second of two processes that train a network each."""
    return _rate_of_runs([[], []], batch=BATCH // 2)


def _rate_of_runs(launchers: list[list[str]], *, batch: int) -> float:
    """The rates of some runs at the same time, added up."""
    with tempfile.TemporaryDirectory() as folder:
        runs = [Path(folder) / str(number) for number in range(len(launchers))]
        started = [
            _start(launcher, run, batch) for launcher, run in zip(launchers, runs, strict=True)
        ]
        codes = [process.wait() for process in started]
        if any(codes):
            raise RuntimeError(f"a run has failed: {launchers}")
        return sum(map(_rate, runs))


def _start(launcher: list[str], run: Path, batch: int) -> subprocess.Popen[bytes]:
    options = f"--epochs {EPOCHS} --device cpu --batch {batch}".split()
    return subprocess.Popen(
        [
            sys.executable,
            *launcher,
            "-m",
            "smoothmix",
            "train",
            "quick/gaussian",
            *options,
            "--out",
            str(run),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def _rate(run: Path) -> float:
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return statistics.median(float(json.loads(line)["images_per_second"]) for line in lines[1:])


def main() -> None:
    """Measure and print."""
    for row in measure(*map(int, sys.argv[1:2])):
        print(row, flush=True)
    print(f"target for two together: {TARGET}x")


if __name__ == "__main__":
    main()
