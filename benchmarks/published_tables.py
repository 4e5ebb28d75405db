"""Each cell of the paper's MNIST tables and ablations, computed again from published logs.

python -m benchmarks.published_tables DIR     # DIR holds mnist-logs.tar.xz unpacked

Radii are rounded as in the paper; numbers are compared as they are printed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np

from smoothmix import presets
from smoothmix.analysis import Measured, measure
from smoothmix.presets import Published
from smoothmix.reproduce.logs import find_logs

NO_RUN_AT_HALF = ("gaussian", "stability", "smoothadv", "macer")
"""Rows of the main table at sigma 0.50 of which FIDELITY.md says that no log holds them."""


@dataclass(frozen=True)
class Logs:
    """The logs of one row."""

    seeds: tuple[Path, ...]
    every: tuple[Path, ...]
    """With those that are not averaged, but for the main table's own run."""
    main: Path | None


@dataclass(frozen=True, kw_only=True)
class Compared:
    """One number of the paper and the same from the logs."""

    row: str
    column: str
    printed: float
    """In the preset file."""
    exact: float
    """From the logs."""
    digits: int
    named: bool = False
    """Whether FIDELITY.md says that it cannot match."""
    others: Mapping[str, float]
    """The same number counted in other ways, each with its name."""

    @property
    def equal(self) -> bool:
        """Whether both are the same in print."""
        return self.text(self.exact) == self.text(self.printed)

    def text(self, value: float) -> str:
        """The value as this cell is printed."""
        return f"{value:.{self.digits}f}"

    def __str__(self) -> str:
        known = "named in FIDELITY.md" if self.named else "not named in FIDELITY.md"
        numbers = f"printed {self.text(self.printed)}, logs {self.exact:.6f}"
        line = f"    {self.row} {self.column}: {numbers} [{known}]"
        for way, value in self.others.items():
            line += f"; {way} {value:.6f}"
            if self.text(value) == self.text(self.printed):
                line += " = as printed"
        return line


@cache
def read(path: Path) -> Measured:
    """A log as arrays only: the rows of two hundred logs would fill the memory."""
    measured = measure(path, paper_rounding=True)
    return replace(measured, file=replace(measured.file, rows=()))


def acr(run: Measured) -> float:
    """Average certified radius."""
    return float(run.counted.mean())


def accuracy(radius: float) -> Callable[[Measured], float]:
    """Certified accuracy at a radius, in percent."""
    return lambda run: 100 * float(run.accuracy_at([radius])[0])


def over_seeds(
    row: str,
    column: str,
    get: Callable[[Measured], float],
    printed: tuple[float, float],
    logs: Logs,
    *,
    named: bool,
) -> list[Compared]:
    """The mean and the standard deviation of one number."""
    five, every = [get(read(path)) for path in logs.seeds], [get(read(path)) for path in logs.every]
    digits = 4 if column == "ACR" else 2
    more = {f"all {len(every)} logs": every} if len(every) > len(five) else {}
    means = {way: float(np.mean(values)) for way, values in more.items()}
    deviations = {"with n for n - 1": float(np.std(five))}
    deviations |= {way: float(np.std(values, ddof=1)) for way, values in more.items()}
    numbers = (
        ("mean", printed[0], float(np.mean(five)), means),
        ("deviation", printed[1], float(np.std(five, ddof=1)), deviations),
    )
    return [
        Compared(
            row=row,
            column=f"{column} {kind}",
            printed=value,
            exact=ours,
            digits=digits,
            named=named,
            others=others,
        )
        for kind, value, ours, others in numbers
    ]


def single_run(row: str, published: Published, run: Measured) -> list[Compared]:
    """Every number of a row of a table of single runs."""
    numbers = [("ACR", published.acr, acr(run), 3)]
    numbers += [(f"{r:.2f}", value, accuracy(r)(run), 1) for r, value in published.accuracy.items()]
    return [
        Compared(row=row, column=column, printed=value, exact=ours, digits=digits, others={})
        for column, value, ours, digits in numbers
    ]


def all_logs(folder: Path) -> dict[str, Logs]:
    """The logs by row; a row's sixth log lies beside its five."""
    rows = {}
    for name, found in find_logs(folder).rows.items():
        beside = {
            path
            for seed in found.seeds
            for path in seed.parent.glob("noise_*")
            if read(path).sigma == presets.get(name).config.method["sigma"]
        }
        rows[name] = Logs(found.seeds, tuple(sorted(beside)), found.main)
    return rows


def acr_over_seeds(rows: Mapping[str, Logs]) -> Iterable[Compared]:
    """The table of ACRs over five seeds."""
    for name in presets.names("mnist"):
        p = presets.get(name).published
        assert p is not None
        assert p.acr_mean is not None
        assert p.acr_std is not None
        named = name.endswith("/consistency")
        yield from over_seeds(name, "ACR", acr, (p.acr_mean, p.acr_std), rows[name], named=named)


def accuracy_over_seeds(rows: Mapping[str, Logs]) -> Iterable[Compared]:
    """The table of certified accuracies over five seeds."""
    for name in presets.names("mnist"):
        p = presets.get(name).published
        assert p is not None
        named = name == "mnist/1.00/consistency"
        for r, mean in p.accuracy_mean.items():
            printed = mean, p.accuracy_std[r]
            yield from over_seeds(name, f"{r:.2f}", accuracy(r), printed, rows[name], named=named)


def ablation(setting: str, rows: Mapping[str, Logs]) -> Iterable[Compared]:
    """One of the four ablation tables, without the Gaussian row, of which there is no log."""
    for name in presets.names(f"ablation/{setting}"):
        published, (path,) = presets.get(name).published, rows[name].seeds
        assert published is not None
        yield from single_run(name, published, read(path))


def main_table(rows: Mapping[str, Logs]) -> Iterable[Compared]:
    """SmoothMix's rows of the main table, of which the run is known."""
    for name in presets.names("mnist", method="smoothmix"):
        published, path = presets.get(name).published, rows[name].main
        assert published is not None
        assert path is not None
        yield from single_run(name, published, read(path))


def nearest_log(name: str, logs: Logs) -> tuple[Path, list[Compared]]:
    """The log that most numbers of a row of the main table are of, with all of them."""
    published = presets.get(name).published
    assert published is not None
    tried = [(path, single_run(name, published, read(path))) for path in logs.every]
    return max(tried, key=lambda pair: sum(cell.equal for cell in pair[1]))


def print_table(title: str, cells: Sequence[Compared]) -> None:
    """How many cells are equal, and those that are not."""
    print(f"{title}: {sum(cell.equal for cell in cells)} of {len(cells)} cells equal", flush=True)
    for cell in cells:
        if not cell.equal:
            print(cell)


def print_baselines(rows: Mapping[str, Logs]) -> None:
    """For each other row of the main table, the log that is nearest: its run is not published."""
    print("Main table, rows of which the run is not known (the nearest log of each):")
    for name in presets.names("mnist"):
        if rows[name].main is None:
            path, cells = nearest_log(name, rows[name])
            equal = sum(cell.equal for cell in cells)
            all_equal = " (all of them)" if equal == len(cells) else ""
            print(f"  {name}: {path.name} has {equal} of {len(cells)}{all_equal}")
            _, sigma, method = name.split("/")
            if sigma == "0.50" and method in NO_RUN_AT_HALF:
                print("    named in FIDELITY.md: no log holds this run")
                continue
            for cell in cells:
                if not cell.equal:
                    print(f"{cell}; {spread(cell, rows[name])}")


def spread(cell: Compared, logs: Logs) -> str:
    """The range of that number in all logs of a row, and the logs that agree with the paper."""
    get = acr if cell.column == "ACR" else accuracy(float(cell.column))
    every = {path.name: get(read(path)) for path in logs.every}
    same = [name for name, value in every.items() if cell.text(value) == cell.text(cell.printed)]
    span = f"all logs {min(every.values()):.4f} to {max(every.values()):.4f}"
    return f"{span}, printed so by {', '.join(same) or 'none of them'}"


def main() -> None:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, metavar="DIR", help="mnist-logs.tar.xz unpacked")
    rows = all_logs(parser.parse_args().folder)
    print_table("ACR over five seeds", list(acr_over_seeds(rows)))
    print_table("Certified accuracy over five seeds", list(accuracy_over_seeds(rows)))
    for setting in ("eta", "steps", "limit", "copies"):
        print_table(f"Ablation of {setting}", list(ablation(setting, rows)))
    print("  (the Gaussian row of the four ablation tables has no log, as FIDELITY.md says)")
    print_table("Main table, SmoothMix (seed 0)", list(main_table(rows)))
    print_baselines(rows)


if __name__ == "__main__":
    main()
