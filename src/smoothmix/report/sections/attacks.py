"""Certificates beside attacks: what is certain, what was broken, and the gap between the two."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from smoothmix.analysis import Measured
from smoothmix.analysis.robustness import (
    Attacked,
    attacked_images,
    certified_share,
    empirical_share,
    explained_by_alpha,
)
from smoothmix.certificates.attack_file import Attacks, attacks_beside
from smoothmix.report.comparison import Comparison
from smoothmix.report.curves import multiples, slider_step
from smoothmix.report.section import Chart, LegendEntry, Section, Table, Trace
from smoothmix.report.sections.charts import ROOM, SHARE_AXIS
from smoothmix.tables import Cell, Column, Grid, Row, rounded

TEXT = (
    "Solid: the share of images that are certified at the radius. Dashed: the share whose class "
    "the attack could not change within it. What an ideal attack would find lies between the two. "
    "Only images that were both certified and attacked are counted."
)
POINTS = "Each point is an image: no point may lie below the line, where distance equals radius"

GAPS = "From certified to empirical accuracy in percent, and the gap between the two, by radius:"
INSIDE = "Adversarial examples inside a certified radius:"

MOST_OTHERS = 3
"""Models that were not attacked are named up to this number, and only counted beyond it."""

MOST_INSIDE = 100
"""Rows of the table of adversarial examples inside certified radii."""


@dataclass(frozen=True, kw_only=True)
class AttackedRun:
    """A run of the page, and its images that were certified and attacked."""

    position: int
    name: str
    images: Sequence[Attacked]
    allowed: float
    """Contradictions that the failure probabilities allow on average."""

    @property
    def inside(self) -> list[Attacked]:
        """Adversarial examples inside a certified radius."""
        return [each for each in self.images if each.contradiction]

    @property
    def broken(self) -> list[Attacked]:
        """Images for which an adversarial example was found."""
        return [each for each in self.images if each.attack.distance is not None]


def attacks(comparison: Comparison) -> Section | None:
    """The certified and the empirical curve of each run that was attacked, image by image."""
    found = []
    legend = []
    others = []
    for position, measured in enumerate(comparison.measured):
        run = _attacked_run(position, measured)
        if run is None:
            others.append(LegendEntry(run=position, remark="not attacked"))
            continue
        found.append(run)
        legend.append(LegendEntry(run=position))
    if not found:
        return None
    # Few runs are attacked, and the names of all others would hide theirs.
    text = TEXT
    if len(others) > MOST_OTHERS:
        text += f" {len(others)} other models were not attacked."
        others = []
    end = _end(found)
    return Section(
        id="attacks",
        title="Certificates beside attacks",
        short_title="Attacks",
        text=text,
        legend=[*legend, *others],
        charts=[_curves(found, end), _points(found, end)],
        tables=_tables(found, comparison.radii),
        needs_scripts=True,
    )


def _attacked_run(position: int, measured: Measured) -> AttackedRun | None:
    settings = measured.settings
    # Attacks on another network, sigma or noise say nothing about these certificates.
    file = attacks_beside(measured.file.path, settings)
    if file is None or settings is None:
        return None
    images = attacked_images(measured.file.rows, file.rows)
    if not images:
        return None
    return AttackedRun(
        position=position,
        name=measured.name,
        images=images,
        allowed=_allowed(images, measured, file),
    )


def _allowed(images: Sequence[Attacked], measured: Measured, file: Attacks) -> float:
    # Each certificate and each row of attacks errs with its own chance.
    certified = measured.draws.alpha or 0.0
    return explained_by_alpha(images, certified=certified, attacked=file.settings.search.alpha)


def _end(runs: Sequence[AttackedRun]) -> float:
    """The largest radius or distance of any image."""
    furthest = 0.0
    for run in runs:
        for each in run.images:
            furthest = max(furthest, each.certificate.radius, each.attack.distance or 0.0)
    return furthest or 1.0


def _curves(runs: Sequence[AttackedRun], end: float) -> Chart:
    radii = multiples(slider_step(end), up_to=end)
    traces = []
    for run in runs:
        certified = list(map(float, certified_share(run.images, radii)))
        empirical = list(map(float, empirical_share(run.images, radii)))
        traces.append(_curve(run.position, radii, certified, "certified", "solid"))
        traces.append(_curve(run.position, radii, empirical, "not broken", "dash"))
    return Chart(
        id="attack-curves",
        label="Certified and empirical accuracy against the radius",
        caption="Certified (solid) and empirical accuracy (dashed)",
        traces=traces,
        layout={
            "xaxis": {
                "title": "radius (L2)",
                "range": [0, end * ROOM],
                "zeroline": False,
                "unifiedhovertitle": {"text": "radius %{x}"},
            },
            "yaxis": {"title": "share of images", **SHARE_AXIS},
            "hoverdistance": -1,
        },
    )


def _curve(
    run: int, radii: Sequence[float], shares: Sequence[float], words: str, dash: str
) -> Trace:
    options = {
        "mode": "lines",
        "line": {"shape": "vh", "dash": dash},
        "hovertemplate": f"{words} %{{y:.1%}}",
    }
    return Trace(run=run, x=radii, y=shares, options=options)


def _points(runs: Sequence[AttackedRun], end: float) -> Chart:
    traces = []
    for run in runs:
        broken = run.broken
        options = {
            "mode": "markers",
            # Lines show some of their markers only; here each one is an image.
            "marker": {"size": 6, "maxdisplayed": 0},
            "customdata": [each.attack.idx for each in broken],
            "hovertemplate": "image %{customdata}<br>certified %{x:.3f}<br>broken at %{y:.3f}",
        }
        radii = [each.certificate.radius for each in broken]
        distances = [each.attack.distance or math.nan for each in broken]
        traces.append(Trace(run=run.position, x=radii, y=distances, options=options))
    line = {
        "mode": "lines",
        "line": {"dash": "dot", "width": 1, "color": "#888888"},
        "hoverinfo": "skip",
    }
    traces.append(Trace(x=[0.0, end], y=[0.0, end], options=line))
    return Chart(
        id="attack-points",
        label="Smallest adversarial distance found against the certified radius of each image",
        caption=POINTS,
        traces=traces,
        layout={
            "xaxis": {"title": "certified radius", "zeroline": False, "showgrid": True},
            "yaxis": {"title": "smallest adversarial distance", "zeroline": False},
            "hovermode": "closest",
        },
    )


def _tables(runs: Sequence[AttackedRun], radii: Sequence[float]) -> list[Table]:
    positions = [run.position for run in runs]
    tables = [
        Table(grid=_summary(runs), runs=positions),
        Table(grid=_gaps(runs, radii), text=GAPS, runs=positions),
    ]
    inside = _inside(runs)
    # Usually there are none, and an empty table would only alarm.
    if inside.rows:
        tables.append(Table(grid=inside, text=INSIDE))
    tables.append(Table(grid=_by_image(runs), heading="Every attacked image"))
    return tables


def _summary(runs: Sequence[AttackedRun]) -> Grid:
    columns = (
        Column(name="model", key="model"),
        Column(name="images", key="images"),
        Column(name="broken", key="broken"),
        Column(name="median distance / radius", key="median_ratio"),
        Column(name="inside a radius", key="inside"),
        Column(name="allowed by alpha", key="allowed"),
    )
    rows = []
    for run in runs:
        cells = (
            Cell(run.name),
            Cell(len(run.images)),
            Cell(len(run.broken)),
            _median_ratio(run),
            Cell(len(run.inside)),
            Cell(run.allowed, ".2g"),
        )
        rows.append(Row(cells=cells))
    note = (
        "An adversarial example inside a certified radius would be a defect, or one of the errors "
        "that alpha allows: on average at most so many."
    )
    return Grid(title="Attacked images", columns=columns, rows=tuple(rows), notes=(note,))


def _gaps(runs: Sequence[AttackedRun], radii: Sequence[float]) -> Grid:
    """Certified and empirical accuracy at the radii of the comparison, and the gap."""
    columns = [Column(name="model", key="model")]
    for radius in radii:
        columns.append(Column(name=f"{radius:g}", key=f"gap_{radius:g}"))
    rows = []
    for run in runs:
        cells = [Cell(run.name)]
        certified = certified_share(run.images, radii)
        empirical = empirical_share(run.images, radii)
        for low, high in zip(certified, empirical, strict=True):
            gap = float(high - low)
            text = f"{100 * low:.1f}–{100 * high:.1f} ({100 * gap:.1f})"
            cells.append(Cell(gap, text=text))
        rows.append(Row(cells=tuple(cells)))
    title = "Certified to empirical accuracy (%) by radius"
    return Grid(title=title, columns=tuple(columns), rows=tuple(rows))


def _median_ratio(run: AttackedRun) -> Cell:
    """The median of distance over radius, of the images that are certified and were broken."""
    ratios = []
    for each in run.broken:
        if each.certificate.radius > 0 and each.attack.distance is not None:
            ratios.append(each.attack.distance / each.certificate.radius)
    if not ratios:
        return Cell(None, text="none")
    return Cell(rounded(median(ratios), 2))


IMAGE_COLUMNS = (
    Column(name="model", key="model"),
    Column(name="image", key="idx"),
    Column(name="label", key="label"),
    Column(name="certified as", key="predict"),
    Column(name="radius", key="radius"),
    Column(name="adversarial class", key="adversarial"),
    Column(name="distance", key="distance"),
)

MOST_IMAGES = 500
"""Rows of the table of all attacked images: more would make the page slow."""


def _inside(runs: Sequence[AttackedRun]) -> Grid:
    rows = []
    for run in runs:
        for each in run.inside:
            rows.append(_image_row(run, each))
    title = "Adversarial examples inside a certified radius"
    return Grid(title=title, columns=IMAGE_COLUMNS, rows=tuple(rows[:MOST_INSIDE]))


def _by_image(runs: Sequence[AttackedRun]) -> Grid:
    rows = []
    for run in runs:
        for each in run.images:
            rows.append(_image_row(run, each))
    notes: tuple[str, ...] = ()
    if len(rows) > MOST_IMAGES:
        notes = (f"The first {MOST_IMAGES} of {len(rows):,} rows; the files have all of them.",)
    shown = tuple(rows[:MOST_IMAGES])
    return Grid(title="Attacked image by image", columns=IMAGE_COLUMNS, rows=shown, notes=notes)


def _image_row(run: AttackedRun, each: Attacked) -> Row:
    attack = each.attack
    certificate = each.certificate
    adversarial = Cell(None, text="none found")
    distance = Cell(None, text="")
    if attack.distance is not None and attack.adversarial is not None:
        adversarial = Cell(attack.adversarial)
        distance = Cell(attack.distance, ".3f")
    predicted = Cell(certificate.predict)
    if certificate.predict < 0:
        predicted = Cell(None, text="abstains")
    cells = (
        Cell(run.name),
        Cell(attack.idx),
        Cell(attack.label),
        predicted,
        # Never rounded up: it is a claim.
        Cell(math.floor(certificate.radius * 1000) / 1000, ".3f"),
        adversarial,
        distance,
    )
    return Row(cells=cells)
