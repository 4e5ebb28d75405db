"""A preset as text: TOML that a run can be started from, what was published as comments above it."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING

from smoothmix._io.toml import to_toml

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
    lines = [f"Published: ACR {published.acr:.3f}. {published.source}"]
    lines += _columns("radius", (f"{radius:.2f}" for radius in published.accuracy))
    whole = all(value.is_integer() for value in published.accuracy.values())
    lines += _columns(
        "certified %", (f"{value:.{0 if whole else 1}f}" for value in published.accuracy.values())
    )
    if published.acr_mean is not None:
        lines += [f"Over five seeds: ACR {published.acr_mean:.4f} ± {published.acr_deviation:.4f}"]
        lines += _columns("radius", (f"{radius:.2f}" for radius in published.accuracy_mean))
        lines += _columns(
            "certified %", (f"{value:.2f}" for value in published.accuracy_mean.values())
        )
        lines += _columns(
            "deviation", (f"{value:.2f}" for value in published.accuracy_deviation.values())
        )
    return lines


def _columns(head: str, cells: Iterable[str]) -> list[str]:
    return [f"  {head:<12}" + "".join(f"{cell:>{COLUMN}}" for cell in cells)]
