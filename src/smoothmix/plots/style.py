"""What all figures share: fonts and colours, one panel a noise level, names that fit, a legend below the panels."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol

from smoothmix._io.text import counted
from smoothmix.analysis import Measured
from smoothmix.config import require
from smoothmix.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMN_WIDTH = 3.3
"""Inches: one column of a paper in two."""

FULL_WIDTH = 6.75
"""Inches: both columns."""

DPI = 300
"""Of png files. Text is measured at the same resolution, so that all formats have one layout."""

INK, FAINT = "#262626", "#757575"
SMALL = 6.5
"""Points: for remarks inside a panel."""

STYLE: Mapping[str, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same on every machine
    "font.size": 8,
    "axes.labelsize": 8,
    "axes.titlesize": 8,
    "axes.titlepad": 4,
    "axes.linewidth": 0.5,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.5,
    "text.color": INK,
    "text.parse_math": False,  # the dollar signs of a name are dollar signs
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.major.width": 0.5,
    "ytick.major.width": 0.5,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "legend.handlelength": 2.6,
    "legend.columnspacing": 1.4,
    "legend.labelspacing": 0.35,
    "legend.borderpad": 0.2,
    "legend.borderaxespad": 0.3,
    "lines.linewidth": 1.1,
    "lines.markersize": 4,
    "lines.dash_capstyle": "butt",
    "svg.hashsalt": "smoothmix",  # the same figure gives the same file
    "svg.fonttype": "path",  # looks alike without the font
    "pdf.fonttype": 42,  # TrueType: what publishers ask for
}

# Okabe and Ito (2008) without yellow, which is lost on paper. Seven colours and four ways to draw a line have no common
# divisor: neighbours differ in both, and 28 runs in at least one.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#E69F00", "#56B4E9")
DASHES = ("solid", (0, (4.5, 1.2)), (0, (4.5, 1.2, 1, 1.2)), (0, (1.6, 0.9)))
MARKERS = ("o", "s", "^", "D")


@dataclass(frozen=True)
class Look:
    """How a run is drawn, in every figure."""

    colour: str
    dash: Any
    marker: str


P = ParamSpec("P")
Drawing = Callable[Concatenate[Sequence[Measured], P], "Figure"]


def figure(draw: Drawing[P]) -> Drawing[P]:
    """A function that draws in our style, whatever style the caller has set; nothing to draw is refused."""

    @wraps(draw)
    def drawn(every: Sequence[Measured], /, *args: P.args, **options: P.kwargs) -> Figure:
        require(len(every) > 0, "a figure needs at least one run")
        with our_style():
            return draw(every, *args, **options)

    return drawn


@contextmanager
def our_style() -> Iterator[None]:
    """Our settings of matplotlib for the length of a block, and the caller's again after it."""
    try:
        from matplotlib import style
    except ImportError as error:
        raise UsageError("figures need matplotlib: pip install matplotlib") from error
    with style.context(["default", dict(STYLE)]):
        yield


class Named(Protocol):
    """Anything that tables and legends have a name for."""

    @property
    def name(self) -> str:
        """The name."""


def looks(every: Sequence[Named]) -> dict[str, Look]:
    """How each run is drawn, by its name: runs of one name at several noise levels look alike."""
    names = list(dict.fromkeys(m.name for m in every))
    kinds = [(COLOURS[i % len(COLOURS)], i % len(DASHES)) for i in range(len(names))]
    return {name: Look(c, DASHES[d], MARKERS[d]) for name, (c, d) in zip(names, kinds, strict=True)}


def by_sigma(every: Sequence[Measured]) -> dict[float | None, list[Measured]]:
    """The runs of each noise level, from low to high; those that do not say theirs come last."""
    levels = sorted({m.sigma for m in every}, key=lambda s: math.inf if s is None else s)
    return {level: [m for m in every if m.sigma == level] for level in levels}


def panel_title(sigma: float | None, runs: Sequence[Measured]) -> str:
    """The noise level, and how many images the numbers rest on."""
    few, most = min(len(m) for m in runs), max(len(m) for m in runs)
    images = counted(most, "image") if few == most else f"{few:,} to {most:,} images"
    return f"{sigma_text(sigma)}  ({images})"


def sigma_text(sigma: float | None) -> str:
    """The noise level in words."""
    return "σ not recorded" if sigma is None else f"σ = {sigma:g}"


def panels(
    count: int, *, runs: int, width: float | None = None, height: float = 1.95, share_y: bool = True
) -> tuple[Figure, list[Axes]]:
    """A figure with `count` panels, as many side by side as its width lets one read.

    Without a width it is a column wide if that is enough for one panel and the legend of so many runs.
    """
    from matplotlib.figure import Figure

    width = width or (COLUMN_WIDTH if count == 1 and runs <= 8 else FULL_WIDTH)
    columns = min(count, 3, max(1, int(width / 2.2)))
    rows = math.ceil(count / columns)
    height = max(height, 0.4 * width / columns)
    made = Figure(figsize=(width, rows * height), dpi=DPI, layout="constrained")
    grid = made.subplots(rows, columns, squeeze=False, sharey=share_y).ravel().tolist()
    for spare in grid[count:]:
        spare.remove()
    return made, grid[:count]


def leftmost(ax: Axes) -> bool:
    """Whether a panel stands at the left end of its row, where the label of a common axis belongs."""
    place = ax.get_subplotspec()
    return place is None or place.is_first_col()


def percent_axis(ax: Axes) -> None:
    """All of 0 to 100 %, upright."""
    ax.set_ylim(0, 102)
    ax.set_yticks(range(0, 101, 20))


def legend_below(
    made: Figure,
    entries: Mapping[str, Artist],
    order: Iterable[str],
    remarks: Mapping[str, str] | None = None,
) -> None:
    """A legend of names and remarks under the panels, in as many columns as fit; the figure grows by its height."""
    width, height = made.get_size_inches()
    names = [name for name in order if name in entries]
    if not names:
        return
    labels = [fitted(name) + (remarks or {}).get(name, "") for name in names]
    for columns in range(min(len(names), 5), 0, -1):
        rows = math.ceil(len(names) / columns)
        legend = made.legend(
            [entries[name] for name in names],
            labels,
            loc="outside lower center",
            ncols=math.ceil(len(names) / rows),
        )
        box = legend.get_window_extent()
        if box.width <= width * made.dpi or columns == 1:
            break
        legend.remove()
    made.set_size_inches(width, height + box.height / made.dpi)


def settle(made: Figure) -> Figure:
    """The figure with its layout fixed: drawing it again, or in another format, moves nothing."""
    made.draw_without_rendering()
    made.set_layout_engine("none")
    return made


def fitted(name: str, *, width: int = 30, lines: int = 3) -> str:
    """The name in lines of at most `width` characters, cut where words end; of a very long one, both ends.

    >>> fitted("mnist-1.00-smoothmix-eta5-onestep", width=20)
    'mnist-1.00-\\nsmoothmix-eta5-\\nonestep'
    """
    name, most = " ".join(name.split()), width * lines
    if len(name) > most:
        name = f"{name[: most // 2 - 1]}…{name[len(name) - most // 2 :]}"
    made = [""]
    for word in re.findall(rf"[^\s_/-]{{1,{width - 1}}}[\s_/-]?|[\s_/-]", name):
        if len((made[-1] + word).rstrip()) > width:
            made.append("")
        made[-1] += word
    return "\n".join(line.rstrip() for line in made)


def darker(colour: str) -> str:
    """The colour for text, which needs more contrast than a line: mixed with black.

    >>> darker("#56B4E9")
    '#356f90'
    """
    return "#" + "".join(f"{int(0.62 * int(colour[i : i + 2], 16)):02x}" for i in (1, 3, 5))
