"""The table for papers: a block per sigma, marks within it, and compiled where TeX is installed."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from smoothmix.analysis import Source, measure
from smoothmix.report import Choices, Comparison, compare_runs, paper_grid
from smoothmix.tables import Cell, Column, Grid, Row, rounded, to_latex
from tests.helpers.certificates import cohen_log, our_file


def spread(radius: float, images: int) -> list[object]:
    return [round(radius + i / 1000, 3) for i in range(images)]


USUAL_RADII = (0.0, 0.5, 1.0, 2.0)


def two_sigmas(folder: Path, radii: tuple[float, ...] = USUAL_RADII) -> Comparison:
    """Three methods at two sigmas, and a log with fewer images that is the best of all."""
    every = []
    for sigma in (1.0, 0.25):
        for name, method, share in (
            ("Gaussian", "gaussian", 0.5),
            ("Smooth_Adv", "smoothadv", 1.0),
            ("SmoothMix", "smoothmix", 2.0),
        ):
            path = cohen_log(folder / name / f"noise_{sigma}", spread(share * sigma, 30))
            every.append(measure(Source(path=str(path), name=name, method=method)))
    few = cohen_log(folder / "few" / "noise_1.0", spread(2.5, 20))
    every.append(measure(Source(path=str(few), name="few images")))
    return compare_runs(every, Choices(radii=radii), title="a table")


def body(latex: str) -> list[str]:
    return [line for line in latex.splitlines() if not line.startswith("%")]


def both(number: str) -> str:
    """The best of its block, and above every baseline."""
    return rf"\textbf{{\underline{{{number}}}}}"


def test_the_layout_is_the_papers(tmp_path: Path) -> None:
    best = r"\textbf{100.0}"
    lines = body(to_latex(paper_grid(two_sigmas(tmp_path))))
    assert lines == [
        r"\begin{tabular}{llrrrrr}",
        r"\toprule",
        r"$\sigma$ & Method & ACR & 0.00 & 0.50 & 1.00 & 2.00 \\",
        r"\midrule",
        # Nobody reaches 1.00 with the small sigma.
        r"0.25 & Gaussian & 0.139 & \textbf{100.0} & 0.0 &  &  \\",
        r" & Smooth\_Adv & 0.264 & \textbf{100.0} & 0.0 &  &  \\",
        rf" & SmoothMix & {both('0.514')} & \textbf{{100.0}} & {both('96.7')} &  &  \\",
        r"\midrule",
        r"1.00 & Gaussian & 0.514 & \textbf{100.0} & 96.7 & 0.0 & 0.0 \\",
        r" & Smooth\_Adv & 1.014 & \textbf{100.0} & \textbf{100.0} & 96.7 & 0.0 \\",
        rf" & SmoothMix & {both('2.014')} & {best} & {best} & {both('100.0')} & {both('96.7')} \\",
        # Fewer images: it competes with nobody.
        r" & few images & 2.509 & 100.0 & 100.0 & 100.0 & 100.0 \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]


def test_what_n_cannot_reach_is_a_dash_and_no_zero(tmp_path: Path) -> None:
    few = measure(our_file(tmp_path / "few" / "certificates.tsv", [1000] * 30))
    many = measure(f"many@0.5={cohen_log(tmp_path / 'many', [1.5] * 30)}")
    assert few.largest_radius is not None
    assert few.largest_radius < 1.4
    comparison = compare_runs([few, many], Choices(radii=(0.0, 1.4, 2.0)), title="t")
    rows = [[cell.shown for cell in row.cells[3:]] for row in paper_grid(comparison).rows]
    # Nobody has 2.0: blank, as in the paper.
    assert rows == [["100.0", "–", ""], ["100.0", "100.0", ""]]


def test_the_legend_says_what_the_marks_mean(tmp_path: Path) -> None:
    grid = paper_grid(two_sigmas(tmp_path))
    assert grid.legend == (
        "bold: the best at the same sigma among rows that were certified alike; "
        "underlined: above every method that is not SmoothMix"
    )
    alone = compare_runs(
        [measure(f"a@1={cohen_log(tmp_path / 'a', spread(1.0, 20))}")], Choices(), title="one"
    )
    assert paper_grid(alone).legend == ""


def test_negative_numbers_have_minus_signs_and_names_keep_their_hyphens() -> None:
    columns = (Column(name="model", key="model"), Column(name="x-y", key="x"))
    cells = (Cell("a-b"), Cell(rounded(-0.5, 1), suffix=" [-0.7, 0.1]"))
    latex = to_latex(Grid(title="t", columns=columns, rows=(Row(cells=cells),)))
    assert r"a-b & $-$0.5 [$-$0.7, 0.1] \\" in latex
    assert "x-y" in latex


@pytest.mark.parametrize(
    ("characters", "size"),
    [
        (10, ""),
        (68, r"\small"),
        (75, r"\footnotesize"),
        (80, r"\footnotesize\setlength{\tabcolsep}{2pt}"),
        (85, r"\scriptsize\setlength{\tabcolsep}{2pt}"),
        (300, r"\scriptsize\setlength{\tabcolsep}{2pt}"),
    ],
)
def test_wide_tables_get_smaller_type(characters: int, size: str) -> None:
    columns = (Column(name="model", key="model"), Column(name="x", key="x"))
    row = Row(cells=(Cell("m" * characters), Cell(rounded(0.5, 3))))
    latex = to_latex(Grid(title="t", columns=columns, rows=(row,)))
    line, _ = latex[latex.index("needs booktabs\n") + 15 :].split("\n", 1)
    assert line == (size or r"\begin{tabular}{lr}")


DOCUMENT = r"""\documentclass{article}
\usepackage{booktabs}
\begin{document}
\setbox0=\hbox{%%
%s}
\typeout{width \the\wd0 \space of \the\textwidth}
\noindent\box0
\end{document}
"""


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
@pytest.mark.parametrize("radii", [USUAL_RADII, tuple(number / 4 for number in range(8))])
def test_the_table_compiles_and_fits_the_width_of_a_text(
    tmp_path: Path, radii: tuple[float, ...]
) -> None:
    comparison = two_sigmas(tmp_path, radii)
    if radii != USUAL_RADII:
        # As wide as tables of papers are, with names as long as those of our own runs.
        runs = [replace(run, name=f"mnist-1.00-{run.name}") for run in comparison.runs]
        comparison = replace(comparison, runs=runs)
    table = to_latex(paper_grid(comparison))
    (tmp_path / "table.tex").write_text(DOCUMENT % table)
    done = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "table.tex"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:]
    found = re.search(r"width ([\d.]+)pt of ([\d.]+)pt", done.stdout)
    assert found is not None
    assert float(found[1]) <= float(found[2])
