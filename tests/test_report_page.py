"""The page in a real browser: what it says, that it moves, and that it never reaches out."""

from __future__ import annotations

import base64
import io
import json
import math
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from playwright.sync_api import Browser, Dialog, Request, sync_playwright
from playwright.sync_api import Page as Tab

from smoothmix.analysis import Estimate
from smoothmix.report.data import Curve, Difference, Page, Picture, PublishedRow, RunView, Section, Training, Vote
from smoothmix.report.page import headline, payload, radius, render

HOSTILE = "<img src=x onerror=alert(1)></script><b>&amp; %{y} \u2028"
RADII = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5)
SIGMA, DRAWS, ALPHA = 0.5, 10_000, 0.001
LARGEST = SIGMA * 3.2


def made_run(name: str, *, mean: float, images: int = 250, seed: int = 0, points: int = 160, **changed: Any) -> RunView:
    """A run with the numbers of made-up radii."""
    certified = np.clip(np.random.default_rng(seed).normal(mean, 0.5, images), -0.2, LARGEST)
    x = np.round(np.arange(points + 1) * LARGEST / points, 10)
    acr = float(np.maximum(certified, 0).mean())
    shares = [float((certified >= r).mean()) for r in RADII]
    p = np.array([0.5 + 0.5 * math.erf(r / SIGMA / math.sqrt(2)) for r in certified])
    grid = 1 - np.logspace(math.log10(0.5), -4.5, points)
    bins = np.linspace(0, LARGEST, 21)
    epochs = range(1, 151 if points > 200 else 41)
    plain = RunView(
        name=name,
        method="smoothmix",
        sigma=SIGMA,
        data="mnist, test",
        images=images,
        n=DRAWS,
        alpha=ALPHA,
        mode="exact",
        acr=Estimate(acr, acr - 0.05, acr + 0.05),
        accuracy=[Estimate(s, max(0.0, s - 0.05), min(1.0, s + 0.05)) for s in shares],
        accuracy_bound=[max(0.0, s - 0.02) for s in shares],
        abstention=Estimate(0.02, 0.005, 0.04),
        difference=None,
        published=None,
        largest_radius=LARGEST,
        curve=Curve(x=x.tolist(), y=[float((certified >= r).mean()) for r in x]),
        probabilities=Curve(x=grid.tolist(), y=[float((p >= at).mean()) for at in grid]),
        histogram=Curve(x=bins[:-1].tolist(), y=(np.histogram(certified, bins=bins)[0] / images).tolist()),
        training=Training(
            epochs=epochs,
            loss=[0.3 + mean * math.exp(-e / 8) for e in epochs],
            accuracy=[0.95 - 0.6 * math.exp(-e / 6) for e in epochs],
            learning_rate=[0.01 * 0.1 ** (e // 16) for e in epochs],
            parts={"natural": [0.2 + math.exp(-e / 8) for e in epochs], "mix": [math.nan, *[0.1] * (len(epochs) - 1)]},
        ),
        settings={"training: epochs": "40", "training: network": "lenet", "certification: seed": f"seed of {name}"},
        commands=[f"smoothmix train mnist-0.50-{seed} --out runs/{seed}", f"smoothmix certify runs/{seed} --n 10000"],
        notes=["trained for 40 of 150 epochs"],
    )
    return replace(plain, **changed)


def bare_run(name: str, *, mean: float = 0.4) -> RunView:
    """A run of which nothing is known that may be unknown."""
    nothing = dict.fromkeys(("sigma", "n", "alpha", "accuracy_bound", "abstention", "largest_radius", "probabilities"))
    empty: dict[str, Any] = {"settings": {}, "commands": (), "notes": (), "method": "", "data": "", "mode": ""}
    return made_run(name, mean=mean, seed=3, training=None, **nothing, **empty)


def picture_source(seed: int, *shape: int) -> str:
    pixels = np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, format="png", optimize=True)
    return "data:image/png;base64," + base64.b64encode(stream.getvalue()).decode()


def made_pictures(count: int, runs: int, *shape: int) -> list[Picture]:
    """Pictures of all kinds, in turn; the third has none to show."""
    found = []
    for idx in range(count):
        wrong, abstained, disagree = idx % 3 == 0, idx % 7 == 1, idx % 3 == 0 and runs > 1
        votes = [
            Vote(
                run=run,
                predict="abstains" if abstained else "4" if wrong and run == runs - 1 else "9",
                correct=not abstained and not (wrong and run == runs - 1),
                radius=0.0 if abstained else 0.1 + idx / 50 + run / 100,
                votes=[("9", 9000 - 100 * idx), ("4", 900), ("7", 50)],
                n=DRAWS,
            )
            for run in range(runs)
        ]
        kinds = {"wrong": wrong, "abstained": abstained, "smallest radius": idx % 4 == 2, "models disagree": disagree}
        source = "" if idx == 2 else picture_source(idx, *shape)
        tags = [tag for tag, holds in kinds.items() if holds]
        found.append(Picture(idx=100 * idx, label="9", source=source, width=28, height=28, tags=tags, verdicts=votes))
    return found


def made_page() -> Page:
    """Three runs: the baseline, one that is better and has a published row, and one whose name is an attack."""
    base = made_run("gaussian", mean=0.62, method="gaussian")
    paper = PublishedRow(
        acr=0.9322,
        deviation=0.0005,
        accuracy=dict.fromkeys(RADII[:5], 0.9),
        deviations_away=-3.2,
        source="Table 1",
        caution="40 of 150 epochs, 250 of 10,000 images",
    )
    ahead = Difference(versus="gaussian", images=250, acr=Estimate(0.142, 0.12, 0.164))
    better = made_run("smoothmix", mean=0.8, seed=1, published=paper, difference=ahead)
    return Page(
        title="MNIST, sigma 0.5",
        made="2030-01-01 12:00 UTC, smoothmix 1.0",
        radii=RADII,
        confidence=0.95,
        rho=0.001,
        paper_rounding=False,
        comparable=True,
        warnings=["few images, so wide intervals", f"{HOSTILE}: sigma is not recorded"],
        runs=[base, better, bare_run(HOSTILE)],
        pictures=made_pictures(24, 3, 28, 28),
        pictures_note="24 of the 250 images that all files have",
        sections=[
            Section(title="A study & more", text="Made <em>elsewhere</em>.", columns=("a",), rows=(("<b>1</b>",),))
        ],
    )


def crowded_page() -> Page:
    runs = [made_run(f"model-{i:02d}", mean=0.4 + i / 50, images=10_000, points=400, seed=i) for i in range(20)]
    return replace(made_page(), runs=runs, pictures=made_pictures(60, 20, 32, 32, 3))


class Addresses(HTMLParser):
    """Everything that a page points to."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value or "" for name, value in attrs if name in ("src", "href", "action", "srcset", "poster")]


@pytest.mark.parametrize("make", [made_page, crowded_page])
def test_the_page_points_at_nothing_outside_itself(make: Callable[[], Page]) -> None:
    addresses = Addresses()
    addresses.feed(render(make()))
    assert addresses.found
    assert all(address.startswith(("#", "data:")) for address in addresses.found)


def test_twenty_runs_fit_into_two_megabytes() -> None:
    assert len(render(crowded_page()).encode()) < 2_000_000


def test_the_same_page_is_the_same_text() -> None:
    assert render(made_page()) == render(made_page())


def test_data_is_strict_json_that_no_name_leaves() -> None:
    _, _, rest = render(made_page()).partition('id="data">')
    text, _, _ = rest.partition("</script>")
    data = json.loads(text, parse_constant=pytest.fail)
    assert data["runs"][2]["name"] == HOSTILE
    assert data["runs"][0]["training"]["losses"]["mix"][0] is None
    assert not set("<>&\u2028\u2029") & set(text)


def test_names_that_utf8_cannot_hold_do_not_stop_the_page() -> None:
    assert "odd?name" in render(replace(made_page(), runs=[made_run("odd\udcffname", mean=0.5)]))


SMALL = replace(made_page(), pictures=(), runs=[bare_run("small")])


@given(st.floats(0, 1e4))
def test_no_radius_is_rounded_up(value: float) -> None:
    run = replace(SMALL.runs[0], curve=Curve(x=[0.0, value], y=[1.0, value / 1e4]))
    data = payload(replace(SMALL, runs=[run]))
    drawn = data["axes"][data["runs"][0]["curve"][0]][1], data["runs"][0]["curve"][1][1]
    assert value * (1 - 1e-4) - 1e-9 <= drawn[0] <= value * (1 + 1e-11)
    assert drawn[1] <= value / 1e4 * (1 + 1e-11)
    assert value - 0.001 - 1e-9 <= float(radius(value)) <= value * (1 + 1e-11)


def against(versus: str, *acr: float) -> Difference:
    return Difference(versus=versus, images=50, acr=Estimate(*acr))


def plain_headline(*runs: RunView) -> str:
    return " ".join(sentence.striptags() for sentence in headline(replace(made_page(), runs=runs)))


def test_the_headline_says_who_wins_and_by_how_much() -> None:
    base, best = made_run("gaussian", mean=0.2), made_run("smoothmix", mean=0.9)
    said = plain_headline(base, replace(best, difference=against("gaussian", 0.142, 0.12, 0.164)))
    assert said.startswith("smoothmix is certifiably robust at average radius 0.8")
    assert said.endswith(", 0.142 [0.120, 0.164] above gaussian on the same 50 images.")


def test_the_headline_turns_the_difference_round_when_the_baseline_wins() -> None:
    base, worse = made_run("gaussian", mean=0.9), made_run("smoothmix", mean=0.2)
    said = plain_headline(base, replace(worse, difference=against("gaussian", -0.4, -0.5, -0.3)))
    assert said.startswith("gaussian is certifiably robust")
    assert said.endswith(", 0.400 [0.300, 0.500] above smoothmix on the same 50 images.")


@pytest.mark.parametrize("low", [-0.01, 0.0, 0.0004])
def test_the_headline_claims_no_winner_where_the_interval_holds_zero(low: float) -> None:
    base, best = made_run("gaussian", mean=0.5), made_run("smoothmix", mean=0.55)
    said = plain_headline(base, replace(best, difference=against("gaussian", 0.02, low, 0.05)))
    assert "on the same 50 images, is too small to tell the two apart" in said
    assert "above" not in said


def test_the_headline_names_a_second_run_that_may_be_as_good() -> None:
    base, best = made_run("gaussian", mean=0.2), made_run("smoothmix", mean=0.9)
    near = made_run("consistency", mean=0.88)
    ahead = against("gaussian", 0.142, 0.12, 0.164)
    assert "Close behind is consistency" in plain_headline(base, near, replace(best, difference=ahead))


def test_the_headline_of_one_run_and_of_none() -> None:
    assert "images are classified right and certified at radius 0.75." in plain_headline(made_run("only", mean=0.5))
    assert plain_headline() == ""


# In the browser -------------------------------------------------------------------------------------------------------

QUIET = "--no-sandbox --disable-gpu --disable-background-networking --disable-component-update --disable-sync"
Open = Callable[..., Tab]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("no chromium")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=[*QUIET.split(), "--no-first-run"])
        yield started
        started.close()


@pytest.fixture
def opened(browser: Browser, tmp_path: Path) -> Iterator[Open]:
    """Opens a page; afterwards it must have logged nothing, asked for nothing but its file and shown no dialog."""
    complaints: list[str] = []
    contexts = []
    file = tmp_path / "report.html"

    def on_dialog(dialog: Dialog) -> None:
        complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def on_request(request: Request) -> None:
        if request.url != file.as_uri() and not request.url.startswith("data:"):
            complaints.append(f"request: {request.url}")

    def show(page: Page, *, width: int = 1280, **options: Any) -> Tab:
        file.write_text(render(page), encoding="utf-8")
        context = browser.new_context(viewport={"width": width, "height": 900}, reduced_motion="reduce", **options)
        contexts.append(context)
        tab = context.new_page()
        tab.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
        tab.on("pageerror", lambda error: complaints.append(f"error: {error}"))
        tab.on("dialog", on_dialog)
        tab.on("request", on_request)
        tab.goto(file.as_uri())
        return tab

    yield show
    for context in contexts:
        context.close()
    assert complaints == []


def read_off(run: RunView, at: float) -> str:
    """The share at the first point of the curve that is not below `at`, as it should show."""
    share = next((y for x, y in zip(run.curve.x, run.curve.y, strict=True) if x >= at), 0.0)
    return f"{100 * share:.1f}%"


def readings(tab: Tab) -> list[str]:
    return tab.locator("#readings .value").all_inner_texts()


def chart(tab: Tab, name: str, what: str) -> Any:
    return tab.evaluate(f"document.getElementById('chart-{name}').{what}")


def until(tab: Tab, condition: str) -> None:
    """Waits for what the next frame brings. (Playwright's own wait evaluates text, which the page's policy forbids.)"""
    for _ in range(400):
        if tab.evaluate(condition):
            return
        tab.wait_for_timeout(25)
    pytest.fail(condition)


def test_the_slider_reads_off_all_models_at_once(opened: Open) -> None:
    page = made_page()
    tab = opened(page)
    assert readings(tab) == [read_off(run, 0.75) for run in page.runs]
    for at in ("0", "0.3", "0.29", "0.294", "0.005", "1.1", "1.6"):
        tab.fill("#radius-box", at)
        assert readings(tab) == [read_off(run, float(at)) for run in page.runs], at
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
    return [text.split("\n")[0].strip() for text in tab.locator(".summary tbody .name").all_inner_texts()]


def test_the_table_sorts_both_ways_by_click_and_by_key(opened: Open) -> None:
    tab = opened(made_page())
    by_name, by_sigma, by_acr = (tab.locator(".summary thead button").nth(k) for k in (0, 1, 3))
    shown = HOSTILE.split("\u2028")[0].strip()
    by_acr.click()
    assert models(tab) == ["smoothmix", "gaussian", shown]
    assert tab.locator("[aria-sort]").get_attribute("aria-sort") == "descending"
    by_acr.click()
    assert models(tab) == [shown, "gaussian", "smoothmix"]
    assert tab.locator("[aria-sort]").get_attribute("aria-sort") == "ascending"
    by_name.focus()
    tab.keyboard.press("Enter")
    assert models(tab) == [shown, "gaussian", "smoothmix"]
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
    assert cards.count() == len(page.pictures)
    for tag in ("wrong", "abstained", "smallest radius", "models disagree"):
        tab.locator(f"[name=filter][value='{tag}']").check()
        wanted = [picture for picture in page.pictures if tag in picture.tags]
        indices = {f"image {picture.idx}" for picture in wanted}
        assert set(tab.locator(".card .head small:not([data-tag])").all_inner_texts()) == indices
        assert cards.count() == len(wanted)
    tab.keyboard.press("ArrowLeft")
    assert cards.count() == sum("smallest radius" in picture.tags for picture in page.pictures)
    assert tab.locator(".card .blank").count() == 1


@pytest.mark.parametrize("before", ["light", "dark"])
def test_page_and_charts_follow_the_colour_scheme(opened: Open, before: str) -> None:
    tab = opened(made_page(), color_scheme=before)

    def colours() -> tuple[Any, ...]:
        body = tab.evaluate("getComputedStyle(document.body).backgroundColor")
        return body, chart(tab, "curve", "data[0].line.color"), chart(tab, "scatter", "layout.font.color")

    first = colours()
    assert first[0] == {"light": "rgb(252, 251, 249)", "dark": "rgb(21, 23, 27)"}[before]
    tab.emulate_media(color_scheme="dark" if before == "light" else "light")
    until(tab, f"document.getElementById('chart-scatter').layout.font.color !== '{first[2]}'")
    assert all(old != new for old, new in zip(first, colours(), strict=True))
    tab.emulate_media(color_scheme=before)
    until(tab, f"document.getElementById('chart-scatter').layout.font.color === '{first[2]}'")
    assert colours() == first


@pytest.mark.parametrize("make", [made_page, crowded_page])
def test_a_phone_scrolls_tables_and_not_the_page(opened: Open, make: Callable[[], Page]) -> None:
    tab = opened(make(), width=360)
    tab.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    tab.locator("#training").scroll_into_view_if_needed()
    assert tab.evaluate("document.documentElement.scrollWidth") == 360
    name = tab.locator(".summary tbody th").first
    before = name.bounding_box()
    assert tab.evaluate("box = document.querySelector('#summary .scroll'), box.scrollLeft = 300, box.scrollLeft") == 300
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
        for value in (*run.settings.values(), *run.commands):
            assert tab.get_by_text(value).first.is_visible(), value
    assert not tab.locator("#radius").is_visible()
    assert chart(tab, "curve", "data[0].line.color") != screen
    assert tab.locator(".card").count() == len(page.pictures)
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


def test_a_hostile_name_is_text_everywhere(opened: Open) -> None:
    tab = opened(made_page())
    tab.locator("#gallery").scroll_into_view_if_needed()
    tab.locator(".card").first.wait_for()
    assert tab.locator("[src=x], [onerror]").count() == 0
    for place in (".summary tbody", "#readings", "#confidence .legend", "#runs summary", ".warnings", ".card"):
        texts = tab.locator(place).all_text_contents()
        assert any(HOSTILE in text for text in texts), place


def test_a_page_with_one_run_and_nothing_that_may_be_left_out(opened: Open) -> None:
    only = bare_run("only")
    tab = opened(replace(made_page(), runs=[only], pictures=(), pictures_note="", sections=(), warnings=()))
    tab.fill("#radius-box", "0.5")
    assert readings(tab) == [read_off(only, 0.5)]
    assert tab.locator("#gallery, #training, #chart-tails, .warnings, .whisker").count() == 0
    assert "not measured" in tab.locator(".summary").inner_text()
    assert "not measured" in tab.locator("#confidence .legend").inner_text()


def test_a_page_without_runs_says_so(opened: Open) -> None:
    tab = opened(replace(made_page(), runs=(), pictures=()))
    assert tab.get_by_text("There are no runs to compare yet.").is_visible()


def test_the_numbers_are_there_without_scripts(opened: Open) -> None:
    tab = opened(made_page(), java_script_enabled=False)
    assert tab.locator(".summary tbody tr").count() == 3
    assert tab.locator(".summary").get_by_text("+0.142").is_visible()
    assert tab.get_by_text("need JavaScript").is_visible()
    assert not tab.locator("#curves").is_visible()


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
