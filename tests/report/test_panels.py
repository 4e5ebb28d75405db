"""A panel of curves for each sigma, and the section on the number of noise samples."""

from __future__ import annotations

from pathlib import Path

from smoothmix.analysis import measure
from smoothmix.report import Choices, compare_runs
from smoothmix.report.sections.curves import curves
from smoothmix.report.sections.draws import draws
from tests.helpers.certificates import cohen_log, our_file


def test_each_sigma_has_a_panel_that_ends_where_its_runs_do(tmp_path: Path) -> None:
    sources = []
    for sigma in (0.25, 1.0):
        for name in ("a", "b"):
            path = cohen_log(tmp_path / f"{name}-{sigma}", [sigma * k / 10 for k in range(30)])
            sources.append(measure(f"{name}@{sigma}={path}"))
    section = curves(compare_runs(sources, Choices(), title="two sigmas"))
    assert section is not None
    assert [chart.caption for chart in section.charts[1:]] == ["σ 0.25", "σ 1"]
    small, large = section.charts[1:]
    assert [trace.run for trace in small.traces] == [0, 1]
    assert [trace.run for trace in large.traces] == [2, 3]
    assert max(small.traces[0].x) < 1 < max(large.traces[0].x)
    alone = curves(compare_runs(sources[:2], Choices(), title="one sigma"))
    assert alone is not None
    assert len(alone.charts) == 1


def test_the_section_on_noise_samples_says_which_runs_it_lacks(tmp_path: Path) -> None:
    ours = measure(our_file(tmp_path / "run" / "certificates.tsv", [990] * 20 + [700] * 10))
    log = measure(f"log@0.5={cohen_log(tmp_path / 'log', [0.5] * 30)}")
    section = draws(compare_runs([ours, log], Choices(), title="t"))
    assert section is not None
    assert [bool(entry.remark) for entry in section.legend] == [False, True]
    (trace,) = section.charts[0].traces
    assert list(trace.x) == [100, 1_000]
    assert trace.y[0] < trace.y[1]
    assert draws(compare_runs([log], Choices(), title="t")) is None
