"""Certifications that were interrupted under the version before the journal are resumed exactly."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from smoothmix.certificates import read, verify
from smoothmix.noise import GAUSSIAN
from tests.conftest import Run
from tests.helpers.certification import journals, without_time

OLD_FILES = Path(__file__).parent / "old_version"

NETWORK = """
import torch
from smoothmix import data


class Slow(torch.nn.Module):
    def __init__(self):
        super().__init__()
        sample = data.load("sample", "train")
        labels = torch.tensor(sample.labels)
        pixels = sample.images(range(len(sample))).flatten(1)
        means = torch.stack([pixels[labels == c].mean(0) for c in range(10)])
        self.weight = torch.nn.Parameter(means)
        self.bias = torch.nn.Parameter(-means.square().sum(1) / 2)

    def forward(self, x):
        return x.flatten(1) @ self.weight.T + self.bias


def make():
    return Slow()
"""
"""The network that made the files, without the pauses that gave time to interrupt it."""

BASE = (
    *("--model", "slow:make", "--sigma", 0.5, "--data", "sample", "--n0", 20),
    *("--seed", 3, "--skip", 100),
)
FIXED = ("--n", 20_000)
SELECTION = 20
"""Draws per row that are made again: the probes of that version prove little."""
ANYTIME = ("--n", 20_000, "--mode", "anytime", "--radii", "0.5", "--tolerance", "0.01")
EXTENDED = ("--mode", "anytime", "--extend")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "slow.py").write_text(NETWORK)
    return tmp_path


def put(folder: Path, name: str) -> int:
    """Copy the files of one interrupted run; how many draws its partial votes hold."""
    shutil.copytree(OLD_FILES / name, folder, dirs_exist_ok=True)
    (old,) = folder.glob("*-begun.tsv")
    return sum(20 + (row.n or 0) for row in read(old).rows)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def old_files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*-begun.*"))


def assert_same_rows(folder: Path) -> None:
    """The old file has the rows of a new one, and still no digests."""
    new = without_time(folder / "expected.tsv")
    assert new[0][-1] == "digest\n"
    without_digests = [[*cells[:-2], f"{cells[-2]}\n"] for cells in new]
    assert without_time(folder / "certificates.tsv") == without_digests
    assert read(folder / "certificates.tsv").digests is None


def expected(smoothmix: Run, folder: Path, drawn: list[int], *options: object) -> int:
    """Certify without an interruption; how many draws that takes."""
    drawn.clear()
    # Those that are resumed keep the noise of their files by themselves.
    done = smoothmix("certify", *BASE, *options, "--noise", "gaussian", "--out", "expected.tsv")
    assert done.code == 0, done.err
    return sum(drawn)


def test_a_fixed_number_of_draws(smoothmix: Run, folder: Path, drawn: list[int]) -> None:
    saved = put(folder, "exact")
    rows = read(folder / "certificates.tsv").rows
    assert saved > 4000
    done = smoothmix("certify", *BASE, *FIXED)
    assert done.code == 0, done.err
    spent = sum(drawn)
    total = expected(smoothmix, folder, drawn, *FIXED)
    assert spent == total - saved - len(rows) * 20_000, "only selection draws are repeated"
    assert_same_rows(folder)
    assert old_files(folder) == [], "an unfinished row shows that they were ours"
    assert not journals(folder / "certificates.tsv")


def test_stopping_rules(smoothmix: Run, folder: Path, drawn: list[int]) -> None:
    """Every row could be one that a limit of time stopped early, so the file is kept."""
    saved = put(folder, "anytime")
    assert saved > 4000
    done = smoothmix("certify", *BASE, *ANYTIME)
    assert done.code == 0, done.err
    assert "may be a certificate file of yours, so it is kept" in done.err
    spent = sum(drawn)
    # As the file, which was made before there was foresight.
    total = expected(smoothmix, folder, drawn, *ANYTIME, "--foresight", 0)
    assert spent == total - saved
    assert without_time(folder / "certificates.tsv") == without_time(folder / "expected.tsv")
    assert old_files(folder) == ["certificates-begun.toml", "certificates-begun.tsv"]


@pytest.mark.parametrize("name", ["exact", "shard", "extend"])
def test_an_old_file_is_never_continued_with_grid_noise(
    smoothmix: Run, folder: Path, drawn: list[int], name: str
) -> None:
    options: dict[str, tuple[object, ...]] = {
        "exact": FIXED,
        "shard": (*FIXED, "--shard", "1/2"),
        "extend": EXTENDED,
    }
    put(folder, name)
    before = contents(folder)
    refused = smoothmix("certify", *BASE, *options[name], "--noise", "grid")
    assert refused.code == 2
    assert "noise is gaussian there and grid (levels 255) here" in refused.err
    assert not drawn, "nothing is drawn for a file that is refused"
    assert contents(folder) == before


def test_old_votes_without_any_row_are_kept_and_not_mixed_with_grid_noise(
    smoothmix: Run, folder: Path
) -> None:
    put(folder, "anytime")
    votes = {name: (folder / name).read_bytes() for name in old_files(folder)}
    grid = ("certify", *BASE, *ANYTIME, "--noise", "grid")
    assert smoothmix(*grid).code == 0
    assert {name: (folder / name).read_bytes() for name in old_files(folder)} == votes
    # What else the old settings say is kept.
    assert smoothmix(*grid, "--foresight", 0, "--out", "alone.tsv").code == 0
    assert without_time(folder / "certificates.tsv") == without_time(folder / "alone.tsv")


def test_an_old_file_is_verified_and_compared_with_one_of_grid_noise(
    smoothmix: Run, folder: Path
) -> None:
    put(folder, "extend")
    checked = smoothmix("certificates", "verify", "certificates.tsv")
    assert checked.code == 0, checked.out
    assert "not bound by digests" in checked.out
    settings = read(folder / "certificates.tsv").settings
    assert settings is not None
    assert settings.certification.noise == GAUSSIAN
    done = smoothmix("certify", *BASE, "--n", 300, "--noise", "grid", "--out", "grid.tsv")
    assert done.code == 0, done.err
    compared = smoothmix("report", "certificates.tsv", "grid.tsv")
    assert compared.code == 0, compared.err
    assert "noise" in compared.out + compared.err, "that they differ in it is said"


@pytest.mark.parametrize("how", ["both shards", "one process"])
def test_a_shard(smoothmix: Run, folder: Path, drawn: list[int], how: str) -> None:
    saved = put(folder, "shard")
    rows = read(folder / "certificates-1-of-2.tsv").rows
    for options in (("--shard", "1/2"), ("--shard", "2/2")) if how == "both shards" else ((),):
        done = smoothmix("certify", *BASE, *FIXED, *options)
        assert done.code == 0, done.err
    spent = sum(drawn)
    total = expected(smoothmix, folder, drawn, *FIXED)
    assert spent == total - saved - len(rows) * 20_000
    assert_same_rows(folder)
    assert old_files(folder) == []
    assert not journals(folder / "certificates.tsv")


def test_votes_of_one_process_are_resumed_by_shards(
    smoothmix: Run, folder: Path, drawn: list[int]
) -> None:
    saved = put(folder, "exact")
    rows = read(folder / "certificates.tsv").rows
    for shard in ("1/2", "2/2"):
        assert smoothmix("certify", *BASE, *FIXED, "--shard", shard).code == 0
    spent = sum(drawn)
    total = expected(smoothmix, folder, drawn, *FIXED)
    assert spent == total - saved - len(rows) * 20_000
    assert_same_rows(folder)
    assert old_files(folder) == []


def test_an_extension(smoothmix: Run, folder: Path, drawn: list[int]) -> None:
    before = sum(row.n or 0 for row in read(OLD_FILES / "extend" / "certificates.tsv").rows)
    saved = put(folder, "extend") - 20 * len(read(folder / "certificates-extending-begun.tsv").rows)
    assert saved > before
    done = smoothmix("certify", *BASE, *EXTENDED)
    assert done.code == 0, done.err
    spent = sum(drawn)
    file = read(folder / "certificates.tsv")
    assert {row.n for row in file.rows} == {2560}
    assert verify(file).ok
    assert spent == 10 * 2560 - max(saved, before) + 10 * SELECTION
    expected(smoothmix, folder, drawn, "--n", 2560, "--mode", "anytime")
    assert_same_rows(folder)


@pytest.mark.parametrize("option", [("--alpha", 0.01), ("--skip-wrong",), ("--batch", 128)])
def test_a_certificate_file_of_that_name_is_neither_used_nor_deleted(
    smoothmix: Run, folder: Path, option: tuple[object, ...]
) -> None:
    few = ("--max", 2)
    theirs = smoothmix("certify", *BASE, "--n", 512, *few, "--out", "study-begun.tsv")
    assert theirs.code == 0, theirs.err
    content = (folder / "study-begun.tsv").read_bytes()
    assert smoothmix("certify", *BASE, "--n", 512, *few, *option, "--out", "study.tsv").code == 0
    assert (folder / "study-begun.tsv").read_bytes() == content


def test_a_finished_certificate_file_of_the_same_settings_is_kept(
    smoothmix: Run, folder: Path
) -> None:
    options = ("--n", 512, "--max", 2)
    assert smoothmix("certify", *BASE, *options, "--out", "study-begun.tsv").code == 0
    content = (folder / "study-begun.tsv").read_bytes()
    done = smoothmix("certify", *BASE, *options, "--out", "study.tsv")
    assert done.code == 0
    assert (folder / "study-begun.tsv").read_bytes() == content
    assert "it is kept" in done.err
