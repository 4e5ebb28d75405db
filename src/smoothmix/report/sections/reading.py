"""What the words and numbers of the page mean."""

from __future__ import annotations

from smoothmix.report.comparison import Comparison
from smoothmix.report.section import Section


def reading(comparison: Comparison) -> Section:
    """A glossary of the page."""
    return Section(
        id="reading",
        title="How to read this page",
        short_title="",
        template="reading.html",
        values={"confidence": f"{100 * comparison.confidence:g}%"},
    )
