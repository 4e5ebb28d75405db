"""A leaderboard as one HTML file, with the style and the tables of the report. No torch."""

from __future__ import annotations

from datetime import UTC, datetime

from smoothmix.report.html import fill
from smoothmix.report.leaderboard.board import UNKNOWN, Board, Entry, Ranked, shown_facts
from smoothmix.report.payload import as_json
from smoothmix.version import __version__

SCRIPTS = ("page.js", "table.js", "leaderboard.js")

FILTERS = {
    "data": "Data set",
    "sigma": "σ",
    "method": "Method",
    "network": "Network",
    "draws": "Noise samples",
}
"""The properties that runs are filtered by, with their labels."""


def render_board(board: Board) -> str:
    """The leaderboard as the text of one HTML file that needs nothing else."""
    # Numbers instead of groups, whose digests would fill the page.
    numbers: dict[Ranked, int] = {}
    tables = []
    for number, (group, entries) in enumerate(board.groups.items()):
        numbers[group] = number
        tables.append((group, entries, board.best(entries)))
    rows = []
    for entry in board.entries:
        rows.append((entry, shown_facts(entry), _number_of(entry, numbers)))
    filters = {}
    for name, label in FILTERS.items():
        filters[name] = (label, board.choices(name))
    return fill(
        "leaderboard.html",
        scripts=SCRIPTS,
        board=board,
        rows=rows,
        filters=filters,
        groups=tables,
        # Logs never record their network, and a column of dashes would only take room.
        networks_known=board.choices("network") != [UNKNOWN],
        unranked=sum(entry.group is None for entry in board.entries),
        created=f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, smoothmix {__version__}",
        data=as_json({}),
    )


def _number_of(entry: Entry, numbers: dict[Ranked, int]) -> str:
    """The number of an entry's group, for the script that marks the best; empty for none."""
    if entry.group is None:
        return ""
    return str(numbers[entry.group])
