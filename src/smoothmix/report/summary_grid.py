"""The comparison of several runs as one table, for the terminal, for papers and for programs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from smoothmix._io.text import counted
from smoothmix.analysis import Estimate
from smoothmix.analysis.draws import Origin
from smoothmix.report.comparison import Comparison
from smoothmix.report.views import PublishedRow, RunView
from smoothmix.tables import Cell, Column, Grid, Row, mark_improvements, radius_text, rounded
from smoothmix.tables.numbers import DASH

UNKNOWN = "unknown"


@dataclass(frozen=True)
class Field:
    """One quantity of the table: its columns, and the cells of a run in them."""

    columns: tuple[Column, ...]
    cells: Callable[[RunView], tuple[Cell, ...]]


def summary_grid(comparison: Comparison, *, wide: bool = False) -> Grid:
    """The summary as a table; `wide` gives each number its own column, for programs.

    For people, settings that all runs share are stated once below the table.
    """
    shown_settings = []
    for name in SETTINGS:
        different = {_setting(run, name).shown for run in comparison.runs}
        if wide or len(different) > 1:
            shown_settings.append(name)
    fields = [
        *_identity_fields(shown_settings, wide=wide),
        *_radius_fields(comparison, wide=wide),
        *_accuracy_fields(comparison, wide=wide),
        *_published_fields(comparison, wide=wide),
    ]
    columns: list[Column] = []
    for field in fields:
        columns += field.columns
    grid = Grid(
        title=comparison.title,
        columns=tuple(columns),
        rows=tuple(_row(run, fields) for run in comparison.runs),
        notes=(*_shared_settings(comparison, shown_settings), *_notes(comparison, wide=wide)),
    )
    return mark_improvements(grid)


def _row(run: RunView, fields: Sequence[Field]) -> Row:
    cells: list[Cell] = []
    for field in fields:
        cells += field.cells(run)
    # Nothing may be called better than a run that was certified with different settings.
    return Row(cells=tuple(cells), method=run.method, sigma=run.sigma, group=run.group)


def _identity_fields(shown_settings: Sequence[str], *, wide: bool) -> list[Field]:
    fields = [Field((Column(name="model", key="model"),), lambda run: (Cell(run.name),))]
    for name in shown_settings:
        fields.append(_setting_field(name))
    if wide:
        # People see it beside the numbers.
        fields.append(Field((Column(name="n and alpha are", key="draws_known"),), _origin))
    return fields


def _radius_fields(comparison: Comparison, *, wide: bool) -> list[Field]:
    fields = [_estimate_field("ACR", "acr", _acr, wide=wide, judged=True)]
    if not comparison.differences:
        return fields
    fields.append(_estimate_field("vs baseline", "difference", _difference, wide=wide))
    if wide:
        # People find the names of the baselines in the notes.
        fields.append(Field((Column(name="baseline", key="baseline"),), _baseline))
    return fields


def _accuracy_fields(comparison: Comparison, *, wide: bool) -> list[Field]:
    fields = []
    for position, radius in enumerate(comparison.radii):
        fields.append(_accuracy_field(comparison, position, radius_text(radius), wide=wide))
    # Programs get the same columns every time; people are spared empty ones.
    if wide or comparison.abstention_known:
        fields.append(_estimate_field("abstains", "abstention", _abstention, wide=wide))
    return fields


def _published_fields(comparison: Comparison, *, wide: bool) -> list[Field]:
    if not comparison.published:
        return []
    fields = [Field((Column(name="published ACR", key="published_acr"),), _published_acr)]
    distances_known = any(row.deviations_away is not None for row in comparison.published)
    if wide or distances_known:
        column = Column(name="seed deviations away", key="deviations_away")
        fields.append(Field((column,), _deviations_away))
    return fields


def _short(value: float | None) -> Decimal | None:
    """The number with as few digits as it needs: 1, not 1.0."""
    if value is None:
        return None
    return Decimal(f"{value:g}")


SETTINGS: Mapping[str, Callable[[RunView], Decimal | int | str | None]] = {
    "sigma": lambda run: _short(run.sigma),
    "images": lambda run: run.images,
    "n": lambda run: run.n,
    "alpha": lambda run: _short(run.alpha),
    "noise": lambda run: run.noise.replace(" noise", ""),
}
"""Settings that the runs of a comparison mostly share."""

NOT_IN_LOGS = ("n", "alpha")
"""Settings that logs do not record, so that it must be said how they are known."""


def _setting(run: RunView, name: str) -> Cell:
    value = SETTINGS[name](run)
    if value is None:
        return Cell(text=UNKNOWN)
    if name in NOT_IN_LOGS and run.origin is Origin.INFERRED:
        return Cell(value, suffix=f" ({run.origin})")
    return Cell(value)


def _origin(run: RunView) -> tuple[Cell, ...]:
    return (Cell(str(run.origin)),)


def _setting_field(name: str) -> Field:
    return Field((Column(name=name, key=name),), lambda run: (_setting(run, name),))


EstimateCells = Callable[[RunView, bool], tuple[Cell, ...]]


def _estimate_field(
    name: str, key: str, cells: EstimateCells, *, wide: bool, judged: bool = False
) -> Field:
    """A number with its interval, in three columns if `wide`, otherwise in one."""
    columns = [Column(name=name, key=key, judged=judged)]
    if wide:
        columns.append(Column(name=f"{name} low", key=f"{key}_low"))
        columns.append(Column(name=f"{name} high", key=f"{key}_high"))
    return Field(tuple(columns), lambda run: cells(run, wide))


def _acr(run: RunView, wide: bool) -> tuple[Cell, ...]:
    return _estimate_cells(run.acr, digits=4, wide=wide, interval=True)


def _difference(run: RunView, wide: bool) -> tuple[Cell, ...]:
    difference = run.difference.acr if run.difference else None
    return _estimate_cells(difference, digits=4, sign="+", wide=wide, interval=True)


def _baseline(run: RunView) -> tuple[Cell, ...]:
    if run.difference is None:
        return (Cell(),)
    return (Cell(run.difference.versus),)


def _accuracy_field(comparison: Comparison, position: int, radius: str, *, wide: bool) -> Field:
    def cells(run: RunView, wide: bool) -> tuple[Cell, ...]:
        within_reach = run.accuracy_within_reach(comparison.radii)[position]
        # For programs an empty value: 0 would say that images failed.
        if wide:
            return _estimate_cells(_percent(within_reach), digits=2, wide=True)
        return _estimate_cells(_percent(within_reach), digits=1, wide=False, missing=DASH)

    return _estimate_field(radius, f"accuracy_{radius}", cells, wide=wide, judged=True)


def _abstention(run: RunView, wide: bool) -> tuple[Cell, ...]:
    return _estimate_cells(_percent(run.abstention), digits=1, wide=wide, missing="not measured")


def _published_acr(run: RunView) -> tuple[Cell, ...]:
    row = run.published
    if row is None:
        return (Cell(),)
    return (Cell(rounded(row.acr, row.digits), suffix=_published_suffix(row)),)


def _published_suffix(row: PublishedRow) -> str:
    suffix = ""
    if row.deviation is not None:
        suffix += f" ± {row.deviation:.4f}"
    # A note below the table explains the asterisk.
    if row.caution:
        suffix += " *"
    return suffix


def _deviations_away(run: RunView) -> tuple[Cell, ...]:
    if run.published is None or run.published.deviations_away is None:
        return (Cell(),)
    return (Cell(rounded(run.published.deviations_away, 1), "+"),)


def _percent(share: Estimate | None) -> Estimate | None:
    if share is None:
        return None
    return Estimate(100 * share.value, 100 * share.low, 100 * share.high)


def _estimate_cells(
    estimate: Estimate | None,
    *,
    digits: int,
    wide: bool,
    sign: str = "",
    interval: bool = False,
    missing: str = "",
) -> tuple[Cell, ...]:
    """A number and its interval, in three cells if `wide`, otherwise in one.

    With `interval` the one cell has the interval in brackets.
    """
    if estimate is None:
        value = low = high = Cell(text=missing)
    else:
        value = Cell(rounded(estimate.value, digits), sign)
        low = Cell(rounded(estimate.low, digits), sign)
        high = Cell(rounded(estimate.high, digits), sign)
    if wide:
        return value, low, high
    if estimate is None or not interval:
        return (value,)
    return (Cell(value.value, sign, suffix=f" [{low.shown}, {high.shown}]"),)


def _shared_settings(comparison: Comparison, shown_settings: Sequence[str]) -> tuple[str, ...]:
    shared = []
    for name in SETTINGS:
        if name in shown_settings:
            continue
        shared.append(f"{name} {_setting(comparison.runs[0], name).shown}")
    if not shared:
        return ()
    return (f"all: {', '.join(shared)}",)


def _notes(comparison: Comparison, *, wide: bool) -> list[str]:
    where = "low and high" if wide else "in brackets"
    percent = f"{100 * comparison.confidence:g} %"
    notes = [f"{where}: {percent} intervals over images (certified accuracy in percent)"]
    notes += _baseline_notes(comparison)
    notes += comparison.warnings
    notes += _published_notes(comparison, mark="" if wide else "* ")
    if comparison.out_of_reach and not wide:
        notes.append(
            f"a dash ({DASH}): no image could be certified at that radius "
            "with the run's number of noise samples"
        )
    if not comparison.abstention_known:
        notes.append(
            "abstention is not known: images misclassified in selection "
            "got no further noise samples"
        )
    return notes


def _baseline_notes(comparison: Comparison) -> list[str]:
    pairs = []
    for difference in comparison.differences:
        pairs.append((difference.versus, counted(difference.images, "image")))
    # Mostly all runs share one baseline and all images: one note then.
    baselines = names_by_text(pairs)
    notes = []
    for images, names in baselines.items():
        notes.append(f"vs baseline: {', '.join(names)}, image by image on {images}")
    return notes


def _published_notes(comparison: Comparison, *, mark: str) -> list[str]:
    """What a reader must know before comparing runs with their published rows."""
    cautions = []
    remarks = []
    for run in comparison.runs:
        if run.published is not None:
            cautions.append((run.name, run.published.caution))
            remarks.append((run.name, run.published.note))
    notes = []
    for caution, names in names_by_text(cautions).items():
        notes.append(f"{mark}{', '.join(names)}, beside the published row: {caution}")
    for remark, names in names_by_text(remarks).items():
        notes.append(f"published beside {', '.join(names)}: {remark}")
    return notes


def names_by_text(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Each text with the names it applies to, so that it is stated once; empty texts are left out.

    >>> names_by_text([("a", "few images"), ("b", ""), ("c", "few images")])
    {'few images': ['a', 'c']}
    """
    found: dict[str, list[str]] = {}
    for name, text in pairs:
        names = found.setdefault(text, [])
        if name not in names:
            names.append(name)
    found.pop("", None)
    return found
