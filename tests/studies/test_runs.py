"""The studies that are runs of presets, and that of the dimension, through their commands."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from smoothmix.data import MemoryDataset, load
from smoothmix.report.sections import read_sections
from tests.conftest import Run

QUICK = (
    "--epochs",
    "1",
    "--n",
    "200",
    "--max",
    "2",
    "--skip",
    "300",
    "--device",
    "cpu",
    "--format",
    "png",
)


def rows_of(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


def test_seeds_of_a_preset(smoothmix: Run, tmp_path: Path) -> None:
    result = smoothmix("study", "seeds", "quick/gaussian", "--count", "2", *QUICK)
    assert result.code == 0, result.err
    assert "quick/gaussian over 2 seeds" in result.out
    (row,) = rows_of(tmp_path / "studies" / "seeds.csv")
    assert float(row["seconds_an_epoch"]) > 0
    assert row["seeds"] == "2"
    (section,) = read_sections([tmp_path / "studies"])
    assert section.image.startswith("data:image/png;base64,")
    assert "deviation" in section.text


def test_seeds_are_taken_from_a_reproduction_that_skipped_wrong_images(smoothmix: Run) -> None:
    how = (
        "--epochs",
        "1",
        "--n",
        "200",
        "--max",
        "2",
        "--skip",
        "300",
        "--skip-wrong",
        "--device",
        "cpu",
    )
    assert smoothmix("reproduce", "quick", "--rows", "gaussian", "--seeds", "2", *how).code == 0
    result = smoothmix("study", "seeds", "quick/gaussian", "--count", "2", *how)
    assert result.code == 0, result.err
    assert result.err.count("is trained already") == 2


def test_the_dimension_without_gaussian_noise_has_numbers_and_no_figure(
    smoothmix: Run, tmp_path: Path
) -> None:
    result = smoothmix(
        "study", "dimension", "--noises", "laplace", "--dimensions", "10", "--ratios", "0.9"
    )
    assert result.code == 0, result.err
    assert {path.name for path in (tmp_path / "studies").iterdir()} == {
        "dimension.csv",
        "dimension.json",
    }


@pytest.mark.parametrize("study", [("dimension",), ("confidence", "runs/one")])
def test_studies_of_one_process_say_so_under_torchrun(
    smoothmix: Run, monkeypatch: pytest.MonkeyPatch, study: tuple[str, ...]
) -> None:
    for name, value in {
        "RANK": "1",
        "WORLD_SIZE": "2",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "2",
    }.items():
        monkeypatch.setenv(name, value)
    done = smoothmix("study", *study)
    assert (done.code, "start it without torchrun" in done.err) == (2, True)


def test_an_ablation_on_few_images_with_its_costs(smoothmix: Run, tmp_path: Path) -> None:
    train, test = load("sample", "train"), load("sample", "test")
    assert isinstance(train, MemoryDataset)
    assert isinstance(test, MemoryDataset)
    arrays = {
        "x_train": train.pixels[::8],
        "y_train": train.labels[::8],
        "x_test": test.pixels,
        "y_test": test.labels,
    }
    np.savez(tmp_path / "few.npz", **arrays)
    result = smoothmix("study", "ablation", "steps", "--data", "npz:few.npz", *QUICK)
    assert result.code == 0, result.err
    rows = rows_of(tmp_path / "studies" / "ablation.csv")
    assert [row["row"] for row in rows] == ["gaussian", "steps/1", "steps/2", "steps/4", "steps/8"]
    costs = [float(row["seconds_an_epoch"]) for row in rows]
    assert costs[0] < costs[1] < costs[-1]  # an attack costs, and eight steps cost more than one
    assert all("npz:few.npz instead of mnist" in row["verdict"] for row in rows)
    assert json.loads((tmp_path / "studies" / "ablation.json").read_text())["figure"]
    again = smoothmix("study", "ablation", "steps", "--data", "npz:few.npz", *QUICK)
    assert again.err.count("is trained already") == 5


def test_the_dimension_without_a_model(smoothmix: Run, tmp_path: Path) -> None:
    result = smoothmix(
        "study",
        "dimension",
        "--ratios",
        "0.9,1",
        "--dimensions",
        "10,3072",
        "--noises",
        "gaussian",
        "--format",
        "svg",
    )
    assert result.code == 0, result.err
    rows = rows_of(tmp_path / "studies" / "dimension.csv")
    worst = {(row["ratio"], row["dimension"]): float(row["worst_case"]) for row in rows}
    assert worst["0.9", "3072"] < 1e-9
    assert worst["1.0", "3072"] == pytest.approx(worst["1.0", "10"])


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("ablation", "etta"), "unknown ablation 'etta': did you mean 'eta'?"),
        (
            ("seeds", "quick/gaussian", "--count", "1"),
            "a standard deviation needs at least 2 seeds",
        ),
        (("seeds", "quick/gausian"), "unknown preset 'quick/gausian'"),
        (
            ("seeds", "quick/gaussian", "--n", "3"),
            "n=3 draws at alpha=0.001 can never certify anything",
        ),
        (("seeds", "quick/gaussian", "--radii", "-1"), "radii must be zero or more"),
        (
            ("dimension", "--dimensions", "inf"),
            "dimensions are whole numbers, such as 784, not inf",
        ),
        (
            ("dimension", "--dimensions", "1.5"),
            "dimensions are whole numbers, such as 784, not 1.5",
        ),
        (("dimension", "--dimensions", ","), "no dimensions were given"),
        (("dimension", "--noises", ""), "no noises were given"),
        (("dimension", "--p", "1.5"), "p must lie"),
        (("dimension", "--noises", "cauchy"), "unknown noise 'cauchy'"),
    ],
)
def test_misuse_is_a_sentence(smoothmix: Run, args: tuple[str, ...], message: str) -> None:
    result = smoothmix("study", *args)
    assert result.code == 2
    assert message in result.err
