"""The commands `data list | fetch | check`."""

from __future__ import annotations

from pathlib import Path

from cyclopts import App

from smoothmix.cli.output import echo, table

app = App(help="List, fetch or check data sets.")


@app.command(name="list")
def list_(*, data_dir: Path | None = None) -> None:
    """Show every data set there is.

    Parameters
    ----------
    data_dir
        Folder to look in; by default $SMOOTHMIX_DATA or this user's cache.
    """
    from smoothmix import data

    files = {True: "found", False: "none", None: "by path"}
    rows = [
        (r.name, r.images, r.shape, r.classes, files[r.found], r.origin)
        for r in data.describe(data_dir=data_dir)
    ]
    table("data sets", ("name", "images", "shape", "classes", "files", "from"), rows)
    print(
        f"looked in {data_dir or data.default_data_dir()}; `smoothmix data check NAME` reads what is found there"
    )


@app.command
def fetch(name: str, /, *, data_dir: Path | None = None) -> None:
    """Download a data set; every file is checked against its known hash.

    Parameters
    ----------
    name
        mnist, fashion-mnist or cifar10.
    data_dir
        Folder to put it in; by default $SMOOTHMIX_DATA or this user's cache.
    """
    import sys

    from smoothmix import data

    paths = data.fetch(name, data_dir=data_dir, progress=sys.stderr.isatty())
    for path in paths:
        print(path)
    if not paths:
        echo(f"{name} needs no download")


@app.command
def check(name: str, /, *, data_dir: Path | None = None) -> int:
    """Say for each split of a data set whether all of it is there and unaltered.

    Parameters
    ----------
    name
        A data set (`smoothmix data list`).
    data_dir
        Folder that holds it; by default $SMOOTHMIX_DATA or this user's cache.
    """
    from smoothmix import data

    found = data.check(name, data_dir=data_dir)
    for split in found:
        print(f"{name} {split.split}: {'fine, ' if split.ok else 'NOT USABLE: '}{split.message}")
    return int(not all(split.ok for split in found))
