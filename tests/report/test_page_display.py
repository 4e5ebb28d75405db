"""The page in a real browser: colours, phones, print, hostile names, and missing numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.helpers.pages import (
    HOSTILE,
    MadePage,
    Open,
    bare_run,
    chart,
    crowded_page,
    made_page,
    read_off,
    readings,
    until,
)


@pytest.mark.parametrize("before", ["light", "dark"])
def test_page_and_charts_follow_the_colour_scheme(opened: Open, before: str) -> None:
    tab = opened(made_page(), color_scheme=before)

    def colours() -> tuple[Any, ...]:
        body = tab.evaluate("getComputedStyle(document.body).backgroundColor")
        return (
            body,
            chart(tab, "curve", "data[0].line.color"),
            chart(tab, "scatter", "layout.font.color"),
        )

    first = colours()
    assert first[0] == {"light": "rgb(252, 251, 249)", "dark": "rgb(21, 23, 27)"}[before]
    tab.emulate_media(color_scheme="dark" if before == "light" else "light")
    until(tab, f"document.getElementById('chart-scatter').layout.font.color !== '{first[2]}'")
    assert all(old != new for old, new in zip(first, colours(), strict=True))
    tab.emulate_media(color_scheme=before)
    until(tab, f"document.getElementById('chart-scatter').layout.font.color === '{first[2]}'")
    assert colours() == first


@pytest.mark.parametrize("make", [made_page, crowded_page])
def test_a_phone_scrolls_tables_and_not_the_page(
    opened: Open, make: Callable[[], MadePage]
) -> None:
    tab = opened(make(), width=360)
    tab.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    tab.locator("#training").scroll_into_view_if_needed()
    assert tab.evaluate("document.documentElement.scrollWidth") == 360
    name = tab.locator(".summary tbody th").first
    before = name.bounding_box()
    assert (
        tab.evaluate(
            "box = document.querySelector('#summary .scroll'), box.scrollLeft = 300, box.scrollLeft"
        )
        == 300
    )
    after = name.bounding_box()
    assert before
    assert after
    assert after["x"] == before["x"]


def test_print_shows_the_settings_of_every_run_in_light_colours(opened: Open) -> None:
    page = made_page()
    tab = opened(page, color_scheme="dark")
    assert not tab.get_by_text("seed of smoothmix").is_visible()
    screen = chart(tab, "curve", "data[0].line.color")
    tab.emulate_media(media="print")
    tab.wait_for_selector("html.printing")
    for run in page.runs:
        settings = [value for group in run.settings.values() for value in group.values()]
        for value in (*settings, *run.commands):
            assert tab.get_by_text(value).first.is_visible(), value
    assert not tab.locator("#radius").is_visible()
    assert chart(tab, "curve", "data[0].line.color") != screen
    assert tab.locator(".card").count() == len(page.images)
    assert tab.evaluate("document.documentElement.scrollWidth") <= 1280
    tab.emulate_media(media="screen")
    tab.wait_for_selector("html:not(.printing)")
    assert not tab.get_by_text("seed of smoothmix").is_visible()
    assert chart(tab, "curve", "data[0].line.color") == screen


def test_printing_opens_everything_and_leaves_the_page_as_it_was(opened: Open) -> None:
    tab = opened(made_page(), color_scheme="dark")
    look = "[document.querySelectorAll('details:not([open])').length, document.body.clientWidth]"
    before = tab.evaluate(look)
    tab.evaluate(f"addEventListener('beforeprint', () => window.seen = {look})")
    assert tab.pdf().startswith(b"%PDF")
    assert tab.evaluate("window.seen") == [0, 680]
    assert tab.evaluate(look) == before


def test_print_leaves_out_what_is_folded_because_there_are_many_models(opened: Open) -> None:
    page = made_page()
    many = replace(page, runs=[bare_run(f"model {number}") for number in range(25)], measured=())
    tab = opened(many)
    tab.emulate_media(media="print")
    tab.wait_for_selector("html.printing")
    first = tab.locator("#runs details").first
    assert first.locator("summary").is_visible()
    assert not first.locator(".facts").is_visible()
    # Folds that do not grow with the models are opened.
    assert tab.evaluate("document.querySelectorAll('details:not(.many):not([open])').length") == 0


def test_a_hostile_name_is_text_everywhere(opened: Open) -> None:
    tab = opened(made_page())
    tab.locator("#gallery").scroll_into_view_if_needed()
    tab.locator(".card").first.wait_for()
    assert tab.locator("[src=x], [onerror]").count() == 0
    for place in (
        ".summary tbody",
        "#readings",
        "#confidence .legend",
        "#runs summary",
        ".warnings",
        ".card",
    ):
        texts = tab.locator(place).all_text_contents()
        assert any(HOSTILE in text for text in texts), place


def test_a_page_with_one_run_and_nothing_that_may_be_left_out(opened: Open) -> None:
    only = bare_run("only")
    tab = opened(
        replace(made_page(), runs=[only], images=(), images_note="", studies=(), warnings=())
    )
    tab.fill("#radius-box", "0.5")
    assert readings(tab) == [read_off(only, 0.5)]
    assert tab.locator("#gallery, #training, #chart-tails, .warnings, .whisker").count() == 0
    assert (
        "How many images the models abstain on is not known" in tab.locator("#summary").inner_text()
    )
    assert "Abstains" not in tab.locator(".summary").inner_text()
    assert "not measured" in tab.locator("#confidence .legend").inner_text()


def test_a_page_without_runs_says_so(opened: Open) -> None:
    tab = opened(replace(made_page(), runs=(), images=()))
    assert tab.get_by_text("There are no runs to compare yet.").is_visible()


def test_the_numbers_are_there_without_scripts(opened: Open) -> None:
    tab = opened(made_page(), java_script_enabled=False)
    assert tab.locator(".summary tbody tr").count() == 3
    assert tab.locator(".summary").get_by_text("+0.142").is_visible()
    assert tab.get_by_text("need JavaScript").is_visible()
    assert not tab.locator("#curves").is_visible()


@pytest.mark.parametrize("accuracy", [[1.0] * 3, [1.0], [0.0, 0.0], [0.905, 0.91, 0.93]])
def test_accuracies_in_training_stay_between_0_and_100_percent(
    opened: Open, accuracy: list[float]
) -> None:
    page = made_page()
    course = page.runs[0].training
    assert course is not None
    epochs = range(1, len(accuracy) + 1)
    rest = course.loss[: len(accuracy)], course.learning_rate[: len(accuracy)]
    short = replace(
        course, epochs=epochs, accuracy=accuracy, loss=rest[0], learning_rate=rest[1], parts={}
    )
    run = replace(page.runs[0], training=short)
    low, high = chart(
        opened(replace(page, runs=[run], images=())), "accuracy", "layout.yaxis.range"
    )
    assert 0 <= low < min(accuracy) + 1e-9
    assert max(accuracy) < high <= 1.002
