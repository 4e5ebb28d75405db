"""The commands `data list | fetch | check`."""

from __future__ import annotations

from pathlib import Path

from cyclopts import App

from smoothmix.cli.options import PreparationOptions
from smoothmix.cli.output import echo, show, table

app = App(help="List, fetch or check data sets.")

AS_THEY_ARE = PreparationOptions()

FOUND = {True: "found", False: "none", None: "by path"}
"""Words for whether the files of a data set are on this machine."""


@app.command(name="list")
def list_(*, data_dir: Path | None = None) -> None:
    """List all data sets.

    Parameters
    ----------
    data_dir
        Folder to search; by default $SMOOTHMIX_DATA or this user's cache.
    """
    from smoothmix import data

    rows = []
    for summary in data.describe(data_dir=data_dir):
        rows.append(
            (
                summary.name,
                summary.images,
                summary.shape,
                summary.classes,
                FOUND[summary.found],
                summary.source.description,
            )
        )
    table("data sets", ("name", "images", "shape", "classes", "files", "description"), rows)
    show(
        f"searched in {data_dir or data.default_data_dir()}; "
        "`smoothmix data check NAME` reads what is found there"
    )


@app.command
def fetch(name: str, /, *, data_dir: Path | None = None) -> None:
    """Download a data set; every file is checked against its known hash.

    Parameters
    ----------
    name
        A data set that can be downloaded, such as mnist or cifar10.
    data_dir
        Folder to download it to; by default $SMOOTHMIX_DATA or this user's cache.
    """
    import sys

    from smoothmix import data

    paths = data.fetch(name, data_dir=data_dir, progress=sys.stderr.isatty())
    for path in paths:
        show(str(path))
    if not paths:
        echo(f"{name} needs no download")


@app.command
def check(
    name: str,
    /,
    *,
    data_dir: Path | None = None,
    preparation: PreparationOptions = AS_THEY_ARE,
) -> int:
    """Report for each split of a data set whether it is complete and unaltered.

    Parameters
    ----------
    name
        A data set (`smoothmix data list`).
    data_dir
        Folder that holds it; by default $SMOOTHMIX_DATA or this user's cache.
    """
    from smoothmix import data

    exit_code = 0
    for split in data.check(name, data_dir=data_dir, preparation=preparation.preparation):
        verdict = "fine, "
        if not split.ok:
            verdict = "NOT USABLE: "
            exit_code = 1
        show(f"{name} {split.split}: {verdict}{split.message}")
    return exit_code
