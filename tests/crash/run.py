"""Kill processes at many file operations (`make crash`), let others finish, and compare.

A run may be cut into pieces that add up to it:

    python -m tests.crash.run --points 2000
    python -m tests.crash.run --first 2001 --points 3000
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from itertools import cycle, islice
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import torch

from tests.crash.points import Points
from tests.crash.scenarios import SCENARIOS, Scenario, contents, empty, write_often
from tests.fuzz.run import fast_folder

POINTS = 5000
SEED = 0
PATIENCE = 60
"""Seconds after which a process hangs."""
BETWEEN_REPORTS = 250
"""Trials after which a line says how far it is."""


def in_child(work: Callable[[], None]) -> int:
    """Run something in a process of its own, which torch need not be imported for again."""
    child = os.fork()
    if child == 0:
        # No hook of the parent may run here, and none of its buffers be written.
        os._exit(_exit_code(work))
    return os.waitpid(child, 0)[1]


def _exit_code(work: Callable[[], None]) -> int:
    signal.alarm(PATIENCE)
    warnings.simplefilter("ignore")
    # Failures are reported on standard error; what commands print does not matter here.
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, sys.stdout.fileno())
    try:
        work()
    except BaseException:  # noqa: BLE001 - whatever it is, the parent must hear of it
        traceback.print_exc()
        return 1
    return 0


def run(scenario: Scenario, folder: Path, fatal: int, report: Path | None = None) -> bool:
    """Finish a scenario, unless the fatal operation comes first; whether it was finished.

    The report tells how many operations there were, and which modules were imported.
    """

    def work() -> None:
        write_often()
        points = Points(folder, fatal)
        points.install()
        scenario.finish(folder)
        if report:
            report.write_text("\n".join([str(points.count), *sys.modules]))

    status = in_child(work)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return False
    if status:
        raise AssertionError("the process failed: see above")
    return True


class Trial:
    """One scenario in a folder of its own, with what it leaves if nothing disturbs it."""

    def __init__(self, name: str, folder: Path) -> None:
        self.scenario = SCENARIOS[name]
        self.name = name
        self.folder = folder / name
        self.prepared = folder / f"{name}-prepared"
        empty(self.folder)
        status = in_child(lambda: self.scenario.prepare(self.folder))
        assert status == 0
        shutil.copytree(self.folder, self.prepared)
        report = folder / "report"
        run(self.scenario, self.folder, 0, report)
        self.expected = contents(self.folder)
        operations, *modules = report.read_text().splitlines()
        self.operations = int(operations)
        # Imported here once, and not by every child.
        for module in modules:
            with suppress(ImportError):
                import_module(module)

    def problem(self, kills: Sequence[int]) -> str:
        """What is wrong after a process for each kill, and one that finishes; empty if nothing."""
        shutil.rmtree(self.folder)
        # Also what a path in the settings leads to must be where it was.
        shutil.copytree(self.prepared, self.folder)
        try:
            for fatal in (*kills, 0):
                if run(self.scenario, self.folder, fatal):
                    break
        except AssertionError as error:
            return str(error)
        found = contents(self.folder)
        if found == self.expected:
            return ""
        different = []
        for name in sorted(found.keys() | self.expected.keys()):
            if found.get(name) != self.expected.get(name):
                different.append(name)
        return f"other files than undisturbed: {', '.join(different)}"

    def all_kills(self, seed: int) -> Iterator[tuple[int, ...]]:
        """Every operation once, in random order; then two and three kills, one after another."""
        random = Random(f"{self.name} {seed}")
        single = list(range(1, self.operations + 1))
        random.shuffle(single)
        for fatal in single:
            yield (fatal,)
        while True:
            kills = random.choice((2, 3))
            yield tuple(random.randint(1, self.operations) for _ in range(kills))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="scenarios; all if none is given")
    parser.add_argument("--points", type=int, default=POINTS, help="trials in total")
    parser.add_argument("--first", type=int, default=1, help="number of the first trial")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument(
        "--again", type=int, nargs="+", help="kill one scenario at these operations"
    )
    options = parser.parse_args()
    # Threads do not survive a fork.
    torch.set_num_threads(1)
    names = options.names or list(SCENARIOS)
    with TemporaryDirectory(prefix="smoothmix-crash-", dir=fast_folder()) as folder:
        trials = {name: Trial(name, Path(folder)) for name in names}
        if options.again:
            (trial,) = trials.values()
            print(trial.problem(options.again) or "right")
            return 0
        return _run_all(trials, options)


def _run_all(trials: dict[str, Trial], options: argparse.Namespace) -> int:
    started = time.monotonic()
    first, last = options.first, options.first + options.points - 1
    done = dict.fromkeys(trials, 0)
    failed = 0
    for name, kills in islice(sequence(trials, options.seed), first - 1, last):
        if time.monotonic() - started > options.seconds:
            break
        problem = trials[name].problem(kills)
        done[name] += 1
        if problem:
            failed += 1
            again = f"python -m tests.crash.run {name} --again {' '.join(map(str, kills))}"
            print(f"{name}, killed at {kills}: {problem}\n  again: {again}", file=sys.stderr)
        count = sum(done.values())
        if count % BETWEEN_REPORTS == 0 and count < options.points:
            print(f"{count:,} trials so far, {failed} wrong", flush=True)
    seconds = time.monotonic() - started
    for name, count in done.items():
        print(f"{name:10} {count:6,} trials, {trials[name].operations} operations")
    count = sum(done.values())
    numbers = f"numbers {first:,} to {first + count - 1:,} of seed {options.seed}"
    print(f"{count:,} trials in {seconds:,.0f} s ({numbers}), {failed} wrong")
    return int(failed > 0)


def sequence(trials: dict[str, Trial], seed: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    """All trials in their order: a scenario, and the operations at which its processes die."""
    kills = {name: trial.all_kills(seed) for name, trial in trials.items()}
    for name in _turns(trials):
        yield name, next(kills[name])


def _turns(trials: dict[str, Trial]) -> Iterator[str]:
    """Names of scenarios, each as often as its weight."""
    once = []
    for name, trial in trials.items():
        once += [name] * trial.scenario.weight
    return cycle(once)


if __name__ == "__main__":
    sys.exit(main())
