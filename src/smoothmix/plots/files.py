"""Figures as files: the same runs always give the same bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smoothmix._io.files import replace_file
from smoothmix.analysis import Measured
from smoothmix.errors import UsageError
from smoothmix.plots import curves, epochs, histograms, style, tradeoff

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIGURES: Mapping[str, Callable[[Sequence[Measured]], Figure]] = {
    "certified-accuracy": curves.certified_accuracy,
    "probabilities": curves.probabilities,
    "training": epochs.training,
    "radius-histogram": histograms.radius_histogram,
    "accuracy-against-acr": tradeoff.accuracy_against_acr,
}
"""Every figure, by the name of its file."""

FORMATS: Mapping[str, Mapping[str, Any]] = {
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    ".png": {"Software": None},
    ".svg": {"Date": None, "Creator": None},
}
"""The formats by suffix, with the metadata to leave out.

A date or a version inside the file would make equal figures differ.
"""


def save(figure: Figure, path: Path | str) -> None:
    """Write a figure as pdf, png or svg, by the suffix of the path; the write is atomic."""
    suffix = _known(Path(path).suffix)
    # Some settings, such as the salt of svg ids, are read when the figure is written.
    with style.our_style(), replace_file(path) as temporary:
        figure.savefig(temporary, format=suffix[1:], metadata=dict(FORMATS[suffix]), dpi=style.DPI)


def save_all(every: Sequence[Measured], folder: Path | str, suffix: str = ".pdf") -> list[Path]:
    """Write every figure for which the runs have data into a folder, and return the paths."""
    suffix = _known(suffix)
    written = []
    for name, draw in FIGURES.items():
        # Imported checkpoints and logs of others come without a record of their training.
        if name == "training" and not any(m.training for m in every):
            continue
        path = Path(folder) / f"{name}{suffix}"
        save(draw(every), path)
        written.append(path)
    return written


def _known(suffix: str) -> str:
    found = f".{suffix.lower().removeprefix('.')}"
    if found not in FORMATS:
        raise UsageError(
            f"a figure is a {', '.join(FORMATS)} file, not {suffix or 'one without a suffix'}"
        )
    return found
