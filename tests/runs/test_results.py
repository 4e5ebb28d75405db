"""What results/ and docs/results.md say can be computed again from what is committed."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import smoothmix as sm
from smoothmix import certificates, data
from smoothmix.analysis.robustness import attacked_images
from smoothmix.certificates.attack_file import attacks_beside
from smoothmix.config import RunConfig
from smoothmix.runs import zoo
from smoothmix.runs.load import load_run
from smoothmix.stats.binomial import predicted
from tests.conftest import ROOT, Run

RESULTS = ROOT / "results"
CERTIFIED = sorted(path.parent.name for path in RESULTS.glob("*/certificates.tsv.xz"))
FILES = sorted(RESULTS.glob("*/certificates*.tsv.xz"))
"""With Gaussian noise, and with grid noise."""


def file_id(path: Path) -> str:
    return f"{path.parent.name}-{path.name.removesuffix('.tsv.xz')}"


def test_the_table_follows_from_the_certificates() -> None:
    argv = [sys.executable, "-m", "benchmarks.results_table", "--check"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert all(f"| {name} |" in done.stdout for name in CERTIFIED)


@pytest.mark.parametrize("path", FILES, ids=file_id)
def test_every_row_follows_from_its_votes(path: Path, smoothmix: Run) -> None:
    result = smoothmix("certificates", "verify", path)
    assert result.code == 0, result.err


@pytest.mark.parametrize("name", CERTIFIED)
def test_every_run_records_the_hash_of_its_weights(name: str) -> None:
    recorded = RunConfig.load(RESULTS / name / "config.toml").weights_sha256
    weights = (RESULTS / name / "checkpoint" / "weights.safetensors").read_bytes()
    assert hashlib.sha256(weights).hexdigest() == recorded


avx512 = pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() != "AVX512",
    reason="the votes were counted with AVX512; other rounding may move a draw that is on the edge",
)


@avx512
@pytest.mark.shared
@pytest.mark.parametrize("path", FILES, ids=file_id)
def test_the_committed_weights_give_the_committed_votes_of_the_least_sure_image(
    path: Path, shared_data: Path
) -> None:
    config, model = load_run(path.parent)
    file = certificates.read(path)
    assert file.settings is not None
    how, test = file.settings.certification, data.load(config.data, "test", data_dir=shared_data)
    row = min(
        (row for row in file.rows if row.n),
        key=lambda row: abs(2 * max((row.counts or {}).values()) - how.guarantee.max_draws),
    )
    smoothed = sm.Smoothed(model, sigma=how.sigma, num_classes=config.num_classes, noise=how.noise)
    image = test.images([row.idx])
    found = smoothed.certify(image, **how.guarantee.options(), seed=how.seed, index=[row.idx])
    assert certificates.sparse(found.counts[0]) == row.counts
    assert certificates.sparse(found.selection_counts[0]) == row.selection_counts


@avx512
@pytest.mark.shared
def test_one_image_can_be_certified_again_as_the_page_says(
    smoothmix: Run, shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(zoo.VARIABLE, raising=False)
    name = "mnist-1.00-gaussian"
    argv = ("--noise", "gaussian", "--max", 1, "--skip-wrong", "--out", "one.tsv")
    assert smoothmix("certify", f"zoo:{name}", *argv, "--data-dir", shared_data).code == 0
    (found,) = certificates.read(tmp_path / "one.tsv").rows
    expected = certificates.read(RESULTS / name / "certificates.tsv.xz").rows[0]
    assert (found.counts, found.selection_counts, found.radius) == (
        expected.counts,
        expected.selection_counts,
        expected.radius,
    )


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*/attacks.tsv")), ids=lambda p: p.parent.name)
def test_no_committed_adversarial_example_lies_inside_a_certified_radius(path: Path) -> None:
    file = certificates.read(path.parent)
    attacks = attacks_beside(file.path, file.settings)
    assert attacks is not None
    found = attacked_images(file.rows, attacks.rows)
    assert len(found) == len(attacks.rows) > 0
    assert not any(each.contradiction for each in found)
    alpha = attacks.settings.search.alpha_per_test
    for each in found:
        row = each.attack
        if row.adversarial is None:
            continue
        # The votes decide for the other class by the test of `predict`.
        votes = np.zeros(attacks.settings.num_classes, dtype=np.int64)
        votes[list(row.votes)] = list(row.votes.values())
        assert int(predicted(votes, alpha=alpha)[0]) == row.adversarial != row.before
