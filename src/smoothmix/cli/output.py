"""What commands show: messages, progress with the rate and the time left, and tables."""

from __future__ import annotations

import math
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

from smoothmix._io.text import for_terminal, for_terminal_lines
from smoothmix._process.progress import OnProgress, Progress
from smoothmix._process.signals import INTERRUPTED_EXIT_CODE
from smoothmix._process.world import current_world
from smoothmix.errors import SmoothmixError

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress

SECONDS_BETWEEN_LINES = 10.0
"""How often progress is printed where there is no terminal to draw a bar on."""

SECONDS_OF_SPEED = 3600.0
"""Updates older than this do not count for the speed; rich also drops all but the last 1,000."""


class NothingSavedError(SmoothmixError):
    """The user interrupted a command that keeps no intermediate state."""

    exit_code = INTERRUPTED_EXIT_CODE

    def __init__(self) -> None:
        super().__init__(
            "interrupted; no file was written: run the same command to start from the beginning"
        )


# All that commands print goes through the functions of this module: text from files and names of
# folders reach no terminal as they are. A test keeps `print` out of the other modules.


def echo(text: str = "") -> None:
    """Print a message of one line on standard error; of several processes, only the main one does.

    Standard output is reserved for results, so that they can be piped.
    """
    if current_world().is_main:
        complain(text)


def complain(text: str) -> None:
    """Print one line on standard error, whichever process this is."""
    print(for_terminal(text), file=sys.stderr, flush=True)


def show(text: str = "") -> None:
    """Print one line of a result on standard output."""
    print(for_terminal(text))


def show_document(text: str, stream: IO[str] | None = None) -> None:
    """Write text of several lines as it is, such as a table in some format, to standard output."""
    (stream or sys.stdout).write(for_terminal_lines(text))


@contextmanager
def progress(description: str, *, unit: str) -> Iterator[OnProgress]:
    """A callback that shows progress: a bar on a terminal, elsewhere a line every few seconds."""
    # Carriage returns of a bar would fill a log file with garbage.
    on_terminal = sys.stderr.isatty() and current_world().is_main
    description = for_terminal(description)
    with new_bar(enabled=on_terminal) as bar:
        if on_terminal:
            yield _bar_callback(bar, description, unit)
        else:
            yield _line_callback(bar, description, unit)


def new_bar(*, enabled: bool, clock: Callable[[], float] = time.monotonic) -> RichProgress:
    """rich's progress bar on standard error; one that is not enabled only estimates the speed."""
    # rich takes a while to import, and most commands show no progress.
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as RichProgress

    return RichProgress(
        # As plain text: rich would take square brackets in a name for markup.
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[text]}", markup=False),
        console=Console(stderr=True),
        get_time=clock,
        speed_estimate_period=SECONDS_OF_SPEED,
        disable=not enabled,
    )


def _bar_callback(bar: RichProgress, description: str, unit: str) -> OnProgress:
    task = bar.add_task(description, total=None, text="")

    def on_progress(state: Progress) -> None:
        bar.update(task, total=state.total, completed=state.done)
        # The text depends on the speed, which rich knows only after the update.
        bar.update(task, text=_progress_text(state, bar.tasks[0].speed, unit))

    return on_progress


def _line_callback(bar: RichProgress, description: str, unit: str) -> OnProgress:
    task = bar.add_task(description, total=None, text="")
    last_line = time.monotonic()

    def on_progress(state: Progress) -> None:
        nonlocal last_line
        bar.update(task, total=state.total, completed=state.done)
        speed = bar.tasks[0].speed
        # The last line is always printed, except if nothing was left to do from the start.
        just_finished = state.done >= state.total and speed is not None
        if time.monotonic() - last_line < SECONDS_BETWEEN_LINES and not just_finished:
            return
        last_line = time.monotonic()
        line = f"{description}: {math.floor(state.done)} of {state.total:.0f} {unit}"
        text = _progress_text(state, speed, unit)
        if text:
            line += f", {text}"
        echo(line)

    return on_progress


def _progress_text(state: Progress, speed: float | None, unit: str) -> str:
    """The rate, the time left and the note, as far as they are known."""
    parts = []
    if speed:
        parts.append(rate_text(speed, unit))
        if state.done < state.total:
            parts.append(f"{duration((state.total - state.done) / speed)} left")
    if state.note:
        parts.append(state.note)
    return ", ".join(parts)


def rate_text(rate: float, unit: str) -> str:
    """A rate per second, or per minute where it is below one per second.

    >>> rate_text(0.5, "images")
    '30.0 images/min'
    """
    if rate >= 1:
        return f"{rate:.1f} {unit}/s"
    return f"{60 * rate:.1f} {unit}/min"


def duration(seconds: float) -> str:
    """A duration in the two largest units that fit it.

    >>> duration(3.2), duration(75), duration(7300), duration(250_000)
    ('3 s', '1 min 15 s', '2 h 1 min', '2 days 21 h')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    # Up to two days in hours: "30 h" is easier to plan with than "1 day 6 h".
    if whole < 48 * 3600:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86400} days {whole % 86400 // 3600} h"


UNLIMITED_WIDTH = 1000
COLUMN_GAP = 3


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table on standard output, columns of numbers aligned to the right.

    A terminal that is too narrow gets several tables that fit, each with the first column: digits
    must not be cut off. A pipe has no width, so tables for programs and logs are never split.
    """
    columns = list(map(for_terminal, columns))
    lines = [list(map(for_terminal, row)) for row in rows]
    width = UNLIMITED_WIDTH
    if sys.stdout.isatty():
        width = shutil.get_terminal_size().columns
    show(title)
    for positions in _split_columns(columns, lines, width):
        cells = [_at(positions, line) for line in lines]
        _print_table(_at(positions, columns), cells, width)


def _at(positions: Sequence[int], line: Sequence[str]) -> list[str]:
    return [line[position] for position in positions]


def _split_columns(
    columns: Sequence[str], lines: Sequence[Sequence[str]], width: int
) -> list[list[int]]:
    """The positions of the columns in each table: as many as fit, always with the first column.

    >>> _split_columns(["model", "ACR", "0.00"], [["gaussian", "1.2345", "99.1"]], 22)
    [[0, 1], [0, 2]]
    """
    widths = []
    for position, name in enumerate(columns):
        longest = max((len(line[position]) for line in lines), default=0)
        widths.append(max(len(name), longest) + COLUMN_GAP)
    parts = [[0]]
    used = widths[0]
    for position in range(1, len(columns)):
        # A column that fits beside nothing still gets a table, with the first column.
        if len(parts[-1]) > 1 and used + widths[position] > width:
            parts.append([0])
            used = widths[0]
        parts[-1].append(position)
        used += widths[position]
    return parts


def _print_table(columns: Sequence[str], lines: Sequence[Sequence[str]], width: int) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=box.SIMPLE_HEAD)
    for position, column in enumerate(columns):
        numeric = all(_is_number(line[position]) for line in lines)
        grid.add_column(Text(column), justify="right" if numeric else "left")
    for line in lines:
        # Text objects: rich would take square brackets in a plain string for markup.
        grid.add_row(*map(Text, line))
    Console(width=width, highlight=False).print(grid)


def _is_number(cell: str) -> bool:
    """Whether a cell is empty, a dash or begins like a number."""
    return cell in ("", "–") or cell.lstrip("+-–")[:1].isdigit()
