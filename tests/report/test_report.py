"""The command `report`, and the numbers behind it: from certificate files to a comparison."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from smoothmix import data, presets
from smoothmix.analysis import Measured, Source, measure, paired_by_image
from smoothmix.config import RunConfig
from smoothmix.errors import UsageError
from smoothmix.report import Choices, compare_runs, make_page, render, summary_grid
from smoothmix.report.comparison import table_radii
from smoothmix.report.curves import radius_curve
from smoothmix.report.headline import headline
from smoothmix.report.sections.gallery import make_gallery
from smoothmix.runs.options import RunOverrides
from smoothmix.runs.plan import make_config
from smoothmix.tables.formats import to_markdown
from tests.conftest import Run
from tests.helpers.certificates import COHEN_HEADER, cohen_log, our_file, run_folder


@pytest.fixture
def two_runs(tmp_path: Path) -> list[Path]:
    gaussian = run_folder(
        tmp_path / "g",
        [1000, 900, 500, 100],
        make_config(RunOverrides(epochs=2), preset="mnist/0.50/gaussian"),
    )
    better = run_folder(
        tmp_path / "s",
        [1000, 990, 900, 100],
        make_config(RunOverrides(epochs=2), preset="mnist/0.50/smoothmix-eta5"),
    )
    return [gaussian, better]


def test_the_page_holds_what_the_files_say(two_runs: list[Path]) -> None:
    gaussian, better = (measure(run) for run in two_runs)
    page = compare_runs([gaussian, better], Choices(radii=(0.0, 0.5)), title="t")
    first, second = page.runs
    assert first.difference is None
    assert second.difference is not None
    assert second.difference.versus == "g"
    assert second.difference.acr.value == pytest.approx(second.acr.value - first.acr.value)
    assert [a.value for a in second.accuracy] == [0.75, 0.75]
    assert second.accuracy_bound is not None
    assert all(
        bound < a.value for bound, a in zip(second.accuracy_bound, second.accuracy, strict=True)
    )
    assert first.abstention is not None
    assert first.abstention.value == 0.5
    assert first.training is not None
    assert first.training.parts == {"natural": [0.5]}
    assert second.published is not None
    assert second.published.acr == 1.6932
    assert second.published.caution == (
        "2 of 90 epochs, n 1,000 instead of 100,000, data sample test instead of mnist test, "
        "4 of 10,000 images"
    )
    assert second.published.deviations_away is None


def test_the_curve_is_never_above_the_truth_between_its_points(two_runs: list[Path]) -> None:
    measured = measure(two_runs[1])
    curve = radius_curve(measured, [measured])
    assert curve.y == measured.accuracy_at(curve.x).tolist()
    assert curve.x[-1] > float(measured.radius.max())
    assert curve.y[-1] == 0.0
    assert len(curve.x) <= 405


def test_the_baseline_is_gaussian_of_the_same_sigma_or_the_one_asked_for(
    two_runs: list[Path],
) -> None:
    every = [measure(run) for run in reversed(two_runs)]
    page = compare_runs(every, Choices(), title="t")
    assert [run.difference.versus if run.difference else None for run in page.runs] == ["g", None]
    page = compare_runs(every, Choices(baseline="s"), title="t")
    assert [run.difference.versus if run.difference else None for run in page.runs] == [None, "s"]
    with pytest.raises(UsageError, match="no model is called 'x': there are s, g"):
        compare_runs(every, Choices(baseline="x"), title="t")


def spread(radius: float, images: int) -> list[object]:
    """Radii around one, all different: several equal ones would be the limit of the draws."""
    return [round(radius + i / 1000, 3) for i in range(images)]


def test_a_baseline_by_name_is_the_one_of_each_sigma(tmp_path: Path) -> None:
    every = []
    for sigma in (0.25, 0.5):
        for name, radius in (("salman", 0.7), ("cohen", 0.5)):
            path = cohen_log(tmp_path / name / f"noise_{sigma}", spread(radius, 30))
            every.append(measure(f"{name}={path}"))
    page = compare_runs(every, Choices(baseline="cohen"), title="t")
    versus = [run.difference.versus if run.difference else None for run in page.runs]
    assert versus == ["cohen, sigma 0.25", None, "cohen, sigma 0.5", None]
    # Logs do not record their training: without a choice the first one is the baseline.
    first = compare_runs(every, Choices(), title="t")
    assert [run.difference is None for run in first.runs] == [True, False, True, False]
    # Any log may be declared Gaussian, which also decides what is bold.
    declared = compare_runs(every, Choices(gaussian=["cohen"]), title="t")
    assert [run.difference is None for run in declared.runs] == [False, True, False, True]
    assert [run.method for run in declared.runs] == ["", "gaussian", "", "gaussian"]
    acr = [column.key for column in summary_grid(declared).columns].index("acr")
    bold = [row.cells[acr].bold for row in summary_grid(declared).rows]
    assert bold == [True, False, True, False]


def test_a_log_with_fewer_images_is_left_out_of_the_ranking(tmp_path: Path) -> None:
    every = []
    for name, images, radius in (("few", 25, 0.9), ("base", 30, 0.5), ("best", 30, 0.7)):
        path = cohen_log(tmp_path / name, spread(radius, images))
        every.append(measure(f"{name}@0.5={path}"))
    page = compare_runs(every, Choices(gaussian=["base"]), title="t")
    assert not page.comparable
    assert [run.name for run in page.ranked(0.5)] == ["best", "base"]
    text = " ".join(sentence.striptags() for sentence in headline(page))
    assert "best is certifiably robust at average radius" in text
    assert "few is not ranked with them: other images or other settings." in text
    acr = [column.key for column in summary_grid(page).columns].index("acr")
    assert [row.cells[acr].bold for row in summary_grid(page).rows] == [False, False, True]


def test_the_summary_says_what_is_inferred(tmp_path: Path) -> None:
    inferred = measure(f"a@1={cohen_log(tmp_path / 'a', [3.81, 3.81, 3.81])}")
    unknown = measure(f"b@1={cohen_log(tmp_path / 'b', [1.0, 2.0, 3.0])}")
    page = compare_runs([inferred, unknown], title="t")
    table = to_markdown(summary_grid(page))
    assert "100000 (inferred) | 0.001 (inferred)" in table
    assert "| unknown | unknown |" in table
    html = render(make_page(page))
    assert "100,000 <small>inferred</small>" in html
    assert ">unknown</td>" in html
    assert "Certified with gaussian noise." in html


def test_radii_of_the_table_are_round_and_few(tmp_path: Path) -> None:
    for largest in (1e-3, 0.03, 0.3, 0.95, 3.8, 20.0, 1000.0):
        measured = measure(cohen_log(tmp_path / f"{largest}", [largest]), paper_rounding=True)
        radii = table_radii([measured], Choices())
        assert radii[0] == 0
        assert len(radii) <= 9
        assert radii[-1] <= largest < radii[-1] + 2 * radii[1]
        assert all(float(f"{r:.2g}") == r or r in (1.25, 1.75) for r in radii), "round"


def test_the_two_best_are_held_against_each_other_image_by_image(tmp_path: Path) -> None:
    best, second, third = (
        measure(our_file(tmp_path / f"{votes}.tsv", [votes, votes // 2, votes]))
        for votes in (990, 980, 900)
    )
    found = compare_runs([third, second, best], Choices(), title="t").runners_up[0]
    assert found is not None
    assert (found.versus, found.images) == ("980", 3)
    assert found.acr.value == pytest.approx(best.counted.mean() - second.counted.mean())
    assert compare_runs([best], Choices(), title="t").runners_up == {}
    elsewhere = measure(our_file(tmp_path / "other.tsv", [985], data_hash="other"))
    assert compare_runs([best, elsewhere], Choices(), title="t").runners_up == {}


def test_runs_of_other_data_and_with_hardly_an_image_in_common_are_not_paired(
    tmp_path: Path,
) -> None:
    one = our_file(tmp_path / "one.tsv", [990, 980, 970] * 20)
    other = our_file(tmp_path / "other.tsv", [900, 950, 800] * 20, data="mnist", data_hash="other")
    page = compare_runs([measure(one), measure(other)], Choices(), title="t")
    assert [run.difference for run in page.runs] == [None, None]
    assert page.runners_up == {}
    third, whole = our_file(tmp_path / "third.tsv", [900] * 60), measure(one)
    assert (
        paired_by_image(measure(third).only(np.arange(45, 60)), whole.only(np.arange(50))) is None
    ), "five images"
    assert paired_by_image(measure(third).only(np.arange(5)), whole) is not None, (
        "there are no more than five"
    )
    labels = [
        measure(cohen_log(tmp_path / name, [1.0] * 30, predict=[1] * 30)) for name in ("a", "b")
    ]
    conflicting = replace(labels[1], label=1 - labels[1].label)
    assert compare_runs([labels[0], conflicting], Choices(), title="t").runs[1].difference is None


def test_published_numbers_beside_a_run_are_of_one_set_of_runs(two_runs: list[Path]) -> None:
    page = compare_runs([measure(run) for run in two_runs], Choices(), title="t")
    row, printed = page.runs[0].published, presets.get("mnist/0.50/gaussian").published
    assert row is not None
    assert printed is not None
    assert row.acr == printed.acr_mean
    assert row.accuracy == {
        radius: percent / 100 for radius, percent in printed.accuracy_mean.items()
    }
    grid = summary_grid(page)
    assert "seed deviations away" not in [column.name for column in grid.columns], "none has any"
    assert {len(line.cells) for line in grid.rows} == {len(grid.columns)}
    assert [
        note.partition(":")[0] for note in grid.notes if "beside the published row" in note
    ] == ["* g, s, beside the published row"]
    assert "deviations_away" in [column.key for column in summary_grid(page, wide=True).columns]


def test_abstention_that_no_run_has_measured_is_said_once_and_has_no_column(tmp_path: Path) -> None:
    skipping, whole = (
        measure(our_file(tmp_path / f"{skip}.tsv", [990, 400], skip_wrong=skip))
        for skip in (True, False)
    )

    def table(*every: Measured, wide: bool = False) -> tuple[dict[str, list[str]], bool]:
        grid = summary_grid(compare_runs(every, Choices(), title="t"), wide=wide)
        cells = {
            c.key: [line.cells[i].shown for line in grid.rows] for i, c in enumerate(grid.columns)
        }
        return cells, any(note.startswith("abstention is not known") for note in grid.notes)

    cells, noted = table(skipping)
    assert ("abstention" in cells, noted) == (False, True)
    cells, noted = table(skipping, whole)
    assert (cells["abstention"][0], noted) == ("not measured", False)
    cells, noted = table(skipping, wide=True)
    assert ("abstention" in cells, noted) == (True, True)


def test_what_is_true_of_many_files_is_said_once(tmp_path: Path) -> None:
    logs = [
        measure(cohen_log(tmp_path / f"noise_0.50_{seed}", [1.0] * count))
        for seed, count in ((1, 3), (2, 4))
    ]
    warnings = compare_runs(logs, Choices(), title="t").warnings
    without_votes = "a log without votes: p_A is the lower bound that follows from the radius"
    assert f"noise_0.50_1, noise_0.50_2: {without_votes}" in warnings
    assert (
        sum(
            "is read as the least that it may have been rounded from" in sentence
            for sentence in warnings
        )
        == 1
    )
    few = "too few images for reliable intervals of means: noise_0.50_1 (3), noise_0.50_2 (4)"
    assert few in warnings
    rounded = [measure(log.path, paper_rounding=True) for log in logs]
    assert not any(
        "is read as the least" in sentence
        for sentence in compare_runs(rounded, Choices(), title="t").warnings
    )


class TestCommand:
    def test_a_table_and_a_page(self, smoothmix: Run, two_runs: list[Path], tmp_path: Path) -> None:
        result = smoothmix(
            "report", f"Gaussian={two_runs[0]}", f"SmoothMix={two_runs[1]}", "--out", "page.html"
        )
        assert result.code == 0, result.err
        assert "Certified robustness: Gaussian and SmoothMix" in result.out
        assert "all: sigma 0.5, images 4, n 1000, alpha 0.001, noise gaussian" in result.out
        assert "few images" in result.out
        page = (tmp_path / "page.html").read_text()
        assert "SmoothMix" in page
        assert len(page) < 2_000_000

    @pytest.mark.parametrize("kind", ["csv", "json"])
    def test_tables_for_programs_have_every_number_in_a_column(
        self, smoothmix: Run, two_runs: list[Path], kind: str
    ) -> None:
        result = smoothmix("report", *two_runs, "--format", kind, "--radii", "0", "0.5")
        rows = (
            list(csv.DictReader(io.StringIO(result.out)))
            if kind == "csv"
            else json.loads(result.out)["rows"]
        )
        measured = measure(two_runs[1])
        assert float(rows[1]["acr"]) == pytest.approx(measured.acr().value, abs=5e-5)
        assert float(rows[1]["accuracy_0.50"]) == 75.0
        assert float(rows[1]["acr_low"]) <= float(rows[1]["acr"]) <= float(rows[1]["acr_high"])
        assert rows[1]["baseline"] == "g"

    def test_files_that_differ_are_said_to(
        self, smoothmix: Run, two_runs: list[Path], tmp_path: Path
    ) -> None:
        log = cohen_log(tmp_path / "cohen" / "noise_1.00", [1.5, 0.2, 0.1])
        result = smoothmix("report", two_runs[0], log, "--format", "md")
        assert result.code == 0
        assert "sigma differs: 0.5 (g); 1 (cohen)" in result.out
        assert "alpha is not known of cohen" in result.out
        assert "not recorded by cohen: n0, precision, the data set, the data" in result.out
        assert "not the same images: 4 (g); 3 (cohen); 3 in common" in result.out

    def test_paper_rounding_is_said(self, smoothmix: Run, tmp_path: Path) -> None:
        log = cohen_log(tmp_path / "noise_0.5", [1.5])
        sound = smoothmix("report", log, "--radii", "1.5", "--format", "csv")
        paper = smoothmix("report", log, "--radii", "1.5", "--format", "csv", "--paper-rounding")
        assert next(csv.DictReader(io.StringIO(sound.out)))["accuracy_1.50"] == "0.00"
        assert next(csv.DictReader(io.StringIO(paper.out)))["accuracy_1.50"] == "100.00"
        assert "not sound" in paper.err
        assert "note: low and high: 95 % intervals over images" in sound.err
        assert (
            "- all: sigma 0.5, images 1, n unknown, alpha unknown, noise gaussian"
            in smoothmix("report", log).out
        )

    def test_figures(self, smoothmix: Run, two_runs: list[Path], tmp_path: Path) -> None:
        result = smoothmix("report", *two_runs, "--figures", "figures", "--figure-format", "png")
        assert result.code == 0, result.err
        assert len(list((tmp_path / "figures").glob("*.png"))) == 5

    @pytest.mark.parametrize(
        ("args", "message"),
        [
            (["nowhere"], "no such certificate file"),
            (["--radii", "-1"], "radii must be zero or more"),
            (["--confidence", "1.5"], "confidence must lie strictly between 0 and 1"),
            (["--rho", "0"], "rho must lie strictly between 0 and 1"),
            (["--baseline", "x"], "no model is called 'x'"),
            (["--figure-format", "png"], "--figure-format goes with --figures"),
            (["--data-dir", "."], "--data-dir is for the images on the page"),
        ],
    )
    def test_misuse_is_a_sentence(
        self, smoothmix: Run, two_runs: list[Path], args: list[str], message: str
    ) -> None:
        result = smoothmix("report", *([] if args == ["nowhere"] else two_runs[:1]), *args)
        assert result.code == 2
        assert message in result.err
        assert result.err.count("\n") == 1

    def test_pictures_of_the_data_set_are_shown_if_it_is_the_one_certified(
        self, smoothmix: Run, two_runs: list[Path], tmp_path: Path
    ) -> None:
        from smoothmix import data

        smoothmix("report", *two_runs, "--out", "other.html")
        assert "data:image/png" not in (tmp_path / "other.html").read_text()
        assert "not the one that was certified" in (tmp_path / "other.html").read_text()
        fingerprint = data.load("sample", "test").fingerprint
        for run in two_runs:
            settings = run / "certificates.toml"
            settings.write_text(
                settings.read_text().replace('data_hash = "d"', f'data_hash = "{fingerprint}"')
            )
        smoothmix("report", *two_runs, "--out", "same.html")
        assert "data:image/png" in (tmp_path / "same.html").read_text()


def test_a_log_gets_its_images_by_the_data_set_that_is_stated(tmp_path: Path) -> None:
    labels = data.load("sample", "test").labels
    lines = [f"{i}\t{labels[i]}\t{labels[i]}\t0.5\t1\t1\n" for i in range(5)]
    (tmp_path / "log").write_text(COHEN_HEADER + "".join(lines))
    path = str(tmp_path / "log")
    unknown = make_gallery([measure(path)])
    assert "do not record their data set" in unknown.note
    made = make_gallery([measure(Source(path=path, data="sample"))])
    assert all(image.thumbnail.source.startswith("data:image/png") for image in made.images)
    # Another order of the images, or another data set.
    shifted = measure(Source(path=path, data="sample", name="mine"))
    shifted = replace(shifted, label=(shifted.label + 1) % 10)
    other = make_gallery([shifted])
    assert "mine has other labels than the data set sample" in other.note


def test_a_gallery_shows_each_kind_of_image(two_runs: list[Path]) -> None:
    gallery = make_gallery([measure(run) for run in two_runs])
    tags = {image.idx: list(image.kinds) for image in gallery.images}
    assert tags == {
        0: ["smallest radius"],
        1: ["smallest radius"],
        2: ["abstained", "models disagree"],
        3: ["abstained"],
    }
    verdict = gallery.images[2].verdicts[1]
    assert (verdict.predict, verdict.correct, verdict.votes, verdict.n) == (
        "1",
        True,
        [("1", 900), ("0", 100)],
        1000,
    )


def test_files_without_a_common_image_have_no_gallery(tmp_path: Path) -> None:
    one = measure(cohen_log(tmp_path / "a", [1.0]))
    other = replace(one, idx=np.array([7]))
    assert (
        make_gallery([one, other]).note == "No images are shown: the files have no image in common."
    )


def test_config_files_that_are_broken_are_refused_by_name(tmp_path: Path) -> None:
    folder = run_folder(
        tmp_path / "g", [1000], make_config(RunOverrides(), preset="mnist/0.50/gaussian")
    )
    (folder / "metrics.jsonl").write_text('{"epoch": }\n')
    with pytest.raises(UsageError, match=r"metrics\.jsonl: cannot be read"):
        measure(folder)
    assert RunConfig.load(folder / "config.toml").preset == "mnist/0.50/gaussian"


def test_images_beyond_the_data_set_are_not_drawn_and_the_page_says_so(
    smoothmix: Run, tmp_path: Path
) -> None:
    sample = data.load("sample", "test")
    path = our_file(tmp_path / "certificates.tsv", [900, 400], data_hash=sample.fingerprint)
    settings = path.with_suffix(".toml")
    settings.write_text(settings.read_text().replace("images = 2", "images = 9000"))
    text = path.read_text().replace("\n1\t", "\n8000\t")
    path.write_text(text)
    done = smoothmix("report", path, "--out", "page.html")
    assert done.code == 0, done.err
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert f"name image 8,000, and the data set sample has {len(sample):,}" in page
