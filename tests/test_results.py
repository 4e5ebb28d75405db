"""What results/ and docs/results.md say can be computed again from what is committed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from smoothmix import certificates, zoo

from conftest import ROOT, Run

RESULTS = ROOT / "results"
CERTIFIED = sorted(path.parent.name for path in RESULTS.glob("*/certificates.tsv.xz"))


def test_the_table_follows_from_the_certificates() -> None:
    argv = [sys.executable, "-m", "benchmarks.results_table", "--check"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert all(f"| {name} |" in done.stdout for name in CERTIFIED)


@pytest.mark.parametrize("name", CERTIFIED)
def test_every_row_follows_from_its_votes(name: str, smoothmix: Run) -> None:
    result = smoothmix("certificates", "verify", RESULTS / name / "certificates.tsv.xz")
    assert result.code == 0, result.err


@pytest.mark.shared
@pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() != "AVX512",
    reason="the votes were counted with AVX512; other rounding may move a draw that is on the edge",
)
@pytest.mark.parametrize("name", CERTIFIED)
def test_the_committed_weights_give_the_committed_votes(
    name: str, smoothmix: Run, shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(zoo.VARIABLE, raising=False)
    data = ("--skip", 20, "--max", 1, "--skip-wrong", "--data-dir", shared_data / "mnist")
    assert smoothmix("certify", f"zoo:{name}", *data).code == 0
    (found,) = certificates.read(tmp_path / "certificates.tsv").rows
    expected = certificates.read(RESULTS / name / "certificates.tsv.xz").rows[0]
    assert (found.counts, found.selection_counts, found.radius) == (
        expected.counts,
        expected.selection_counts,
        expected.radius,
    )
