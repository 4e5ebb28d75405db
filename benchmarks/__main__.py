"""`make bench`: all benchmarks in one table, printed and saved in results/ as JSON and text."""

from __future__ import annotations

import argparse
import json
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import torch

from benchmarks import anytime_draws, certification, toolbox, training_step
from benchmarks.anytime_draws import Saved
from benchmarks.turns import Line

RESULTS = Path(__file__).parent / "results"
LOGS = Path(__file__).parents[2] / "shared" / "reference" / "mnist-logs.tar.xz"
DRAWS_PER_IMAGE = 100_100
"""n0 + n of the paper."""


def main() -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--threads", type=int, nargs="+", default=[1, 2], help="measure on so many threads (1 2)"
    )
    parser.add_argument(
        "--logs", type=Path, default=LOGS, help="the published logs, mnist-logs.tar.xz"
    )
    parser.add_argument(
        "--out", type=Path, default=RESULTS, help="folder for speed.json and speed.md"
    )
    parser.add_argument(
        "--compiled",
        action="store_true",
        help="measure torch.compile too, which compiles for minutes first",
    )
    parser.add_argument(
        "--cpu-time",
        action="store_true",
        help="certification by seconds of the processor, for a machine that does other things too",
    )
    options = parser.parse_args()
    machine = f"torch {torch.__version__}, {processor()}, {torch.backends.cpu.get_cpu_capability()}"
    print(machine, flush=True)
    lines = []
    for line in measured(options.threads, compiled=options.compiled, cpu_time=options.cpu_time):
        print(
            f"{line.what:28} {line.network:15} {line.way:29} {line.threads} threads {speed(line)}",
            flush=True,
        )
        lines.append(line)
    saved = draws_saved(options.logs)
    text = markdown(machine, lines, saved)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "speed.md").write_text(text)
    found = {
        "machine": machine,
        "speed": [asdict(x) for x in lines],
        "anytime": [asdict(x) for x in saved],
    }
    (options.out / "speed.json").write_text(json.dumps(found, indent=1) + "\n")
    print(f"\n{text}\nsaved as {options.out / 'speed.md'} and speed.json")


def measured(threads: Sequence[int], *, compiled: bool, cpu_time: bool) -> Iterator[Line]:
    """Every line, as it is measured."""
    for count in threads:
        for network in certification.SHAPES:
            yield from certification.measure(
                network,
                threads=count,
                compiled=compiled,
                toolbox_folder=toolbox.folder(),
                cpu_time=cpu_time,
            )
        for name in training_step.CASES:
            yield from training_step.measure(name, threads=count)


def draws_saved(archive: Path) -> list[Saved]:
    """What mode anytime saves on the published logs; empty where these are missing."""
    if not archive.exists():
        print(f"the draws that anytime saves are not measured: {archive.name} is missing")
        return []
    with tempfile.TemporaryDirectory() as folder, tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
        return list(anytime_draws.saved(Path(folder), skip=1))


def processor() -> str:
    """The name of the processor."""
    info = Path("/proc/cpuinfo")
    names = [
        line.partition(":")[2].strip()
        for line in info.read_text().splitlines()
        if "model name" in line
    ]
    flags = info.read_text()
    native = "with" if "avx512_bf16" in flags or "amx_bf16" in flags else "without"
    return f"{names[0] if names else 'unknown processor'}, {native} bf16 instructions"


def speed(line: Line) -> str:
    """Its numbers on one line."""
    share = f"{100 * line.of_floor:4.0f} % of the floor"
    return f"{line.rate:9,.0f} {line.unit}/s {line.ratio:5.2f}x {share}"


def markdown(machine: str, lines: Sequence[Line], saved: Sequence[Saved]) -> str:
    """The tables as markdown."""
    rows = [
        (
            "| what | network | way | threads | per second | images per hour at n = 100,000 "
            "| ratio | of the floor's speed |"
        ),
        "|---|---|---|---|---|---|---|---|",
    ]
    for x in lines:
        hour = f"{3600 * x.rate / DRAWS_PER_IMAGE:,.0f}" if x.unit == "draws" else ""
        rows.append(
            f"| {x.what} | {x.network} | {x.way} | {x.threads} | {x.rate:,.0f} {x.unit} "
            f"| {hour} | {x.ratio:.2f} | {100 * x.of_floor:.0f} % |"
        )
    parts = [f"{machine}.", "\n".join(rows), bars(lines)]
    if saved:
        rows = [
            "| votes like | rule | draws per image | fewer | points lost at most |",
            "|---|---|---|---|---|",
        ]
        rows += [
            f"| {s.log} | {s.rule} | {s.draws:,.0f} | {s.fewer:.1f} | {s.points:.2f} |"
            for s in saved
        ]
        parts.append("\n".join(rows))
    return "\n\n".join(parts) + "\n"


def bars(lines: Sequence[Line]) -> str:
    """Certification with the plain install and the best engine, beside what is asked for."""
    rows = [
        (
            "| certification of | precision | threads | plain install | best engine | engine "
            f"| at least | times {toolbox.NAME} |"
        ),
        "|---|---|---|---|---|---|---|---|",
    ]
    for cells in certification.summary(lines):
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


if __name__ == "__main__":
    main()
