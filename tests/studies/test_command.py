"""The studies as a person runs them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from smoothmix.cli import study_models as commands
from smoothmix.runs.load import build_network
from smoothmix.studies import NamedClassifier, files
from tests.conftest import Result, Run
from tests.helpers.studies import config, rows, run_folder, trained


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Runs to study, and some that cannot be."""
    folder = tmp_path / "runs"
    run_folder(folder / "one", trained())
    run_folder(folder / "louder", trained(), method={"name": "gaussian", "sigma": 0.8})
    run_folder(folder / "fashion", trained(), data="fashion-mnist")
    run_folder(folder / "fewer", build_network(config(num_classes=5)), num_classes=5)
    run_folder(folder / "untrained")
    return folder


QUICK = ("--n", 60, "--copies", 4, "--steps", 3, "--out", "studies", "--format", "png")


def test_quick_confidence_on_the_sample(smoothmix: Run, runs: Path, tmp_path: Path) -> None:
    done = smoothmix(
        "study", "confidence", "runs/one", "Loud=runs/louder", "--eps", "0", "4", "--max", 4, *QUICK
    )
    assert done.code == 0, done.err
    found = rows((tmp_path / "studies" / "confidence.csv").read_text())
    assert [(r["model"], float(r["eps"])) for r in found] == [
        ("one", 0),
        ("one", 4),
        ("Loud", 0),
        ("Loud", 4),
    ]
    assert float(found[0]["true"]) > 40 > float(found[1]["true"])
    assert float(found[0]["off"]) < float(found[1]["off"])
    assert "true class %" in done.out
    assert "each is smoothed with its own: one 0.5, Loud 0.8" in done.out
    assert [line for line in done.err.splitlines() if line.startswith("wrote")] == [
        f"wrote studies/confidence{end}" for end in (".csv", "-record.csv", ".png", ".json")
    ]
    record = rows((tmp_path / "studies" / "confidence-record.csv").read_text())
    assert sorted({int(r["idx"]) for r in record}) == [0, 250, 500, 750]  # spread over the split


def test_quick_path_on_the_sample(smoothmix: Run, runs: Path, tmp_path: Path) -> None:
    options = ("--first", 2, "--points", 3, "--step-size", 1.0)
    done = smoothmix("study", "path", "runs/one", *options, "--max", 40, *QUICK)
    assert done.code == 0, done.err
    found = rows((tmp_path / "studies" / "path.csv").read_text())
    assert len(found) == 2
    assert all(float(r["true_at_0"]) > float(r["true_at_1"]) for r in found)
    chosen = smoothmix("study", "path", "runs/one", "--images", "0,5,7", *options[2:], *QUICK)
    assert chosen.code == 0, chosen.err
    assert [r["idx"] for r in rows((tmp_path / "studies" / "path.csv").read_text())] == [
        "0",
        "5",
        "7",
    ]


def test_quick_mixing_on_the_sample(smoothmix: Run, runs: Path, tmp_path: Path) -> None:
    done = smoothmix("study", "mixing", "runs/one", "--eps", 4, "--max", 4, "--skip", 3, *QUICK)
    assert done.code == 0, done.err
    (found,) = rows((tmp_path / "studies" / "mixing.csv").read_text())
    assert int(found["wrong_at_0"]) + int(found["changed"]) + int(found["never_changed"]) == 4
    assert 0 < float(found["median_ratio"]) < 1
    again = smoothmix("study", "mixing", "runs/one", "--eps", 4, "--max", 4, "--skip", 3, *QUICK)
    assert again.out == done.out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["confidence"], "name run folders, or a network by --model"),
        (["confidence", "nowhere"], "nowhere: is no run folder"),
        (["confidence", "runs/untrained"], "runs/untrained: has no trained weights"),
        (
            ["confidence", "runs/one", "runs/fashion"],
            "different data sets: one sample, fashion fashion-mnist",
        ),
        (
            ["confidence", "runs/one", "runs/fewer"],
            "different numbers of classes: one 10, fewer 5",
        ),
        (["confidence", "runs/one", "runs/one"], "the models need different names"),
        (["confidence", "runs/one", "--eps=-1"], "eps must be a number of zero or more, got -1"),
        (["confidence", "runs/one", "--eps", "0,x"], "numbers are written like"),
        (["confidence", "runs/one", "--n", "0"], "n must be at least 1, got 0"),
        (["confidence", "runs/one", "--max", "0"], "max must be at least 1"),
        (["confidence", "runs/one", "--skip", "0"], "skip must be at least 1"),
        (["confidence", "runs/one", "--format", "gif"], "gif"),
        (["confidence", "runs/fewer"], "but the models have only 5 classes"),
        (
            ["path", "runs/one", "--images", "0,1000"],
            "sample (test) has the images 0 to 999, not 1000",
        ),
        (
            ["path", "runs/one", "--images", "1.5"],
            "images are given by their positions, such as 0,5,7, not 1.5",
        ),
        (
            ["path", "runs/one", "--images", "0", "--classes", "11"],
            "11 classes are requested, but the models have only 10",
        ),
        (["path", "runs/one", "--step-size", "0"], "the step size must be a positive number"),
        (["path", "runs/one", "--first", "0"], "at least 1 image is needed, got 0"),
        (["mixing", "runs/one", "--eps", "0"], "eps must be positive, got 0"),
        (["mixing", "runs/one", "--steps", "0"], "the attack needs at least 1 step"),
        (["mixng", "runs/one"], "mixng"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_mistakes_get_one_sentence(
    smoothmix: Run, runs: Path, arguments: list[str], sentence: str
) -> None:
    done = smoothmix("study", *arguments)
    assert done.code == 2, done.err
    assert sentence in done.err
    assert done.err.count("\n") == 1, done.err


def test_runs_of_one_name_are_told_apart_by_their_folders(
    smoothmix: Run, runs: Path, tmp_path: Path
) -> None:
    run_folder(tmp_path / "more" / "one", trained())
    models, dataset = loaded("runs/one", "more/one", smoothmix=smoothmix)
    assert [model.name for model in models] == ["one (runs)", "one (more)"]
    assert dataset.name == "sample"


def loaded(*names: str, smoothmix: Run) -> tuple[list[NamedClassifier], Any]:
    smoothmix("--version")  # takes this process into the folder of the runs
    return commands.load(names, commands.StudyOptions())


def test_numbers_are_worth_having_without_matplotlib(
    smoothmix: Run, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "find_spec", lambda name: None)
    done: Result = smoothmix(
        "study", "path", "runs/one", "--first", 5, "--max", 4, "--points", 2, *QUICK
    )
    assert done.code == 0
    assert "no figure will be drawn: it needs matplotlib" in done.err
    # Fewer images than requested must not pass in silence.
    assert "of these images are classified right by every model" in done.err
    assert not (tmp_path / "studies" / "path.png").exists()
    assert (tmp_path / "studies" / "path.json").exists()


MY_NETWORK = """
from smoothmix.runs.load import load_run

def make():
    return load_run("runs/one")[1]
"""


def test_a_network_of_ones_own_is_studied_beside_a_run(
    smoothmix: Run, runs: Path, tmp_path: Path
) -> None:
    (tmp_path / "studied.py").write_text(MY_NETWORK)
    own = ("--model", "studied:make", "--sigma", 0.5)
    command = ("study", "confidence", "--eps", "4", "--max", 2, *QUICK)
    done = smoothmix(*command, *own, "runs/one")
    assert done.code == 0, done.err
    found = rows((tmp_path / "studies" / "confidence.csv").read_text())
    # The same network under another name.
    first, second = ({**row, "model": ""} for row in found)
    assert first == second
    assert [row["model"] for row in found] == ["one", "studied:make"]
    assert "--data is needed" in smoothmix(*command, *own).err
    assert "--model and --sigma go together" in smoothmix(*command, *own[:2]).err
    assert "name run folders, or a network by --model" in smoothmix(*command).err
