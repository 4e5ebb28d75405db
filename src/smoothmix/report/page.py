"""The page as one HTML file: style, scripts, plotly and the numbers are inside, nothing is fetched. No torch."""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import ROUND_FLOOR, Context, Decimal
from importlib.resources import files
from operator import attrgetter
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from smoothmix.analysis import Estimate
from smoothmix.report.data import Curve, Page, Picture, RunView, Training

SCRIPTS = ("plotly-basic.min.js", "page.js", "table.js", "charts.js", "gallery.js")
FILTERS = ("wrong", "abstained", "smallest radius", "models disagree")
NOTHING = "–"


def render(page: Page) -> str:
    """The page as the text of one HTML file that needs nothing else, now or later."""
    environment = Environment(
        loader=FunctionLoader(_asset), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update(number=number, percent=percent, signed=signed, radius=radius)
    scripts = [_asset(name) for name in SCRIPTS]
    text = environment.get_template("template.html").render(
        page=page,
        runs=list(enumerate(page.runs)),
        headline=headline(page),
        baselines={run.difference.versus for run in page.runs if run.difference},
        cautions=_cautions(page),
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
    return text.encode("utf-8", "replace").decode("utf-8")  # names of files may hold what UTF-8 cannot


def _asset(name: str) -> str:
    return (files("smoothmix.report") / "assets" / name).read_text(encoding="utf-8")


def _policy(scripts: Iterable[str]) -> str:
    """What the browser may do with the page: run these scripts and no others, fetch nothing at all."""
    digests = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def number(value: float | None, decimals: int = 3) -> str:
    """A number for people, with a true minus sign.

    >>> number(-0.0004), number(1.35), number(float("nan"))
    ('0.000', '1.350', '–')
    """
    if value is None or not math.isfinite(value):
        return NOTHING
    return f"{round(value, decimals) + 0.0:.{decimals}f}".replace("-", "\N{MINUS SIGN}")


def signed(value: float | None, decimals: int = 3) -> str:
    """A difference, with its sign in front.

    >>> signed(0.1421), signed(-0.5), signed(0.0001)
    ('+0.142', '−0.500', '0.000')
    """
    return ("+" if value is not None and round(value, decimals) > 0 else "") + number(value, decimals)


def percent(value: float | None, decimals: int = 1) -> str:
    """A share of 1 in percent, without the sign.

    >>> percent(0.924), percent(None)
    ('92.4', '–')
    """
    return number(None if value is None else 100 * value, decimals)


def radius(value: float | None, decimals: int = 3) -> str:
    """A certified radius or another lower bound, cut and never rounded up: what is printed must still hold.

    >>> radius(0.29996), radius(0.3), radius(0.25, 2)
    ('0.299', '0.300', '0.25')
    """
    if value is None or not math.isfinite(value):
        return NOTHING
    return number(float(_exact(value).quantize(Decimal(1).scaleb(-decimals), rounding=ROUND_FLOOR)), decimals)


def _exact(value: float) -> Decimal:
    """The decimal number that was meant: 0.3 whether it came as 0.1 * 3 or as 0.9 / 3."""
    return Decimal(f"{value:.12g}")


_acr = attrgetter("acr.value")


def headline(page: Page) -> list[Markup]:
    """Which run is most robust and by how much, in sentences that claim no more than the intervals allow."""
    if not page.runs:
        return []
    best = max(page.runs, key=_acr)
    opening = Markup("<strong>{}</strong> is certifiably robust at average radius <strong>{}</strong> {}").format(
        best.name, number(best.acr.value), _interval(best.acr)
    )
    if len(page.runs) == 1:
        return [opening + _alone(page, best)]
    rival, gap, images = _ahead(page, best)
    if gap is None:
        return [opening + ": the highest on this page.", *_close_second(page, best, rival)]
    if not (round(gap.low, 3) > 0 or round(gap.high, 3) < 0):  # as printed
        same = Markup(
            "Its lead over <strong>{}</strong>, {} {} on the same {:,} images, is too small to tell the two apart."
        )
        return [opening + ".", same.format(rival, signed(gap.value), _interval(gap), images)]
    apart = Markup(", <strong>{}</strong> {} {} <strong>{}</strong> on the same {:,} images.").format(
        number(gap.value), _interval(gap), "above" if gap.value > 0 else "away from", rival, images
    )
    return [opening + apart, *_close_second(page, best, rival)]


def _alone(page: Page, run: RunView) -> Markup:
    """What else there is to say of the only run."""
    if not page.radii:
        return Markup(".")
    at = len(page.radii) // 2
    share = run.accuracy[at]
    return Markup("; {}% {} of its {:,} images are classified right and certified at radius {:g}.").format(
        percent(share.value), _interval(share, percent), run.images, page.radii[at]
    )


def _ahead(page: Page, best: RunView) -> tuple[str, Estimate | None, int]:
    """With whom the best run was compared on the same images, how far it is ahead, and on how many."""
    if best.difference:
        return best.difference.versus, best.difference.acr, best.difference.images
    for run in sorted(page.runs, key=_acr, reverse=True):
        if run.difference and run.difference.versus == best.name:
            gap = run.difference.acr
            return run.name, Estimate(value=-gap.value, low=-gap.high, high=-gap.low), run.difference.images
    return "", None, 0


def _close_second(page: Page, best: RunView, rival: str) -> list[Markup]:
    """A caution where a run that was not compared with the best may be as good."""
    others = [run for run in page.runs if run is not best and run.name != rival and run.acr.high >= best.acr.low]
    if not others:
        return []
    second = max(others, key=_acr)
    said = Markup("Close behind is <strong>{}</strong> with {} {}: ").format(
        second.name, number(second.acr.value), _interval(second.acr)
    )
    paired = page.runner_up if page.runner_up and page.runner_up.versus == second.name else None
    if paired is None:
        return [said + "the intervals overlap, so this page does not say which of the two is better."]
    # Intervals of the two overlap by what their images have in common; that of the difference does not contain it.
    lead = Markup("{} {} on the same {:,} images").format(
        signed(paired.acr.value), _interval(paired.acr), paired.images
    )
    if round(paired.acr.low, 3) > 0:  # as printed
        return [said + Markup("<strong>{}</strong> is ahead of it by {}.").format(best.name, lead)]
    return [said + Markup("the lead, {}, is too small to tell the two apart.").format(lead)]


def _interval(estimate: Estimate, text: Callable[[float], str] = number) -> Markup:
    return Markup('<span class="interval">[{}, {}]</span>').format(text(estimate.low), text(estimate.high))


def payload(page: Page) -> dict[str, Any]:
    """What the scripts draw, with no more digits than can be seen. Radii and shares are cut, never rounded up."""
    tails = [_tail(p) for run in page.runs if run.probabilities for p in run.probabilities.x]
    certain = max(filter(math.isfinite, tails), default=1.0) + 0.5  # where p = 1 is drawn: it has no place of its own
    axes: Axes = {}
    return {
        "runs": [_run(page, run, axes, certain=certain) for run in page.runs],
        "axes": list(axes),
        "pictures": [_picture(picture) for picture in page.pictures],
        "certain": _float(certain) if math.inf in tails else None,
    }


def _run(page: Page, run: RunView, axes: Axes, *, certain: float) -> dict[str, Any]:
    tails = run.probabilities and Curve(x=[min(_tail(p), certain) for p in run.probabilities.x], y=run.probabilities.y)
    clean = next((share for at, share in zip(page.radii, run.accuracy, strict=True) if at == 0), None)
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
            [vote.run, vote.predict, int(vote.correct), radius(vote.radius), [list(v) for v in vote.votes], vote.n]
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
    cut = float(Context(prec=digits, rounding=ROUND_FLOOR).create_decimal(_exact(value)))
    return int(cut) if cut.is_integer() else cut


def _tail(p: float) -> float:
    """Where a probability lies on an axis that has room for .9, .99, .999 and so on: -log10(1 - p)."""
    return -math.log10(1 - p) if p < 1 else math.inf


def _json(value: Any) -> Markup:
    """JSON that no name in it can break out of."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)  # ASCII only, so U+2028 and U+2029 are escaped too
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def _slider(page: Page) -> dict[str, float]:
    """How far the radius slider reaches, in which steps, and where it starts."""
    reached = [x for run in page.runs for x in (*run.curve.x, run.largest_radius or 0.0) if math.isfinite(x)]
    furthest = max([*reached, *page.radii], default=0.0) or 1.0
    step = 10.0 ** (math.floor(math.log10(furthest)) - 2)
    start = page.radii[len(page.radii) // 2] if page.radii else 0.0
    return {"end": round(math.ceil(furthest / step) * step, 6), "step": round(step, 9), "start": start}


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
    ends = [end for estimate in estimates for end in (estimate.low, estimate.high) if math.isfinite(end)]
    low, high = min([*ends, *holding], default=0.0), max([*ends, *holding], default=1.0)
    return (low, high) if high > low else (low - 0.5, low + 0.5)
