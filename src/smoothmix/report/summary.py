"""The comparison of several files as a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from smoothmix._io.text import counted
from smoothmix.analysis import Estimate
from smoothmix.report.data import Page, PublishedRow, RunView
from smoothmix.report.numbers import NOTHING
from smoothmix.report.tables import (
    Cell,
    Column,
    Digits,
    Grid,
    Line,
    marked,
    number_or_text,
    radius_text,
)


def summary_grid(page: Page, *, wide: bool = False) -> Grid:
    """The page's summary as a table; `wide` keeps every number in a column of its own, for programs.

    For people, what is the same in all rows is said once below the table instead of in a column.
    """
    published = any(run.published for run in page.runs)
    compared = any(run.difference for run in page.runs)
    shown = [name for name in COMMON if wide or len({COMMON[name](run) for run in page.runs}) > 1]
    columns = [Column(name="model", key="model"), *(Column(name=name, key=name) for name in shown)]
    columns += _estimate_columns("ACR", "acr", wide=wide, judged=True)
    if compared:
        columns += _estimate_columns("vs baseline", "difference", wide=wide)
        columns += [Column(name="baseline", key="baseline")] if wide else []
    for radius in page.radii:
        columns += _estimate_columns(
            radius_text(radius), f"accuracy_{radius_text(radius)}", wide=wide, judged=True
        )
    columns += _estimate_columns("abstains", "abstention", wide=wide)
    if published:
        columns += [Column(name="published ACR", key="published_acr")]
        columns += [Column(name="seed deviations away", key="deviations_away")]
    lines = [
        _line(run, page, shown, wide=wide, published=published, compared=compared)
        for run in page.runs
    ]
    if not wide:
        columns, lines = _without_empty(columns, lines)
    same = [f"{name} {COMMON[name](page.runs[0])}" for name in COMMON if name not in shown]
    notes = ((f"all: {', '.join(same)}",) if same else ()) + _notes(page, wide=wide)
    grid = Grid(title=page.title, columns=tuple(columns), lines=tuple(lines), notes=notes)
    if not page.comparable:
        return grid
    found = marked(grid)
    marks = any(cell.bold or cell.underlined for line in found.lines for cell in line.cells)
    return replace(found, marks=MARKS) if marks else found


MARKS = "bold: above Gaussian training at the same sigma; underlined: above every method that is not SmoothMix"


MAY_BE_EMPTY = ("abstention", "deviations_away")
"""Columns that people are spared where no run has a number for them."""


def _without_empty(
    columns: Sequence[Column], lines: Sequence[Line]
) -> tuple[list[Column], list[Line]]:
    """The table without those of these columns that nobody fills."""
    filled = [
        i
        for i, column in enumerate(columns)
        if column.key not in MAY_BE_EMPTY or any(line.cells[i].value is not None for line in lines)
    ]
    kept = [replace(line, cells=tuple(line.cells[i] for i in filled)) for line in lines]
    return [columns[i] for i in filled], kept


UNKNOWN = "not known"

COMMON: Mapping[str, Callable[[RunView], str]] = {
    "sigma": lambda run: UNKNOWN if run.sigma is None else f"{run.sigma:g}",
    "images": lambda run: str(run.images),
    "n": lambda run: UNKNOWN if run.n is None else str(run.n),
    "alpha": lambda run: UNKNOWN if run.alpha is None else f"{run.alpha:g}",
}
"""What the models of a comparison mostly have in common."""


def _notes(page: Page, *, wide: bool) -> tuple[str, ...]:
    where = "low and high" if wide else "in brackets"
    interval = f"{where}: {100 * page.confidence:g} % intervals over images (certified accuracy in percent)"
    rows = [(run.name, run.published.caution) for run in page.runs if run.published]
    mark = "" if wide else "* "
    alike = {
        caution: ", ".join(name for name, other in rows if other == caution)
        for _, caution in rows
        if caution
    }
    cautions = [
        f"{mark}{names}, beside the published row: {caution}" for caution, names in alike.items()
    ]
    printed = {
        run.published.note: None for run in page.runs if run.published and run.published.note
    }
    names = {
        note: [run.name for run in page.runs if run.published and run.published.note == note]
        for note in printed
    }
    cautions += [f"published beside {', '.join(every)}: {note}" for note, every in names.items()]
    pairs = dict.fromkeys(
        (run.difference.images, run.difference.versus) for run in page.runs if run.difference
    )
    baselines = {
        size: ", ".join(name for other, name in pairs if other == size) for size, _ in pairs
    }
    versus = [
        f"vs baseline: {each}, image by image on {counted(size, 'image')}"
        for size, each in baselines.items()
    ]
    if page.out_of_reach and not wide:
        cautions.append(
            f"a dash ({NOTHING}): no image could be certified at that radius with the model's draws"
        )
    if not any(run.abstention for run in page.runs):
        cautions.append(
            "abstention is not known: images that selection got wrong had no further draws"
        )
    return (interval, *versus, *page.warnings, *cautions)


def _line(
    run: RunView, page: Page, shown: Sequence[str], *, wide: bool, published: bool, compared: bool
) -> Line:
    common = [
        Cell(text, None if text == UNKNOWN else number_or_text(text))
        for text in (COMMON[name](run) for name in shown)
    ]
    cells = [Cell(run.name, run.name), *common]
    cells += _estimate_cells(run.acr, "{:.4f}", 1, wide=wide, interval=True)
    if compared:
        gap = run.difference.acr if run.difference else None
        cells += _estimate_cells(gap, "{:+.4f}", 1, wide=wide, interval=True)
        cells += [Cell("", run.difference.versus if run.difference else None)] if wide else []
    for accuracy in run.accuracy if wide else run.accuracy_within_reach(page.radii):
        cells += _estimate_cells(
            accuracy, "{:.2f}" if wide else "{:.1f}", 100, wide=wide, missing=NOTHING
        )
    cells += _estimate_cells(run.abstention, "{:.1f}", 100, wide=wide, missing="not measured")
    if published:
        cells += _published_cells(run.published)
    return Line(cells=tuple(cells), method=run.method, sigma=run.sigma, data=run.data)


def _published_cells(row: PublishedRow | None) -> list[Cell]:
    if row is None:
        return [Cell(""), Cell("")]
    spread = f" ± {row.deviation:.4f}" if row.deviation is not None else ""
    away = "" if row.deviations_away is None else f"{row.deviations_away:+.1f}"
    return [
        Cell(f"{row.acr:.{row.digits}f}{spread}{' *' if row.caution else ''}", row.acr),
        Cell(away, row.deviations_away),
    ]


def _estimate_columns(name: str, key: str, *, wide: bool, judged: bool = False) -> list[Column]:
    ends = (
        [Column(name=f"{name} {end}", key=f"{key}_{end}") for end in ("low", "high")]
        if wide
        else []
    )
    return [Column(name=name, key=key, judged=judged), *ends]


def _estimate_cells(
    estimate: Estimate | None,
    form: str,
    scale: float,
    *,
    wide: bool,
    interval: bool = False,
    missing: str = "",
) -> list[Cell]:
    if estimate is None:
        return [Cell(missing)] + ([Cell(""), Cell("")] if wide else [])
    numbers = [scale * estimate.value, scale * estimate.low, scale * estimate.high]
    texts = [form.format(number) for number in numbers]
    shown = f"{texts[0]} [{texts[1]}, {texts[2]}]" if interval and not wide else texts[0]
    ends = [Cell(text, Digits(text)) for text in texts[1:]] if wide else []
    return [Cell(shown, Digits(texts[0])), *ends]
