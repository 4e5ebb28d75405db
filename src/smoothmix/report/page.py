"""The page as a value: its headline, warnings and sections. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from markupsafe import Markup

from smoothmix.config import require
from smoothmix.report.comparison import Comparison
from smoothmix.report.headline import headline
from smoothmix.report.section import Section
from smoothmix.report.sections import make_sections
from smoothmix.version import __version__


@dataclass(frozen=True, kw_only=True)
class Page:
    """Everything on the page."""

    comparison: Comparison
    created: str
    """When, and by which version."""
    headline: Sequence[Markup]
    """Which run is most robust, in sentences."""
    sections: Sequence[Section]

    def __post_init__(self) -> None:
        # Links and scripts find sections and charts by their ids.
        seen: set[str] = set()
        for section in self.sections:
            ids = [section.id, *(f"chart-{chart.id}" for chart in section.charts)]
            for name in ids:
                require(name not in seen, f"two sections or charts have the id {name}")
                seen.add(name)


def make_page(
    comparison: Comparison, *, requested: Sequence[str] = (), studies: Sequence[Section] = ()
) -> Page:
    """The page of a comparison: the standard sections, requested ones by name, and studies."""
    return Page(
        comparison=comparison,
        created=f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, smoothmix {__version__}",
        headline=headline(comparison),
        sections=make_sections(comparison, requested=requested, studies=studies),
    )
