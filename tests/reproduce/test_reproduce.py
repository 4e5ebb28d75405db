"""The command `reproduce`: which rows, what is skipped, what is said when something was cut."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path

import pytest

from smoothmix import certificates
from smoothmix._process.world import World
from smoothmix.errors import UsageError
from smoothmix.reproduce.jobs import choose, make_jobs, paper_skip
from smoothmix.reproduce.outputs import outputs_for
from smoothmix.runs.options import Overrides
from smoothmix.stats import FixedDraws
from tests.conftest import Run
from tests.helpers.certification import certify_as, run_settings

QUICK = (
    "reproduce",
    "quick",
    "--epochs",
    "1",
    "--n",
    "200",
    "--max",
    "3",
    "--skip",
    "100",
    "--device",
    "cpu",
)


def test_rows_are_chosen_by_pattern_in_the_papers_order() -> None:
    assert choose("mnist", sigma=0.25, rows=["smoothmix*", "gaussian"])[:2] == [
        "mnist/0.25/gaussian",
        "mnist/0.25/smoothmix-eta1",
    ]
    assert len(choose("mnist")) == 27
    assert choose("ablation/eta", rows=["eta/1*"]) == ["ablation/eta/1", "ablation/eta/16"]


@pytest.mark.parametrize(
    ("group", "options", "message"),
    [
        (
            "mnits",
            {},
            (
                "no rows of the paper are called 'mnits': "
                "the groups are mnist, cifar10, imagenet, ablation, quick"
            ),
        ),
        ("mnist", {"sigma": 0.3}, "mnist has no rows with sigma 0.3"),
        (
            "mnist",
            {"rows": ["gausian"]},
            "no row is called 'gausian': the rows are gaussian, stability",
        ),
    ],
)
def test_what_fits_nothing_is_refused(group: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError) as error:
        choose(group, **options)  # type: ignore[arg-type]
    assert message in str(error.value)


def test_every_row_and_seed_has_a_folder_of_its_own() -> None:
    jobs = make_jobs(
        ["mnist/0.50/gaussian", "mnist/0.50/macer"],
        seeds=3,
        overrides=Overrides(epochs_scale=0.1),
        out=Path("out"),
    )
    assert len({job.folder.path for job in jobs}) == 6
    assert [job.config.recipe.seed for job in jobs] == [0, 1, 2, 0, 1, 2]
    assert {job.config.recipe.epochs for job in jobs} == {9}
    assert jobs[3].config.method["defer_epochs"] == 4, "after the first drop"


def test_rows_that_are_one_run_share_its_folder(tmp_path: Path) -> None:
    names = ["ablation/eta/1", "ablation/eta/2", "ablation/steps/8", "ablation/copies/4"]
    jobs = make_jobs(names, seeds=2, overrides=Overrides(), out=tmp_path)
    assert [job.preset.name for job in jobs] == [name for name in names for _ in range(2)]
    folders = [job.folder.path.name for job in jobs]
    one, two = (
        ["ablation-eta-1", "ablation-eta-1-seed1"],
        ["ablation-eta-2", "ablation-eta-2-seed1"],
    )
    assert folders == [*one, *two, *one, *one]
    assert jobs[4].config == jobs[0].config
    (tmp_path / "ablation-steps-8").mkdir()
    again = make_jobs(names, seeds=1, overrides=Overrides(), out=tmp_path)
    assert [job.folder.path.name for job in again] == [
        "ablation-steps-8",
        "ablation-eta-2",
        "ablation-steps-8",
        "ablation-steps-8",
    ]


def test_rows_are_run_compared_and_not_run_again(smoothmix: Run, tmp_path: Path) -> None:
    command = (
        *QUICK,
        "--rows",
        "gaussian,stability",
        "--seeds",
        "2",
        "--out",
        "out",
        "--format",
        "csv",
    )
    first = smoothmix(*command)
    assert first.code == 0, first.err
    rows = list(csv.DictReader(io.StringIO(first.out)))
    assert [row["row"] for row in rows] == ["gaussian", "stability"]
    assert [row["seeds"] for row in rows] == ["2", "2"]
    assert all(float(row["acr_deviation"]) >= 0 for row in rows)
    assert "1 of 6 epochs" in first.err
    files = {path.name for path in (tmp_path / "out").iterdir()}
    runs = {f"quick-{row}{seed}" for row in ("gaussian", "stability") for seed in ("", "-seed1")}
    tables = {f"table.{suffix}" for suffix in ("md", "tex", "csv", "json", "toml")}
    assert files == tables | {"report.html"} | runs
    again = smoothmix(*command)
    assert again.out == first.out
    assert again.err.count("is trained already") == 4
    assert {path.name for path in (tmp_path / "out").iterdir()} == files


def test_another_n_is_certified_without_training_and_earlier_tables_are_kept(
    smoothmix: Run, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    command = ("reproduce", "quick", "--rows", "gaussian", "--epochs", 1, "--device", "cpu")
    command = (*command, "--out", "out")
    first = smoothmix(*command, "--n", 200, "--skip", 100, "--max", 3)
    assert first.code == 0, first.err
    # It says at once how many images it has, and what its n cannot reach.
    assert "3 of 1,000 images" in first.out
    table = (out / "table.md").read_text()
    (row,) = [line for line in table.splitlines() if line.startswith("| gaussian")]
    assert row.count("–") >= 2
    assert "| 0.00 |" not in row
    (values,) = csv.DictReader(io.StringIO((out / "table.csv").read_text()))
    assert (values["accuracy_1.00"], float(values["accuracy_0.00"]) > 0) == ("", True)
    rows = (out / "quick-gaussian" / "certificates.tsv").read_text()
    page = (out / "report.html").read_bytes()
    weights = (out / "quick-gaussian" / "checkpoint" / "weights.safetensors").stat().st_mtime_ns

    second = smoothmix(*command, "--n", 100, "--skip", 200)
    assert second.code == 0, second.err
    assert "is trained already" in second.err
    assert "certificates.tsv has other settings and is kept" in second.err
    assert "5 of 1,000 images" in second.out
    run = out / "quick-gaussian"
    assert (run / "checkpoint" / "weights.safetensors").stat().st_mtime_ns == weights
    assert (run / "certificates.tsv").read_text() == rows
    file = certificates.read(run / "certificates-n100-skip200.tsv")
    assert [row.idx for row in file.rows] == [0, 200, 400, 600, 800]
    assert (out / "table.md").read_text() == table
    assert (out / "report.html").read_bytes() == page
    assert "5 of 1,000 images" in (out / "table-2.md").read_text()
    assert (out / "report-2.html").exists()

    # Both commands find their own certificates and tables again.
    names = sorted(path.name for path in out.iterdir())
    planned = smoothmix(*command, "--n", 100, "--skip", 200, "--dry-run").out
    assert planned.count("done") == 2
    assert smoothmix(*command, "--n", 200, "--skip", 100, "--max", 3).out == first.out
    assert smoothmix(*command, "--n", 100, "--skip", 200).out == second.out
    assert sorted(path.name for path in out.iterdir()) == names


def test_a_table_of_an_earlier_version_is_kept(tmp_path: Path) -> None:
    (tmp_path / "table.md").write_text("by hand")
    request = {"rows": ["quick/gaussian"], "n": 100}
    outputs = outputs_for(tmp_path, request)
    assert outputs.table("md") == tmp_path / "table-2.md"
    outputs.save_record(request)
    assert outputs_for(tmp_path, request) == outputs
    assert outputs_for(tmp_path, {**request, "n": 200}).page == tmp_path / "report-3.html"


def test_images_certified_in_parts_count_as_done(tmp_path: Path) -> None:
    (job, *_) = make_jobs(["quick/gaussian"], seeds=1, overrides=Overrides(), out=tmp_path)
    settings = run_settings()
    how, path = settings.certification, job.folder.certificates
    assert job.certified(how, settings.skip) == 0
    for done, shards in ((13, "2/3"), (27, "1/3"), (40, "3/3")):
        certify_as(World(), settings, path, shards=shards)
        assert job.certified(how, settings.skip) == done
    other = replace(how, guarantee=FixedDraws(7))
    assert job.certified(how, 7) == job.certified(other, settings.skip) == 0, "of another run"


def test_a_dry_run_measures_and_changes_nothing(smoothmix: Run, tmp_path: Path) -> None:
    result = smoothmix(*QUICK, "--rows", "gaussian", "--dry-run")
    assert result.code == 0, result.err
    assert "about" in result.out
    assert "epochs 1 instead of 6" in result.out
    assert not list(tmp_path.iterdir())


def test_other_settings_in_the_same_folder_are_refused(smoothmix: Run) -> None:
    assert smoothmix(*QUICK, "--rows", "gaussian", "--out", "out").code == 0
    result = smoothmix(
        *QUICK[:2], "--epochs", "2", *QUICK[4:], "--rows", "gaussian", "--out", "out"
    )
    assert result.code == 2
    assert "epochs is 1 there and 2 here" in result.err


@pytest.mark.parametrize(("group", "skip"), [("imagenet", 100), ("cifar10", 1), ("mnist", 1)])
def test_the_papers_own_images_are_certified_unless_others_are_asked_for(
    group: str, skip: int, tmp_path: Path
) -> None:
    jobs = make_jobs(choose(group, rows=["gaussian"]), seeds=1, overrides=Overrides(), out=tmp_path)
    assert paper_skip(jobs) == skip
