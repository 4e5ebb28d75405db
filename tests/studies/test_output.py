"""The tables, figures and files of the studies."""

from __future__ import annotations

import base64
import io
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgb
from PIL import Image

from smoothmix.studies import (
    ConfidenceStudy,
    MixingStudy,
    PathStudy,
    SmoothedAttack,
    Study,
    StudyReport,
    VoteSettings,
    measure,
    save_report,
)
from smoothmix.studies.confidence import PUBLISHED
from smoothmix.studies.mixing import MixingRatios, _comparison
from smoothmix.studies.path_figure import SHOWN_RATIOS
from smoothmix.tables import to_csv
from tests.helpers.studies import half_space, images, named, rows


def report_of(study: Study, *what: Any, n: int) -> StudyReport:
    """The report on classifiers, a data set and images, by n votes."""
    return study.summarise(measure(study, *what, votes=VoteSettings(n=n)))


def test_published_numbers_stand_beside_ours_on_cifar10_at_their_noise_only() -> None:
    study = ConfidenceStudy(epsilons=(0.0, 5.0, 0.5))
    models = [half_space("same"), half_space("other", sigma=0.25)]
    grid = report_of(study, models, images(0.3, name="cifar10"), [0], n=20).grid
    found = rows(to_csv(grid))
    assert [(r["published_true"], r["published_off"]) for r in found[:3]] == [
        ("66.4", "24.2"),
        ("10.7", "82.0"),
        ("", ""),
    ]
    assert {r["published_true"] for r in found[3:]} == {""}
    assert any("same 0.5, other 0.25" in note for note in grid.notes)
    assert "published" not in to_csv(report_of(study, models, images(0.3), [0], n=20).grid)
    assert list(PUBLISHED) == [0, 1, 2, 3, 4, 5]


def test_a_few_images_tell_nothing_apart() -> None:
    models = [half_space("near"), half_space("far", sigma=1.0)]
    dataset = images(*np.linspace(-0.2, 1, 3))
    study = ConfidenceStudy(epsilons=(0.0, 1.0))
    found = report_of(study, models, dataset, range(3), n=100)
    assert found.text.endswith("compared with near, is not known to differ: 3 images are too few.")


def test_intervals_and_differences_are_over_images_and_paired() -> None:
    dataset = images(*np.linspace(-0.2, 1, 24))
    models = [half_space("near"), half_space("far", sigma=1.0)]
    study = ConfidenceStudy(epsilons=(0.0, 1.0))
    found = report_of(study, models, dataset, range(24), n=100)
    for row in rows(to_csv(found.grid)):
        assert float(row["true_low"]) < float(row["true"]) < float(row["true_high"])
        assert float(row["true"]) + float(row["off"]) == pytest.approx(100)
        assert row["images"] == "24"
    assert found.text.endswith(
        "confidence of far, compared with near, is lower at eps 1, higher at eps 0."
    )
    alike = [half_space("a"), half_space("b")]
    found = report_of(study, alike, dataset, range(24), n=100)
    assert found.text.endswith("is not known to differ at eps 0, 1.")
    assert any(
        note.endswith("+0.0 [+0.0, +0.0] at eps 0, +0.0 [+0.0, +0.0] at eps 1")
        for note in found.grid.notes
    )
    assert found.record is not None
    record = rows(to_csv(found.record))
    assert len(record) == 2 * 2 * 24
    assert all(
        sum(int(pair.split(":")[1]) for pair in row["counts"].split(",")) == 100 for row in record
    )


def test_mixing_counts_every_image_once_and_says_why_some_have_no_ratio() -> None:
    dataset = images(0.2, 0.4, 0.9, -0.5)
    study = MixingStudy(attack=SmoothedAttack(steps=5, epsilon=0.6))
    models = [half_space("one", sigma=0.1), half_space("two", sigma=0.1)]
    found = report_of(study, models, dataset, range(4), n=200)
    for row in rows(to_csv(found.grid)):
        assert (row["images"], row["wrong_at_0"], row["changed"], row["never_changed"]) == (
            "4",
            "1",
            "2",
            "1",
        )
    assert found.record is not None
    assert [row["outcome"] for row in rows(to_csv(found.record))] == ["changed"] * 2 + [
        "unchanged",
        "wrong",
    ] + (["changed"] * 2 + ["unchanged", "wrong"])
    assert found.draw is not None
    legend = found.draw().legends[0].get_texts()
    assert [text.get_text().partition(", ")[2][-7:] for text in legend] == ["1 wrong", "1 wrong"]
    nothing = report_of(study, models, dataset, [3], n=50)
    assert "one classifies no image correctly" in nothing.text
    assert nothing.draw is not None
    assert len(nothing.draw().legends[0].get_texts()) == 2


def test_images_that_an_attack_does_not_move_have_no_distance_of_change() -> None:
    """Where a network is so sure that its gradient is zero, nothing ever changes."""

    class Sure(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.stack([1e6 + x.flatten(1).sum(1), -1e6 - x.flatten(1).sum(1)], dim=1)

    model = named("sure", Sure(), sigma=0.1, classes=2)
    study = MixingStudy(attack=SmoothedAttack(steps=2, epsilon=1.0))
    found = report_of(study, [model], images(0.2, 0.4), range(2), n=20)
    (row,) = rows(to_csv(found.grid))
    assert (row["never_changed"], row["adversarial_l2"], row["change_l2"]) == ("2", "0.0", "inf")


def test_larger_ratios_are_said_to_be_larger() -> None:
    def ratios(name: str, *values: float) -> MixingRatios:
        return MixingRatios(half_space(name), np.array(values), np.ones(len(values)))

    base_line = ratios("first", 0.1, 0.2, 0.3, 0.4, math.nan, 0.5)
    second = ratios("second", 0.2, math.inf, 0.2, 0.4, 0.9, math.nan)
    text = _comparison(second, base_line)
    assert "second is larger than that of first on 2 of the 3 images" in text
    assert _comparison(base_line, base_line) == ""


@pytest.mark.parametrize("suffix", ["png", "pdf"])
def test_a_study_is_saved_as_numbers_figure_and_section(tmp_path: Path, suffix: str) -> None:
    dataset = images(0.4, 0.6)
    found = report_of(PathStudy(points=3), [half_space()], dataset, [0, 1], n=20)
    written = save_report(found, tmp_path / "made" / "here", suffix).files
    assert [file.name for file in written] == [
        "path.csv",
        "path-record.csv",
        f"path.{suffix}",
        "path.json",
    ]
    assert sorted(file.name for file in (tmp_path / "made" / "here").iterdir()) == sorted(
        f.name for f in written
    )
    section = json.loads(written[-1].read_text())
    assert section["title"] == found.title
    assert section["text"] == found.text
    assert len(section["table"]["rows"]) == 2
    assert {len(row) for row in section["table"]["rows"]} == {len(section["table"]["columns"])}
    kind, _, data = section["figure"].partition(",")
    assert kind == "data:image/png;base64"
    with Image.open(io.BytesIO(base64.b64decode(data))) as picture:
        assert picture.format == "PNG"
        colours = {colour for _, colour in picture.convert("RGB").getcolors(maxcolors=2**24) or ()}
    assert found.draw is not None
    drawn = {line.get_color() for ax in found.draw().axes for line in ax.lines}
    assert len(drawn) > 1
    for wanted in [tuple(round(255 * part) for part in to_rgb(colour)) for colour in drawn]:
        nearest = min(
            max(abs(a - b) for a, b in zip(wanted, there, strict=True)) for there in colours
        )
        assert nearest <= 8, f"{wanted} is not in the picture"
    assert rows(written[0].read_text())[0]["idx"] == "0"


def test_a_figure_of_an_earlier_study_does_not_stay_beside_new_numbers(tmp_path: Path) -> None:
    (tmp_path / "confidence.png").touch()
    found = report_of(ConfidenceStudy(epsilons=(0.0,)), [half_space()], images(0.3), [0], n=50)
    save_report(replace(found, draw=None), tmp_path, "pdf")
    assert not (tmp_path / "confidence.png").exists()


def test_an_earlier_study_that_found_something_else_is_set_aside(tmp_path: Path) -> None:
    models, dataset = [half_space("near")], images(0.3)
    few, more = (
        replace(
            report_of(ConfidenceStudy(epsilons=epsilons), models, dataset, [0], n=20), draw=None
        )
        for epsilons in ((0.0,), (0.0, 1.0))
    )
    for report in (few, few):
        saved = save_report(report, tmp_path)
        assert saved.earlier is None, "there is none, or it has the same results"
    before = {file.name: file.read_text() for file in tmp_path.iterdir()}
    assert save_report(more, tmp_path).earlier == tmp_path / "earlier-1"
    assert {file.name: file.read_text() for file in (tmp_path / "earlier-1").iterdir()} == before
    assert save_report(few, tmp_path).earlier == tmp_path / "earlier-2"


def test_an_earlier_study_with_the_same_table_and_other_votes_is_set_aside(tmp_path: Path) -> None:
    study = ConfidenceStudy(epsilons=(0.0,))
    near, far = (report_of(study, [half_space("near")], images(0.01), [0], n=n) for n in (20, 40))
    same_table = replace(far, grid=near.grid)
    save_report(near, tmp_path)
    assert save_report(same_table, tmp_path).earlier == tmp_path / "earlier-1"
    assert (tmp_path / "earlier-1" / "confidence-record.csv").exists()


def test_a_study_without_a_figure_is_saved_too(tmp_path: Path) -> None:
    found = report_of(ConfidenceStudy(epsilons=(1.0,)), [half_space()], images(0.4), [0], n=20)
    found = replace(found, draw=None)
    assert [file.name for file in save_report(found, tmp_path).files] == [
        "confidence.csv",
        "confidence-record.csv",
        "confidence.json",
    ]
    assert json.loads((tmp_path / "confidence.json").read_text())["figure"] is None
    bare = StudyReport(name="bare", title="t", text="x", grid=found.grid)
    assert [file.name for file in save_report(bare, tmp_path).files] == ["bare.csv", "bare.json"]


def test_figures_show_every_model_and_image() -> None:
    dataset = images(0.3, 0.5, 0.8, 0.9)
    models = [half_space("alpha_1"), half_space("beta $x$ <b>", sigma=0.7)]
    study = ConfidenceStudy(epsilons=(1.0, 0.0))
    draw = report_of(study, models, replace(dataset, name="cifar10"), range(4), n=30).draw
    assert draw is not None
    one = draw()
    assert [ax.get_title() for ax in one.axes] == ["True class", "Strongest other class"]
    legend = [text.get_text() for text in one.legends[0].get_texts()]
    assert legend == ["alpha_1", "beta $x$ <b>", "published (ResNet-110)"]
    draw = report_of(PathStudy(points=3, classes=2), models, dataset, range(4), n=30).draw
    assert draw is not None
    two = draw()
    titles = [ax.get_title() for ax in two.axes if ax.get_title()]
    assert titles == [f"{model.name}, image {i}" for model in models for i in range(4)]
    assert sum(len(ax.child_axes) for ax in two.axes) == 8 * len(SHOWN_RATIOS)
