"""A preset as text: TOML that a run can be started from, what was published as comments above it."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING

from smoothmix.config import to_toml

if TYPE_CHECKING:
    from collections.abc import Iterable

    from smoothmix.presets import Preset, Published

WIDTH = 110
COLUMN = 6


def render(preset: Preset) -> str:
    """The whole text."""
    lines = [preset.name, *wrap(preset.about, WIDTH)]
    if preset.published:
        lines += ["", *_numbers(preset.published)]
    if preset.note:
        lines += ["", *wrap(f"Note: {preset.note}", WIDTH)]
    comments = "\n".join(f"# {line}".rstrip() for line in lines)
    return f"{comments}\n\n{to_toml(preset.config)}"


def _numbers(published: Published) -> list[str]:
    yielded = [f"Published: ACR {published.acr:.3f}. {published.source}"]
    yielded += _columns("radius", (f"{radius:.2f}" for radius in published.accuracy))
    yielded += _columns("certified %", (f"{value:g}" for value in published.accuracy.values()))
    if published.acr_mean is not None:
        yielded += [f"Over five seeds: ACR {published.acr_mean:.4f} ± {published.acr_deviation:.4f}"]
        yielded += _columns("radius", (f"{radius:.2f}" for radius in published.accuracy_mean))
        yielded += _columns("certified %", (f"{value:.2f}" for value in published.accuracy_mean.values()))
        yielded += _columns("deviation", (f"{value:.2f}" for value in published.accuracy_deviation.values()))
    return yielded


def _columns(head: str, cells: Iterable[str]) -> list[str]:
    return [f"  {head:<12}" + "".join(f"{cell:>{COLUMN}}" for cell in cells)]
