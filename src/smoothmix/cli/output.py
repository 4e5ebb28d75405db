"""What commands show: progress with a rate and time left, tables, plain lines where there is no terminal."""

from __future__ import annotations

import math
import shutil
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from smoothmix._process.signals import INTERRUPTED_EXIT_CODE
from smoothmix._process.world import current_world
from smoothmix.errors import SmoothmixError

SECONDS_BETWEEN_LINES = 10.0
SECONDS_OF_PACE = 300.0


class NothingSavedError(SmoothmixError):
    """A command that was stopped by the person, and has nothing to go on from."""

    exit_code = INTERRUPTED_EXIT_CODE

    def __init__(self) -> None:
        super().__init__("interrupted; no file was written, and the same command begins anew")


class Track(Protocol):
    """Shows how far something is."""

    def __call__(self, done: float, total: float, text: str = "") -> None:
        """Say that `done` of `total` is done."""


def echo(text: str = "") -> None:
    """A line for the person, on standard error: standard output is for results. Of many processes only one speaks."""
    if current_world().is_main:
        print(text, file=sys.stderr, flush=True)


@contextmanager
def progress(what: str, *, unit: str) -> Iterator[Track]:
    """A bar on a terminal, a plain line now and then elsewhere. The first call says where the work begins."""
    if sys.stderr.isatty() and current_world().is_main:
        with _bar(what, unit) as track:
            yield track
    else:
        yield _lines(what, unit)


class Pace:
    """The rate of work in the last minutes: what was fast or stood still before that says nothing of what is left."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.heard: deque[tuple[float, float]] = deque()
        """When how much was done, a few times a minute; the first call may find some of it done already."""

    def rate(self, done: float) -> float:
        """Units a second; 0 until something is known."""
        now = self.clock()
        if not self.heard or now - self.heard[-1][0] > SECONDS_OF_PACE / 50:
            self.heard.append((now, done))
        while len(self.heard) > 2 and now - self.heard[1][0] >= SECONDS_OF_PACE:
            self.heard.popleft()
        started, before = self.heard[0]
        return (done - before) / (now - started) if now > started else 0.0


@contextmanager
def _bar(what: str, unit: str) -> Iterator[Track]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[text]}"),
    )
    pace = Pace()
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(what, total=None, text="")

        def track(done: float, total: float, text: str = "") -> None:
            rate = pace.rate(done)
            bar.update(
                task,
                total=int(total),
                completed=int(done),
                text=_pace_text(rate, done, total, unit, text),
            )

        yield track


def _lines(what: str, unit: str) -> Track:
    pace = Pace()
    last = time.monotonic()

    def track(done: float, total: float, text: str = "") -> None:
        nonlocal last
        rate = pace.rate(done)
        if time.monotonic() - last < SECONDS_BETWEEN_LINES and not (done >= total and rate):
            return
        last = time.monotonic()
        pace_text = _pace_text(rate, done, total, unit, text)
        echo(
            f"{what}: {math.floor(done)} of {total:.0f} {unit}"
            + (f", {pace_text}" if pace_text else "")
        )

    return track


def _pace_text(rate: float, done: float, total: float, unit: str, text: str) -> str:
    left = f"{duration((total - done) / rate)} left" if done < total and rate else ""
    return ", ".join(part for part in (rate_text(rate, unit) if rate else "", left, text) if part)


def rate_text(rate: float, unit: str) -> str:
    """A rate in the larger of per second and per minute.

    >>> rate_text(0.5, "images")
    '30.0 images/min'
    """
    return f"{rate:.1f} {unit}/s" if rate >= 1 else f"{60 * rate:.1f} {unit}/min"


def duration(seconds: float) -> str:
    """A duration as people say it.

    >>> duration(3.2), duration(75), duration(7300), duration(250_000)
    ('3 s', '1 min 15 s', '2 h 1 min', '2 days 21 h')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    if whole < 48 * 3600:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86400} days {whole % 86400 // 3600} h"


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A table on standard output, with columns of numbers to the right.

    On a terminal that is too narrow for it, it comes in parts that fit, each with the first column again: numbers that
    are cut short are worth nothing. A pipe has no width, so tables for programs and logs are never cut.
    """
    lines = list(rows)
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else UNLIMITED
    print(title)
    for part in _parts(columns, lines, width):
        _print_table([columns[i] for i in part], [[line[i] for i in part] for line in lines], width)


UNLIMITED = 1000
GAP = 3
"""Between two columns."""


def _parts(columns: Sequence[str], lines: Sequence[Sequence[str]], width: int) -> list[list[int]]:
    """Which columns stand together: as many as fit, the first in every part.

    >>> _parts(["model", "ACR", "0.00"], [["gaussian", "1.2345", "99.1"]], 22)
    [[0, 1], [0, 2]]
    """
    sizes = [
        max(len(column), *(len(line[i]) for line in lines), 0) + GAP
        for i, column in enumerate(columns)
    ]
    parts: list[list[int]] = [[0]]
    for i in range(1, len(columns)):
        if len(parts[-1]) > 1 and sum(sizes[j] for j in parts[-1]) + sizes[i] > width:
            parts.append([0])
        parts[-1].append(i)
    return parts


def _print_table(columns: Sequence[str], lines: Sequence[Sequence[str]], width: int) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=box.SIMPLE_HEAD)
    for position, column in enumerate(columns):
        numeric = all(
            line[position].lstrip("+-–")[:1].isdigit() or line[position] in ("", "–")
            for line in lines
        )
        grid.add_column(Text(column), justify="right" if numeric else "left")
    for line in lines:
        grid.add_row(*map(Text, line))  # as it is: square brackets in a name are no commands
    Console(width=width, highlight=False).print(grid)
