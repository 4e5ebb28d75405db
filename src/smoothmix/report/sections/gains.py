"""Which images a gain comes from, and the best certified accuracy over sigma at each radius."""

from __future__ import annotations

from markupsafe import Markup

from smoothmix.analysis import Measured
from smoothmix.analysis.gains import THIRDS, Gain, gain_over
from smoothmix.report.comparison import Comparison, baseline_of
from smoothmix.report.section import Section, Table
from smoothmix.report.views import RunView, base_name
from smoothmix.tables import Cell, Column, Grid, Row
from smoothmix.tables.numbers import number, percent, signed

TEXT = Markup(
    "A model can raise the ACR on images that were easy before. Here the images are split into "
    "thirds by the probability p<sub>A</sub> that the baseline gives their class; those that it "
    "gets wrong are the hardest. "
    "The gains of the three thirds add up to the difference of the ACRs."
)
CAUTION = (
    "The thirds are chosen by the baseline, so chance in its own votes makes its hard third look "
    "a little harder and its easy third a little easier than they are for other models."
)


def gains(comparison: Comparison) -> Section | None:
    """The gain of each run by how hard images are, and the best over sigma."""
    tables = []
    by_third = _by_third(comparison)
    if by_third is not None:
        tables.append(by_third)
    best = _best_over_sigma(comparison)
    if best is not None:
        tables.append(best)
    if not tables:
        return None
    text = ""
    notes: tuple[str, ...] = ()
    if by_third is not None:
        text = TEXT
        notes = (CAUTION,)
    return Section(
        id="gains",
        title="Where the differences come from",
        short_title="Gains",
        text=text,
        tables=tables,
        notes=notes,
    )


def _by_third(comparison: Comparison) -> Table | None:
    rows = []
    positions = []
    for position, measured in enumerate(comparison.measured):
        baseline = baseline_of(measured, comparison.measured)
        if baseline is None:
            continue
        gain = gain_over(measured, baseline)
        if gain is not None:
            rows.append(_gain_row(measured, baseline, gain))
            positions.append(position)
    if not rows:
        return None
    columns = [
        Column(name="Model", key="model"),
        Column(name="Baseline", key="baseline"),
        Column(name="σ", key="sigma"),
    ]
    for third in THIRDS:
        columns.append(Column(name=f"ACR, {third}", key=f"acr_{third}"))
    for third in THIRDS:
        columns.append(Column(name=f"Gain, {third}", key=f"gain_{third}"))
    columns.append(Column(name="Larger radius (%)", key="better"))
    columns.append(Column(name="Smaller (%)", key="worse"))
    grid = Grid(title="Gain by how hard images are", columns=tuple(columns), rows=tuple(rows))
    return Table(grid=grid, runs=positions)


def _gain_row(measured: Measured, baseline: Measured, gain: Gain) -> Row:
    sigma = measured.sigma
    # The sigma has a column of its own; a baseline of another one keeps it in its name.
    cells = [
        Cell(base_name(measured.name, sigma)),
        Cell(base_name(baseline.name, sigma)),
        Cell(sigma, "g"),
    ]
    for value in gain.acr:
        cells.append(Cell(value, text=number(value)))
    for value in gain.gained:
        cells.append(Cell(value, text=signed(value)))
    for share in (gain.better, gain.worse):
        cells.append(Cell(share, text=percent(share)))
    return Row(cells=tuple(cells))


def _best_over_sigma(comparison: Comparison) -> Table | None:
    """The highest certified accuracy at each radius, whatever the sigma."""
    if len(comparison.by_sigma) < 2 or not _certified_alike(comparison):
        return None
    rows = []
    for column, radius in enumerate(comparison.radii):
        leader = max(comparison.runs, key=lambda run: run.accuracy[column].value)
        accuracy = leader.accuracy[column].value
        if accuracy > 0:
            rows.append(_best_row(radius, accuracy, leader))
    columns = (
        Column(name="Radius", key="radius"),
        Column(name="Certified accuracy (%)", key="accuracy"),
        Column(name="σ", key="sigma"),
        Column(name="Model", key="model"),
    )
    grid = Grid(title="Best over all sigmas at each radius", columns=columns, rows=tuple(rows))
    return Table(grid=grid, heading="Best over all sigmas at each radius")


def _best_row(radius: float, accuracy: float, leader: RunView) -> Row:
    return Row(
        cells=(
            Cell(f"{radius:g}"),
            Cell(accuracy, text=percent(accuracy)),
            Cell(leader.sigma, "g"),
            Cell(leader.base_name),
        )
    )


def _certified_alike(comparison: Comparison) -> bool:
    """Whether all runs have the same images, n and alpha, and so may be ranked across sigmas."""
    seen = set()
    for measured in comparison.measured:
        seen.add((measured.images_key, measured.draws.n, measured.draws.alpha))
    known = None not in {measured.draws.n for measured in comparison.measured}
    return known and len(seen) == 1
