"""Where a gain comes from, and the best over sigma, against slow and obvious computations."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from smoothmix.analysis import Measured, measure
from smoothmix.analysis.gains import gain_over
from smoothmix.report import Choices, compare_runs, make_page, render
from smoothmix.report.sections.gains import gains

IMAGES = 60


def log(folder: Path, name: str, sigma: float, seed: int, mean: float) -> Measured:
    """A log of radii around a mean; images below 0 are wrong."""
    radii = np.random.default_rng(seed).normal(mean, 0.5, IMAGES)
    lines = ["idx\tlabel\tpredict\tradius\tcorrect\ttime"]
    for idx, radius in enumerate(np.clip(radii, None, 3.81 * sigma)):
        right = int(radius > 0)
        lines.append(f"{idx}\t1\t{right}\t{max(radius, 0.001):.3}\t{right}\t0:00:01")
    path = folder / f"{name}_sigma{sigma}"
    path.write_text("\n".join(lines) + "\n")
    return measure(f"{name}={path}")


def test_the_thirds_are_those_of_the_baseline_and_their_gains_add_up(tmp_path: Path) -> None:
    baseline = log(tmp_path, "base", 0.5, 0, 0.4)
    other = log(tmp_path, "other", 0.5, 1, 0.7)
    gain = gain_over(other, baseline)
    assert gain is not None
    hardness = []
    for row in range(IMAGES):
        p = baseline.probability[row] if baseline.correct[row] else -1.0
        hardness.append((p, row))
    rows = [row for _, row in sorted(hardness)]
    for third, start in enumerate((0, 20, 40)):
        part = rows[start : start + 20]
        ours = sum(other.counted[row] for row in part)
        theirs = sum(baseline.counted[row] for row in part)
        assert gain.acr[third] == pytest.approx(ours / 20)
        assert gain.gained[third] == pytest.approx((ours - theirs) / IMAGES)
    assert sum(gain.gained) == pytest.approx(other.acr().value - baseline.acr().value)
    better = [other.counted[row] > baseline.counted[row] for row in range(IMAGES)]
    assert gain.better == pytest.approx(np.mean(better))
    assert gain.better + gain.worse <= 1


def test_a_run_gains_nothing_over_itself(tmp_path: Path) -> None:
    baseline = log(tmp_path, "base", 0.5, 0, 0.4)
    gain = gain_over(baseline, baseline)
    assert gain is not None
    assert (gain.gained, gain.better, gain.worse) == ((0, 0, 0), 0, 0)
    # The easy third has the larger radii.
    assert list(gain.acr) == sorted(gain.acr)


def test_the_page_has_both_tables(tmp_path: Path) -> None:
    runs = [
        log(tmp_path, "base", 0.25, 0, 0.4),
        log(tmp_path, "other", 0.25, 1, 0.6),
        log(tmp_path, "base", 1.0, 2, 0.4),
        log(tmp_path, "other", 1.0, 3, 1.2),
    ]
    stated = []
    for run in runs:
        source = run.source.or_else(n=100_000, alpha=0.001, data="")
        stated.append(measure(source))
    comparison = compare_runs(stated, Choices(baseline="base"), title="four")
    section = gains(comparison)
    assert section is not None
    by_third, best = section.tables
    assert [[cell.value for cell in row.cells[:3]] for row in by_third.grid.rows] == [
        ["other", "base", 0.25],
        ["other", "base", 1.0],
    ]
    assert list(by_third.runs) == [1, 3]
    for row in best.grid.rows:
        at = float(str(row.cells[0].value))
        assert row.cells[1].value == max(run.accuracy_at([at])[0] for run in stated)
    assert "Where the differences come from" in render(make_page(comparison))


def test_nothing_is_shown_of_one_run_and_no_ranking_of_unknown_draws(tmp_path: Path) -> None:
    one = log(tmp_path, "base", 0.5, 0, 0.4)
    assert gains(compare_runs([one], title="one")) is None
    other = log(tmp_path, "other", 1.0, 1, 0.4)
    assert gains(compare_runs([one, other], title="two")) is None
