"""Tables as values: cells hold numbers, and each format writes them at the end."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

Value = float | str | Decimal | None


@dataclass(frozen=True)
class Cell:
    """One entry of a table: a value, and how people read it.

    >>> Cell(rounded(1.5, 4), suffix=" *").shown, Cell(0.12345, ".3g").shown
    ('1.5000 *', '0.123')
    """

    value: Value = None
    """What programs read. None for nothing; a Decimal is written with all of its digits."""

    format: str = ""
    """How a number is formatted for people, such as ".3g"."""

    text: str | None = None
    """Shown to people instead of the value, such as "not measured" for None."""

    suffix: str = ""
    """Shown to people after the value: its interval, its standard deviation, a mark."""

    bold: bool = False
    """Higher than Gaussian training at the same sigma."""

    underlined: bool = False
    """Higher than the best baseline at the same sigma."""

    @property
    def shown(self) -> str:
        """The cell as people read it."""
        # An empty text is a text, too: it hides the value from people.
        if self.text is not None:
            return self.text
        if self.value is None:
            return ""
        return f"{self.value:{self.format}}{self.suffix}"

    @property
    def number(self) -> float | Decimal | None:
        """The value, if it is a number."""
        if isinstance(self.value, str):
            return None
        return self.value


def rounded(value: float, digits: int) -> Decimal:
    """The number with a fixed number of digits after the point, zeros at the end included.

    >>> str(rounded(1.49996, 4)), str(rounded(-0.001, 1))
    ('1.5000', '0.0')
    """
    # "z" turns -0.0 into 0.0: a difference that vanishes in print has no sign.
    return Decimal(f"{value:z.{digits}f}")


@dataclass(frozen=True, kw_only=True)
class Column:
    """The heading of a column."""

    name: str
    """The heading for people."""

    key: str
    """The name for programs, in CSV and JSON."""

    judged: bool = False
    """Whether higher numbers are better, so that cells which beat a baseline are marked."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row of a table, with what decides which other rows it competes with."""

    cells: tuple[Cell, ...]

    method: str = ""
    """Name of the training method."""

    sigma: float | None = None
    """Rows of one sigma stand together and are compared with one another."""

    data: str = ""
    """The data set behind the numbers. Rows of different data sets are not compared."""

    group: int = 0
    """Rows of different groups were certified differently and are not compared either."""


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A table: the same numbers in every format."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()

    legend: str = ""
    """What bold and underlined mean, for the formats that have them."""

    @property
    def names(self) -> list[str]:
        """The headings of all columns."""
        return [column.name for column in self.columns]

    @property
    def keys(self) -> list[str]:
        """The names of all columns for programs."""
        return [column.key for column in self.columns]

    def holds_words(self, position: int) -> bool:
        """Whether a column holds words rather than numbers, and so is aligned to the left."""
        has_word = False
        for row in self.rows:
            cell = row.cells[position]
            # One number makes it a column of numbers, whatever stands in for missing ones.
            if cell.number is not None:
                return False
            has_word = has_word or isinstance(cell.value, str)
        return has_word

    @property
    def notes_and_legend(self) -> tuple[str, ...]:
        """The notes for formats with bold and underlined cells."""
        if not self.legend:
            return self.notes
        return (*self.notes, self.legend)


def radius_text(value: float) -> str:
    """A radius as the heading of a column: two digits after the point unless it has more.

    >>> radius_text(0.5), radius_text(0.125)
    ('0.50', '0.125')
    """
    # As the paper prints its radii: 0.50, not 0.5.
    if round(value, 2) == value:
        return f"{value:.2f}"
    return f"{value:g}"
