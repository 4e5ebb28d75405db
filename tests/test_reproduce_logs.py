"""The paper's tables from its published logs: which file is which row, the numbers, the verdicts, every format."""

from __future__ import annotations

import csv
import gzip
import lzma
import subprocess
import sys
import tarfile
from math import sqrt
from pathlib import Path

import pytest

from smoothmix import presets
from smoothmix.errors import UsageError
from smoothmix.report.tables import FORMATS
from smoothmix.reproduce.logs import find_logs, from_logs
from smoothmix.reproduce.table import Reproduced, paper_radii, reproduction_grid

from conftest import SHARED

GAUSSIAN = "mnist/cohen"
ONE_STEP = "mnist/smoothmix/smix_1.0_8_m1/tau_5.0/num_4"

# A place for every row at sigma 1.00, spelled as in the release.
PLACES = {
    "mnist/1.00/gaussian": "mnist/cohen/noise_1.00_{}",
    "mnist/1.00/stability": "mnist/stab/lbd_2/noise_1.0_{}",
    "mnist/1.00/smoothadv": "mnist/salman/pgd_255.0_10_10/num_4/noise_1.00_{}",
    "mnist/1.00/macer": "mnist/macer_deferred30/num_16/lbd_6.0/gamma_8.0/beta_16.0/noise_1.00_{}",
    "mnist/1.00/consistency": "mnist/consistency/cohen/num_2/lbd_5.0/eta_0.5/noise_1.00_{}",
    "mnist/1.00/smoothmix-eta1": "mnist/smoothmix/smix_1.0_8_m0/tau_1.0/num_4/{}/noise_1.0",
    "mnist/1.00/smoothmix-eta1-onestep": "mnist/smoothmix/smix_1.0_8_m1/tau_1.0/num_4/{}/noise_1.0",
    "mnist/1.00/smoothmix-eta5": "mnist/smoothmix/smix_1.0_8_m0/tau_5.0/num_4/{}/noise_1.0",
    "mnist/1.00/smoothmix-eta5-onestep": "mnist/smoothmix/smix_1.0_8_m1/tau_5.0/num_4/{}/noise_1.0",
}

ABLATIONS = {
    "ablation/eta/16": "ablation/eta/smix_1.0_8_m0/tau_16.0/num_4/11/noise_1.0",
    "ablation/steps/1": "ablation/alphat/smix_8.0_1_m0/tau_1.0/num_4/10/noise_1.0",
    "ablation/steps/8": "ablation/alphat/smix_1.0_8_m0/tau_1.0/num_4/10/noise_1.0",
    "ablation/limit/2": "ablation/restriction/smix_1.0_8_m0_max2.0/tau_1.0/num_4/12/noise_1.0",
    "ablation/limit/none": "ablation/restriction/smix_1.0_8_m0/tau_1.0/num_4/10/noise_1.0",
    "ablation/copies/1": "ablation/m/smix_1.0_8_m0/tau_1.0/num_1/9/noise_1.0",
}


def log_text(*radii: float) -> str:
    """A log: one right image for each radius, then a wrong one with a radius of 2 and one without an answer."""
    right = [(3, radius) for radius in radii]
    rows = [(3, predict, radius) for predict, radius in (*right, (5, 2.0), (-1, 0.0))]
    lines = [f"{i}\t{y}\t{p}\t{r:.3}\t{int(p == y)}\t0:00:00.3" for i, (y, p, r) in enumerate(rows)]
    return "\n".join(["idx\tlabel\tpredict\tradius\tcorrect\ttime", *lines]) + "\n"


def write_log(folder: Path, path: str, *radii: float) -> Path:
    """Such a log below a folder, packed as its name says."""
    file, data = folder / path, log_text(*radii).encode()
    file.parent.mkdir(parents=True, exist_ok=True)
    packers = {".gz": gzip.compress, ".xz": lzma.compress}
    file.write_bytes(packers[file.suffix](data) if file.suffix in packers else data)
    return file


def csv_rows(rows: list[Reproduced], radii: list[float] | None = None) -> list[dict[str, str]]:
    """The table as a program reads it."""
    grid = reproduction_grid(rows, title="made", radii=radii, wide=True)
    return list(csv.DictReader(FORMATS["csv"](grid).splitlines()))


def two_seeds(folder: Path) -> Path:
    """Gaussian and SmoothMix with two seeds each.

    Gaussian: of four images two are right, (1.5 + 0.5)/4 = 0.5 and (1.7 + 0.7)/4 = 0.6, so 0.55 with a deviation of
    0.1/sqrt(2); at 0.50, both right images count, so 50 % in both. Their lower ends are 1.495 + 0.4995 and
    1.695 + 0.6995: 0.498625 and 0.598625; at 0.50 one image of the first falls out: 25 % and 50 %.
    """
    write_log(folder, f"{GAUSSIAN}/noise_1.00_11", 1.5, 0.5)
    write_log(folder, f"{GAUSSIAN}/noise_1.00_12", 1.7, 0.7)
    write_log(folder, f"{ONE_STEP}/21/noise_1.0", 1.9, 0.5)
    write_log(folder, f"{ONE_STEP}/22/noise_1.0", 1.9, 0.5)
    return folder


ROWS = ["mnist/1.00/gaussian", "mnist/1.00/smoothmix-eta5-onestep"]


# Numbers


def test_means_and_deviations_as_in_the_paper(tmp_path: Path) -> None:
    gaussian, ours = csv_rows(from_logs(two_seeds(tmp_path), ROWS, paper_rounding=True), [0.0, 0.5, 1.6])
    assert (gaussian["row"], gaussian["sigma"], gaussian["seeds"]) == ("gaussian", "1.00", "2")
    assert (gaussian["acr"], gaussian["acr_deviation"]) == ("0.5500", f"{0.1 / sqrt(2):.4f}")
    assert (gaussian["published_acr"], gaussian["published_deviation"]) == ("1.6184", "0.0021")
    assert gaussian["difference_in_deviations"] == ""  # of four images it would say nothing about seeds
    assert (gaussian["accuracy_0.00"], gaussian["accuracy_0.00_deviation"]) == ("50.00", "0.00")
    assert (gaussian["accuracy_0.50"], gaussian["accuracy_0.50_deviation"]) == ("50.00", "0.00")
    assert (gaussian["accuracy_1.60"], gaussian["accuracy_1.60_deviation"]) == ("12.50", f"{25 / sqrt(2):.2f}")
    assert (ours["acr"], ours["acr_deviation"]) == ("0.6000", "0.0000")


def test_without_paper_rounding_radii_count_as_the_lower_end(tmp_path: Path) -> None:
    folder = two_seeds(tmp_path)
    (gaussian, _), (rounded, _) = (
        csv_rows(from_logs(folder, ROWS, paper_rounding=rounding), [0.5]) for rounding in (False, True)
    )
    assert gaussian["acr"] == f"{(0.498625 + 0.598625) / 2:.4f}"
    assert (gaussian["accuracy_0.50"], gaussian["accuracy_0.50_deviation"]) == ("37.50", f"{25 / sqrt(2):.2f}")
    # What is compared with the paper is rounded as there, whatever is shown.
    for key in ("difference_in_deviations", "verdict"):
        assert gaussian[key] == rounded[key]


def test_a_single_run_has_no_deviation_and_a_missing_row_dashes(tmp_path: Path) -> None:
    write_log(tmp_path, f"{GAUSSIAN}/noise_1.00_11", 1.5, 0.5)
    rows = from_logs(tmp_path, [*ROWS, "cifar10/1.00/gaussian"], paper_rounding=True)
    gaussian, missing, elsewhere = csv_rows(rows, [0.5])
    assert (gaussian["seeds"], gaussian["acr"], gaussian["acr_deviation"]) == ("1", "0.5000", "")
    for row in (missing, elsewhere):
        assert (row["seeds"], row["acr"], row["accuracy_0.50"], row["verdict"]) == ("0", "", "", "no run")
    grid = reproduction_grid(rows, title="made", radii=[0.5])
    assert [cell.text for cell in grid.lines[1].cells][2:] == ["0", "–", "1.8212 ± 0.0013", "–", "no run", "–"]


def test_reading_tells_how_far_it_is(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    from_logs(two_seeds(tmp_path), ROWS[:1], paper_rounding=True, track=lambda done, total: told.append((done, total)))
    assert told == [(1, 2), (2, 2)]


# Which file is which row


def test_every_row_of_a_sigma_finds_its_logs(tmp_path: Path) -> None:
    for path in PLACES.values():
        write_log(tmp_path, path.format(23), 1.0)
    for path in ABLATIONS.values():
        write_log(tmp_path, path, 1.0)
    found = find_logs(tmp_path)
    assert found.others == 0
    paths = {name: [str(path.relative_to(tmp_path)) for path in logs.seeds] for name, logs in found.rows.items()}
    assert paths == {name: [path.format(23)] for name, path in PLACES.items()} | {n: [p] for n, p in ABLATIONS.items()}
    assert PLACES.keys() == set(presets.names("mnist", sigma=1.0))


def test_rows_of_one_table_only_and_the_table_itself_as_the_folder(tmp_path: Path) -> None:
    two_seeds(tmp_path)
    write_log(tmp_path, ABLATIONS["ablation/eta/16"], 1.0)
    assert find_logs(tmp_path / "mnist").rows.keys() == set(ROWS)
    assert find_logs(tmp_path / "ablation").rows.keys() == {"ablation/eta/16"}
    (tmp_path / "mnist").rename(tmp_path / "downloaded")
    assert find_logs(tmp_path / "downloaded").rows.keys() == set(ROWS)


@pytest.mark.parametrize("name", ["noise_0.50_1", "noise_0.5_1", "noise_0.5_1.gz", "noise_0.50_1.xz"])
def test_sigma_is_spelled_either_way_and_logs_may_be_packed(tmp_path: Path, name: str) -> None:
    write_log(tmp_path, f"{GAUSSIAN}/{name}", 1.5, 0.5)
    (row,) = csv_rows(from_logs(tmp_path, ["mnist/0.50/gaussian"], paper_rounding=True))
    assert (row["sigma"], row["seeds"], row["acr"]) == ("0.50", "1", "0.5000")


def test_sigma_025_with_eta_1_is_of_three_steps(tmp_path: Path) -> None:
    place = "mnist/smoothmix/smix_1.0_{}_m0/tau_{}/num_4/21/noise_0.25"
    for steps, eta in ((2, "1.0"), (3, "1.0"), (2, "5.0"), (3, "5.0")):
        write_log(tmp_path, place.format(steps, eta), 1.0)
    found = find_logs(tmp_path)
    paths = {name: [str(path.relative_to(tmp_path)) for path in logs.seeds] for name, logs in found.rows.items()}
    assert paths == {
        "mnist/0.25/smoothmix-eta1": [place.format(3, "1.0")],
        "mnist/0.25/smoothmix-eta5": [place.format(2, "5.0")],
    }
    assert found.others == 2


def test_smoothmix_seed_0_is_the_main_tables_run(tmp_path: Path) -> None:
    write_log(two_seeds(tmp_path), f"{ONE_STEP}/0/noise_1.0", 2.0, 0.8)
    rows = from_logs(tmp_path, ROWS, paper_rounding=True)
    assert [row.called for row in rows] == [
        "1.00/gaussian",
        "1.00/smoothmix-eta5-onestep",
        "1.00/smoothmix-eta5-onestep (main table)",
    ]
    _, seeds, main = csv_rows(rows)
    assert (seeds["seeds"], seeds["acr"], seeds["published_acr"]) == ("2", "0.6000", "1.8212")
    assert (main["seeds"], main["acr"], main["published_acr"]) == ("1", "0.7000", "1.823")
    grid = reproduction_grid(rows, title="made")
    assert [cell.bold for cell in (line.cells[3] for line in grid.lines)] == [False, True, False]
    assert any("three digits: 0.0005 of a difference" in note for note in grid.notes)
    assert paper_radii(rows[:2]) == [0.0, 0.5, 1.0, 1.5, 2.0, 2.5]
    assert paper_radii(rows) == [0.25 * i for i in range(12)]


def test_consistency_is_averaged_over_seeds_1_to_5_and_the_sixth_is_told(tmp_path: Path) -> None:
    for seed in range(6):
        write_log(tmp_path, PLACES["mnist/1.00/consistency"].format(seed), 1.0 + seed / 10)
    (row,) = from_logs(tmp_path, ["mnist/1.00/consistency"], paper_rounding=True)
    assert [run.path.name[-1] for run in row.runs] == list("12345")
    (said,) = [note for note in reproduction_grid([row], title="made").notes if "averaged" in note]
    assert "seeds 1-5" in said
    assert "seed 0 is left out" in said


def test_other_files_are_counted(tmp_path: Path) -> None:
    write_log(two_seeds(tmp_path), "mnist/consistency/cohen/num_8/lbd_5.0/eta_0.5/noise_1.00_0", 1.0)
    (tmp_path / "mnist" / "read.me").write_text("hello")
    rows = from_logs(tmp_path, ROWS, paper_rounding=True)
    assert f"2 files in {tmp_path} belong to no row and are left out" in reproduction_grid(rows, title="made").notes


def test_what_is_no_such_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no such folder"):
        find_logs(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="is a file; unpack it first"):
        find_logs(write_log(tmp_path, "other/noise_1.00_1", 1.0))
    with pytest.raises(
        UsageError, match="holds no log of a row of the paper; expected mnist/cohen/noise_<sigma>_<seed>"
    ):
        find_logs(tmp_path)


def test_two_logs_of_one_seed_are_refused(tmp_path: Path) -> None:
    write_log(two_seeds(tmp_path), f"{GAUSSIAN}/noise_1.0_11.gz", 1.5)
    with pytest.raises(UsageError, match=r"are logs of one seed of mnist/1\.00/gaussian"):
        find_logs(tmp_path)


# The table


def test_markdown_combines_deviations_and_marks_what_beats_gaussian(tmp_path: Path) -> None:
    grid = reproduction_grid(from_logs(two_seeds(tmp_path), ROWS, paper_rounding=True), title="MNIST", radii=[0.5, 1.6])
    text = FORMATS["md"](grid)
    assert text.startswith(
        "**MNIST**\n\n"
        "| row | σ | seeds | ACR | published ACR | difference in deviations | verdict | 0.50 | 1.60 |\n"
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n"
        "| gaussian | 1.00 | 2 | 0.5500 ± 0.0707 | 1.6184 ± 0.0021 | – | "
    )
    assert "| **<u>0.6000 ± 0.0000</u>** | 1.8212 ± 0.0013 |" in text
    assert "| 50.00 ± 0.00 | **<u>25.00 ± 0.00</u>** |\n" in text
    assert "- cut: 4 of 10,000 images\n" in text
    assert "- deviations over seeds have n - 1 in the denominator\n" in text
    assert "- radii are rounded to nearest at three digits, as in the paper's logs, which is not sound\n" in text


def test_latex_is_as_in_the_paper(tmp_path: Path) -> None:
    grid = reproduction_grid(from_logs(two_seeds(tmp_path), ROWS, paper_rounding=True), title="MNIST", radii=[0.5])
    text = FORMATS["latex"](grid)
    assert r"gaussian & 1.00 & 2 & 0.5500 $\pm$ 0.0707 & 1.6184 $\pm$ 0.0021 & " in text
    assert r"\textbf{\underline{0.6000 $\pm$ 0.0000}}" in text
    assert text.rstrip().endswith("\\bottomrule\n\\end{tabular}")


def test_csv_has_a_column_for_every_number(tmp_path: Path) -> None:
    rows = from_logs(two_seeds(tmp_path), ROWS, paper_rounding=True)
    head, *_ = FORMATS["csv"](reproduction_grid(rows, title="made", radii=[0.0, 0.125], wide=True)).splitlines()
    assert head == (
        "row,sigma,seeds,acr,acr_deviation,published_acr,published_deviation,difference_in_deviations,verdict,"
        "accuracy_0.00,accuracy_0.00_deviation,accuracy_0.125,accuracy_0.125_deviation"
    )


def test_files_that_differ_are_named(tmp_path: Path) -> None:
    write_log(two_seeds(tmp_path), PLACES["mnist/1.00/stability"].format(1), 1.0)
    rows = from_logs(tmp_path, [*ROWS, "mnist/1.00/stability"], paper_rounding=True)
    (said,) = [note for note in reproduction_grid(rows, title="made").notes if "not the same images" in note]
    assert "1.00/gaussian: 4" in said
    assert "1.00/stability: 3" in said


def test_seeds_on_other_images_are_not_averaged(tmp_path: Path) -> None:
    write_log(two_seeds(tmp_path), f"{GAUSSIAN}/noise_1.00_13", 1.5)
    with pytest.raises(UsageError, match="cannot be averaged over seeds: not the same images"):
        reproduction_grid(from_logs(tmp_path, ROWS, paper_rounding=True), title="made")


def test_no_torch_is_needed() -> None:
    code = "import smoothmix.reproduce.logs, sys; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


# The published logs themselves


@pytest.mark.shared
def test_the_published_logs_give_the_published_numbers(tmp_path: Path) -> None:
    wanted = ("mnist/cohen/noise_1.00_", f"{ONE_STEP}/0/noise_1.0")
    with tarfile.open(SHARED / "reference" / "mnist-logs.tar.xz") as archive:
        members = [member for member in archive if member.name.removeprefix("./").startswith(wanted)]
        archive.extractall(tmp_path, members, filter="data")
    gaussian, ours = csv_rows(from_logs(tmp_path, ROWS, paper_rounding=True), [0.0, 0.5, 1.0])
    assert (gaussian["seeds"], gaussian["acr"], gaussian["acr_deviation"]) == ("5", "1.6184", "0.0021")
    assert (gaussian["difference_in_deviations"], gaussian["verdict"]) == ("+0.0", "agrees")
    assert (gaussian["accuracy_0.00"], gaussian["accuracy_0.50"], gaussian["accuracy_1.00"]) == (
        "96.34",
        "91.39",
        "79.86",
    )
    assert (ours["seeds"], ours["acr"], ours["verdict"]) == ("1", "1.8230", "agrees")
    assert [f"{float(ours[f'accuracy_{r}']):.1f}" for r in ("0.00", "0.50", "1.00")] == ["93.3", "87.5", "77.5"]
    # Without the paper's rounding every number may only be less.
    for row, rounded in zip(csv_rows(from_logs(tmp_path, ROWS, paper_rounding=False)), (gaussian, ours), strict=True):
        assert float(row["acr"]) < float(rounded["acr"])
