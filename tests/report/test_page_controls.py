"""The page in a real browser: slider, charts, table and gallery move by click and by key."""

from __future__ import annotations

from dataclasses import replace

import pytest
from playwright.sync_api import Page as Tab

from smoothmix.analysis import Estimate
from smoothmix.report.summary_grid import summary_grid
from tests.helpers.pages import HOSTILE, LARGEST, Open, chart, made_page, read_off, readings, until


def test_the_slider_reads_off_all_models_at_once(opened: Open) -> None:
    page = made_page()
    tab = opened(page)
    # Where the two runs of one sigma differ most.
    assert readings(tab) == [read_off(run, 0.5) for run in page.runs]
    for at in ("0", "0.3", "0.29", "0.294", "0.005", "1.1", "1.6"):
        tab.fill("#radius-box", at)
        assert readings(tab) == [read_off(run, float(at)) for run in page.runs], at
    for typed, meant in {
        "0.294": "0.3",
        "-3": "0",
        "99": tab.get_attribute("#radius-box", "max"),
    }.items():
        tab.fill("#radius-box", typed)
        tab.locator("#radius-box").blur()
        assert tab.input_value("#radius-box") == tab.inner_text("[data-radius]") == meant
    slider = tab.locator("#radius")
    slider.focus()
    tab.keyboard.press("Home")
    for step in range(4):
        assert readings(tab) == [read_off(run, step / 100) for run in page.runs]
        tab.keyboard.press("ArrowRight")
    assert tab.input_value("#radius-box") == "0.04"
    until(tab, "document.getElementById('chart-curve').layout.shapes[0].x0 === 0.04")
    tab.keyboard.press("End")
    assert readings(tab) == [read_off(run, LARGEST) for run in page.runs]


def test_a_click_into_the_chart_moves_the_slider(opened: Open) -> None:
    tab = opened(made_page())
    tab.locator("#chart-curve").scroll_into_view_if_needed()
    box = tab.locator("#chart-curve .nsewdrag").bounding_box()
    assert box
    tab.mouse.move(box["x"] + box["width"] / 4, box["y"] + box["height"] / 2)
    tab.wait_for_selector("#chart-curve .hoverlayer .legend")
    assert HOSTILE[:28] in tab.locator("#chart-curve .hoverlayer").text_content()
    tab.mouse.down()
    tab.mouse.up()
    until(tab, "document.getElementById('radius').value !== '0.75'")
    assert float(tab.input_value("#radius")) == pytest.approx(LARGEST * 1.02 / 4, abs=0.011)


def test_unticking_a_model_takes_it_out_of_every_chart(opened: Open) -> None:
    tab = opened(made_page())
    names = ("curve", "tails", "histogram", "scatter", "loss", "accuracy", "rate")
    assert [chart(tab, name, "data.length") for name in names] == [3, 2, 3, 3, 2, 2, 2]
    tab.get_by_label("Show smoothmix").uncheck()
    assert [chart(tab, name, "data.length") for name in names] == [2, 1, 2, 2, 1, 1, 1]
    tab.get_by_label("Show all models").check()
    assert [chart(tab, name, "data.length") for name in names] == [3, 2, 3, 3, 2, 2, 2]
    tab.get_by_label("Show all models").uncheck()
    assert [chart(tab, name, "data.length") for name in names] == [0] * 7


def models(tab: Tab) -> list[str]:
    return [
        text.split("\n")[0].strip()
        for text in tab.locator(".summary tbody .name").all_inner_texts()
    ]


def test_the_table_sorts_both_ways_by_click_and_by_key(opened: Open) -> None:
    tab = opened(made_page())
    headings = tab.locator(".summary thead button")
    by_name, by_sigma, by_acr = headings.nth(0), headings.nth(1), headings.get_by_text("ACR").first
    shown = HOSTILE.split("\u2028")[0].strip()
    by_acr.click()
    assert models(tab) == ["smoothmix", "gaussian", shown]
    assert tab.locator("[aria-sort]").get_attribute("aria-sort") == "descending"
    by_acr.click()
    # Runs of one sigma stay together: the third one is of unknown sigma.
    assert models(tab) == ["gaussian", "smoothmix", shown]
    assert tab.locator("[aria-sort]").get_attribute("aria-sort") == "ascending"
    by_name.focus()
    tab.keyboard.press("Enter")
    assert models(tab) == ["gaussian", "smoothmix", shown]
    tab.keyboard.press("Space")
    assert models(tab) == ["smoothmix", "gaussian", shown]
    for _ in range(2):  # what is not known comes last either way
        by_sigma.click()
        assert models(tab)[-1] == shown


def test_the_gallery_filters_by_click_and_by_key(opened: Open) -> None:
    page = made_page()
    tab = opened(page)
    tab.locator("#gallery").scroll_into_view_if_needed()
    cards = tab.locator(".card")
    cards.first.wait_for()
    assert cards.count() == len(page.images)
    for tag in ("wrong", "abstained", "smallest radius", "models disagree"):
        tab.locator(f"[name=filter][value='{tag}']").check()
        wanted = [image for image in page.images if tag in image.kinds]
        indices = {f"image {image.idx}" for image in wanted}
        assert set(tab.locator(".card .head small:not([data-tag])").all_inner_texts()) == indices
        assert cards.count() == len(wanted)
    tab.keyboard.press("ArrowLeft")
    assert cards.count() == sum("smallest radius" in image.kinds for image in page.images)
    assert tab.locator(".card .blank").count() == 1


def test_the_gallery_does_not_wait_for_an_idle_moment_for_ever(opened: Open) -> None:
    page = made_page()
    tab = opened(page)
    # A browser that is never idle: by the standard, only a time limit makes it call back.
    tab.add_init_script(
        "window.requestIdleCallback = (work, how) => how?.timeout && setTimeout(work, how.timeout)"
    )
    tab.reload()
    tab.locator(".card").first.wait_for(timeout=10_000)
    assert tab.locator(".card").count() == len(page.images)


def test_an_image_without_votes_says_why(opened: Open) -> None:
    page = made_page()
    (first, second, *others) = page.images[0].verdicts
    unknown, skipped = replace(first, votes=(), n=None), replace(second, votes=(), n=0)
    images = [replace(page.images[0], verdicts=[unknown, skipped, *others])]
    tab = opened(replace(page, images=images))
    tab.locator(".card").first.wait_for()
    assert tab.locator(".verdict").nth(0).get_by_text("votes not recorded").is_visible()
    assert tab.locator(".verdict").nth(1).get_by_text("wrong in selection").is_visible()


def test_commands_copy_themselves(opened: Open) -> None:
    tab = opened(made_page())
    tab.locator("#runs summary").first.click()
    button = tab.locator(".commands button").first
    button.click()
    until(tab, "document.querySelector('.commands button').textContent !== 'Copy'")
    assert button.inner_text() in ("Copied", "Selected")


def test_the_keyboard_reaches_the_table_first_and_focus_is_seen(opened: Open) -> None:
    tab = opened(made_page())
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.textContent") == "Skip to the summary table"
    tab.keyboard.press("Enter")
    tab.keyboard.press("Tab")
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.textContent") == "Model"
    assert tab.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"


def test_with_every_model_off_the_axes_stay_and_nobody_is_best(opened: Open) -> None:
    tab = opened(made_page())
    tab.uncheck("#show-all")
    for name in ("histogram", "scatter"):
        until(tab, f"document.getElementById('chart-{name}').layout.yaxis.range.join() === '0,1'")
    assert tab.locator(".readings .best").count() == 0
    tab.check("[data-show='0']")
    until(tab, "document.querySelectorAll('.readings .best').length === 1")
    assert "gaussian" in tab.inner_text(".readings .best")


def test_numbers_of_draws_have_a_column_where_they_differ(opened: Open) -> None:
    # The third one is a log, of which n is not known.
    page = replace(made_page(), runs=made_page().runs[:2], images=())
    assert "Draws" not in opened(page).inner_text(".summary")
    fewer = replace(page.runs[0], name="fewer", n=1000, draws_vary=True)
    tab = opened(replace(page, runs=[*page.runs, fewer]))
    assert "Draws" in tab.inner_text(".summary thead")
    assert "1,000\nat most" in tab.inner_text(".summary tbody")


def test_a_radius_out_of_reach_is_a_dash_and_its_curve_has_no_marks_there(opened: Open) -> None:
    page = made_page()
    none = Estimate(0.0, 0.0, 0.01)
    # 0 % is a result where the radius is within reach, or where nobody knows; beyond it is none.
    near = replace(
        page.runs[0], largest_radius=0.6, accuracy=[*page.runs[0].accuracy[:2], *[none] * 5]
    )
    unknown = replace(near, name="unknown", largest_radius=None)
    page = replace(page, runs=[near, unknown], images=())
    tab = opened(page)
    shown = [row.split("\t")[-8:-1] for row in tab.locator(".summary tbody tr").all_inner_texts()]
    assert [cells.count("–") for cells in shown] == [4, 0]
    assert [cells[2].split()[0] for cells in shown] == ["0.0", "0.0"]
    assert "0.600" in (tab.locator(".summary .beyond").first.get_attribute("title") or "")
    assert "no image at all could be certified there" in tab.inner_text("#summary")
    opacity, height = (
        chart(tab, "curve", "data[0].marker.opacity"),
        chart(tab, "curve", "data[0].y"),
    )
    assert [bool(value) for value in opacity] == [value > 0 for value in height]
    table = summary_grid(page)
    assert [sum(cell.shown == "–" for cell in line.cells) for line in table.rows] == [4, 0]
    assert [note for note in table.notes if note.startswith("a dash")]
    wide = summary_grid(page, wide=True)
    assert not [cell for line in wide.rows for cell in line.cells if cell.shown == "–"]
    # Programs get no number there: three empty values for each radius, and the 0 where it is one.
    keys = [column.key for column in wide.columns]
    accuracies = [at for at, key in enumerate(keys) if key.startswith("accuracy_")]
    empty = [[line.cells[at].value is None for at in accuracies] for line in wide.rows]
    assert empty == [[False] * 9 + [True] * 12, [False] * 21]
