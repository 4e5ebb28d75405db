"""A preset as text: TOML to start a run from, with the published numbers as comments above it."""

from __future__ import annotations

from collections.abc import Iterable
from textwrap import wrap
from typing import TYPE_CHECKING

from smoothmix._io.toml import to_toml

if TYPE_CHECKING:
    from smoothmix.presets import Preset, Published

WIDTH = 98
"""Characters of a line of text, besides the `# ` before it."""

COLUMN = 6
"""Characters of a column of numbers."""


def render(preset: Preset) -> str:
    """The whole text."""
    lines = [preset.name, *wrap(preset.about, WIDTH)]
    if preset.published:
        lines += ["", *_numbers(preset.published)]
    if preset.note:
        lines += ["", *wrap(f"Note: {preset.note}", WIDTH)]
    # An empty line has no blank after its `#`.
    comments = "\n".join(f"# {line}".rstrip() for line in lines)
    return f"{comments}\n\n{to_toml(preset.config)}"


def _numbers(published: Published) -> list[str]:
    # The paper prints whole percentages for some data sets and one decimal for others.
    whole = all(map(float.is_integer, published.accuracy.values()))
    digits = 1
    if whole:
        digits = 0
    lines = [
        f"Published: ACR {published.acr:.3f}. {published.source}",
        _columns("radius", published.accuracy, digits=2),
        _columns("certified %", published.accuracy.values(), digits=digits),
    ]
    if published.acr_mean is None:
        return lines
    return [
        *lines,
        f"Over five seeds: ACR {published.acr_mean:.4f} ± {published.acr_std:.4f}",
        _columns("radius", published.accuracy_mean, digits=2),
        _columns("certified %", published.accuracy_mean.values(), digits=2),
        _columns("std", published.accuracy_std.values(), digits=2),
    ]


def _columns(head: str, values: Iterable[float], *, digits: int) -> str:
    line = f"  {head:<12}"
    for value in values:
        line += f"{value:>{COLUMN}.{digits}f}"
    return line
