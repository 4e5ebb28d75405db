"""The studies: against mathematics where a smoothed classifier is known, and as a person runs them."""

from __future__ import annotations

import base64
import csv
import io
import json
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from scipy.special import ndtr
from torch import nn

from smoothmix.analysis import Estimate
from smoothmix.cli import study as commands
from smoothmix.config import Recipe, RunConfig
from smoothmix.data import MemoryDataset, load
from smoothmix.errors import UsageError
from smoothmix.randomness import Domain
from smoothmix.report.tables import to_csv
from smoothmix.run_folder import RunFolder
from smoothmix.runs import build_network
from smoothmix.studies import base, confidence, mixing, path
from smoothmix.studies.base import Attack, Draws, Model, Study
from smoothmix.weights import save_weights

from conftest import Result, Run

PIXELS = 64
"""So many that L2 distances of 1 or 2 are small steps in every pixel, and nothing is clamped."""
DRAWS = Draws(n=4000, seed=3)


class HalfSpace(nn.Module):
    """Class 0 where a unit direction's projection is above that of the middle grey, else 1, or 2 in a far corner.

    Its smoothed form is known: class 0 has probability Phi(margin / sigma), and so has it after any move, with the
    margin that is left. Every ascent from label 0 goes straight down the direction.
    """

    def __init__(self, classes: int = 2) -> None:
        super().__init__()
        signs = torch.tensor([1.0, -1.0]).repeat(PIXELS // 2)
        self.direction = nn.Parameter(signs / math.sqrt(PIXELS))
        self.classes = classes

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        height = (x.flatten(1) - 0.5) @ self.direction
        never = torch.full((len(x), self.classes - 2), -100.0, device=x.device)
        return torch.cat([torch.stack([height, -height], dim=1), never], dim=1)


def half_space(name: str = "half", *, sigma: float = 0.5, classes: int = 2) -> Model:
    return Model(name=name, network=HalfSpace(classes), sigma=sigma, num_classes=classes)


def images(*margins: float, label: int = 0, name: str = "lines", classes: int = 2) -> MemoryDataset:
    """An image for each margin: grey but for a step along the direction."""
    direction = HalfSpace().direction.detach().numpy()
    pixels = (0.5 + np.array(margins)[:, None] * direction).astype(np.float32)
    return MemoryDataset(
        name=name,
        split="test",
        class_names=tuple("abcdefgh"[:classes]),
        labels=np.full(len(margins), label, dtype=np.int64),
        pixels=pixels.reshape(len(margins), 1, 8, 8),
    )


def deviations(share: float | NDArray[np.float64], p: float | NDArray[np.float64], n: int) -> Any:
    """How many binomial deviations a share of n votes lies from the probability."""
    return np.abs(np.asarray(share) - p) / np.sqrt(np.maximum(p * (1 - np.asarray(p)), 1 / n) / n)


# What is known exactly ------------------------------------------------------------------------------------------------


def test_confidence_falls_as_phi_of_the_margin_that_the_attack_leaves() -> None:
    margins, epsilons = np.array([0.2, 0.5, 1.0, -0.3]), (0.0, 0.5, 1.0, 1.5)
    (found,) = confidence.measure([half_space()], images(*margins), range(4), epsilons=epsilons, draws=DRAWS)
    expected = ndtr((margins - np.array(epsilons)[:, None]) / 0.5)
    assert deviations(found.true, expected, DRAWS.n).max() < 4
    assert deviations(found.off, 1 - expected, DRAWS.n).max() < 4
    np.testing.assert_allclose(found.distances, np.repeat(epsilons, 4).reshape(4, 4), atol=1e-5)


def test_the_strongest_other_class_is_counted_and_never_the_true_one() -> None:
    votes = np.array([[[5, 3, 2], [0, 1, 9], [4, 4, 2]]])
    found = confidence.Confidences(half_space(classes=3), votes, np.array([0, 2, 1]), np.zeros((1, 3)))
    np.testing.assert_allclose(found.true, [[0.5, 0.9, 0.4]])
    np.testing.assert_allclose(found.off, [[0.3, 0.1, 0.4]])


def test_adversarial_examples_stay_in_the_ball_and_among_pixels() -> None:
    dataset = images(0.0, 3.5, 3.9)  # the last two are nearly black and white
    for epsilon in (1.0, 6.0):
        for _, case in base.cases([half_space()], dataset, range(3), DRAWS, lambda done, total: None):
            point = case.attacked(Attack(steps=10, epsilon=epsilon))
            assert 0 <= float(point.min()) <= float(point.max()) <= 1
            assert base.distance(point, case.image) <= epsilon * (1 + 1e-5)


def test_mixing_ratios_are_where_the_line_meets_the_boundary() -> None:
    margins = np.array([0.31, 0.77, 1.21, 1.93, 2.5, -0.2])
    attack = Attack(steps=10, epsilon=2.0)
    (found,) = mixing.measure([half_space(sigma=0.1)], images(*margins), range(6), attack=attack, draws=DRAWS)
    # Votes tell the boundary to about 0.5 / sqrt(n) / (phi(0) * 2 / 0.1) = 0.001 of the line.
    np.testing.assert_allclose(found.ratio[:4], margins[:4] / 2, atol=mixing.TOLERANCE / 2 + 0.005)
    assert math.isinf(found.ratio[4])
    assert math.isnan(found.ratio[5])
    assert (found.wrong, found.unchanged, len(found.right)) == (1, 1, 5)
    np.testing.assert_allclose(found.distance[:5], 2.0, atol=1e-5)
    assert found.median is not None
    assert found.median.value == found.ratio[2]


def test_a_class_that_leads_only_for_a_while_is_found() -> None:
    """Bisection between the ends alone would see no change at all."""
    assert mixing.least_change(lambda ratio: 0.3 < ratio < 0.6) == pytest.approx(0.3, abs=mixing.TOLERANCE / 2)
    assert mixing.least_change(lambda ratio: ratio >= 1) == pytest.approx(1, abs=mixing.TOLERANCE)
    assert mixing.least_change(lambda ratio: True) == pytest.approx(0, abs=mixing.TOLERANCE)
    assert mixing.least_change(lambda ratio: False) == math.inf


def test_bisection_asks_no_more_often_than_it_must() -> None:
    asked: list[float] = []
    mixing.least_change(lambda ratio: asked.append(ratio) or ratio > 0.99)  # type: ignore[func-returns-value]
    assert len(asked) == len(set(asked)) == 8 + 3


def test_the_interval_of_the_median_holds_it_as_often_as_it_says() -> None:
    """Also where a third of the values is infinite."""
    rng = np.random.default_rng(0)
    values = rng.exponential(size=(2000, 30))
    values[rng.random(values.shape) < 1 / 3] = np.inf
    middle = -math.log(1 - 0.75)  # 2/3 of the values are finite: their 75 % quantile is the median of all
    held = [e.low <= middle <= e.high for e in map(mixing.median, values)]
    assert 0.94 <= np.mean(held) <= 0.98
    assert mixing.median([0.5]) == Estimate(0.5, 0.0, math.inf)
    with pytest.raises(UsageError, match="at least one"):
        mixing.median([])


def test_votes_along_a_path_follow_phi() -> None:
    attack = Attack(steps=4, step_size=0.5)
    (found,) = path.measure([half_space()], images(0.8), [0], points=9, attack=attack, draws=DRAWS)
    expected = ndtr((0.8 - 2 * np.linspace(0, 1, 9)) / 0.5)
    assert deviations(found.votes[:, 0] / DRAWS.n, expected, DRAWS.n).max() < 4
    assert found.distance == pytest.approx(2.0, abs=1e-5)
    assert found.change == pytest.approx(0.5)  # the first of the nine ratios beyond 0.4
    assert found.pictures.shape == (5, 1, 8, 8)
    np.testing.assert_allclose(found.pictures[2], (found.pictures[0] + found.pictures[4]) / 2, atol=1e-6)


def test_a_path_shows_the_true_class_first_even_where_it_has_no_votes() -> None:
    votes = np.array([[0, 9, 1, 0], [0, 2, 3, 5]])
    found = path.Path(half_space(classes=4), 0, 0, np.array([0.0, 1.0]), votes, 1.0, np.zeros((5, 1, 8, 8)))
    assert found.leading(3) == [0, 1, 3]
    assert found.change == 0.0


# Randomness -----------------------------------------------------------------------------------------------------------


def test_an_image_gets_the_same_numbers_whatever_else_is_measured() -> None:
    model, dataset = small_model(), load("sample", "test")
    settings: dict[str, Any] = {"epsilons": (1.0,), "attack": Attack(steps=3, epsilon=1.0, copies=4)}
    draws = Draws(n=150, seed=1)
    (whole,) = confidence.measure([model], dataset, [5, 7, 11], **settings, draws=draws)
    (part,) = confidence.measure([model], dataset, [11, 5], **settings, draws=draws)
    (other,) = confidence.measure([model], dataset, [5, 7, 11], **settings, draws=replace(draws, seed=2))
    np.testing.assert_array_equal(whole.votes[:, [2, 0]], part.votes)
    np.testing.assert_array_equal(whole.distances[:, [2, 0]], part.distances)
    assert not np.array_equal(whole.votes, other.votes)


def test_attacks_and_votes_have_noise_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """An attack that had seen the votes' noise would fool those draws more than the classifier."""
    from smoothmix import randomness

    seen: list[tuple[int, int]] = []
    drawn = randomness.gaussian

    def watched(seed: int, domain: Domain, item: int, *rest: Any) -> Any:
        seen.append((domain, item))
        return drawn(seed, domain, item, *rest)

    monkeypatch.setattr(randomness, "gaussian", watched)
    confidence.measure([half_space()], images(0.1, 0.2), [1], epsilons=(1.0,), draws=Draws(n=10))
    assert set(seen) == {(Domain.ATTACK, 1), (Domain.STUDY, 1), (Domain.STUDY, 0)}  # the last settles the format


def test_the_network_is_left_as_it_was() -> None:
    model = small_model()
    model.network.train()
    before = {name: weight.clone() for name, weight in model.network.state_dict().items()}
    mixing.measure([model], load("sample", "test"), [0], attack=Attack(steps=2, epsilon=1.0), draws=Draws(n=20))
    assert all(module.training for module in model.network.modules())
    assert all(weight.grad is None and weight.requires_grad for weight in model.network.parameters())
    assert all(torch.equal(before[name], weight) for name, weight in model.network.state_dict().items())


# Tables, figures and files --------------------------------------------------------------------------------------------


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


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


def test_intervals_and_differences_are_over_images_and_paired() -> None:
    dataset = images(*np.linspace(-0.2, 1, 12))
    models = [half_space("near"), half_space("far", sigma=1.0)]
    found = confidence.study(models, dataset, range(12), epsilons=(0.0, 1.0), draws=Draws(n=100), figure=False)
    for row in rows(to_csv(found.grid)):
        assert float(row["true_low"]) < float(row["true"]) < float(row["true_high"])
        assert float(row["true"]) + float(row["off"]) == pytest.approx(100)
        assert row["images"] == "12"
    assert found.text.endswith("confidence of far, beside that of near, is lower at eps 1, higher at eps 0.")
    alike = [half_space("a"), half_space("b")]
    found = confidence.study(alike, dataset, range(12), epsilons=(0.0, 1.0), draws=Draws(n=100), figure=False)
    assert found.text.endswith("is not told apart at eps 0, 1.")
    assert any(note.endswith("+0.0 [+0.0, +0.0] at eps 0, +0.0 [+0.0, +0.0] at eps 1") for note in found.grid.notes)
    assert found.record is not None
    record = rows(to_csv(found.record))
    assert len(record) == 2 * 2 * 12
    assert all(sum(int(pair.split(":")[1]) for pair in row["counts"].split(",")) == 100 for row in record)


def test_mixing_counts_every_image_once_and_says_why_some_have_no_ratio() -> None:
    dataset, attack = images(0.2, 0.4, 0.9, -0.5), Attack(steps=5, epsilon=0.6)
    models = [half_space("one", sigma=0.1), half_space("two", sigma=0.1)]
    found = mixing.study(models, dataset, range(4), attack=attack, draws=Draws(n=200))
    for row in rows(to_csv(found.grid)):
        assert (row["images"], row["wrong_at_0"], row["changed"], row["never_changed"]) == ("4", "1", "2", "1")
    assert found.record is not None
    assert [row["outcome"] for row in rows(to_csv(found.record))] == ["changed"] * 2 + ["unchanged", "wrong"] + (
        ["changed"] * 2 + ["unchanged", "wrong"]
    )
    assert found.figure is not None
    assert [t.get_text().partition(", ")[2][-7:] for t in found.figure.legends[0].get_texts()] == ["1 wrong", "1 wrong"]
    nothing = mixing.study(models, dataset, [3], attack=attack, draws=Draws(n=50))
    assert "one none is right" in nothing.text
    assert nothing.figure is not None


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
    found = path.study([half_space()], dataset, [0, 1], points=3, classes=2, draws=Draws(n=20))
    written = base.save(found, tmp_path / "made" / "here", suffix)
    assert [file.name for file in written] == ["path.csv", "path-record.csv", f"path.{suffix}", "path.json"]
    assert sorted(file.name for file in (tmp_path / "made" / "here").iterdir()) == sorted(f.name for f in written)
    section = json.loads(written[-1].read_text())
    assert section["title"] == found.title
    assert section["text"] == found.text
    assert len(section["table"]["rows"]) == 2
    assert {len(row) for row in section["table"]["rows"]} == {len(section["table"]["columns"])}
    kind, _, data = section["figure"].partition(",")
    assert kind == "data:image/png;base64"
    with Image.open(io.BytesIO(base64.b64decode(data))) as picture:
        assert picture.format == "PNG"
    assert rows(written[0].read_text())[0]["idx"] == "0"


def test_a_study_without_a_figure_is_saved_too(tmp_path: Path) -> None:
    found = confidence.study([half_space()], images(0.4), [0], epsilons=(1.0,), draws=Draws(n=20), figure=False)
    assert [file.name for file in base.save(found, tmp_path)] == [
        "confidence.csv",
        "confidence-record.csv",
        "confidence.json",
    ]
    assert json.loads((tmp_path / "confidence.json").read_text())["figure"] is None
    bare = Study(name="bare", title="t", text="x", grid=found.grid)
    assert [file.name for file in base.save(bare, tmp_path)] == ["bare.csv", "bare.json"]


def test_figures_show_every_model_and_image() -> None:
    dataset = images(0.3, 0.5, 0.8, 0.9)
    models = [half_space("alpha_1"), half_space("beta $x$ <b>", sigma=0.7)]
    settings: dict[str, Any] = {"draws": Draws(n=30)}
    one = confidence.study(models, replace(dataset, name="cifar10"), range(4), epsilons=(1.0, 0.0), **settings).figure
    assert one is not None
    assert [ax.get_title() for ax in one.axes] == ["True class", "Strongest other class"]
    legend = [text.get_text() for text in one.legends[0].get_texts()]
    assert legend == ["alpha_1", "beta $x$ <b>", "published (ResNet-110)"]
    two = path.study(models, dataset, range(4), points=3, classes=2, **settings).figure
    assert two is not None
    titles = [ax.get_title() for ax in two.axes if ax.get_title()]
    assert titles == [f"{model.name}, image {i}" for model in models for i in range(4)]
    assert sum(len(ax.child_axes) for ax in two.axes) == 8 * len(path.PICTURES)


# Refusals -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Attack(epsilon=-1.0), "eps must be a number of zero or more, got -1"),
        (lambda: Attack(epsilon=math.inf), "eps must be a number of zero or more"),
        (Attack, "an attack without a limit needs a step size"),
        (lambda: Attack(epsilon=1.0, steps=0), "at least 1 step"),
        (lambda: Attack(epsilon=1.0, copies=0), "at least 1 copy"),
        (lambda: Attack(step_size=0.0), "step size must be a positive number"),
        (lambda: Draws(n=0), "n must be at least 1, got 0"),
        (lambda: Draws(seed=-1), "seed must lie in"),
        (lambda: half_space(sigma=0.0), "sigma must be a positive number"),
        (lambda: measured([], [0]), "at least one model"),
        (lambda: measured([half_space()], []), "no images are left to study"),
        (lambda: measured([half_space()], [0, 2]), "lines (test) has the images 0 to 1, not 2"),
        (lambda: measured([half_space()], [-1]), "has the images 0 to 1, not -1"),
        (lambda: measured([half_space()], [1, 1]), "asked for twice"),
        (lambda: measured([half_space(), half_space()], [0]), "the models need different names, got half, half"),
        (lambda: measured([half_space("a"), half_space("b", classes=3)], [0]), "numbers of classes apart: a 2, b 3"),
        (lambda: measured([half_space()], [0], label=2), "has the label 2, where the models tell 2 classes apart"),
        (lambda: measured([half_space()], [0], epsilons=()), "at least one eps"),
        (lambda: measured([half_space()], [0], epsilons=(1.0, 1.0)), "an eps is asked for twice"),
        (
            lambda: path.study([half_space()], images(0.5), [0], classes=3),
            "3 classes are asked for, where the models tell 2",
        ),
        (lambda: path.study([half_space()], images(0.5), [0], classes=1), "classes must be at least 2"),
        (lambda: path.measure([half_space()], images(0.5), [0], points=1), "at least 2 points"),
        (
            lambda: path.first_right([half_space()], images(-2.0), [0], 1),
            "none of 1 is classified right by every model",
        ),
    ],
)
def test_what_cannot_be_studied_is_refused(make: Any, sentence: str) -> None:
    with pytest.raises(UsageError) as refused:
        make()
    assert sentence in str(refused.value)


def measured(models: Sequence[Model], indices: Sequence[int], *, label: int = 0, **options: Any) -> object:
    classes = max(2, label + 1)
    return confidence.measure(models, images(0.1, 0.2, label=label, classes=classes), indices, **options)


def test_the_first_images_that_all_models_get_right() -> None:
    dataset = images(-0.5, 0.5, -0.5, 0.5, 0.5)
    assert path.first_right([half_space("a"), half_space("b")], dataset, range(5), 2) == [1, 3]
    assert path.first_right([half_space()], dataset, [4, 0], 3) == [4]


# The command line -----------------------------------------------------------------------------------------------------


def small_model() -> Model:
    """A network that has learned a little, as each test of real data needs it."""
    return Model(name="small", network=trained(), sigma=0.5, num_classes=10)


def config(**changed: Any) -> RunConfig:
    settings: dict[str, Any] = {
        "data": "sample",
        "network": "lenet",
        "method": {"name": "gaussian", "sigma": 0.5},
        "recipe": Recipe(epochs=1),
        "image_shape": (1, 28, 28),
    }
    return RunConfig(**(settings | changed))


@cache
def learned() -> dict[str, torch.Tensor]:
    """Weights after so few steps that some digits are right and some are not."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network, data = build_network(config()), load("sample", "train")
        optimiser = torch.optim.Adam(network.parameters(), lr=2e-3)
        for step in range(30):
            chosen = np.arange(64 * step, 64 * (step + 1))
            x = data.images(chosen)
            logits = network(x + 0.5 * torch.randn_like(x))
            loss = nn.functional.cross_entropy(logits, torch.from_numpy(data.labels[chosen]))
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
    return network.state_dict()


def trained() -> nn.Module:
    network = build_network(config())
    network.load_state_dict(learned())
    return network


def run_folder(where: Path, network: nn.Module | None = None, **changed: Any) -> Path:
    """A run as training leaves it; without a network, as it is before that."""
    config(**changed).save(RunFolder(where).config)
    if network:
        save_weights(network, RunFolder(where).weights)
    return where


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Runs to study, and some that cannot be."""
    folder = tmp_path / "runs"
    run_folder(folder / "one", trained())
    run_folder(folder / "louder", trained(), method={"name": "gaussian", "sigma": 0.8})
    run_folder(folder / "fashion", trained(), data="fashion-mnist")
    run_folder(folder / "fewer", build_network(config(num_classes=5)), num_classes=5)
    run_folder(folder / "untrained")
    return folder


QUICK = ("--n", 60, "--copies", 4, "--steps", 3, "--out", "studies", "--format", "png")


def test_quick_confidence_on_the_sample(smoothmix: Run, runs: Path, tmp_path: Path) -> None:
    done = smoothmix("study", "confidence", "runs/one", "Loud=runs/louder", "--eps", "0", "4", "--max", 4, *QUICK)
    assert done.code == 0, done.err
    found = rows((tmp_path / "studies" / "confidence.csv").read_text())
    assert [(r["model"], float(r["eps"])) for r in found] == [("one", 0), ("one", 4), ("Loud", 0), ("Loud", 4)]
    assert float(found[0]["true"]) > 40 > float(found[1]["true"])
    assert float(found[0]["off"]) < float(found[1]["off"])
    assert "true class %" in done.out
    assert "each is smoothed with its own: one 0.5, Loud 0.8" in done.out
    assert [line for line in done.err.splitlines() if line.startswith("wrote")] == [
        f"wrote studies/confidence{end}" for end in (".csv", "-record.csv", ".png", ".json")
    ]
    record = rows((tmp_path / "studies" / "confidence-record.csv").read_text())
    assert sorted({int(r["idx"]) for r in record}) == [0, 250, 500, 750]  # spread over the split


def test_quick_path_on_the_sample(smoothmix: Run, runs: Path, tmp_path: Path) -> None:
    options = ("--first", 2, "--points", 3, "--step-size", 1.0)
    done = smoothmix("study", "path", "runs/one", *options, "--max", 40, *QUICK)
    assert done.code == 0, done.err
    found = rows((tmp_path / "studies" / "path.csv").read_text())
    assert len(found) == 2
    assert all(float(r["true_at_0"]) > float(r["true_at_1"]) for r in found)
    chosen = smoothmix("study", "path", "runs/one", "--images", "0,5,7", *options[2:], *QUICK)
    assert chosen.code == 0, chosen.err
    assert [r["idx"] for r in rows((tmp_path / "studies" / "path.csv").read_text())] == ["0", "5", "7"]


def test_quick_mixing_on_the_sample(smoothmix: Run, runs: Path, tmp_path: Path) -> None:
    done = smoothmix("study", "mixing", "runs/one", "--eps", 4, "--max", 4, "--skip", 3, *QUICK)
    assert done.code == 0, done.err
    (found,) = rows((tmp_path / "studies" / "mixing.csv").read_text())
    assert int(found["wrong_at_0"]) + int(found["changed"]) + int(found["never_changed"]) == 4
    assert 0 < float(found["median_ratio"]) < 1
    again = smoothmix("study", "mixing", "runs/one", "--eps", 4, "--max", 4, "--skip", 3, *QUICK)
    assert again.out == done.out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["confidence"], "RUNS requires an argument"),
        (["confidence", "nowhere"], "nowhere: is no run folder"),
        (["confidence", "runs/untrained"], "runs/untrained: has no trained weights"),
        (["confidence", "runs/one", "runs/fashion"], "different data sets: one sample, fashion fashion-mnist"),
        (["confidence", "runs/one", "runs/fewer"], "different numbers of classes apart: one 10, fewer 5"),
        (["confidence", "runs/one", "runs/one"], "the models need different names"),
        (["confidence", "runs/one", "--eps=-1"], "eps must be a number of zero or more, got -1"),
        (["confidence", "runs/one", "--eps", "0,x"], "numbers are written like"),
        (["confidence", "runs/one", "--n", "0"], "n must be at least 1, got 0"),
        (["confidence", "runs/one", "--max", "0"], "max must be at least 1"),
        (["confidence", "runs/one", "--skip", "0"], "skip must be at least 1"),
        (["confidence", "runs/one", "--format", "gif"], "gif"),
        (["confidence", "runs/fewer"], "where the models tell 5 classes apart"),
        (["path", "runs/one", "--images", "0,1000"], "sample (test) has the images 0 to 999, not 1000"),
        (["path", "runs/one", "--images", "1.5"], "images are given by their positions, such as 0,5,7, not 1.5"),
        (
            ["path", "runs/one", "--images", "0", "--classes", "11"],
            "11 classes are asked for, where the models tell 10",
        ),
        (["path", "runs/one", "--step-size", "0"], "the step size must be a positive number"),
        (["path", "runs/one", "--first", "0"], "at least 1 image is needed, got 0"),
        (["mixing", "runs/one", "--eps", "0"], "eps must be positive, got 0"),
        (["mixing", "runs/one", "--steps", "0"], "the attack needs at least 1 step"),
        (["mixng", "runs/one"], "mixng"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_mistakes_get_one_sentence(smoothmix: Run, runs: Path, arguments: list[str], sentence: str) -> None:
    done = smoothmix("study", *arguments)
    assert done.code == 2, done.err
    assert sentence in done.err
    assert done.err.count("\n") == 1, done.err


def test_runs_of_one_name_are_told_apart_by_their_folders(smoothmix: Run, runs: Path, tmp_path: Path) -> None:
    run_folder(tmp_path / "more" / "one", trained())
    models, dataset = loaded("runs/one", "more/one", smoothmix=smoothmix)
    assert [model.name for model in models] == ["one (runs)", "one (more)"]
    assert dataset.name == "sample"


def loaded(*names: str, smoothmix: Run) -> tuple[list[Model], Any]:
    smoothmix("--version")  # takes this process into the folder of the runs
    return commands.load(names, commands.StudyOptions())


def test_a_study_that_is_stopped_says_that_it_begins_anew(
    smoothmix: Run, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*args: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(confidence, "study", stopped)
    done = smoothmix("study", "confidence", "runs/one", *QUICK)
    assert done.code == 130
    assert "nothing was written, and the same command begins anew" in done.err
    assert not (tmp_path / "studies").exists()


def test_numbers_are_worth_having_without_matplotlib(
    smoothmix: Run, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "find_spec", lambda name: None)
    done: Result = smoothmix("study", "path", "runs/one", "--first", 5, "--max", 4, "--points", 2, *QUICK)
    assert done.code == 0
    assert "no figure will be drawn: it needs matplotlib" in done.err
    assert "of the images looked at are classified right by every model" in done.err  # not one in silence for five
    assert not (tmp_path / "studies" / "path.png").exists()
    assert (tmp_path / "studies" / "path.json").exists()
