"""`make bench`: all benchmarks in one table, printed and saved in results/ as JSON and text.

All of it takes a quarter of an hour. `--part` measures some parts and keeps the other lines that
are saved, so that a busy machine need not be kept quiet for so long at once.
"""

from __future__ import annotations

import argparse
import json
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch

from benchmarks import anytime_draws, certification, toolbox, training_step
from benchmarks.anytime_draws import Saved
from benchmarks.turns import Line

RESULTS = Path(__file__).parent / "results"
LOGS = Path(__file__).parents[2] / "shared" / "reference" / "mnist-logs.tar.xz"
DRAWS_PER_IMAGE = 100_100
"""n0 + n of the paper."""


DRAWS = "draws"
"""The part that needs no quiet machine: how many draws mode anytime saves."""


def part_names() -> list[str]:
    """What `--part` takes: certification by network, each training step, and the draws."""
    return [*certification.SHAPES, *training_step.CASES, DRAWS]


def main() -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--threads", type=int, nargs="+", default=[1, 2], help="measure on so many threads (1 2)"
    )
    parser.add_argument(
        "--part",
        nargs="+",
        choices=part_names(),
        help="measure these parts alone, and keep the other lines in the folder --out",
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
        help="by seconds of the processor, for a machine that does other things too",
    )
    options = parser.parse_args()
    clock = "seconds of the processor" if options.cpu_time else "seconds of the clock"
    machine = (
        f"torch {torch.__version__}, {processor()}, {torch.backends.cpu.get_cpu_capability()}, "
        f"{clock}"
    )
    print(machine, flush=True)
    results = Results(machine=machine)
    if options.part:
        results = saved_results(options.out, machine)
    parts = options.part or part_names()
    for line in measured(
        parts, options.threads, compiled=options.compiled, cpu_time=options.cpu_time
    ):
        print(
            f"{line.what:28} {line.network:15} {line.way:29} {line.threads} threads {speed(line)}",
            flush=True,
        )
        results.add(line)
    if DRAWS in parts:
        results.saved = draws_saved(options.logs)
    results.write(options.out)
    print(f"\n{results.markdown()}\nsaved as {options.out / 'speed.md'} and speed.json")


@dataclass
class Results:
    """What was measured on one machine."""

    machine: str
    lines: list[Line] = field(default_factory=list)
    saved: list[Saved] = field(default_factory=list)

    def add(self, line: Line) -> None:
        """Add a line, in place of an earlier measurement of the same."""
        self.lines = [other for other in self.lines if other.subject != line.subject]
        self.lines.append(line)

    def in_order(self) -> list[Line]:
        """The lines by threads and part; those of one part as they were measured."""
        names = part_names()

        def place(line: Line) -> tuple[int, int]:
            part = line.network if line.what == certification.WHAT else line.what
            return line.threads, names.index(part)

        return sorted(self.lines, key=place)

    def markdown(self) -> str:
        """All tables."""
        return markdown(self.machine, self.in_order(), self.saved)

    def write(self, folder: Path) -> None:
        """Save the tables, and their numbers as JSON."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "speed.md").write_text(self.markdown())
        found = {
            "machine": self.machine,
            "speed": [asdict(x) for x in self.in_order()],
            "anytime": [asdict(x) for x in self.saved],
        }
        (folder / "speed.json").write_text(json.dumps(found, indent=1) + "\n")


def saved_results(folder: Path, machine: str) -> Results:
    """What is saved in a folder, if it is of this machine; else nothing, and a line says so."""
    path = folder / "speed.json"
    if not path.exists():
        return Results(machine=machine)
    found = json.loads(path.read_text())
    if found["machine"] != machine:
        print(f"{path} is of another machine ({found['machine']}) and begins again", flush=True)
        return Results(machine=machine)
    return Results(
        machine=machine,
        lines=[Line(**line) for line in found["speed"]],
        saved=[Saved(**saved) for saved in found["anytime"]],
    )


def measured(
    parts: Sequence[str], threads: Sequence[int], *, compiled: bool, cpu_time: bool
) -> Iterator[Line]:
    """Every line, as it is measured."""
    for count in threads:
        for network in certification.SHAPES:
            if network in parts:
                yield from certification.measure(
                    network,
                    threads=count,
                    compiled=compiled,
                    toolbox_folder=toolbox.folder(),
                    cpu_time=cpu_time,
                )
        for name in training_step.CASES:
            if name in parts:
                yield from training_step.measure(name, threads=count, cpu_time=cpu_time)


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
    """Certification with the plain install and the best engine, and steps, beside the bars."""
    rows = [
        (
            "| certification of | precision | threads | plain install | best engine | engine "
            f"| at least | times {toolbox.NAME}, batches of {' / '.join(map(str, toolbox.BATCHES))}"
            " |"
        ),
        "|---|---|---|---|---|---|---|---|",
    ]
    for cells in certification.summary(lines):
        rows.append(f"| {' | '.join(cells)} |")
    rows += [
        "",
        "| step | network | precision | threads | ratio | at least |",
        "|---|---|---|---|---|---|",
    ]
    for cells in training_step.summary(lines):
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


if __name__ == "__main__":
    main()
