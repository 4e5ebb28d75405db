"""The command `report`: a table in the terminal or a file, figures, and the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from smoothmix.cli.options import Numbers, parse_radii
from smoothmix.cli.output import echo, show, show_document
from smoothmix.cli.output import table as show_table
from smoothmix.config import require
from smoothmix.errors import UsageError

if TYPE_CHECKING:
    from smoothmix.analysis import Measured
    from smoothmix.report import Choices, Page
    from smoothmix.tables import Grid

TableFormat = Literal["terminal", "md", "latex", "csv", "json"]
FigureFormat = Literal["pdf", "png", "svg"]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """What is compared, and how the table is printed."""

    format: TableFormat = "terminal"
    """Format of the table."""

    radii: Numbers = None
    """Radii of the table, such as --radii 0,0.5,1; by default round ones up to the largest."""

    baseline: str | None = None
    """Name of the model that the others are compared with, at each sigma the one of that name; by
    default Gaussian training at the same sigma."""

    gaussian: Annotated[list[str] | None, Parameter(negative="", consume_multiple=True)] = None
    """Names of logs that are Gaussian training, which logs do not record."""

    confidence: float = 0.95
    """Confidence of the intervals over images."""

    rho: float = 0.001
    """Probability that the data set's bound on certified accuracy (Cohen et al.) is too high."""

    paper_rounding: Annotated[bool, Parameter(negative="")] = False
    """Count radii as logs print them, rounded to nearest, and round those of certificate files like
    the logs beside them. Not sound: for comparing with published tables."""

    @property
    def choices(self) -> Choices:
        """The options as the library takes them."""
        # Not at the top: --help must not import numpy and scipy.
        from smoothmix.report import Choices

        return Choices(
            radii=parse_radii(self.radii),
            baseline=self.baseline or "",
            gaussian=self.gaussian or (),
            confidence=self.confidence,
            rho=self.rho,
        )


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class LogOptions:
    """What Cohen-style logs do not record."""

    n: int | None = None
    """Noise samples per image behind logs; by default inferred from the largest radius."""

    alpha: float | None = None
    """Alpha of logs; by default inferred from the largest radius."""

    data: str | None = None
    """Data set of logs, such as cifar10, for its images."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class PageOptions:
    """The page, and what is shown on it."""

    out: Path | None = None
    """Write the page here, such as report.html."""

    leaderboard: Path | None = None
    """Instead of comparing runs, list all logs and runs in this folder, its subfolders and tar
    archives on one page that sorts and filters; files that cannot be read are listed with the
    reason."""

    title: str | None = None
    """Heading of the page."""

    section: Annotated[list[str] | None, Parameter(negative="", consume_multiple=True)] = None
    """Further sections of the page: `package.module:function`, called with the comparison, or the
    name of one that an installed package offers; modules in the current folder are found
    after all installed ones."""

    studies: Annotated[list[Path] | None, Parameter(negative="", consume_multiple=True)] = None
    """Files or folders that `smoothmix study` made, to be shown on the page."""

    data_dir: Path | None = None
    """Folder that holds the data set, for its images; by default $SMOOTHMIX_DATA or this user's
    cache."""

    def __post_init__(self) -> None:
        if self.out is None:
            require(not self.section, "--section adds to the page: name its file with --out")
            require(not self.studies, "--studies are shown on the page: name its file with --out")
            for_page = "--data-dir is for the images on the page: name its file with --out"
            require(self.data_dir is None, for_page)
        else:
            is_html = self.out.suffix in (".html", ".htm")
            require(is_html, f"{self.out}: the page is an .html file")
        exists = self.data_dir is None or self.data_dir.is_dir()
        require(exists, f"--data-dir {self.data_dir}: there is no such folder")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class FigureOptions:
    """Figures for papers."""

    figures: Path | None = None
    """Folder for figures of the same runs (needs `pip install matplotlib`)."""

    figure_format: FigureFormat | None = None
    """pdf, png or svg; by default pdf."""

    def __post_init__(self) -> None:
        alone = self.figures is None and self.figure_format is not None
        require(not alone, "--figure-format goes with --figures")


TABLE, LOGS, PAGE, FIGURES = TableOptions(), LogOptions(), PageOptions(), FigureOptions()


def report(
    *runs: str,
    table: TableOptions = TABLE,
    logs: LogOptions = LOGS,
    page: PageOptions = PAGE,
    figures: FigureOptions = FIGURES,
) -> None:
    """Compare certified models: a table, and with --out a page that works offline.

    Parameters
    ----------
    runs
        Run folders, zoo:NAME, certificate files or Cohen-style logs, compressed or not; name=path
        names one, name@sigma=path states its sigma as well. A .toml file lists runs as [[run]].
    """
    if page.leaderboard is not None:
        for_board = "--leaderboard lists all runs in its folder: name no others"
        require(not runs and not page.section and not page.studies, for_board)
        show_leaderboard(page.leaderboard, table=table, logs=logs, page=page)
        return
    require(bool(runs), "name runs to compare, or a folder of them with --leaderboard")
    compare(runs, table=table, logs=logs, page=page, figures=figures)


def show_leaderboard(
    folder: Path, *, table: TableOptions, logs: LogOptions, page: PageOptions
) -> None:
    """Write the page of all logs and runs in a folder, and name the files it could not read."""
    from smoothmix._io.text import counted
    from smoothmix.analysis import Source
    from smoothmix.report.leaderboard import find, make_board, render_board

    if page.out is None:
        raise UsageError("--leaderboard makes a page: name its file with --out")
    stated = Source(path="", n=logs.n, alpha=logs.alpha, data=logs.data or "")
    found = find(folder, stated=stated)
    board = make_board(
        found,
        table.choices,
        title=page.title or f"Certified models in {folder.resolve().name}",
        paper_rounding=table.paper_rounding,
    )
    echo(write_html(render_board(board), page.out))
    echo(f"{counted(len(board.entries), 'run')}, {len(board.unread)} files that cannot be read")
    for unread in board.unread:
        echo(f"- {unread.place}: {unread.reason}")


def compare(
    runs: Sequence[str],
    *,
    table: TableOptions = TABLE,
    logs: LogOptions = LOGS,
    page: PageOptions = PAGE,
    figures: FigureOptions = FIGURES,
) -> None:
    """Write the page and the figures of these runs, if requested, and print the table."""
    from smoothmix.report import compare_runs, make_page, paper_grid, read_sections, summary_grid

    # First what may fail quickly: reading many certificates takes a while.
    choices = table.choices
    studies = read_sections(page.studies or ())
    every = read_runs(runs, logs, paper_rounding=table.paper_rounding)
    title = page.title or _title([each.name for each in every])
    comparison = compare_runs(every, choices, title=title, data_dir=page.data_dir)

    written = []
    if page.out:
        made = make_page(comparison, requested=page.section or (), studies=studies)
        written.append(write_page(made, page.out))
    written += save_figures(every, figures)
    # The table comes after the files: whoever reads it through a pipe may close it early.
    if table.format == "latex":
        grid = paper_grid(comparison)
    else:
        grid = summary_grid(comparison, wide=table.format in ("csv", "json"))
    show_grid(grid, table.format)
    for line in written:
        echo(line)


def read_runs(runs: Sequence[str], logs: LogOptions, *, paper_rounding: bool) -> list[Measured]:
    """The certificate files of these runs, with names of their own."""
    from smoothmix._process.collection import collection_paused
    from smoothmix.analysis import measure, parse_sources, rounded_alike, unique_names

    measured = []
    with collection_paused():
        for source in parse_sources(runs):
            stated = source.or_else(n=logs.n, alpha=logs.alpha, data=logs.data or "")
            measured.append(measure(stated, paper_rounding=paper_rounding))
    if paper_rounding:
        measured = rounded_alike(measured)
    return unique_names(measured)


def save_figures(runs: Sequence[Measured], figures: FigureOptions) -> list[str]:
    """Write the figures, if requested; returns the messages about them."""
    if not figures.figures:
        return []
    from smoothmix.plots import save_all

    paths = save_all(runs, figures.figures, figures.figure_format or "pdf")
    return [f"wrote {path}" for path in paths]


def write_page(page: Page, out: Path) -> str:
    """Write the page to a file; returns the message about it."""
    from smoothmix.report import render

    return write_html(render(page), out)


def write_html(text: str, out: Path) -> str:
    """Write the text of a page to a file; returns the message about it."""
    from smoothmix._io.files import atomic_write

    html = text.encode()
    atomic_write(out, html)
    return f"wrote {out} ({len(html) / 1e6:.1f} MB): open it in a browser"


def _title(names: list[str]) -> str:
    """A heading made of the models' names."""
    if len(names) == 1:
        return f"Certified robustness of {names[0]}"
    if len(names) > 3:
        return f"Certified robustness of {len(names)} models"
    return f"Certified robustness: {', '.join(names[:-1])} and {names[-1]}"


def show_grid(grid: Grid, format: TableFormat) -> None:  # noqa: A002 - the option's name
    """Print a table on standard output; its notes go to standard error beside CSV."""
    from smoothmix.tables import FORMATS

    if format == "terminal":
        head = [column.name for column in grid.columns]
        rows = []
        for row in grid.rows:
            rows.append([cell.shown for cell in row.cells])
        show_table(grid.title, head, rows)
        for note in grid.notes:
            show(f"- {note}")
        return
    show_document(FORMATS[format](grid))
    if format == "csv":
        for note in grid.notes:
            echo(f"note: {note}")
