"""The ACR with fewer of the recorded votes: what certification with that n would have given."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from smoothmix.analysis import measure
from smoothmix.analysis.acr_by_draws import acr_by_draws
from smoothmix.certificates import from_votes
from tests.helpers.certificates import cohen_log, our_file
from tests.helpers.guarantees import certification_of

N = 10_000


def test_fewer_draws_give_the_acr_that_they_would_have_certified(tmp_path: Path) -> None:
    shares = np.linspace(0.6, 0.999, 400)
    rng = np.random.default_rng(1)
    path = our_file(tmp_path / "run" / "certificates.tsv", rng.binomial(N, shares).tolist(), n=N)
    measured = measure(path)
    points = dict(acr_by_draws(measured))
    assert list(points) == [100, 1_000, N]
    assert points[N] == pytest.approx(measured.counted.mean())
    assert points[100] < points[1_000] < points[N]
    for n in (100, 1_000):
        # The same images certified anew with n draws: the mean of many such files.
        certification = certification_of(0.5, n=n)
        acrs = []
        for _ in range(5):
            radii = []
            for votes in rng.binomial(n, shares).tolist():
                counts = {1: votes, 0: n - votes}
                row = from_votes(0, 1, {1: 100}, counts, certification=certification)
                radii.append(row.radius if row.correct else 0.0)
            acrs.append(np.mean(radii))
        assert points[n] == pytest.approx(np.mean(acrs), abs=0.03)


def test_logs_without_votes_have_no_such_curve(tmp_path: Path) -> None:
    assert acr_by_draws(measure(f"a@0.5={cohen_log(tmp_path / 'log', [0.5] * 30)}")) == []
