"""`zoo:NAME` stands for a network of the project's own results, wherever that folder is."""

from __future__ import annotations

from pathlib import Path

import pytest

from smoothmix import certificates
from smoothmix.analysis import measure
from smoothmix.runs import zoo
from smoothmix.runs.load import load_run
from tests.conftest import Run
from tests.helpers.studies import run_folder, trained

NAME = "mine-0.50-gaussian"
SETTINGS = ("--n0", 20, "--n", 300, "--max", 2)


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of results with one network in it, and with what is none."""
    folder = tmp_path / "results"
    run_folder(folder / NAME, trained())
    (folder / "wip").mkdir()
    (folder / "published.tsv.xz").touch()
    monkeypatch.setenv(zoo.VARIABLE, str(folder))
    return folder


def test_a_network_of_the_zoo_gives_the_votes_of_its_run_folder(
    results: Path, smoothmix: Run
) -> None:
    direct = smoothmix("certify", results / NAME, *SETTINGS, "--out", "direct.tsv")
    named = smoothmix("certify", f"zoo:{NAME}", *SETTINGS, "--out", "named.tsv")
    assert (direct.code, named.code) == (0, 0)
    rows = [certificates.read(results.parent / file).rows for file in ("direct.tsv", "named.tsv")]
    assert [row.counts for row in rows[0]] == [row.counts for row in rows[1]]
    assert len(rows[0]) == 2


def test_a_zoo_that_is_not_there_is_said(monkeypatch: pytest.MonkeyPatch, smoothmix: Run) -> None:
    monkeypatch.setenv(zoo.VARIABLE, "nowhere")
    refused = smoothmix("certify", f"zoo:{NAME}")
    assert (refused.code, refused.err) == (
        2,
        "smoothmix: SMOOTHMIX_ZOO is nowhere, and there is no such folder\n",
    )


def test_the_zoo_is_reported_like_any_run(results: Path, smoothmix: Run) -> None:
    assert smoothmix("certify", results / NAME, *SETTINGS).code == 0
    shown = smoothmix("report", f"zoo:{NAME}", f"Mine=zoo:{NAME}", "--format", "csv")
    assert shown.code == 0, shown.err
    assert [line.partition(",")[0] for line in shown.out.splitlines()[1:]] == [NAME, "Mine"]


def test_what_is_computed_with_the_zoo_goes_to_the_current_folder(
    results: Path, smoothmix: Run
) -> None:
    before = sorted(results.rglob("*"))
    assert smoothmix("certify", f"zoo:{NAME}", *SETTINGS).code == 0
    assert sorted(results.rglob("*")) == before
    assert [path.name for path in results.parent.glob("*.tsv")] == ["certificates.tsv"]


def test_an_unknown_name_is_answered_with_those_there_are(results: Path, smoothmix: Run) -> None:
    result = smoothmix("certify", "zoo:mine-0.50-gausian", *SETTINGS)
    assert result.code != 0
    assert NAME in result.err
    assert "wip" not in result.err


def test_an_empty_zoo_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, smoothmix: Run
) -> None:
    monkeypatch.setenv(zoo.VARIABLE, str(tmp_path))
    assert "no trained network" in smoothmix("certify", "zoo:anything").err


def test_what_was_certified_of_the_zoo_keeps_its_name(results: Path, smoothmix: Run) -> None:
    assert smoothmix("certify", f"zoo:{NAME}", *SETTINGS).code == 0
    shown = smoothmix("report", "certificates.tsv", "--format", "csv", "--out", "page.html")
    assert shown.out.splitlines()[1].startswith(f"zoo:{NAME},")
    assert f"smoothmix certify zoo:{NAME} --data" in (results.parent / "page.html").read_text()


def test_certificates_of_the_zoo_can_be_verified_by_name(results: Path, smoothmix: Run) -> None:
    assert smoothmix("certify", results / NAME, *SETTINGS).code == 0
    done = smoothmix("certificates", "verify", f"zoo:{NAME}")
    assert done.code == 0
    seed, verdict, *checks = done.out.splitlines()
    assert seed.startswith(f"zoo:{NAME}: seed 0, the public default")
    assert verdict == f"zoo:{NAME}: 2 rows, 2 follow from their votes"
    assert "  checked: digests of the settings and of 2 rows" in checks


def test_every_reader_knows_the_zoo(
    results: Path, smoothmix: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert smoothmix("certify", results / NAME, *SETTINGS).code == 0
    monkeypatch.chdir(results.parent)
    assert measure(f"Mine=zoo:{NAME}").method == "gaussian"
    config, _ = load_run(f"zoo:{NAME}")
    assert config.sigma == measure(f"zoo:{NAME}").sigma
    assert smoothmix("certificates", "export", f"zoo:{NAME}").out.startswith("idx\tlabel")
    before = {path: path.read_bytes() for path in results.rglob("*") if path.is_file()}
    assert smoothmix("certificates", "recompute", f"zoo:{NAME}", "--alpha", 0.01).code == 0
    assert (results.parent / "certificates-alpha0.01.tsv").exists()
    assert {path: path.read_bytes() for path in results.rglob("*") if path.is_file()} == before


def test_a_recomputed_file_still_belongs_to_its_run(results: Path, smoothmix: Run) -> None:
    run = results / NAME
    assert smoothmix("certify", run, *SETTINGS).code == 0
    assert smoothmix("certificates", "recompute", run, "--alpha", 0.01).code == 0
    again = measure(run / "certificates-alpha0.01.tsv")
    assert (again.method, again.config) == ("gaussian", measure(run).config)


def test_two_networks_certified_in_one_folder_get_a_file_each(
    results: Path, smoothmix: Run, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(
        "import torch\n\ndef make():\n    torch.manual_seed(0)\n"
        "    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 10))\n"
    )
    own = ("certify", "--model", "mine:make", "--sigma", 0.5, "--data", "sample", *SETTINGS)
    assert smoothmix("certify", f"zoo:{NAME}", *SETTINGS).code == 0
    first = smoothmix(*own)
    assert first.code == 0, first.err
    assert "certificates.tsv holds certificates of another network" in first.err
    files = {path.name: path.read_bytes() for path in tmp_path.glob("*.tsv")}
    assert files.keys() == {"certificates.tsv", "certificates-mine-make.tsv"}
    # Both are found again by the commands that made them.
    assert smoothmix(*own).code == 0
    assert smoothmix("certify", f"zoo:{NAME}", *SETTINGS).code == 0
    assert files == {path.name: path.read_bytes() for path in tmp_path.glob("*.tsv")}
    settings = certificates.read(tmp_path / "certificates-mine-make.tsv").settings
    assert settings is not None
    assert settings.model == "mine:make"
