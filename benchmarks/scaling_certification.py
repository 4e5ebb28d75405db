"""How much faster several processes certify than one, each on one thread.

python -m benchmarks.scaling_certification

Real commands run on the embedded sample with LeNet. The start of Python and torch is not counted:
the clock runs while every process adds rows to its files. One process and several take turns, so
that other load affects both; the ratio of medians is the result.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from smoothmix.certificates.shards import rows_in

N0, N = 100, 1_000
"""Draws per image: few, so that rows come often and the speed is measured well."""

NETWORK = """
import torch
from smoothmix import networks

def make():
    torch.manual_seed(0)
    return networks.build("lenet")
"""

SECONDS_BETWEEN_CHECKS = 0.01
PATIENCE = 120.0
"""Seconds after which processes that wrote no row are stopped."""


@dataclass(frozen=True)
class Scaling:
    """The speed of so many processes."""

    processes: int
    draws_per_second: float
    """In steady state, all processes together; the median over turns."""
    ratio: float
    """To one process."""


def measure(processes: int = 2, *, seconds: float = 10.0, turns: int = 3) -> list[Scaling]:
    """The speed of one process and of several, in turns."""
    paces: dict[int, list[float]] = {1: [], processes: []}
    for _ in range(turns):
        for count, found in paces.items():
            found.append(pace(count, seconds))
    medians = {count: statistics.median(found) for count, found in paces.items()}
    return [Scaling(count, median, median / medians[1]) for count, median in medians.items()]


def pace(processes: int, seconds: float) -> float:
    """Draws per second of one command, which is watched for a while and then ended."""
    launcher = [
        "torch.distributed.run",
        "--nproc-per-node",
        str(processes),
        "-m",
        "smoothmix",
        "--",
    ]
    module = launcher if processes > 1 else ["smoothmix"]
    options = (
        f"--model network:make --sigma 0.5 --data sample --n0 {N0} --n {N} --device cpu".split()
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "network.py").write_text(NETWORK)
        command = subprocess.Popen(
            [sys.executable, "-m", *module, "certify", *options],
            cwd=folder,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            return watch(command, folder, processes, seconds)
        finally:
            command.terminate()
            command.wait()


def watch(command: subprocess.Popen[bytes], folder: Path, processes: int, seconds: float) -> float:
    """Draws per second between two rows, after every process has written one."""
    deadline = time.monotonic() + PATIENCE
    first = last = (0.0, 0)
    while not first[1] or last[0] - first[0] < seconds:
        time.sleep(SECONDS_BETWEEN_CHECKS)
        counts = [rows for file in folder.glob("certificates*.tsv") if (rows := rows_in(file))]
        now, done = time.monotonic(), sum(counts)
        if command.poll() is not None or now > deadline:
            raise RuntimeError(f"{processes} processes ended or stalled after {done} images")
        if len(counts) >= processes and done > last[1]:
            last = now, done
            first = first if first[1] else last
    return (last[1] - first[1]) * (N0 + N) / (last[0] - first[0])


def main() -> None:
    """Measure and print."""
    for line in measure():
        speed = f"{line.draws_per_second:8,.0f} draws/s {line.ratio:5.2f}x"
        print(f"{line.processes} processes on one thread each: {speed}")


if __name__ == "__main__":
    main()
