"""The page as one HTML file: style, scripts, plotly and the numbers are inside, nothing is fetched. No torch."""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from decimal import ROUND_FLOOR, Context
from importlib.resources import files
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from smoothmix.analysis import Estimate
from smoothmix.report.data import Curve, Page, Picture, RunView, Training
from smoothmix.report.headline import headline
from smoothmix.tables.numbers import as_decimal, limit, number, percent, radius, signed

SCRIPTS = ("plotly-basic.min.js", "page.js", "table.js", "charts.js", "gallery.js")
FILTERS = ("wrong", "abstained", "smallest radius", "models disagree")


def render(page: Page) -> str:
    """The page as the text of one HTML file that needs nothing else, now or later."""
    environment = Environment(
        loader=FunctionLoader(_asset),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        number=number, percent=percent, signed=signed, radius=radius, limit=limit
    )
    scripts = [_asset(name) for name in SCRIPTS]
    text = environment.get_template("template.html").render(
        page=page,
        runs=list(enumerate(page.runs)),
        headline=headline(page),
        baselines={run.difference.versus for run in page.runs if run.difference},
        cautions=_cautions(page),
        differing=[
            name
            for name in ("n", "alpha")
            if len({getattr(run, name) for run in page.runs} - {None}) > 1
        ],
        slider=_slider(page),
        filters={tag: sum(tag in picture.tags for picture in page.pictures) for tag in FILTERS},
        published_accuracy=_published_accuracy,
        grouped=_grouped,
        span=_span,
        css=Markup(_asset("page.css")),
        scripts=[Markup(script) for script in scripts],
        policy=_policy(scripts),
        data=_json(payload(page)),
    )
    return text.encode("utf-8", "replace").decode(
        "utf-8"
    )  # names of files may hold what UTF-8 cannot


def _asset(name: str) -> str:
    return (files("smoothmix.report") / "assets" / name).read_text(encoding="utf-8")


def _policy(scripts: Iterable[str]) -> str:
    """What the browser may do with the page: run these scripts and no others, fetch nothing at all."""
    digests = (
        base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts
    )
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def payload(page: Page) -> dict[str, Any]:
    """What the scripts draw, with no more digits than can be seen. Radii and shares are cut, never rounded up."""
    axes: Axes = {}
    return {
        "runs": [_run(page, run, axes) for run in page.runs],
        "axes": list(axes),
        "pictures": [_picture(picture) for picture in page.pictures],
    }


def _run(page: Page, run: RunView, axes: Axes) -> dict[str, Any]:
    tails = run.probabilities and Curve(
        x=[_tail(p) for p in run.probabilities.x], y=run.probabilities.y
    )
    clean = next(
        (share for at, share in zip(page.radii, run.accuracy, strict=True) if at == 0), None
    )
    return {
        "name": run.name,
        "images": run.images,
        "acr": _floats([run.acr.value, run.acr.low, run.acr.high]),
        "clean": clean and _floats([clean.value, clean.low, clean.high]),
        "largest": _float(run.largest_radius),
        "curve": _points(run.curve, axes),
        "tails": tails and _points(tails, axes),
        "histogram": _points(run.histogram, axes),
        "training": run.training and _training(run.training),
    }


def _training(training: Training) -> dict[str, Any]:
    losses = {"total": training.loss, **training.parts}
    return {
        "epochs": [int(epoch) for epoch in training.epochs],
        "accuracy": _floats(training.accuracy, 4),
        "rate": _floats(training.learning_rate, 4),
        "losses": {name: _floats(loss, 4) for name, loss in losses.items()},
    }


def _picture(picture: Picture) -> dict[str, Any]:
    return {
        "idx": picture.idx,
        "label": picture.label,
        "source": picture.source if picture.source.startswith("data:image/") else "",
        "size": [picture.width, picture.height],
        "tags": list(picture.tags),
        "verdicts": [
            [
                vote.run,
                vote.predict,
                int(vote.correct),
                radius(vote.radius),
                [list(v) for v in vote.votes],
                vote.n,
            ]
            for vote in picture.verdicts
        ],
    }


Axes = dict[tuple[float | None, ...], int]
"""The x of curves and their numbers: many runs share one, which is written once."""


def _points(curve: Curve, axes: Axes) -> tuple[int, list[float | None]]:
    return axes.setdefault(tuple(_floats(curve.x)), len(axes)), _floats(curve.y)


def _floats(values: Sequence[float], digits: int = 5) -> list[float | None]:
    return [_float(value, digits) for value in values]


def _float(value: float | None, digits: int = 5) -> float | None:
    """The number cut to a few significant digits; None where it is no number."""
    if value is None or not math.isfinite(value):
        return None
    cut = float(Context(prec=digits, rounding=ROUND_FLOOR).create_decimal(as_decimal(value)))
    return int(cut) if cut.is_integer() else cut


def _tail(p: float) -> float:
    """Where a probability lies on an axis that has room for .9, .99, .999 and so on: -log10(1 - p)."""
    return -math.log10(1 - p)


def _json(value: Any) -> Markup:
    """JSON that no name in it can break out of."""
    text = json.dumps(
        value, separators=(",", ":"), allow_nan=False
    )  # ASCII only, so U+2028 and U+2029 are escaped too
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def _slider(page: Page) -> dict[str, float]:
    """How far the radius slider reaches, in which steps, and where it starts."""
    reached = [
        x
        for run in page.runs
        for x in (*run.curve.x, run.largest_radius or 0.0)
        if math.isfinite(x)
    ]
    furthest = max([*reached, *page.radii], default=0.0) or 1.0
    step = 10.0 ** (math.floor(math.log10(furthest)) - 2)
    start = page.radii[len(page.radii) // 2] if page.radii else 0.0
    return {
        "end": round(math.ceil(furthest / step) * step, 6),
        "step": round(step, 9),
        "start": start,
    }


def _cautions(page: Page) -> dict[str, list[str]]:
    """What stands between runs and their published numbers, with the names of the runs that it holds for."""
    found: dict[str, list[str]] = {}
    for run in page.runs:
        if run.published and run.published.caution:
            found.setdefault(run.published.caution, []).append(run.name)
    return found


def _grouped(settings: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Settings such as `training: epochs` by what stands before the colon, if anything does."""
    found: dict[str, dict[str, str]] = {}
    for key, value in settings.items():
        group, _, name = key.rpartition(": ")
        found.setdefault(group, {})[name] = value
    return found


def _published_accuracy(run: RunView, at: float) -> float | None:
    """What the paper says of a run's preset at this radius."""
    found = run.published.accuracy.items() if run.published else ()
    return next((share for known, share in found if math.isclose(known, at, abs_tol=1e-9)), None)


def _span(estimates: Iterable[Estimate], *holding: float) -> tuple[float, float]:
    """The range that holds all of these intervals and numbers, for the small bars in a column of the table."""
    ends = [
        end for estimate in estimates for end in (estimate.low, estimate.high) if math.isfinite(end)
    ]
    low, high = min([*ends, *holding], default=0.0), max([*ends, *holding], default=1.0)
    # Numbers that are equal may differ by rounding.
    return (low, high) if high - low > 1e-9 * max(abs(low), abs(high)) else (low - 0.5, low + 0.5)
