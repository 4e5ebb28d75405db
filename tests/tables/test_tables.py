"""Tables as data, and in every format."""

from __future__ import annotations

import csv
import io
import json
from decimal import Decimal

from smoothmix.tables import (
    Cell,
    Column,
    Grid,
    Row,
    mark_improvements,
    to_csv,
    to_json,
    to_latex,
    to_markdown,
)


def test_tables_mark_what_beats_gaussian_and_what_beats_every_baseline() -> None:
    def line(method: str, acr: str, sigma: float = 0.5, suffix: str = "") -> Row:
        cells = (Cell(method), Cell(Decimal(acr), suffix=suffix))
        return Row(cells=cells, method=method, sigma=sigma)

    columns = (Column(name="model", key="model"), Column(name="ACR", key="acr", judged=True))
    rows = (
        line("gaussian", "1.50"),
        line("smoothadv", "1.60"),
        line("smoothmix", "1.60", suffix=" [1.5, 1.7]"),
        line("smoothmix", "1.61"),
        line("smoothmix", "1.40"),
        line("smoothmix", "9.00", sigma=1.0),
    )
    grid = mark_improvements(Grid(title="t_1", columns=columns, rows=rows, notes=("50 % of it",)))
    marks = [(row.cells[1].bold, row.cells[1].underlined) for row in grid.rows]
    assert marks == [
        (False, False),
        (True, False),
        (True, False),
        (True, True),
        (False, False),
        (False, False),
    ]
    latex = to_latex(grid)
    assert r"smoothmix & \textbf{\underline{1.61}} \\" in latex
    assert latex.count(r"\midrule") == 2
    assert r"\begin{tabular}{lr}" in latex
    assert "| smoothmix | **<u>1.61</u>** |" in to_markdown(grid)
    assert to_csv(grid).splitlines()[:2] == ["model,acr", "gaussian,1.50"]


def test_models_that_are_called_by_numbers_stay_names_and_rows_of_other_data_do_not_compete() -> (
    None
):
    def line(name: str, method: str, acr: str, data: str) -> Row:
        cells = (Cell(name), Cell(Decimal(acr)))
        return Row(cells=cells, method=method, sigma=0.5, data=data)

    columns = (Column(name="model", key="model"), Column(name="ACR", key="acr", judged=True))
    rows = (line("1", "gaussian", "1.50", "mnist"), line("nan", "smoothmix", "9.00", "sample"))
    grid = mark_improvements(Grid(title="t", columns=columns, rows=rows))
    assert not any(cell.bold or cell.underlined for row in grid.rows for cell in row.cells)
    assert json.loads(to_json(grid))["rows"] == [
        {"model": "1", "acr": 1.5},
        {"model": "nan", "acr": 9.0},
    ]
    assert to_csv(grid).splitlines()[1] == "1,1.50"


def test_tables_escape_what_their_formats_would_take_for_commands() -> None:
    grid = Grid(
        title="t",
        columns=(Column(name="a|b", key="k"),),
        rows=(Row(cells=(Cell("50% <b>|_&\n", text="50% <b>|_&"),)),),
    )
    assert r"50\% \textless{}b\textgreater{}|\_\&" in to_latex(grid)
    assert r"| 50% &lt;b>\|_& |" in to_markdown(grid)
    assert next(csv.reader(io.StringIO(to_csv(grid).split("\n", 1)[1]))) == ["50% <b>|_&\n"]


def test_names_of_one_letter_are_words_and_whole_numbers_stay_whole() -> None:
    columns = (Column(name="model", key="model"), Column(name="images", key="images"))
    grid = Grid(
        title="t",
        columns=columns,
        rows=(Row(cells=(Cell("G"), Cell(500))),),
    )
    assert r"\begin{tabular}{lr}" in to_latex(grid)
    assert '"images": 500\n' in to_json(grid)
