"""The paper's tables from its published logs: the numbers, and every format."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from math import sqrt
from pathlib import Path

import pytest

from smoothmix._process.progress import Progress
from smoothmix.errors import UsageError
from smoothmix.reproduce.logs import rows_from_logs
from smoothmix.reproduce.table import reproduction_grid
from smoothmix.tables import FORMATS
from tests.conftest import SHARED, Run
from tests.helpers.logs import GAUSSIAN, ONE_STEP, PLACES, ROWS, csv_rows, two_seeds, write_log

# Numbers


def test_means_and_deviations_as_in_the_paper(tmp_path: Path) -> None:
    gaussian, ours = csv_rows(
        rows_from_logs(two_seeds(tmp_path), ROWS, paper_rounding=True), [0.0, 0.5, 1.6]
    )
    assert (gaussian["row"], gaussian["sigma"], gaussian["seeds"]) == ("gaussian", "1.00", "2")
    assert (gaussian["acr"], gaussian["acr_deviation"]) == ("0.5500", f"{0.1 / sqrt(2):.4f}")
    assert (gaussian["published_acr"], gaussian["published_deviation"]) == ("1.6184", "0.0021")
    assert (
        gaussian["difference_in_deviations"] == ""
    )  # of four images it would say nothing about seeds
    assert (gaussian["accuracy_0.00"], gaussian["accuracy_0.00_deviation"]) == ("50.00", "0.00")
    assert (gaussian["accuracy_0.50"], gaussian["accuracy_0.50_deviation"]) == ("50.00", "0.00")
    assert (gaussian["accuracy_1.60"], gaussian["accuracy_1.60_deviation"]) == (
        "12.50",
        f"{25 / sqrt(2):.2f}",
    )
    assert (ours["acr"], ours["acr_deviation"]) == ("0.6000", "0.0000")


def test_without_paper_rounding_radii_count_as_the_lower_end(tmp_path: Path) -> None:
    folder = two_seeds(tmp_path)
    (gaussian, _), (rounded, _) = (
        csv_rows(rows_from_logs(folder, ROWS, paper_rounding=rounding), [0.5])
        for rounding in (False, True)
    )
    assert gaussian["acr"] == f"{(0.498625 + 0.598625) / 2:.4f}"
    assert (gaussian["accuracy_0.50"], gaussian["accuracy_0.50_deviation"]) == (
        "37.50",
        f"{25 / sqrt(2):.2f}",
    )
    # What is compared with the paper is rounded as there, whatever is shown.
    for key in ("difference_in_deviations", "verdict"):
        assert gaussian[key] == rounded[key]


def test_logs_of_other_rows_are_refused(tmp_path: Path, smoothmix: Run) -> None:
    two_seeds(tmp_path / "logs")
    assert smoothmix("reproduce", "mnist", "--from-logs", "logs").code == 0
    refused = smoothmix("reproduce", "cifar10", "--from-logs", "logs")
    assert (refused.code, "logs: holds no log of a row of cifar10" in refused.err) == (2, True)


def test_a_single_run_has_no_deviation_and_a_missing_row_dashes(tmp_path: Path) -> None:
    write_log(tmp_path, f"{GAUSSIAN}/noise_1.00_11", 1.5, 0.5)
    rows = rows_from_logs(tmp_path, [*ROWS, "cifar10/1.00/gaussian"], paper_rounding=True)
    gaussian, missing, elsewhere = csv_rows(rows, [0.5])
    assert (gaussian["seeds"], gaussian["acr"], gaussian["acr_deviation"]) == ("1", "0.5000", "")
    for row in (missing, elsewhere):
        assert (row["seeds"], row["acr"], row["accuracy_0.50"], row["verdict"]) == (
            "0",
            "",
            "",
            "no run",
        )
    grid = reproduction_grid(rows, title="made", radii=[0.5])
    assert [cell.shown for cell in grid.rows[1].cells][2:] == [
        "0",
        "–",
        "1.8212 ± 0.0013",
        "–",
        "no run",
        "–",
    ]


def test_reading_reports_progress(tmp_path: Path) -> None:
    reported: list[Progress] = []
    rows_from_logs(
        two_seeds(tmp_path),
        ROWS[:1],
        paper_rounding=True,
        on_progress=reported.append,
    )
    assert reported == [Progress(1, 2), Progress(2, 2)]


# The table


def test_markdown_combines_deviations_and_marks_what_beats_gaussian(tmp_path: Path) -> None:
    grid = reproduction_grid(
        rows_from_logs(two_seeds(tmp_path), ROWS, paper_rounding=True),
        title="MNIST",
        radii=[0.5, 1.6],
    )
    text = FORMATS["md"](grid)
    assert text.startswith(
        "**MNIST**\n\n"
        "| row | σ | seeds | ACR | published ACR | difference in deviations | verdict "
        "| 0.50 | 1.60 |\n"
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n"
        "| gaussian | 1.00 | 2 | 0.5500 ± 0.0707 | 1.6184 ± 0.0021 | – | "
    )
    assert "| **<u>0.6000 ± 0.0000</u>** | 1.8212 ± 0.0013 |" in text
    assert "| 50.00 ± 0.00 | **<u>25.00 ± 0.00</u>** |\n" in text
    assert "- cut: 4 of 10,000 images\n" in text
    assert "- deviations over seeds have n - 1 in the denominator\n" in text
    assert (
        "- radii are rounded to nearest at three digits, as in the paper's logs, "
        "which is not sound\n" in text
    )


def test_latex_is_as_in_the_paper(tmp_path: Path) -> None:
    grid = reproduction_grid(
        rows_from_logs(two_seeds(tmp_path), ROWS, paper_rounding=True), title="MNIST", radii=[0.5]
    )
    text = FORMATS["latex"](grid)
    assert r"gaussian & 1.00 & 2 & 0.5500 $\pm$ 0.0707 & 1.6184 $\pm$ 0.0021 & " in text
    assert r"\textbf{\underline{0.6000 $\pm$ 0.0000}}" in text
    assert text.rstrip().endswith("\\bottomrule\n\\end{tabular}")


def test_csv_has_a_column_for_every_number(tmp_path: Path) -> None:
    rows = rows_from_logs(two_seeds(tmp_path), ROWS, paper_rounding=True)
    head, *_ = FORMATS["csv"](
        reproduction_grid(rows, title="made", radii=[0.0, 0.125], wide=True)
    ).splitlines()
    assert head == (
        "row,sigma,seeds,acr,acr_deviation,published_acr,published_deviation,"
        "difference_in_deviations,verdict,"
        "accuracy_0.00,accuracy_0.00_deviation,accuracy_0.125,accuracy_0.125_deviation"
    )


def test_files_that_differ_are_named(tmp_path: Path) -> None:
    write_log(two_seeds(tmp_path), PLACES["mnist/1.00/stability"].format(1), 1.0)
    rows = rows_from_logs(tmp_path, [*ROWS, "mnist/1.00/stability"], paper_rounding=True)
    (said,) = [
        note
        for note in reproduction_grid(rows, title="made").notes
        if "not the same images" in note
    ]
    assert "4 (1.00/gaussian, " in said
    assert "3 (1.00/stability); 3 in common" in said


def test_seeds_on_other_images_are_not_averaged(tmp_path: Path) -> None:
    write_log(two_seeds(tmp_path), f"{GAUSSIAN}/noise_1.00_13", 1.5)
    with pytest.raises(UsageError, match="cannot be averaged over seeds: not the same images"):
        reproduction_grid(rows_from_logs(tmp_path, ROWS, paper_rounding=True), title="made")


def test_no_torch_is_needed() -> None:
    code = "import smoothmix.reproduce.logs, sys; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


# The published logs themselves


@pytest.mark.shared
def test_the_published_logs_give_the_published_numbers(tmp_path: Path) -> None:
    wanted = ("mnist/cohen/noise_1.00_", f"{ONE_STEP}/0/noise_1.0")
    with tarfile.open(SHARED / "reference" / "mnist-logs.tar.xz") as archive:
        members = [
            member for member in archive if member.name.removeprefix("./").startswith(wanted)
        ]
        archive.extractall(tmp_path, members, filter="data")
    gaussian, ours = csv_rows(rows_from_logs(tmp_path, ROWS, paper_rounding=True), [0.0, 0.5, 1.0])
    assert (gaussian["seeds"], gaussian["acr"], gaussian["acr_deviation"]) == (
        "5",
        "1.6184",
        "0.0021",
    )
    assert (gaussian["difference_in_deviations"], gaussian["verdict"]) == ("+0.0", "agrees")
    assert (gaussian["accuracy_0.00"], gaussian["accuracy_0.50"], gaussian["accuracy_1.00"]) == (
        "96.34",
        "91.39",
        "79.86",
    )
    assert (ours["seeds"], ours["acr"], ours["verdict"]) == ("1", "1.8230", "agrees")
    assert [f"{float(ours[f'accuracy_{r}']):.1f}" for r in ("0.00", "0.50", "1.00")] == [
        "93.3",
        "87.5",
        "77.5",
    ]
    # Without the paper's rounding every number may only be less.
    for row, rounded in zip(
        csv_rows(rows_from_logs(tmp_path, ROWS, paper_rounding=False)),
        (gaussian, ours),
        strict=True,
    ):
        assert float(row["acr"]) < float(rounded["acr"])
