"""A section of the page as a value: text, charts and tables, without any markup. No torch.

Whoever adds a section writes one function that takes a `Comparison` and returns a `Section`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from smoothmix.config import require
from smoothmix.tables import Grid

PNG = "data:image/png;base64,"


@dataclass(frozen=True, kw_only=True)
class Trace:
    """A line or a set of points of a chart, in plotly's terms."""

    x: Sequence[float]
    y: Sequence[float]
    """NaN leaves a gap."""

    run: int | None = None
    """Position of the run that it belongs to. It has that run's colour, dash and marker, and the
    checkbox of the run hides it."""

    choice: str = ""
    """Under which entry of the chart's menu it is drawn, if the chart has one."""

    options: Mapping[str, Any] = field(default_factory=dict)
    """Further keys of the plotly trace, such as `mode` or `hovertemplate`. A `fill` is drawn while
    at most two runs are shown."""


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A plotly figure. Fonts and colours come from the page, light or dark."""

    id: str
    """Unique on the page: letters, digits and hyphens."""

    label: str
    """What it shows, for people who hear the page."""

    traces: Sequence[Trace]

    layout: Mapping[str, Any] = field(default_factory=dict)
    """Keys of the plotly layout; an axis is {"title": text, ...}."""

    narrow_layout: Mapping[str, Any] = field(default_factory=dict)
    """Replaces keys of the layout on a narrow screen."""

    caption: str = ""

    rows: int = 0
    """Rows of a chart that has one for each run: the chart grows with them."""

    def __post_init__(self) -> None:
        _require_id(self.id)

    @property
    def choices(self) -> list[str]:
        """Entries of the menu above the chart; empty where it has none."""
        # In the order of the traces; runs may lack some of them.
        names = dict.fromkeys(trace.choice for trace in self.traces)
        names.pop("", None)
        return list(names)


@dataclass(frozen=True, kw_only=True)
class Table:
    """A grid on the page."""

    grid: Grid

    heading: str = ""
    """The line that unfolds the table; without one it is always open."""

    text: str = ""

    runs: Sequence[int] = ()
    """Positions of the runs whose marker stands before each row's name; empty for none."""


@dataclass(frozen=True, kw_only=True)
class LegendEntry:
    """A run in the legend of a section."""

    run: int
    remark: str = ""
    """Why nothing is drawn of it, such as "not measured"; empty where it is drawn."""


@dataclass(frozen=True, kw_only=True)
class Section:
    """A section of the page. All text is shown as text: markup in it is escaped."""

    id: str
    """Unique on the page: letters, digits and hyphens."""

    title: str

    short_title: str | None = None
    """The name in the navigation: the title by default, nowhere if empty."""

    text: str = ""
    """The introduction."""

    legend: Sequence[LegendEntry] = ()
    charts: Sequence[Chart] = ()
    """Drawn side by side as far as there is room."""

    image: str = ""
    """A PNG as a `data:` address."""

    tables: Sequence[Table] = ()
    notes: Sequence[str] = ()

    template: str = "section.html"
    """The template of the page that lays it out. Only sections with controls of their own need
    another than the standard one."""

    values: Mapping[str, Any] = field(default_factory=dict)
    """What a template of its own shows."""

    data: Any = None
    """What a script of its own reads, as JSON."""

    needs_scripts: bool = False
    """Whether it is hidden where JavaScript is switched off."""

    def __post_init__(self) -> None:
        _require_id(self.id)
        # The page fetches nothing, and other formats (SVG) may carry scripts.
        is_png = self.image.startswith(PNG)
        require(is_png or not self.image, f"{self.title}: the image must be a PNG inside the page")

    @property
    def navigation_title(self) -> str:
        """The name in the navigation; empty where it is not listed."""
        if self.short_title is None:
            return self.title
        return self.short_title


def _require_id(text: str) -> None:
    # Links, scripts and styles address elements by it.
    valid = re.fullmatch(r"[A-Za-z][A-Za-z0-9-]*", text) is not None
    require(valid, f"{text!r} is no id: it needs letters, digits and hyphens, a letter first")
