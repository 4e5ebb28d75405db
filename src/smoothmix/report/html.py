"""The page as one HTML file, with style, scripts, plotly and the numbers inside it."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from smoothmix._io.text import for_html
from smoothmix.report.page import Page
from smoothmix.report.payload import as_json, payload
from smoothmix.tables.numbers import limit, number, percent, radius, signed

SCRIPTS = (
    "plotly-basic.min.js",
    "page.js",
    "table.js",
    "charts.js",
    "curves.js",
    "gallery.js",
)
"""In the order in which they depend on each other."""


MANY_RUNS = 12
"""Above so many models, legends are folded (on a phone each would fill the screen), readings stand
below their chart, and print leaves out what is folded in the settings (half a sheet each)."""


class OwnText(Markup):
    """Style and scripts of this package, which go into the page byte by byte."""


def render(page: Page) -> str:
    """The page as the text of one HTML file that needs nothing else, now or later."""
    return fill(
        "template.html",
        scripts=SCRIPTS,
        page=page,
        comparison=page.comparison,
        runs=list(enumerate(page.comparison.runs)),
        styles=page.comparison.styles,
        many=MANY_RUNS,
        data=as_json(_shown_inside(payload(page))),
    )


def fill(template: str, *, scripts: Sequence[str], **values: Any) -> str:
    """A template of this package with these scripts and values in it, as one HTML file."""
    environment = Environment(
        loader=FunctionLoader(_asset),
        # Names of files and runs are text, whatever they contain: no markup, nothing invisible.
        autoescape=True,
        finalize=_shown,
        # A misspelt name in a template is an error, not an empty place on the page.
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        number=number, percent=percent, signed=signed, radius=radius, limit=limit
    )
    sources = list(map(_asset, scripts))
    text = environment.get_template(template).render(
        css=OwnText(_asset("page.css")),
        scripts=list(map(OwnText, sources)),
        policy=_policy(sources),
        **values,
    )
    # Names of files may hold what UTF-8 cannot.
    return text.encode("utf-8", "replace").decode("utf-8")


def _shown(value: Any) -> Any:
    """What a template inserts, as a page may show it; its markup is escaped afterwards."""
    if isinstance(value, OwnText) or not isinstance(value, str):
        return value
    # Of the same type: sentences with names in them are markup already.
    return type(value)(for_html(value))


def _shown_inside(value: Any) -> Any:
    """The same for all text in what the scripts draw."""
    if isinstance(value, Mapping):
        return {_shown(name): _shown_inside(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return list(map(_shown_inside, value))
    return _shown(value)


def _asset(name: str) -> str:
    return (files("smoothmix.report") / "assets" / name).read_text(encoding="utf-8")


def _policy(scripts: Iterable[str]) -> str:
    """What the browser may do with the page: run these scripts and no others, fetch nothing."""
    # By their digests, so that no other script runs, even if one got into the page.
    allowed = []
    for script in scripts:
        digest = hashlib.sha256(script.encode()).digest()
        allowed.append(f"'sha256-{base64.b64encode(digest).decode()}'")
    return (
        f"default-src 'none'; script-src {' '.join(allowed)}; style-src 'unsafe-inline'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
