"""The tables of `smoothmix plan`: largest radii, and what certifies one radius."""

from __future__ import annotations

import math
from collections.abc import Sequence

from smoothmix.analysis.choice import Candidate, Choice
from smoothmix.tables import Cell, Column, Grid, Row, rounded

UNREACHABLE = "–"


def radius_grid(candidates: Sequence[Candidate]) -> Grid:
    """The largest radius by sigma and alpha, in rows, and by number of draws, in columns."""
    draws = sorted({candidate.n for candidate in candidates})
    columns = [Column(name="sigma", key="sigma"), Column(name="alpha", key="alpha")]
    for number in draws:
        columns.append(Column(name=f"n {number:,}", key=f"radius_{number}"))
    by_row: dict[tuple[float, float], dict[int, Candidate]] = {}
    for candidate in candidates:
        by_row.setdefault((candidate.sigma, candidate.alpha), {})[candidate.n] = candidate
    rows = []
    for (sigma, alpha), of_row in by_row.items():
        cells = [Cell(sigma, "g"), Cell(alpha, "g")]
        for number in draws:
            cells.append(_radius_cell(of_row[number].largest_radius))
        rows.append(Row(cells=tuple(cells), sigma=sigma))
    return Grid(
        title=f"Largest certified radius if every vote agrees ({_setting_words(candidates[0])})",
        columns=tuple(columns),
        rows=tuple(rows),
    )


def choice_grid(
    choice: Choice, *, seconds_per_draw: float | None = None, notes: Sequence[str] = ()
) -> Grid:
    """What each setting takes to certify the radius, and how many images reach it if measured."""
    columns = [
        Column(name="sigma", key="sigma"),
        Column(name="alpha", key="alpha"),
        Column(name="n", key="n"),
        Column(name="largest radius", key="largest_radius"),
        Column(name="votes needed (%)", key="votes_needed_percent"),
    ]
    if seconds_per_draw is not None:
        columns.append(Column(name="seconds per image", key="seconds_per_image"))
    if choice.observed:
        columns.append(Column(name="images that reach it (%)", key="reached_percent"))
    columns.append(Column(name="advice", key="chosen"))
    rows = []
    for candidate in choice.candidates:
        cells = [
            Cell(candidate.sigma, "g"),
            Cell(candidate.alpha, "g"),
            Cell(candidate.n, ","),
            _radius_cell(candidate.largest_radius),
            _percent_cell(candidate.needed_share(choice.radius)),
        ]
        if seconds_per_draw is not None:
            cells.append(Cell(candidate.n * seconds_per_draw, ".3g"))
        if choice.observed:
            cells.append(_percent_cell(choice.share_that_reaches(candidate), digits=1))
        cells.append(_chosen_cell(chosen=candidate == choice.chosen))
        rows.append(Row(cells=tuple(cells), sigma=candidate.sigma))
    return Grid(
        title=f"To certify radius {choice.radius:g} ({_setting_words(choice.chosen)})",
        columns=tuple(columns),
        rows=tuple(rows),
        notes=tuple(notes),
    )


def _setting_words(candidate: Candidate) -> str:
    return f"{candidate.noise.description}, mode {candidate.guarantee.mode}"


def _radius_cell(radius: float) -> Cell:
    if not math.isfinite(radius):
        return Cell(None, text=UNREACHABLE)
    return Cell(rounded(radius, 3))


def _percent_cell(share: float, digits: int = 2) -> Cell:
    """A share as a percentage; a dash where there is none."""
    if not math.isfinite(share):
        return Cell(None, text=UNREACHABLE)
    return Cell(rounded(100 * share, digits))


def _chosen_cell(*, chosen: bool) -> Cell:
    if chosen:
        return Cell("chosen")
    return Cell("")
