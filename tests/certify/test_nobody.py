"""Ambiguous draws: they stay in n, vote for nobody, and are never selected, from draw to page."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import smoothmix
from smoothmix._process.progress import Progress
from smoothmix.analysis import measure
from smoothmix.certificates import Certificates, Certification, Selection, read, verify
from smoothmix.certify import Smoothed, certify_dataset, extend_dataset
from smoothmix.certify.predict import predict_dataset
from smoothmix.noise import GAUSSIAN, Domain, DrawRange, Noise
from smoothmix.report.sections.gallery import make_gallery
from smoothmix.stats import NOBODY, Anytime, FixedDraws, Stopping
from smoothmix.stats.binomial import lower_bound
from tests.conftest import Run
from tests.helpers.ambiguous import AllAmbiguous, AllButSeventh, EverySeventh, put_noise
from tests.helpers.certification import (
    images,
    journals,
    network,
    put_network,
    saved_votes,
    without_time,
)
from tests.helpers.processes import Jobs, until

N, N0, SIGMA = 300, 20, 0.5
SEVENTHS = Certification(
    sigma=SIGMA, guarantee=FixedDraws(N, n0=N0), noise=EverySeventh(), batch=64
)


@pytest.fixture(autouse=True)
def _trusted_noise() -> None:
    smoothmix.trust("tests.helpers.ambiguous")


def certify(
    path: Path, certification: Certification = SEVENTHS, *, maximum: int = 3, **options: object
) -> Certificates:
    return certify_dataset(
        network(),
        images(),
        certification,
        path=path,
        model_name="digits:make",
        selection=Selection(skip=25, maximum=maximum),
        **options,  # type: ignore[arg-type]
    )


def slow_votes(noise: EverySeventh, index: int, domain: Domain, draws: int) -> dict[int, int]:
    """Obvious: one draw at a time, and an ambiguous one votes for nobody."""
    (image,) = images().images([index])
    counts: dict[int, int] = {}
    for j in range(draws):
        sample = GAUSSIAN.sample(DrawRange(0, domain, index, j, 1), (1, 28, 28), sigma=SIGMA)
        vote = int(network()(image[None] + torch.from_numpy(sample)).argmax())
        if noise.is_ambiguous(j):
            vote = NOBODY
        counts[vote] = counts.get(vote, 0) + 1
    return counts


def test_votes_are_those_of_a_slow_loop_over_draws(tmp_path: Path) -> None:
    for row in certify(tmp_path / "certificates.tsv").rows:
        assert row.counts == slow_votes(EverySeventh(), row.idx, Domain.ESTIMATION, N)
        assert row.selection_counts == slow_votes(EverySeventh(), row.idx, Domain.SELECTION, N0)
        assert row.n == N
        assert row.counts[NOBODY] == len(range(0, N, 7))
        # Nobody's votes stand against the selected class.
        assert row.selected is not None
        bound = float(lower_bound(row.counts[row.selected], N, alpha=0.001))
        assert row.p_lower == pytest.approx(bound, abs=1e-6)


@pytest.mark.parametrize("noise", [AllButSeventh(), AllAmbiguous()])
def test_nobody_is_never_selected_however_many_votes_it_has(tmp_path: Path, noise: Noise) -> None:
    file = certify(tmp_path / "certificates.tsv", replace(SEVENTHS, noise=noise))
    for row in file.rows:
        assert row.counts is not None
        assert row.counts[NOBODY] > N / 2
        assert row.selected is not None
        assert row.selected >= 0
        assert row.predict == -1
        assert row.radius == 0
    assert verify(read(file.path)).problems == ()


def test_a_file_without_any_vote_for_a_class_has_class_0_selected(tmp_path: Path) -> None:
    file = certify(tmp_path / "certificates.tsv", replace(SEVENTHS, noise=AllAmbiguous()))
    assert [row.selected for row in file.rows] == [0, 0, 0]
    assert [row.p_lower for row in file.rows] == [0, 0, 0]


def test_a_wrong_number_of_votes_for_nobody_is_found(tmp_path: Path) -> None:
    path = certify(tmp_path / "certificates.tsv").path
    votes = f"-1:{len(range(0, N, 7))},"
    path.write_text(path.read_text().replace(votes, "-1:9,", 1))
    problems = verify(read(path)).problems
    assert any(f"has {N - 34} votes, where it says n={N}" in problem for problem in problems)
    assert any("its digest does not fit" in problem for problem in problems)


def test_an_interrupted_run_resumes_votes_for_nobody(tmp_path: Path) -> None:
    expected = certify(tmp_path / "expected.tsv")
    path = tmp_path / "certificates.tsv"
    reports = 0

    def stop(progress: Progress) -> None:
        nonlocal reports
        reports += 1
        # After the selection of all images, and all draws: nothing is written yet.
        if reports == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        certify(path, on_progress=stop)
    assert expected.settings is not None
    saved = saved_votes(path, expected.settings)
    assert saved
    for index, votes in saved.items():
        assert votes.selection_counts[NOBODY] == len(range(0, N0, 7)), index
    certify(path)
    assert without_time(path) == without_time(expected.path)
    assert not journals(path)


def test_an_extension_draws_on_from_votes_for_nobody(tmp_path: Path) -> None:
    def anytime(draws: int) -> Certification:
        guarantee = Anytime(Stopping(tolerance=0.001, max_draws=draws), n0=N0)
        return replace(SEVENTHS, guarantee=guarantee)

    expected = certify(tmp_path / "expected.tsv", anytime(640))
    path = tmp_path / "certificates.tsv"
    certify(path, anytime(320))
    extended = extend_dataset(network(), images(), anytime(640), path=path)
    assert [row.n for row in extended.rows] == [640, 640, 640]
    assert without_time(path) == without_time(expected.path)


def test_batches_have_a_column_per_class_and_their_draws() -> None:
    smoothed = Smoothed(network(), sigma=SIGMA, num_classes=10, noise=EverySeventh())
    batch = images().images([0, 25])
    certified = smoothed.certify(batch, n0=N0, n=N, seed=0)
    assert certified.counts.shape == (2, 10)
    assert certified.selection_counts.shape == (2, 10)
    assert certified.draws.tolist() == [N, N]
    assert (certified.draws - certified.counts.sum(1)).tolist() == [43, 43]
    votes = smoothed.votes(batch, n=N, seed=0)
    assert votes.shape == (2, 10)
    assert votes.sum(1).tolist() == [N - 43, N - 43]


def test_a_prediction_counts_ambiguous_draws_for_the_runner_up() -> None:
    smoothed = Smoothed(network(), sigma=SIGMA, num_classes=10, noise=AllButSeventh())
    dataset = images()
    (found,) = predict_dataset(smoothed, dataset, [0], n=700, alpha=0.001, seed=0)
    assert found.nobody == 600
    assert int(found.counts.sum()) == 100
    # The 100 votes alone would be sure of a class.
    assert int(np.sort(found.counts)[-1]) > 90
    assert (found.predict, found.p_value) == (-1, 1.0)
    assert smoothed.predict(dataset.images([0]), n=700, seed=0).tolist() == [-1]

    few = replace(smoothed, noise=EverySeventh())
    (sure,) = predict_dataset(few, dataset, [0], n=700, alpha=0.001, seed=0)
    assert sure.nobody == 100
    assert sure.predict == few.predict(dataset.images([0]), n=700, seed=0).item() >= 0


def test_the_gallery_and_the_shares_of_votes_leave_nobody_out(tmp_path: Path) -> None:
    file = certify(tmp_path / "certificates.tsv")
    measured = measure(file.path)
    for row, share in zip(file.rows, measured.probability, strict=True):
        assert row.counts is not None
        assert share == row.counts[row.selected or 0] / N
    made = make_gallery([measured])
    assert len(made.images) == 3
    for image, row in zip(made.images, file.rows, strict=True):
        assert row.counts is not None
        (verdict,) = image.verdicts
        # As an index, -1 would be the last of the ten digits.
        by_class = {c: votes for c, votes in row.counts.items() if c != NOBODY}
        assert dict(verdict.votes).items() <= {str(c): v for c, v in by_class.items()}.items()
        assert verdict.n == N


def test_commands_from_certify_to_report(tmp_path: Path, smoothmix: Run) -> None:
    put_network(tmp_path)
    noise = put_noise(tmp_path)
    trusted = ("--import", "sevenths")
    how = (
        "--model", "digits:make", "--sigma", SIGMA, "--data", "sample", "--n0", N0, "--n", N,
        "--noise", noise, "--skip", 25, "--max", 4,
    )  # fmt: skip
    assert smoothmix("certify", *how, *trusted, "--out", "whole.tsv").code == 0
    for shard in ("1/2", "2/2"):
        made = smoothmix("certify", *how, *trusted, "--shard", shard, "--out", f"{shard[0]}.tsv")
        assert made.code == 0, made.err
    merged = smoothmix("certificates", "merge", "1.tsv", "2.tsv", "--out", "merged.tsv", *trusted)
    assert merged.code == 0, merged.err
    assert without_time(tmp_path / "merged.tsv") == without_time(tmp_path / "whole.tsv")
    assert "\t-1:43," in (tmp_path / "merged.tsv").read_text()

    verified = smoothmix("certificates", "verify", "merged.tsv", *trusted)
    assert verified.code == 0, verified.out
    assert "4 follow from their votes" in verified.out
    recomputed = smoothmix("certificates", "recompute", "merged.tsv", "--alpha", 0.01, *trusted)
    assert recomputed.code == 0, recomputed.err
    predicted = smoothmix(
        "predict", "--model", "digits:make", "--sigma", SIGMA, "--data", "sample", "--noise", noise,
        "--n", 70, "--max", 2, *trusted,
    )  # fmt: skip
    assert predicted.code == 0, predicted.err
    assert [line.split("\t")[4].split(",")[0] for line in predicted.out.splitlines()[1:3]] == [
        "-1:10",
        "-1:10",
    ]
    page = smoothmix("report", "whole.tsv", "merged.tsv", "--out", "page.html", *trusted)
    assert page.code == 0, page.err
    exported = smoothmix("certificates", "export", "whole.tsv", *trusted)
    assert exported.code == 0
    assert len(exported.out.splitlines()) == 5


def test_a_killed_command_resumes(tmp_path: Path, smoothmix: Run, jobs: Jobs) -> None:
    put_network(tmp_path)
    how = (
        "certify", "--model", "digits:make", "--sigma", SIGMA, "--data", "sample",
        "--noise", put_noise(tmp_path), "--import", "sevenths", "--n", 5_000, "--skip", 50,
    )  # fmt: skip
    path = tmp_path / "killed.tsv"
    job = jobs.smoothmix(*how, "--out", "killed.tsv")
    until(lambda: path.exists() and path.read_text().count("\n") >= 2, "the first row is written")
    job.process.kill()
    assert job.wait() == -signal.SIGKILL
    assert smoothmix(*how, "--out", "killed.tsv").code == 0
    assert smoothmix(*how, "--out", "expected.tsv").code == 0
    assert without_time(path) == without_time(tmp_path / "expected.tsv")
