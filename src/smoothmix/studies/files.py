"""What a study leaves behind: numbers, record, figure, and a section for the report page."""

from __future__ import annotations

import base64
import io
import json
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from smoothmix._io.files import atomic_write
from smoothmix.plots import save as save_figure
from smoothmix.studies.base import Study
from smoothmix.tables import to_csv

if TYPE_CHECKING:
    from matplotlib.figure import Figure


FIGURES = ("pdf", "png", "svg")


def save(study: Study, folder: Path, suffix: str = "pdf") -> list[Path]:
    """Write the numbers (CSV), the record behind them, the figure and the section for the page; what was written."""
    written = [_write(folder / f"{study.name}.csv", to_csv(study.grid))]
    if study.record:
        written.append(_write(folder / f"{study.name}-record.csv", to_csv(study.record)))
    for kind in FIGURES:  # of an earlier study, it would stand beside the numbers of this one
        (folder / f"{study.name}.{kind}").unlink(missing_ok=True)
    if study.figure:
        written.append(folder / f"{study.name}.{suffix.removeprefix('.')}")
        save_figure(study.figure, written[-1])
    return [
        *written,
        _write(folder / f"{study.name}.json", json.dumps(section(study), indent=1) + "\n"),
    ]


def set_aside(study: Study, folder: Path) -> Path | None:
    """Move the files of an earlier study of this name that found something else; the folder they are in now."""
    numbers, record = f"{study.name}.csv", f"{study.name}-record.csv"
    found = {numbers: study.grid, record: study.record}
    if not any(
        grid and _says_otherwise(folder / name, to_csv(grid)) for name, grid in found.items()
    ):
        return None
    names = [numbers, record, *(f"{study.name}.{kind}" for kind in (*FIGURES, "json"))]
    aside = next(place for k in count(1) if not (place := folder / f"earlier-{k}").exists())
    aside.mkdir()
    for name in names:
        if (folder / name).exists():
            (folder / name).rename(aside / name)
    return aside


def _says_otherwise(path: Path, text: str) -> bool:
    return path.exists() and path.read_bytes() != text.encode()


def _write(path: Path, text: str) -> Path:
    atomic_write(path, text.encode())
    return path


def section(study: Study) -> dict[str, object]:
    """The study for the report page, as plain text and one PNG: nothing in it needs to be trusted."""
    return {
        "name": study.name,
        "title": study.title,
        "text": study.text,
        "table": {
            "title": study.grid.title,
            "columns": [column.name for column in study.grid.columns],
            "rows": [[cell.shown for cell in row.cells] for row in study.grid.rows],
            "notes": list(study.grid.notes),
        },
        "figure": _data_uri(study.figure) if study.figure else None,
    }


def _data_uri(figure: Figure) -> str:
    """The figure as a small PNG: half of its dots, and no more colours than a figure needs."""
    from PIL import Image

    with TemporaryDirectory() as folder:
        path = Path(folder) / "figure.png"
        save_figure(figure, path)
        with Image.open(path) as whole:
            small = whole.convert("RGB").resize(
                (whole.width // 2, whole.height // 2), Image.Resampling.LANCZOS
            )
        stream = io.BytesIO()
        # The method counts: the usual one makes one teal of two lines that are green and blue.
        small.quantize(256, method=Image.Quantize.FASTOCTREE).save(
            stream, format="png", optimize=True
        )
    return "data:image/png;base64," + base64.b64encode(stream.getvalue()).decode()
