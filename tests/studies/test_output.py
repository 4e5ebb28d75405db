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

from smoothmix.studies import confidence, files, mixing, path
from smoothmix.studies.base import Attack, Draws, Model, Study
from smoothmix.tables import to_csv
from tests.helpers.studies import half_space, images, rows


def test_published_numbers_stand_beside_ours_on_cifar10_at_their_noise_only() -> None:
    settings: dict[str, Any] = {"epsilons": (0.0, 5.0, 0.5), "draws": Draws(n=20), "figure": False}
    models = [half_space("same"), half_space("other", sigma=0.25)]
    grid = confidence.study(models, images(0.3, name="cifar10"), [0], **settings).grid
    found = rows(to_csv(grid))
    assert [(r["published_true"], r["published_off"]) for r in found[:3]] == [
        ("66.4", "24.2"),
        ("10.7", "82.0"),
        ("", ""),
    ]
    assert {r["published_true"] for r in found[3:]} == {""}
    assert any("same 0.5, other 0.25" in note for note in grid.notes)
    assert "published" not in to_csv(confidence.study(models, images(0.3), [0], **settings).grid)
    assert list(confidence.PUBLISHED) == [0, 1, 2, 3, 4, 5]


def test_a_few_images_tell_nothing_apart() -> None:
    models, dataset = (
        [half_space("near"), half_space("far", sigma=1.0)],
        images(*np.linspace(-0.2, 1, 3)),
    )
    found = confidence.study(
        models, dataset, range(3), epsilons=(0.0, 1.0), draws=Draws(n=100), figure=False
    )
    assert found.text.endswith(
        "beside that of near, is not told apart: 3 images are too few for that."
    )


def test_intervals_and_differences_are_over_images_and_paired() -> None:
    dataset = images(*np.linspace(-0.2, 1, 24))
    models = [half_space("near"), half_space("far", sigma=1.0)]
    found = confidence.study(
        models, dataset, range(24), epsilons=(0.0, 1.0), draws=Draws(n=100), figure=False
    )
    for row in rows(to_csv(found.grid)):
        assert float(row["true_low"]) < float(row["true"]) < float(row["true_high"])
        assert float(row["true"]) + float(row["off"]) == pytest.approx(100)
        assert row["images"] == "24"
    assert found.text.endswith(
        "confidence of far, beside that of near, is lower at eps 1, higher at eps 0."
    )
    alike = [half_space("a"), half_space("b")]
    found = confidence.study(
        alike, dataset, range(24), epsilons=(0.0, 1.0), draws=Draws(n=100), figure=False
    )
    assert found.text.endswith("is not told apart at eps 0, 1.")
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
    dataset, attack = images(0.2, 0.4, 0.9, -0.5), Attack(steps=5, epsilon=0.6)
    models = [half_space("one", sigma=0.1), half_space("two", sigma=0.1)]
    found = mixing.study(models, dataset, range(4), attack=attack, draws=Draws(n=200))
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
    assert found.figure is not None
    assert [t.get_text().partition(", ")[2][-7:] for t in found.figure.legends[0].get_texts()] == [
        "1 wrong",
        "1 wrong",
    ]
    nothing = mixing.study(models, dataset, [3], attack=attack, draws=Draws(n=50))
    assert "one none is right" in nothing.text
    assert nothing.figure is not None


def test_images_that_an_attack_does_not_move_have_no_distance_of_change() -> None:
    """Where a network is so sure that its gradient is zero, nothing ever changes."""

    class Sure(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.stack([1e6 + x.flatten(1).sum(1), -1e6 - x.flatten(1).sum(1)], dim=1)

    model = Model(name="sure", network=Sure(), sigma=0.1, num_classes=2)
    found = mixing.study(
        [model], images(0.2, 0.4), range(2), attack=Attack(steps=2, epsilon=1.0), draws=Draws(n=20)
    )
    (row,) = rows(to_csv(found.grid))
    assert (row["never_changed"], row["adversarial_l2"], row["change_l2"]) == ("2", "0.0", "inf")


def test_larger_ratios_are_said_to_be_larger() -> None:
    def ratios(name: str, *values: float) -> mixing.Ratios:
        return mixing.Ratios(half_space(name), np.array(values), np.ones(len(values)))

    base_line = ratios("first", 0.1, 0.2, 0.3, 0.4, math.nan, 0.5)
    said = mixing._compared(ratios("second", 0.2, math.inf, 0.2, 0.4, 0.9, math.nan), base_line)
    assert "second is larger than that of first on 2 of the 3 images" in said
    assert mixing._compared(base_line, base_line) == ""


@pytest.mark.parametrize("suffix", ["png", "pdf"])
def test_a_study_is_saved_as_numbers_figure_and_section(tmp_path: Path, suffix: str) -> None:
    dataset = images(0.4, 0.6)
    found = path.study([half_space()], dataset, [0, 1], points=3, draws=Draws(n=20))
    written = files.save(found, tmp_path / "made" / "here", suffix)
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
    drawn = (
        {line.get_color() for ax in found.figure.axes for line in ax.lines}
        if found.figure
        else set()
    )
    for wanted in [tuple(round(255 * part) for part in to_rgb(colour)) for colour in drawn]:
        nearest = min(
            max(abs(a - b) for a, b in zip(wanted, there, strict=True)) for there in colours
        )
        assert nearest <= 8, f"{wanted} is not in the picture"
    assert rows(written[0].read_text())[0]["idx"] == "0"


def test_a_figure_of_an_earlier_study_does_not_stay_beside_new_numbers(tmp_path: Path) -> None:
    (tmp_path / "confidence.png").touch()
    models = [half_space("near")]
    found = confidence.study(
        models, images(0.3), [0], epsilons=(0.0,), draws=Draws(n=50), figure=False
    )
    files.save(found, tmp_path, "pdf")
    assert not (tmp_path / "confidence.png").exists()


def test_an_earlier_study_that_found_something_else_is_set_aside(tmp_path: Path) -> None:
    models, dataset = [half_space("near")], images(0.3)
    few, more = (
        confidence.study(models, dataset, [0], epsilons=eps, draws=Draws(n=20), figure=False)
        for eps in ((0.0,), (0.0, 1.0))
    )
    for study in (few, few):
        assert files.set_aside(study, tmp_path) is None, "there is none, or it found the same"
        files.save(study, tmp_path)
    before = {file.name: file.read_text() for file in tmp_path.iterdir()}
    assert files.set_aside(more, tmp_path) == tmp_path / "earlier-1"
    files.save(more, tmp_path)
    assert {file.name: file.read_text() for file in (tmp_path / "earlier-1").iterdir()} == before
    assert files.set_aside(few, tmp_path) == tmp_path / "earlier-2"


def test_an_earlier_study_with_the_same_table_and_other_votes_is_set_aside(tmp_path: Path) -> None:
    near, far = (
        confidence.study(
            [half_space("near")], images(0.01), [0], epsilons=(0.0,), draws=Draws(n=n), figure=False
        )
        for n in (20, 40)
    )
    same_table = replace(far, grid=near.grid)
    files.save(near, tmp_path)
    assert files.set_aside(same_table, tmp_path) == tmp_path / "earlier-1"
    assert (tmp_path / "earlier-1" / "confidence-record.csv").exists()


def test_a_study_without_a_figure_is_saved_too(tmp_path: Path) -> None:
    found = confidence.study(
        [half_space()], images(0.4), [0], epsilons=(1.0,), draws=Draws(n=20), figure=False
    )
    assert [file.name for file in files.save(found, tmp_path)] == [
        "confidence.csv",
        "confidence-record.csv",
        "confidence.json",
    ]
    assert json.loads((tmp_path / "confidence.json").read_text())["figure"] is None
    bare = Study(name="bare", title="t", text="x", grid=found.grid)
    assert [file.name for file in files.save(bare, tmp_path)] == ["bare.csv", "bare.json"]


def test_figures_show_every_model_and_image() -> None:
    dataset = images(0.3, 0.5, 0.8, 0.9)
    models = [half_space("alpha_1"), half_space("beta $x$ <b>", sigma=0.7)]
    settings: dict[str, Any] = {"draws": Draws(n=30)}
    one = confidence.study(
        models, replace(dataset, name="cifar10"), range(4), epsilons=(1.0, 0.0), **settings
    ).figure
    assert one is not None
    assert [ax.get_title() for ax in one.axes] == ["True class", "Strongest other class"]
    legend = [text.get_text() for text in one.legends[0].get_texts()]
    assert legend == ["alpha_1", "beta $x$ <b>", "published (ResNet-110)"]
    two = path.study(models, dataset, range(4), points=3, classes=2, **settings).figure
    assert two is not None
    titles = [ax.get_title() for ax in two.axes if ax.get_title()]
    assert titles == [f"{model.name}, image {i}" for model in models for i in range(4)]
    assert sum(len(ax.child_axes) for ax in two.axes) == 8 * len(path.PICTURES)
