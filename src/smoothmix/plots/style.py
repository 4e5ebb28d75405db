"""What all figures share: fonts, colours, panels per noise level, wrapped names, a legend below."""

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
"""Resolution of png files; text is measured at it too, so that all formats have one layout."""

INK = "#262626"
"""Colour of axes and text."""

FAINT = "#757575"
"""Colour of what must not compete with the curves."""

SMALL = 6.5
"""Font size of remarks inside a panel, in points."""

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

# The palette of Okabe and Ito (2008) without yellow, which is lost on paper. Seven colours and four
# dash patterns have no common divisor: neighbours differ in both, and 28 runs in at least one.
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
    """A function that draws in our style, whatever style the caller has set."""

    @wraps(draw)
    def drawn(every: Sequence[Measured], /, *args: P.args, **options: P.kwargs) -> Figure:
        require(len(every) > 0, "a figure needs at least one run")
        with our_style():
            return draw(every, *args, **options)

    return drawn


@contextmanager
def our_style() -> Iterator[None]:
    """Our matplotlib settings within a block; the caller's are restored after it."""
    try:
        from matplotlib import style
    except ImportError as error:
        raise UsageError("figures need matplotlib: pip install matplotlib") from error
    with style.context(["default", dict(STYLE)]):
        yield


class Named(Protocol):
    """Anything with a name for tables and legends."""

    @property
    def name(self) -> str:
        """The name."""


def looks(every: Sequence[Named]) -> dict[str, Look]:
    """How each run is drawn, by its name: runs of one name at several noise levels look alike."""
    found: dict[str, Look] = {}
    for run in every:
        if run.name in found:
            continue
        number = len(found)
        dash = number % len(DASHES)
        found[run.name] = Look(COLOURS[number % len(COLOURS)], DASHES[dash], MARKERS[dash])
    return found


def by_sigma(every: Sequence[Measured]) -> dict[float | None, list[Measured]]:
    """The runs of each noise level, from low to high; runs without a recorded level come last."""
    groups: dict[float | None, list[Measured]] = {}
    for m in every:
        groups.setdefault(m.sigma, []).append(m)
    # False sorts before True, and the second key is compared among known levels only.
    order = sorted(groups, key=lambda sigma: (sigma is None, sigma or 0.0))
    return {sigma: groups[sigma] for sigma in order}


def panel_title(sigma: float | None, runs: Sequence[Measured]) -> str:
    """The noise level, and the number of images behind the numbers."""
    sizes = [len(m) for m in runs]
    fewest = min(sizes)
    most = max(sizes)
    images = counted(most, "image")
    if fewest != most:
        images = f"{fewest:,} to {most:,} images"
    return f"{sigma_text(sigma)}  ({images})"


def sigma_text(sigma: float | None) -> str:
    """The noise level in words."""
    if sigma is None:
        return "σ not recorded"
    return f"σ = {sigma:g}"


MOST_RUNS_IN_A_COLUMN = 8
"""The legend of more runs needs the full width."""

LEAST_PANEL_WIDTH = 2.2
"""Inches that a panel needs to stay readable."""


def panels(
    count: int, *, runs: int, width: float | None = None, height: float = 1.95, share_y: bool = True
) -> tuple[Figure, list[Axes]]:
    """A figure with `count` panels, as many per row as stay readable.

    Without a width it is one column wide if one panel and the legend of so many runs fit into that.
    """
    # matplotlib is an optional extra and takes a second to import.
    from matplotlib.figure import Figure

    if width is None:
        width = FULL_WIDTH
        if count == 1 and runs <= MOST_RUNS_IN_A_COLUMN:
            width = COLUMN_WIDTH
    columns = min(count, 3, max(1, int(width / LEAST_PANEL_WIDTH)))
    rows = math.ceil(count / columns)
    # Wide panels grow taller, or curves would look flatter than they are.
    height = max(height, 0.4 * width / columns)
    figure = Figure(figsize=(width, rows * height), dpi=DPI, layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, sharey=share_y).ravel().tolist()
    for unused in grid[count:]:
        unused.remove()
    return figure, grid[:count]


def leftmost(ax: Axes) -> bool:
    """Whether a panel is the first of its row, where the label of a common axis belongs."""
    spec = ax.get_subplotspec()
    return spec is None or spec.is_first_col()


def label_leftmost(ax: Axes, label: str, **options: Any) -> None:
    """Label the vertical axis if the panel is the first of its row."""
    if leftmost(ax):
        ax.set_ylabel(label, **options)


def percent_axis(ax: Axes) -> None:
    """Set the vertical axis to 0 to 100 %."""
    # A little above 100: a curve along the top would be cut in half.
    ax.set_ylim(0, 102)
    ax.set_yticks(range(0, 101, 20))


def legend_below(
    figure: Figure,
    entries: Mapping[str, Artist],
    order: Iterable[str],
    remarks: Mapping[str, str] | None = None,
) -> None:
    """Add a legend of names and remarks under the panels; the figure grows by its height."""
    names = [name for name in order if name in entries]
    if not names:
        return
    labels = []
    for name in names:
        remark = (remarks or {}).get(name, "")
        labels.append(fitted(name) + remark)
    width, height = figure.get_size_inches()
    # Text has no width before it is drawn: try fewer and fewer columns until the legend fits.
    for columns in range(min(len(names), 5), 0, -1):
        rows = math.ceil(len(names) / columns)
        legend = figure.legend(
            [entries[name] for name in names],
            labels,
            loc="outside lower center",
            ncols=math.ceil(len(names) / rows),
        )
        box = legend.get_window_extent()
        if box.width <= width * figure.dpi or columns == 1:
            break
        legend.remove()
    figure.set_size_inches(width, height + box.height / figure.dpi)


def settle(figure: Figure) -> Figure:
    """The figure with its layout fixed: drawing it again, or in another format, moves nothing."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    return figure


def fitted(name: str, *, width: int = 30, lines: int = 3) -> str:
    """The name wrapped at the ends of words; a very long one is shortened in the middle.

    >>> fitted("mnist-1.00-smoothmix-eta5-onestep", width=20)
    'mnist-1.00-\\nsmoothmix-eta5-\\nonestep'
    """
    name = " ".join(name.split())
    most = width * lines
    if len(name) > most:
        half = most // 2
        name = f"{name[: half - 1]}…{name[len(name) - half :]}"
    wrapped = [""]
    # A word keeps the separator after it, so that hyphens and slashes stay at the ends of lines.
    for word in re.findall(rf"[^\s_/-]{{1,{width - 1}}}[\s_/-]?|[\s_/-]", name):
        longer = wrapped[-1] + word
        if len(longer.rstrip()) > width:
            wrapped.append(word)
        else:
            wrapped[-1] = longer
    return "\n".join(line.rstrip() for line in wrapped)


def darker(colour: str) -> str:
    """The colour for text, which needs more contrast than a line: mixed with black.

    >>> darker("#56B4E9")
    '#356f90'
    """
    darkened = "#"
    for start in (1, 3, 5):
        channel = int(colour[start : start + 2], 16)
        darkened += f"{int(0.62 * channel):02x}"
    return darkened
