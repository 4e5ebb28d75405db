"""The paper's published logs: which file is which row."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from smoothmix import presets
from smoothmix.errors import UsageError
from smoothmix.methods.registry import METHODS
from smoothmix.reproduce.logs import find_logs, rows_from_logs
from smoothmix.reproduce.table import paper_radii, reproduction_grid
from tests.conftest import Run
from tests.helpers.logs import GAUSSIAN, ONE_STEP, PLACES, ROWS, csv_rows, two_seeds, write_log

ABLATIONS = {
    "ablation/eta/16": "ablation/eta/smix_1.0_8_m0/tau_16.0/num_4/11/noise_1.0",
    "ablation/steps/1": "ablation/alphat/smix_8.0_1_m0/tau_1.0/num_4/10/noise_1.0",
    "ablation/steps/8": "ablation/alphat/smix_1.0_8_m0/tau_1.0/num_4/10/noise_1.0",
    "ablation/limit/2": "ablation/restriction/smix_1.0_8_m0_max2.0/tau_1.0/num_4/12/noise_1.0",
    "ablation/limit/none": "ablation/restriction/smix_1.0_8_m0/tau_1.0/num_4/10/noise_1.0",
    "ablation/copies/1": "ablation/m/smix_1.0_8_m0/tau_1.0/num_1/9/noise_1.0",
}


def test_every_row_of_a_sigma_finds_its_logs(tmp_path: Path) -> None:
    for path in PLACES.values():
        write_log(tmp_path, path.format(23), 1.0)
    for path in ABLATIONS.values():
        write_log(tmp_path, path, 1.0)
    found = find_logs(tmp_path)
    assert found.others == 0
    paths = {
        name: [str(path.relative_to(tmp_path)) for path in logs.seeds]
        for name, logs in found.rows.items()
    }
    assert paths == {name: [path.format(23)] for name, path in PLACES.items()} | {
        n: [p] for n, p in ABLATIONS.items()
    }
    assert PLACES.keys() == set(presets.names("mnist", sigma=1.0))


ATTACK = "PGD_10steps_multiNoiseSamples/8-multitrain/eps_255"
OTHER_PLACES = {
    # Where the repositories of several papers have them.
    "cifar10/0.25/gaussian": "cifar10/resnet110/noise_0.25/test/sigma_0.25",
    "cifar10/0.50/gaussian": "best_models/cifar10/cohen/resnet110/noise_0.50/test/sigma_0.50",
    "cifar10/0.50/stability": "cifar10/stab/lbd_2.0/noise_0.50",
    "cifar10/0.25/smoothadv": (
        f"best_models/cifar10/ours/cifar10/{ATTACK}/cifar10/resnet110/noise_0.25/test/sigma_0.25"
    ),
    "cifar10/1.00/macer": "cifar10/macer/noise_1.00",
    "cifar10/0.25/consistency": (
        "cifar10/consistency/cohen/num_2/lbd_20.0/eta_0.5/cifar_resnet110/noise_0.25"
    ),
    "cifar10/0.50/smoothmix": "cifar10/smoothmix/noise_0.5",
    "cifar10/0.50/smoothmix-onestep": "cifar10/smoothmix/noise_0.5_adv",
    "imagenet/0.50/gaussian": "imagenet/resnet50/noise_0.50/test/sigma_0.50",
    "imagenet/1.00/consistency": "imagenet/consistency/cohen/num_2/lbd_5.0/eta_0.1/noise_1.00",
}
OF_NO_ROW = (
    # Another network, certified at another sigma than trained with, and other settings.
    "cifar10/cohen/cifar_densenet40/noise_0.50_2341",
    "cifar10/resnet110/noise_0.25/test/sigma_0.50",
    "cifar10/consistency/cohen/num_2/lbd_5.0/eta_0.5/cifar_resnet110/noise_0.25",
    "imagenet/resnet50/noise_0.50/train/sigma_0.50",
    "cifar10/consistency/cohen/num_2/lbd_20.0/eta_0.5/cifar_resnet110/noise_0.25_acc",
)


def test_logs_of_other_data_sets_are_found_in_their_published_layouts(tmp_path: Path) -> None:
    for path in (*OTHER_PLACES.values(), *OF_NO_ROW):
        write_log(tmp_path, f"data/certify/{path}", 1.0)
    found = find_logs(tmp_path)
    paths = {}
    for name, logs in found.rows.items():
        paths[name] = [str(path.relative_to(tmp_path / "data/certify")) for path in logs.seeds]
    assert paths == {name: [path] for name, path in OTHER_PLACES.items()}
    assert found.others == len(OF_NO_ROW)


def test_a_table_of_another_data_set_is_made_from_logs(smoothmix: Run, tmp_path: Path) -> None:
    write_log(tmp_path, OTHER_PLACES["imagenet/0.50/gaussian"], 1.5, 0.5)
    result = smoothmix("reproduce", "imagenet", "--from-logs", tmp_path, "--paper-rounding")
    assert result.code == 0, result.err
    assert "4 of 500 images" in result.out


def test_rows_of_one_table_only_and_the_table_itself_as_the_folder(tmp_path: Path) -> None:
    two_seeds(tmp_path)
    write_log(tmp_path, ABLATIONS["ablation/eta/16"], 1.0)
    assert find_logs(tmp_path / "mnist").rows.keys() == set(ROWS)
    assert find_logs(tmp_path / "ablation").rows.keys() == {"ablation/eta/16"}
    (tmp_path / "mnist").rename(tmp_path / "downloaded")
    assert find_logs(tmp_path / "downloaded").rows.keys() == set(ROWS)


@pytest.mark.parametrize(
    "name", ["noise_0.50_1", "noise_0.5_1", "noise_0.5_1.gz", "noise_0.50_1.xz", "noise_0.5_1.bz2"]
)
def test_sigma_is_spelled_either_way_and_logs_may_be_packed(tmp_path: Path, name: str) -> None:
    write_log(tmp_path, f"{GAUSSIAN}/{name}", 1.5, 0.5)
    (row,) = csv_rows(rows_from_logs(tmp_path, ["mnist/0.50/gaussian"], paper_rounding=True))
    assert (row["sigma"], row["seeds"], row["acr"]) == ("0.50", "1", "0.5000")


def test_sigma_025_with_eta_1_is_of_three_steps(tmp_path: Path) -> None:
    place = "mnist/smoothmix/smix_1.0_{}_m0/tau_{}/num_4/21/noise_0.25"
    for steps, eta in ((2, "1.0"), (3, "1.0"), (2, "5.0"), (3, "5.0")):
        write_log(tmp_path, place.format(steps, eta), 1.0)
    found = find_logs(tmp_path)
    paths = {
        name: [str(path.relative_to(tmp_path)) for path in logs.seeds]
        for name, logs in found.rows.items()
    }
    assert paths == {
        "mnist/0.25/smoothmix-eta1": [place.format(3, "1.0")],
        "mnist/0.25/smoothmix-eta5": [place.format(2, "5.0")],
    }
    assert found.others == 2


def test_smoothmix_seed_0_is_the_main_tables_run(tmp_path: Path) -> None:
    write_log(two_seeds(tmp_path), f"{ONE_STEP}/0/noise_1.0", 2.0, 0.8)
    rows = rows_from_logs(tmp_path, ROWS, paper_rounding=True)
    assert [row.called for row in rows] == [
        "1.00/gaussian",
        "1.00/smoothmix-eta5-onestep",
        "1.00/smoothmix-eta5-onestep (main table)",
    ]
    _, seeds, main = csv_rows(rows)
    assert (seeds["seeds"], seeds["acr"], seeds["published_acr"]) == ("2", "0.6000", "1.8212")
    assert (main["seeds"], main["acr"], main["published_acr"]) == ("1", "0.7000", "1.823")
    grid = reproduction_grid(rows, title="made")
    assert [cell.bold for cell in (line.cells[3] for line in grid.rows)] == [False, True, False]
    assert any("three digits: 0.0005 of a difference" in note for note in grid.notes)
    assert paper_radii(rows[:2]) == [0.0, 0.5, 1.0, 1.5, 2.0, 2.5]
    assert paper_radii(rows) == [0.25 * i for i in range(12)]


def test_consistency_is_averaged_over_seeds_1_to_5_and_the_sixth_is_told(tmp_path: Path) -> None:
    for seed in range(6):
        write_log(tmp_path, PLACES["mnist/1.00/consistency"].format(seed), 1.0 + seed / 10)
    (row,) = rows_from_logs(tmp_path, ["mnist/1.00/consistency"], paper_rounding=True)
    assert [run.path.name[-1] for run in row.runs] == list("12345")
    (said,) = [note for note in reproduction_grid([row], title="made").notes if "averaged" in note]
    assert "seeds 1-5" in said
    assert "seed 0 is left out" in said


def test_other_files_are_counted(tmp_path: Path) -> None:
    write_log(
        two_seeds(tmp_path), "mnist/consistency/cohen/num_8/lbd_5.0/eta_0.5/noise_1.00_0", 1.0
    )
    (tmp_path / "mnist" / "read.me").write_text("hello")
    rows = rows_from_logs(tmp_path, ROWS, paper_rounding=True)
    assert (
        f"2 files in {tmp_path} belong to no row and are left out"
        in reproduction_grid(rows, title="made").notes
    )


def test_what_is_no_such_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no such folder"):
        find_logs(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="is a file; unpack it first"):
        find_logs(write_log(tmp_path, "other/noise_1.00_1", 1.0))
    with pytest.raises(
        UsageError,
        match="holds no log of a row of the paper; expected mnist/cohen/noise_<sigma>_<seed>",
    ):
        find_logs(tmp_path)


def test_two_logs_of_one_seed_are_refused(tmp_path: Path) -> None:
    write_log(two_seeds(tmp_path), f"{GAUSSIAN}/noise_1.0_11.gz", 1.5)
    with pytest.raises(UsageError, match=r"are logs of one seed of mnist/1\.00/gaussian"):
        find_logs(tmp_path)


def test_presets_of_a_method_without_published_logs_are_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = replace(METHODS["macer"], log_folders=None)
    monkeypatch.setitem(METHODS._own, "macer", entry)
    rows = find_logs(two_seeds(tmp_path)).rows
    assert rows.keys() == set(ROWS)
    assert any(
        presets.get(name).config.method["name"] == "macer" for name in presets.names("mnist")
    )
