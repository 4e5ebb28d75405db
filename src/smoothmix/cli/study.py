"""The group of commands `study`, and what they all show in the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cyclopts import App

from smoothmix._process.world import current_world
from smoothmix.cli.output import echo, show
from smoothmix.config import require

if TYPE_CHECKING:
    from smoothmix.studies.files import SavedReport

app = App(
    help="Repeat the paper's measurements: numbers as CSV, a figure, a section for the report."
)


def require_one_process() -> None:
    """Refuse to run under torchrun, where every process would do the same work."""
    alone = current_world().alone
    require(alone, "this study runs in one process: start it without torchrun")


def announce_figure() -> None:
    """Print a message if no figure will be drawn, before the work: the numbers need no figure."""
    from smoothmix.studies.files import can_draw

    if not can_draw():
        echo("no figure will be drawn: it needs matplotlib (pip install matplotlib)")


def show_saved(saved: SavedReport) -> None:
    """Print the table and the text of a study, and the names of its files."""
    from smoothmix.cli.report import show_grid

    # After the files were written: the reader of a pipe may close it before the table ends.
    show_grid(saved.report.grid, "terminal")
    show()
    show(saved.report.text)
    if saved.earlier is not None:
        name = saved.report.name
        echo(f"moved the files of an earlier {name} study with other results to {saved.earlier}")
    for file in saved.files:
        echo(f"wrote {file}")
