"""The command `report`: a table in the terminal or a file, figures, and the page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from smoothmix.cli.options import Numbers, radii_of
from smoothmix.cli.output import echo
from smoothmix.config import require

if TYPE_CHECKING:
    from smoothmix.report.build import Choices
    from smoothmix.report.data import Page
    from smoothmix.tables import Grid

TableFormat = Literal["terminal", "md", "latex", "csv", "json"]


def report(
    *runs: Annotated[str, Parameter(required=True)],
    out: Path | None = None,
    format: TableFormat = "terminal",  # noqa: A002 - the option's name
    radii: Numbers = None,
    baseline: str | None = None,
    confidence: float = 0.95,
    rho: float = 0.001,
    paper_rounding: Annotated[bool, Parameter(negative="")] = False,
    figures: Path | None = None,
    figure_format: Literal["pdf", "png", "svg"] | None = None,
    studies: Annotated[list[Path] | None, Parameter(negative="", consume_multiple=True)] = None,
    title: str | None = None,
    data_dir: Path | None = None,
) -> None:
    """Compare certified models: a table, and with --out a page that works offline.

    Parameters
    ----------
    runs
        Run folders, zoo:NAME, certificate files of ours or logs of the field, compressed or not; name=path gives one a
        name.
    out
        Write the page here, such as report.html.
    format
        How the table is printed.
    radii
        Radii of the table, such as --radii 0,0.5,1; by default round ones up to the largest.
    baseline
        Name of the model that the others are compared with; by default Gaussian training at the same sigma.
    confidence
        Of the intervals over images.
    rho
        Chance that the data set's bound on certified accuracy (Cohen et al.) is too high.
    paper_rounding
        Round radii to nearest at three digits, as the paper's logs do. Not sound: for comparing with its tables.
    figures
        Folder for figures of the same (needs `pip install matplotlib`).
    figure_format
        pdf, png or svg; by default pdf.
    studies
        Files or folders that `smoothmix study` made, to be shown on the page.
    title
        Heading of the page.
    data_dir
        Folder that holds the data set, for its pictures; by default $SMOOTHMIX_DATA or this user's cache.
    """
    from smoothmix.report.build import Choices

    if out:
        require(out.suffix in (".html", ".htm"), f"{out}: the page is an .html file")
    require(out is not None or not studies, "--studies are shown on the page: say where with --out")
    require(
        data_dir is None or data_dir.is_dir(), f"--data-dir {data_dir}: there is no such folder"
    )
    require(
        out is not None or data_dir is None,
        "--data-dir is for the pictures on the page: say where with --out",
    )
    require(figures is not None or figure_format is None, "--figure-format goes with --figures")
    choices = Choices(
        radii=radii_of(radii), baseline=baseline or "", confidence=confidence, rho=rho
    )
    compare(
        runs,
        out=out,
        format=format,
        choices=choices,
        paper_rounding=paper_rounding,
        studies=studies or (),
        title=title or "",
        data_dir=data_dir,
        figures=figures,
        figure_format=figure_format or "pdf",
    )


def compare(
    runs: Sequence[str],
    *,
    out: Path | None = None,
    format: TableFormat = "terminal",  # noqa: A002 - as in the command
    choices: Choices | None = None,
    paper_rounding: bool = False,
    studies: Sequence[Path] = (),
    title: str = "",
    data_dir: Path | None = None,
    figures: Path | None = None,
    figure_format: str = "pdf",
) -> None:
    """Write the page and the figures of these runs where they are asked for, and print the table."""
    from smoothmix.analysis import measure, unique_names
    from smoothmix.report.build import Choices, make_page
    from smoothmix.report.sections import read_sections
    from smoothmix.report.summary import summary_grid

    sections = read_sections(studies)
    every = unique_names([measure(run, paper_rounding=paper_rounding) for run in runs])
    title = title or _title([m.name for m in every])
    page = make_page(every, choices or Choices(), title=title, data_dir=data_dir, sections=sections)
    wrote = [write_page(page, out)] if out else []
    if figures:
        from smoothmix.plots import save_all

        wrote += [f"wrote {path}" for path in save_all(every, figures, figure_format)]
    show_grid(
        summary_grid(page, wide=format in ("csv", "json")), format
    )  # last: who reads it may go away
    for line in wrote:
        echo(line)


def write_page(page: Page, out: Path) -> str:
    """Put the page into a file; returns what to say of it."""
    from smoothmix._io.files import atomic_write
    from smoothmix.report.page import render

    html = render(page).encode()
    atomic_write(out, html)
    return f"wrote {out} ({len(html) / 1e6:.1f} MB): open it in a browser"


def _title(names: list[str]) -> str:
    """A heading made from the models' names."""
    if len(names) == 1:
        return f"Certified robustness of {names[0]}"
    return (
        f"Certified robustness: {', '.join(names[:-1])} and {names[-1]}"
        if len(names) <= 3
        else (f"Certified robustness of {len(names)} models")
    )


def show_grid(grid: Grid, how: TableFormat) -> None:
    """The table on standard output; what is to be known about it on standard error where a program reads the table."""
    from smoothmix.cli.output import table
    from smoothmix.tables import FORMATS

    if how != "terminal":
        print(FORMATS[how](grid), end="")
        if how == "csv":
            for note in grid.notes:
                echo(f"note: {note}")
        return
    table(
        grid.title,
        [c.name for c in grid.columns],
        [[cell.shown for cell in row.cells] for row in grid.rows],
    )
    for note in grid.notes:
        print(f"- {note}")
