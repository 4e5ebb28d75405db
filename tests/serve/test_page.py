"""The page of the service in a real browser, against a real web server on loopback."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser
from playwright.sync_api import Page as Tab

from smoothmix.certify import Resident
from smoothmix.serve import ServeSettings, Service
from smoothmix.serve.server import listen, make_server
from tests.serve.conftest import NAMES, classifier_of, png

Visit = Callable[..., Tab]
PATIENCE = 60_000


@pytest.fixture(scope="module")
def address(resident: Resident) -> Iterator[str]:
    """Where the service listens."""
    settings = ServeSettings(port=0)
    service = Service(classifier_of(resident), settings)
    server = make_server(service)
    listener = listen(settings)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    end = time.monotonic() + PATIENCE / 1000
    while not server.started and time.monotonic() < end:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
    server.should_exit = True
    thread.join(PATIENCE / 1000)
    listener.close()


@pytest.fixture
def visit(browser: Browser, address: str) -> Iterator[Visit]:
    """Open the page; it must log nothing and ask nobody else."""
    complaints: list[str] = []
    contexts = []

    def open_page(*, width: int = 1280, scheme: str = "light") -> Tab:
        context = browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme=scheme,  # type: ignore[arg-type]
        )
        contexts.append(context)
        tab = context.new_page()
        tab.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
        tab.on("pageerror", lambda error: complaints.append(f"error: {error}"))
        tab.on(
            "request",
            lambda request: (
                request.url.startswith((address, "blob:", "data:"))
                or complaints.append(request.url)
            ),
        )
        tab.goto(address)
        tab.wait_for_selector("#model:has-text('small')")
        return tab

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []


def draw(tab: Tab) -> None:
    box = tab.locator("#canvas").bounding_box()
    assert box
    tab.mouse.move(box["x"] + box["width"] / 2, box["y"] + 40)
    tab.mouse.down()
    tab.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] - 40, steps=5)
    tab.mouse.up()


def finish(tab: Tab) -> str:
    """The text of the verdict once the last event is there."""
    tab.wait_for_selector("#facts:has-text('draws; ended because')", timeout=PATIENCE)
    return tab.inner_text("#verdict")


def test_a_drawing_is_certified_while_one_watches(visit: Visit) -> None:
    tab = visit()
    assert tab.is_disabled("#certify"), "nothing is drawn yet"
    draw(tab)
    tab.select_option("#seconds", "2")
    tab.click("#certify")
    verdict = finish(tab)
    assert "draws" in verdict
    assert tab.locator("#votes li").count() >= 1
    assert tab.locator("#votes .who").first.inner_text() in NAMES
    # More than its two ends: it has grown under one's eyes.
    assert len((tab.get_attribute("#line", "points") or "").split()) > 2
    shown = float(tab.inner_text("#radius"))
    tab.click("#record summary")
    answer = tab.evaluate("JSON.parse(document.getElementById('json').textContent)")
    assert answer["radius"] - 0.001 < shown <= answer["radius"]
    assert tab.inner_text("#spoken").startswith(verdict)
    # The line in the middle of the chart has its radius, and the curve ends above it.
    middle = float(tab.inner_text("#axis-middle"))
    assert middle < answer["radius"] < 2 * middle or answer["radius"] == 0


def test_it_says_what_to_do_next_and_forgets_the_last_answer(visit: Visit) -> None:
    tab = visit()
    assert tab.inner_text("#verdict") == "Draw a digit to begin."
    tab.click("#use-file")
    assert tab.inner_text("#verdict") == "Choose an image to begin."
    broken = {"name": "x.png", "mimeType": "image/png", "buffer": png()[:60]}
    tab.set_input_files("#picker", broken)  # type: ignore[arg-type]
    assert tab.inner_text("#verdict") == "Press Certify."
    tab.select_option("#seconds", "0.5")
    tab.click("#use-draw")
    draw(tab)
    tab.click("#certify")
    finish(tab)
    assert tab.is_visible("#record")
    tab.select_option("#seconds", "20")
    tab.click("#certify")
    tab.wait_for_selector("#stop")
    assert tab.inner_text("#facts") == ""
    assert tab.is_hidden("#record")


def test_a_file_is_certified(visit: Visit) -> None:
    tab = visit()
    picked = {"name": "a<b>.png", "mimeType": "image/png", "buffer": png((60, 40))}
    tab.set_input_files("#picker", picked)  # type: ignore[arg-type]
    assert tab.inner_text("#drop-text") == "a<b>.png"
    tab.select_option("#seconds", "0.5")
    tab.click("#certify")
    finish(tab)
    assert "scaled to 28 pixels" in tab.inner_text("#facts")


def test_it_is_used_by_keyboard_alone_and_can_be_stopped(visit: Visit) -> None:
    tab = visit()
    tab.locator("#canvas").focus()
    tab.keyboard.down(" ")
    for _ in range(6):
        tab.keyboard.press("ArrowDown")
    tab.keyboard.up(" ")
    tab.select_option("#seconds", "20")
    tab.locator("#certify").focus()
    tab.keyboard.press("Enter")
    tab.wait_for_selector("#verdict:has-text('draws')", timeout=PATIENCE)
    tab.click("#stop")
    tab.wait_for_selector("#verdict:has-text('Stopped')", timeout=PATIENCE)
    assert tab.is_enabled("#certify")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_cut_off_on_a_phone(visit: Visit, scheme: str) -> None:
    tab = visit(width=360, scheme=scheme)
    draw(tab)
    tab.select_option("#seconds", "0.5")
    tab.click("#certify")
    finish(tab)
    # The result is below the drawing: the page has moved, so that it is seen to grow.
    top = tab.evaluate("document.getElementById('result').getBoundingClientRect().top")
    assert top < 0.6 * 900
    assert tab.evaluate("document.documentElement.scrollWidth") <= 360
    paper = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(21, 23, 27)") == (scheme == "dark")
    small = tab.evaluate(
        "[...document.querySelectorAll('button, select')].filter(b => b.offsetHeight)"
        ".filter(b => b.offsetHeight < 44).length"
    )
    assert small == 0, "large enough for a finger"
