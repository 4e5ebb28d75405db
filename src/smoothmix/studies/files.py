"""The files of a study: numbers, record, figure, and a section for the report page."""

from __future__ import annotations

import base64
import io
import json
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from smoothmix._io.files import atomic_write
from smoothmix.plots import save as save_figure
from smoothmix.studies.study import StudyReport
from smoothmix.tables import to_csv

if TYPE_CHECKING:
    from matplotlib.figure import Figure


FIGURE_FORMATS = ("pdf", "png", "svg")


@dataclass(frozen=True)
class SavedReport:
    """A report, and where it was saved."""

    report: StudyReport
    files: tuple[Path, ...]
    earlier: Path | None
    """Folder with the files of an earlier study of this name that had other results, if any."""


def save_report(report: StudyReport, folder: Path, figure_format: str = "pdf") -> SavedReport:
    """Write the numbers and the record (CSV), the figure and the section for the page (JSON).

    The files of an earlier study with other results are moved away, never overwritten.
    """
    earlier = _move_earlier(report, folder)
    # A figure in another format would otherwise stay beside numbers that it does not show.
    for suffix in FIGURE_FORMATS:
        (folder / f"{report.name}.{suffix}").unlink(missing_ok=True)
    files = [_write(folder / f"{report.name}.csv", to_csv(report.grid))]
    if report.record is not None:
        files.append(_write(folder / f"{report.name}-record.csv", to_csv(report.record)))
    figure = None
    if report.draw is not None and can_draw():
        figure = report.draw()
        files.append(folder / f"{report.name}.{figure_format.removeprefix('.')}")
        save_figure(figure, files[-1])
    # Last: the report page reads this file, and what it describes should exist by then.
    section = json.dumps(page_section(report, figure), indent=1)
    files.append(_write(folder / f"{report.name}.json", f"{section}\n"))
    return SavedReport(report, tuple(files), earlier)


def can_draw() -> bool:
    """Whether figures can be drawn: matplotlib is optional."""
    return find_spec("matplotlib") is not None


def _move_earlier(report: StudyReport, folder: Path) -> Path | None:
    """Move the files of an earlier study of this name if its results differ; the new folder."""
    numbers = folder / f"{report.name}.csv"
    record = folder / f"{report.name}-record.csv"
    # By content and not by date: the same study again replaces its own files.
    differs = _differs(numbers, to_csv(report.grid))
    if report.record is not None:
        differs = differs or _differs(record, to_csv(report.record))
    if not differs:
        return None
    earlier = _new_folder(folder)
    others = [folder / f"{report.name}.{suffix}" for suffix in (*FIGURE_FORMATS, "json")]
    for path in (numbers, record, *others):
        if path.exists():
            path.rename(earlier / path.name)
    return earlier


def _new_folder(folder: Path) -> Path:
    """Make the first of earlier-1, earlier-2, ... that does not exist."""
    number = 1
    while (folder / f"earlier-{number}").exists():
        number += 1
    earlier = folder / f"earlier-{number}"
    earlier.mkdir()
    return earlier


def _differs(path: Path, text: str) -> bool:
    return path.exists() and path.read_bytes() != text.encode()


def _write(path: Path, text: str) -> Path:
    atomic_write(path, text.encode())
    return path


def page_section(report: StudyReport, figure: Figure | None) -> dict[str, object]:
    """The study for the report page, as plain text and one PNG: no code that must be trusted."""
    rows = []
    for row in report.grid.rows:
        rows.append([cell.shown for cell in row.cells])
    encoded = None
    if figure is not None:
        encoded = _data_uri(figure)
    return {
        "name": report.name,
        "title": report.title,
        "text": report.text,
        "table": {
            "title": report.grid.title,
            "columns": [column.name for column in report.grid.columns],
            "rows": rows,
            "notes": list(report.grid.notes),
        },
        "figure": encoded,
    }


def _data_uri(figure: Figure) -> str:
    """The figure as a small PNG: at half of the resolution, with a palette of 256 colours."""
    from PIL import Image

    with TemporaryDirectory() as folder:
        path = Path(folder) / "figure.png"
        save_figure(figure, path)
        with Image.open(path) as whole:
            # Drawn in full and made smaller: thin lines stay smooth, and the page stays small.
            half = (whole.width // 2, whole.height // 2)
            small = whole.convert("RGB").resize(half, Image.Resampling.LANCZOS)
    # The default method merges our green and our blue into one colour.
    palette = small.quantize(256, method=Image.Quantize.FASTOCTREE)
    stream = io.BytesIO()
    palette.save(stream, format="png", optimize=True)
    return "data:image/png;base64," + base64.b64encode(stream.getvalue()).decode()
