"""Sections of the page as values: the standard ones, and one that somebody else wrote."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from smoothmix.errors import UsageError
from smoothmix.report import (
    SECTIONS,
    Chart,
    Comparison,
    LegendEntry,
    Section,
    Table,
    Trace,
    make_page,
)
from smoothmix.tables import Cell, Column, Grid, Row
from tests.conftest import Run
from tests.helpers.certificates import our_file
from tests.helpers.pages import HOSTILE, Open, chart, made_page, until

OUTSIDE = '''
from smoothmix.report import Comparison, Section, Table
from smoothmix.tables import Cell, Column, Grid, Row


def certified_images(comparison: Comparison) -> Section:
    """How many images have a radius above 0."""
    rows = []
    for measured in comparison.measured:
        count = int((measured.counted > 0).sum())
        rows.append(Row(cells=(Cell(measured.name), Cell(count))))
    columns = (Column(name="model", key="model"), Column(name="certified", key="certified"))
    grid = Grid(title="Certified images", columns=columns, rows=tuple(rows))
    return Section(id="certified-images", title="Certified images", tables=[Table(grid=grid)])


def nothing(comparison: Comparison) -> None:
    return None


def wrong(comparison: Comparison) -> str:
    return "<b>a section</b>"
'''


def outside_section(comparison: Comparison) -> Section:
    """A chart with a menu, a table and notes, with hostile text wherever there is text."""
    traces = []
    for run in range(len(comparison.runs)):
        for choice in ("first", HOSTILE):
            traces.append(Trace(run=run, x=[0.0, 1.0, 2.0], y=[run, 1.0, 0.5], choice=choice))
    traces.append(Trace(x=[0.0, 2.0], y=[0.5, 0.5], choice="first"))
    grid = Grid(
        title=HOSTILE,
        columns=(Column(name=HOSTILE, key="a"), Column(name="count", key="b")),
        rows=(Row(cells=(Cell(HOSTILE), Cell(7))),),
    )
    return Section(
        id="outside",
        title=HOSTILE,
        short_title="Outside",
        text=HOSTILE,
        legend=[LegendEntry(run=0), LegendEntry(run=1, remark=HOSTILE)],
        charts=[Chart(id="made", label=HOSTILE, caption=HOSTILE, traces=traces)],
        tables=[Table(grid=grid, heading=HOSTILE, runs=[1]), Table(grid=grid)],
        notes=[HOSTILE],
    )


def test_every_standard_section_is_on_the_page_in_order() -> None:
    page = make_page(made_page())
    ids = [section.id for section in page.sections]
    assert ids == [
        "summary",
        "curves",
        "confidence",
        "distribution",
        "training",
        "runs",
        "reading",
    ], "all but the gallery, which needs files"
    assert set(SECTIONS) >= {"summary", "curves", "confidence", "radii", "gallery", "training"}


def test_a_section_from_outside_is_drawn_like_our_own(opened: Open) -> None:
    page = made_page()
    tab = opened(replace(page, studies=[outside_section(page)]))
    assert tab.locator("nav a[href='#outside']").inner_text() == "Outside"
    assert tab.locator("#outside [src=x], #outside [onerror]").count() == 0
    assert HOSTILE in (tab.locator("#outside h2").text_content() or "")
    assert tab.locator("#outside table").nth(1).get_by_text("7", exact=True).is_visible()
    assert chart(tab, "made", "data.length") == 4
    tab.get_by_label("Show smoothmix").uncheck()
    assert chart(tab, "made", "data.length") == 3
    tab.locator("#choice-made").select_option(index=1)
    until(tab, "document.getElementById('chart-made').data.length === 2")


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    (tmp_path / "theirs.py").write_text(OUTSIDE)
    return our_file(tmp_path / "mine.tsv", [1000, 990, 400])


def test_the_command_adds_sections_by_address(
    smoothmix: Run, certificates: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    sections = ("--section", "theirs:certified_images", "theirs:nothing")
    result = smoothmix("report", certificates, "--out", "page.html", *sections)
    assert result.code == 0, result.err
    html = (tmp_path / "page.html").read_text()
    assert '<section id="certified-images"' in html
    assert html.index('id="certified-images"') < html.index('id="runs"')


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("theirs:wrong", "the section theirs:wrong returned a str, not a smoothmix.report.Section"),
        ("theirs:OUTSIDE", "the module theirs has no 'OUTSIDE'"),
        ("theirs:__doc__", "the section theirs:__doc__ is no function"),
        ("sumary", "unknown section 'sumary'"),
    ],
)
def test_what_is_no_section_is_refused(
    smoothmix: Run,
    certificates: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    section: str,
    message: str,
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    result = smoothmix("report", certificates, "--out", "page.html", "--section", section)
    assert result.code == 2
    assert message in result.err
    assert not (tmp_path / "page.html").exists()
    assert smoothmix("report", certificates, "--section", section).code == 2, "without a page"


def test_ids_are_checked_and_unique() -> None:
    with pytest.raises(UsageError, match="'a b' is no id"):
        Section(id="a b", title="t")
    with pytest.raises(UsageError, match="must be a PNG"):
        Section(id="a", title="t", image="https://example.org/x.png")
    twice = [Section(id="summary", title="t")]
    with pytest.raises(UsageError, match="two sections or charts have the id summary"):
        make_page(made_page(), studies=twice)
