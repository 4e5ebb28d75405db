"""What all tests share: real data, small networks, the command line and the browser."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import settings
from torch import nn

from smoothmix import networks, registry
from smoothmix.cli import main

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Dialog, Request
    from playwright.sync_api import Page as Tab

    from tests.helpers.pages import MadePage
    from tests.helpers.processes import Jobs

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"

# A slow machine is no failure, and CI must not depend on random examples.
settings.register_profile("smoothmix", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("smoothmix")

# Two test processes share two cores.
torch.set_num_threads(1)

# Jobs that a shell starts in the background ignore Ctrl-C, and so would the processes that tests
# start and interrupt.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs the real data where there is none."""
    if SHARED.exists():
        return
    for item in items:
        if item.get_closest_marker("shared"):
            item.add_marker(
                pytest.mark.skip(reason="needs ../shared, which is not beside this checkout")
            )


@pytest.fixture(autouse=True)
def trust_ends_with_the_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules that a test trusts, or names on a command line, are not trusted by the next one."""
    monkeypatch.setattr(registry, "_trusted", set())


@pytest.fixture
def shared_data() -> Path:
    """The folder of real data."""
    return SHARED / "data"


class Linear(nn.Module):
    """A classifier whose smoothed form is known: the sign of a projection, any image size."""

    def __init__(self, pixels: int, num_classes: int = 2, seed: int = 0) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.weight = nn.Parameter(torch.randn(num_classes, pixels, generator=generator))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.flatten(1) @ self.weight.T


def small_convnet(num_classes: int = 10, *, batch_norm: bool = True, seed: int = 0) -> nn.Module:
    """A network for 1x28x28 images that takes a moment to run."""
    torch.manual_seed(seed)
    norm = [nn.BatchNorm2d(4)] if batch_norm else []
    return nn.Sequential(
        nn.Conv2d(1, 4, 5, stride=3), *norm, nn.ReLU(), nn.Flatten(), nn.Linear(256, num_classes)
    )


@dataclass(frozen=True)
class Result:
    """What a command left behind."""

    code: int
    out: str
    err: str


Run = Callable[..., Result]


@pytest.fixture
def smoothmix(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Run:
    """Run a command in an empty folder, in this process because importing torch takes seconds."""

    def run(*args: object) -> Result:
        monkeypatch.chdir(tmp_path)
        # A command adds its folder, which the next test must not import from.
        monkeypatch.setattr(sys, "path", sys.path[:])
        capfd.readouterr()
        with warnings.catch_warnings():
            warnings.simplefilter("always", UserWarning)  # shown to the person, as outside of tests
            code = main([str(arg) for arg in args])
        return Result(code, *capfd.readouterr())

    return run


def command(*args: object) -> Sequence[str]:
    """The argv of a smoothmix command in a process of its own, for tests that kill it."""
    return [sys.executable, "-m", "smoothmix", *map(str, args)]


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Jobs]:
    """Starts processes in the test's folder, which must leave none behind."""
    from tests.helpers.processes import jobs_in

    with jobs_in(tmp_path) as started:
        yield started


@pytest.fixture
def untrained_run(tmp_path: Path, smoothmix: Run) -> str:
    """The name of an imported run: a network as it was drawn, sigma 0.5, the sample."""
    torch.manual_seed(0)
    torch.save(networks.build("lenet").body.state_dict(), tmp_path / "x.pt")
    options = ("--network", "lenet", "--sigma", 0.5, "--data", "sample", "--out", "run")
    assert smoothmix("import", "x.pt", *options).code == 0
    return "run"


QUIET = (
    "--no-sandbox --disable-gpu --disable-background-networking --disable-component-update "
    "--disable-sync"
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A real browser, imported and started only for the files that ask for it."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("no chromium")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=chromium, args=[*QUIET.split(), "--no-first-run"]
        )
        yield started
        started.close()


@pytest.fixture
def opened(browser: Browser, tmp_path: Path) -> Iterator[Callable[..., Tab]]:
    """Open a page; it must log nothing, request nothing but its file and show no dialog."""
    from tests.helpers.pages import rendered

    complaints: list[str] = []
    contexts = []
    file = tmp_path / "report.html"

    def on_dialog(dialog: Dialog) -> None:
        complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def on_request(request: Request) -> None:
        if request.url != file.as_uri() and not request.url.startswith("data:"):
            complaints.append(f"request: {request.url}")

    def show(page: MadePage, *, width: int = 1280, **options: Any) -> Tab:
        file.write_text(rendered(page), encoding="utf-8")
        context = browser.new_context(
            viewport={"width": width, "height": 900}, reduced_motion="reduce", **options
        )
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
