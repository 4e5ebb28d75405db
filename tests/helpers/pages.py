"""Pages of made-up runs, and how the tests of the page read it in a browser."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Page as Tab

from smoothmix.analysis import Estimate
from smoothmix.analysis.draws import Origin
from smoothmix.report import Comparison, Page, RunView, Section, Table, make_page, render
from smoothmix.report.images import NO_THUMBNAIL, Thumbnail
from smoothmix.report.sections.gallery import Gallery, GalleryImage, Verdict, gallery_section
from smoothmix.report.views import Curve, Difference, PublishedRow, Training
from smoothmix.tables import Cell, Column, Grid, Row

HOSTILE = "<img src=x onerror=alert(1)></script><b>&amp; %{y} \u2028"
RADII = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5)
SIGMA, DRAWS, ALPHA = 0.5, 10_000, 0.001
LARGEST = SIGMA * 3.2


def made_run(
    name: str, *, mean: float, images: int = 250, seed: int = 0, points: int = 160, **changed: Any
) -> RunView:
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
        origin=Origin.RECORDED,
        mode="exact",
        norm="L2",
        noise="Gaussian noise",
        draws_vary=False,
        acr=Estimate(acr, acr - 0.05, acr + 0.05),
        accuracy=[Estimate(s, max(0.0, s - 0.05), min(1.0, s + 0.05)) for s in shares],
        accuracy_bound=[max(0.0, s - 0.02) for s in shares],
        abstention=Estimate(0.02, 0.005, 0.04),
        difference=None,
        published=None,
        largest_radius=LARGEST,
        curve=Curve(x=x.tolist(), y=[float((certified >= r).mean()) for r in x]),
        probabilities=Curve(x=grid.tolist(), y=[float((p >= at).mean()) for at in grid]),
        histogram=Curve(
            x=bins[:-1].tolist(), y=(np.histogram(certified, bins=bins)[0] / images).tolist()
        ),
        training=Training(
            epochs=epochs,
            loss=[0.3 + mean * math.exp(-e / 8) for e in epochs],
            accuracy=[0.95 - 0.6 * math.exp(-e / 6) for e in epochs],
            learning_rate=[0.01 * 0.1 ** (e // 16) for e in epochs],
            parts={
                "natural": [0.2 + math.exp(-e / 8) for e in epochs],
                "mix": [math.nan, *[0.1] * (len(epochs) - 1)],
            },
        ),
        settings={
            "training": {"epochs": "40", "network": "lenet"},
            "certification": {"seed": f"seed of {name}"},
        },
        commands=[
            f"smoothmix train mnist-0.50-{seed} --out runs/{seed}",
            f"smoothmix certify runs/{seed} --n 10000",
        ],
        notes=["trained for 40 of 150 epochs"],
    )
    return replace(plain, **changed)


def bare_run(name: str, *, mean: float = 0.4) -> RunView:
    """A run of which nothing is known that may be unknown."""
    nothing = dict.fromkeys(
        ("sigma", "n", "alpha", "accuracy_bound", "abstention", "largest_radius", "probabilities")
    )
    empty: dict[str, Any] = {
        "settings": {},
        "commands": (),
        "notes": (),
        "method": "",
        "data": "",
        "mode": "",
        "origin": Origin.UNKNOWN,
    }
    return made_run(name, mean=mean, seed=3, training=None, **nothing, **empty)


def image_source(seed: int, *shape: int) -> str:
    pixels = np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, format="png", optimize=True)
    return "data:image/png;base64," + base64.b64encode(stream.getvalue()).decode()


def made_images(count: int, runs: int, *shape: int) -> list[GalleryImage]:
    """Images of all kinds, in turn; the third has no thumbnail."""
    found = []
    for idx in range(count):
        wrong, abstained, disagree = idx % 3 == 0, idx % 7 == 1, idx % 3 == 0 and runs > 1
        votes = [
            Verdict(
                run=run,
                predict=None if abstained else "4" if wrong and run == runs - 1 else "9",
                correct=not abstained and not (wrong and run == runs - 1),
                radius=0.0 if abstained else 0.1 + idx / 50 + run / 100,
                votes=[("9", 9000 - 100 * idx), ("4", 900), ("7", 50)],
                n=DRAWS,
            )
            for run in range(runs)
        ]
        kinds = {
            "wrong": wrong,
            "abstained": abstained,
            "smallest radius": idx % 4 == 2,
            "models disagree": disagree,
        }
        source = image_source(idx, *shape)
        found.append(
            GalleryImage(
                idx=100 * idx,
                label="9",
                thumbnail=NO_THUMBNAIL if idx == 2 else Thumbnail(source, 28, 28),
                kinds=[kind for kind, holds in kinds.items() if holds],
                verdicts=votes,
            )
        )
    return found


@dataclass(frozen=True, kw_only=True)
class MadePage(Comparison):
    """A comparison of made-up runs, with the gallery and the studies on its page."""

    images: Sequence[GalleryImage] = ()
    images_note: str = ""
    studies: Sequence[Section] = ()


def page_of(made: MadePage) -> Page:
    """The page, with the made-up images in place of those of files."""
    page = replace(make_page(made, studies=made.studies), created="2030-01-01, smoothmix 1.0")
    gallery = gallery_section(Gallery(tuple(made.images), made.images_note))
    if gallery is None:
        return page
    return replace(page, sections=[*page.sections[:-2], gallery, *page.sections[-2:]])


def rendered(made: MadePage) -> str:
    return render(page_of(made))


def made_page() -> MadePage:
    """Three runs: the baseline, a better one with a published row, and one with a hostile name."""
    base = made_run("gaussian", mean=0.62, method="gaussian")
    paper = PublishedRow(
        digits=4,
        acr=0.9322,
        deviation=0.0005,
        accuracy=dict.fromkeys(RADII[:5], 0.9),
        deviations_away=-3.2,
        source="Table 1",
        caution="40 of 150 epochs, 250 of 10,000 images",
    )
    ahead = Difference(versus="gaussian", images=250, acr=Estimate(0.142, 0.12, 0.164))
    better = made_run("smoothmix", mean=0.8, seed=1, published=paper, difference=ahead)
    return MadePage(
        title="MNIST, sigma 0.5",
        radii=RADII,
        confidence=0.95,
        rho=0.001,
        paper_rounding=False,
        warnings=["few images, so wide intervals", f"{HOSTILE}: sigma is not recorded"],
        runs=[base, better, bare_run(HOSTILE)],
        images=made_images(24, 3, 28, 28),
        images_note="24 of the 250 images that all files have",
        studies=[made_study()],
    )


def made_study() -> Section:
    grid = Grid(
        title="numbers",
        columns=(Column(name="a", key="a"),),
        rows=(Row(cells=(Cell("<b>1</b>"),)),),
    )
    return Section(
        id="study-1",
        title="A study & more",
        text="Made <em>elsewhere</em>.",
        tables=[Table(grid=grid, heading="The numbers")],
    )


def crowded_page() -> MadePage:
    runs = [
        made_run(f"model-{i:02d}", mean=0.4 + i / 50, images=10_000, points=400, seed=i)
        for i in range(20)
    ]
    return replace(made_page(), runs=runs, images=made_images(60, 20, 32, 32, 3))


Open = Callable[..., Tab]


def read_off(run: RunView, at: float) -> str:
    """The share at the first point of the curve that is not below `at`, as it should show."""
    share = next((y for x, y in zip(run.curve.x, run.curve.y, strict=True) if x >= at), 0.0)
    return f"{100 * share:.1f}%"


def readings(tab: Tab) -> list[str]:
    return tab.locator("#readings .value").all_inner_texts()


def chart(tab: Tab, name: str, what: str) -> Any:
    return tab.evaluate(f"document.getElementById('chart-{name}').{what}")


def until(tab: Tab, condition: str) -> None:
    """Wait for a condition. Playwright's own wait evaluates text, which our policy forbids."""
    for _ in range(400):
        if tab.evaluate(condition):
            return
        tab.wait_for_timeout(25)
    pytest.fail(condition)
