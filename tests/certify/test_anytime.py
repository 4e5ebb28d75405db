"""Certification in mode anytime: what it claims, what it spends, and how a file of it may grow."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import norm

from smoothmix import data
from smoothmix._process.signals import Stopped
from smoothmix.certificates import Certification, Selection, read, recompute, save, verify
from smoothmix.certify.dataset import certify_dataset
from smoothmix.certify.extend import extend_dataset
from smoothmix.certify.loop import TimeLimit
from smoothmix.certify.smoothed import Smoothed
from smoothmix.data import MemoryDataset
from smoothmix.errors import SmoothmixError, UsageError
from smoothmix.stats.anytime import Stopping, decided
from smoothmix.stats.guarantees import Anytime
from tests.conftest import Linear
from tests.helpers.guarantees import certification_of, with_stopping

SIGMA = 0.5
RADII = (0.1, 0.25, 0.5)


@pytest.fixture(scope="module")
def model() -> Linear:
    return Linear(64)


@pytest.fixture(scope="module")
def dataset(model: Linear) -> MemoryDataset:
    """The middle of the sample's images, with the classes of the smoothed linear classifier."""
    sample = data.load("sample", "test")
    assert isinstance(sample, MemoryDataset)
    sample = replace(sample, pixels=sample.pixels[:, :, 10:18, 10:18])
    with torch.no_grad():
        labels = model(sample.images(range(len(sample)))).argmax(1).numpy()
    return replace(sample, labels=labels.astype(np.int64), class_names=("0", "1"))


@pytest.fixture(scope="module")
def true_radius(model: Linear, dataset: MemoryDataset) -> np.ndarray:
    """The distance to the decision boundary, which is the true radius of a linear classifier."""
    direction = (model.weight[1] - model.weight[0]).detach().numpy().astype(np.float64)
    margins = dataset.images(range(len(dataset))).numpy().reshape(len(dataset), -1) @ direction
    return np.abs(margins) / np.linalg.norm(direction)


def how(**options: object) -> Certification:
    return certification_of(SIGMA, **options)


def test_no_radius_is_above_the_truth_and_accuracies_are_those_of_exact_mode(
    model: Linear, dataset: MemoryDataset, true_radius: np.ndarray, tmp_path: Path
) -> None:
    radii = RADII
    stopping = Stopping(radii=radii, max_draws=20_000)
    quick = certify_dataset(
        model,
        dataset,
        with_stopping(how(), stopping),
        path=tmp_path / "a.tsv",
        model_name="linear",
        selection=Selection(skip=5),
    )
    slow = certify_dataset(
        model,
        dataset,
        how(n=20_000),
        path=tmp_path / "e.tsv",
        model_name="linear",
        selection=Selection(skip=5),
    )
    truth = true_radius[::5]
    assert (quick.radius > truth).sum() <= 2  # 200 images at alpha 0.001
    assert verify(quick).ok
    claims_fewer = replace(
        quick, rows=(*quick.rows[:3], replace(quick.rows[3], n=1), *quick.rows[4:])
    )
    assert [line for line in verify(claims_fewer).problems if "votes, where it says n=1" in line]
    for r in radii:
        assert abs((quick.radius >= r).mean() - (slow.radius >= r).mean()) <= 0.02
    drawn = np.array([row.n for row in quick.rows])
    assert drawn.sum() < 20_000 * len(drawn) / 3
    assert (drawn % 256 == 0).all()


def test_a_tolerance_is_met_or_the_budget_spent(
    model: Linear, dataset: MemoryDataset, true_radius: np.ndarray, tmp_path: Path
) -> None:
    stopping = Stopping(tolerance=0.1, max_draws=10_000)
    file = certify_dataset(
        model,
        dataset,
        with_stopping(how(), stopping),
        path=tmp_path / "a.tsv",
        model_name="linear",
        selection=Selection(skip=50),
    )
    drawn = np.array([row.n for row in file.rows])
    short = drawn < max(drawn)
    # Close to the largest radius that all draws could certify, more draws gain nothing, although
    # the true radius is larger.
    ordinary = short & (true_radius[::50] < 0.8)
    assert ordinary.any()
    assert (true_radius[::50][ordinary] - file.radius[ordinary] <= 0.1).all()


def test_the_budget_is_whole_blocks_and_recorded(
    model: Linear, dataset: MemoryDataset, tmp_path: Path
) -> None:
    stopping = Stopping(max_draws=1000)
    file = certify_dataset(
        model,
        dataset,
        with_stopping(how(), stopping),
        path=tmp_path / "a.tsv",
        model_name="linear",
        selection=Selection(skip=250),
    )
    assert {row.n for row in file.rows} == {1024}
    assert file.settings is not None
    assert file.settings.guarantee == Anytime(Stopping(max_draws=1024))
    assert file.settings.guarantee.max_draws == 1024
    assert file.settings.guarantee.description == "anytime, at most 1,024 draws"


def test_an_extended_file_is_the_one_that_had_the_rules_from_the_start(
    model: Linear, dataset: MemoryDataset, tmp_path: Path
) -> None:
    few, many = Stopping(radii=(0.5,), max_draws=4096), Stopping(radii=RADII, max_draws=20_000)
    path = tmp_path / "grown.tsv"
    certify_dataset(
        model,
        dataset,
        with_stopping(how(), few),
        path=path,
        model_name="linear",
        selection=Selection(skip=20),
    )
    before = {row.idx: row.n for row in read(path).rows}
    grown = extend_dataset(model, dataset, with_stopping(how(), many), path=path)
    straight = certify_dataset(
        model,
        dataset,
        with_stopping(how(), many),
        path=tmp_path / "straight.tsv",
        model_name="linear",
        selection=Selection(skip=20),
    )
    # Rounds start elsewhere where the smaller limit ended, so a few images stop one round apart.
    drawn = np.array([[row.n for row in file.rows] for file in (grown, straight)])
    same = drawn[0] == drawn[1]
    assert same.mean() > 0.8
    for i in np.flatnonzero(same):
        assert replace(grown.rows[i], seconds=0.0) == replace(straight.rows[i], seconds=0.0)
    votes = np.array(
        [(row.counts[row.selected], row.selection_counts[row.selected]) for row in grown.rows]
    )  # type: ignore[index]
    assert decided(
        votes[:, 0], drawn[0], k0=votes[:, 1], n0=100, alpha=0.001, sigma=SIGMA, stopping=many
    ).all()
    assert any(row.n > before[row.idx] for row in grown.rows if row.n is not None)
    assert grown.settings == straight.settings
    assert verify(grown).ok
    assert sorted(p.name for p in tmp_path.glob("grown*.t*")) == ["grown.toml", "grown.tsv"]


def test_rows_without_a_time_are_drawn_further_like_others(
    model: Linear, dataset: MemoryDataset, tmp_path: Path
) -> None:
    path = tmp_path / "a.tsv"
    few, more = Stopping(max_draws=512), Stopping(max_draws=1024)
    file = certify_dataset(
        model,
        dataset,
        with_stopping(how(), few),
        path=path,
        model_name="linear",
        selection=Selection(skip=500),
    )
    # As `from_votes` makes them, for whoever writes a file from votes of their own.
    rows = tuple(replace(row, seconds=float("nan")) for row in file.rows)
    save(replace(file, rows=rows), path)
    extended = extend_dataset(model, dataset, with_stopping(how(), more), path=path)
    assert {row.n for row in extended.rows} == {1024}
    assert verify(extended).ok


def test_an_old_file_of_partial_votes_with_too_many_draws_is_left_alone(
    model: Linear, dataset: MemoryDataset, tmp_path: Path
) -> None:
    path, old = tmp_path / "a.tsv", tmp_path / "a-begun.tsv"
    few = with_stopping(how(), Stopping(max_draws=512))
    half = Selection(skip=500)
    file = certify_dataset(model, dataset, few, path=old, model_name="linear", selection=half)
    assert file.settings is not None
    first = file.rows[0]
    assert first.counts is not None
    twice = {c: 2 * votes for c, votes in first.counts.items()}
    without_digests = replace(file.settings, has_digests=False)
    save(
        replace(
            file,
            rows=(replace(first, n=1024, counts=twice),),
            settings=without_digests,
            digests=None,
        ),
        old,
    )
    content = old.read_bytes()
    with pytest.warns(UserWarning, match="may be a certificate file of yours, so it is kept"):
        certify_dataset(model, dataset, few, path=path, model_name="linear", selection=half)
    assert old.read_bytes() == content


def test_what_must_not_be_extended_is_refused(
    model: Linear, dataset: MemoryDataset, tmp_path: Path
) -> None:
    exact, any_time = tmp_path / "e.tsv", tmp_path / "a.tsv"
    certify_dataset(
        model, dataset, how(n=512), path=exact, model_name="linear", selection=Selection(skip=500)
    )
    rules = Stopping(max_draws=512)
    certify_dataset(
        model,
        dataset,
        with_stopping(how(), rules),
        path=any_time,
        model_name="linear",
        selection=Selection(skip=500),
    )
    with pytest.raises(UsageError, match="checking the result before drawing more"):
        extend_dataset(model, dataset, with_stopping(how(), rules), path=exact)
    for name, value in {"alpha": 0.01, "seed": 1, "n0": 50, "batch": 128}.items():
        with pytest.raises(UsageError, match=f"cannot be extended: {name} is"):
            extend_dataset(
                model, dataset, with_stopping(how(**{name: value}), rules), path=any_time
            )
    with pytest.raises(UsageError, match="model_hash is"):
        extend_dataset(Linear(64, seed=1), dataset, with_stopping(how(), rules), path=any_time)
    with pytest.raises(UsageError, match="extending it takes at least as many"):
        extend_dataset(model, dataset, with_stopping(how(), Stopping(max_draws=256)), path=any_time)
    with pytest.raises(UsageError, match="other settings: the guarantee is exact, n 512 there"):
        certify_dataset(
            model,
            dataset,
            with_stopping(how(n=512), rules),
            path=exact,
            model_name="linear",
            selection=Selection(skip=500),
        )


def test_wrong_images_may_be_skipped(model: Linear, dataset: MemoryDataset, tmp_path: Path) -> None:
    wrong = replace(dataset, labels=1 - dataset.labels)
    file = certify_dataset(
        model,
        wrong,
        with_stopping(how(skip_wrong=True), Stopping(max_draws=256)),
        path=tmp_path / "a.tsv",
        model_name="linear",
        selection=Selection(skip=100),
    )
    assert {row.n for row in file.rows if row.selected != row.label} == {0}
    assert verify(file).ok


def test_time_that_is_up_leaves_a_valid_beginning(
    model: Linear, dataset: MemoryDataset, tmp_path: Path
) -> None:
    path, rules = tmp_path / "a.tsv", Stopping(max_draws=2048)
    # A busy machine may not finish an image in that time. The same call then resumes its votes.
    while not path.exists():
        started = time.monotonic()
        with suppress(Stopped):
            certify_dataset(
                model,
                dataset,
                with_stopping(how(), rules),
                path=path,
                model_name="linear",
                time_limit=TimeLimit(seconds=1.5),
            )
        assert time.monotonic() - started < 20
    part = read(path)
    assert part.missing
    assert verify(part).ok
    assert all(
        row.n == 2048 for row in part.rows
    )  # images that were still active are left out, not written as they were
    stopped_early = certify_dataset(
        model,
        dataset,
        with_stopping(how(), rules),
        path=tmp_path / "b.tsv",
        model_name="linear",
        selection=Selection(maximum=5),
        time_limit=TimeLimit(seconds_per_image=1e-9),
    )
    assert {row.n for row in stopped_early.rows} == {256}


def test_an_interrupted_extension_goes_on_and_others_are_refused(
    model: Linear, dataset: MemoryDataset, tmp_path: Path
) -> None:
    path = tmp_path / "a.tsv"
    few, many = Stopping(max_draws=512), Stopping(max_draws=4096)
    certify_dataset(
        model,
        dataset,
        with_stopping(how(), few),
        path=path,
        model_name="linear",
        selection=Selection(maximum=400),
    )
    before = path.read_text()
    with suppress(SmoothmixError):  # on a slow machine no image is finished by then
        extend_dataset(
            model, dataset, with_stopping(how(), many), path=path, time_limit=TimeLimit(seconds=0.4)
        )
    assert (tmp_path / "a-extending.toml").exists()
    assert path.read_text() == before  # the file is the old one until the new one is whole
    with pytest.raises(
        UsageError, match=r"at most 4,096 draws is not finished.*delete a-extending.tsv and"
    ):
        extend_dataset(model, dataset, with_stopping(how(), Stopping(max_draws=8192)), path=path)
    whole = extend_dataset(model, dataset, with_stopping(how(), many), path=path)
    assert {row.n for row in whole.rows} == {4096}
    assert read(path).settings == whole.settings
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.toml", "a.tsv"]


def test_a_batch_of_anyones_images(
    model: Linear, dataset: MemoryDataset, true_radius: np.ndarray
) -> None:
    smoothed = Smoothed(model, sigma=SIGMA, num_classes=2, noise="gaussian")
    found = smoothed.certify(dataset.images(range(20)), seed=0, stopping=Stopping(radii=(0.25,)))
    assert (
        found.prediction.numpy()[true_radius[:20] > 0.1]
        == dataset.labels[:20][true_radius[:20] > 0.1]
    ).all()
    assert (found.radius.numpy() <= true_radius[:20]).all()
    assert found.counts.sum(1).min() < 2000


def test_the_votes_hold_at_another_alpha(
    model: Linear, dataset: MemoryDataset, tmp_path: Path
) -> None:
    file = certify_dataset(
        model,
        dataset,
        with_stopping(how(), Stopping(radii=(0.5,), max_draws=4096)),
        path=tmp_path / "a.tsv",
        model_name="linear",
        selection=Selection(skip=100),
    )
    easier = recompute(file, alpha=0.05)
    assert (easier.radius >= file.radius).all()
    assert verify(easier).ok


class TestStopAbstaining:
    """Exact mode that gives up once nothing could keep an image from abstention."""

    def test_what_abstains_and_what_is_certified_stays_the_same(
        self, model: Linear, dataset: MemoryDataset, tmp_path: Path
    ) -> None:
        near = replace(
            dataset, pixels=np.full_like(dataset.pixels, 0), labels=np.zeros_like(dataset.labels)
        )
        for name, images in (("near", near), ("usual", dataset)):
            whole, short = (
                certify_dataset(
                    model,
                    images,
                    how(n=5000, stop_abstaining=stop),
                    path=tmp_path / f"{name}{stop}.tsv",
                    model_name="linear",
                    selection=Selection(skip=25),
                )
                for stop in (False, True)
            )
            assert [row.predict for row in whole.rows] == [row.predict for row in short.rows]
            assert whole.radius.tolist() == short.radius.tolist()
            stopped = [row for row in short.rows if row.n != 5000]
            assert all((row.predict, row.p_lower) == (-1, 0.0) for row in stopped)
            assert len(stopped) < len(short.rows) if name == "usual" else stopped
            assert verify(short).ok
            # Where the draws ended was decided at the old alpha: at another one such a row stays an
            # abstention.
            again = recompute(short, alpha=0.2)
            kept = [row for row in again.rows if row.n != 5000]
            assert all((row.predict, row.p_lower) == (-1, 0.0) for row in kept)
            assert verify(again).ok


def test_normal_quantiles_behind_these_tests(true_radius: np.ndarray) -> None:
    """The sample has images on both sides of each radius, or the tests above would prove little."""
    for r in RADII:
        assert 0.02 < (true_radius[::5] >= r).mean() < 0.98
    assert norm.cdf(true_radius.max() / SIGMA) < 1


def test_rules_are_the_same_however_they_are_written(
    model: Linear, dataset: MemoryDataset, tmp_path: Path
) -> None:
    rules = Stopping(radii=[0.5, 0.25, 0.5], max_draws=512)  # type: ignore[arg-type]
    assert rules == Stopping(radii=(0.25, 0.5), max_draws=512)
    assert rules == Stopping(radii=(r / 4 for r in (2, 1)), max_draws=512)  # type: ignore[arg-type]
    first, again = (
        certify_dataset(
            model,
            dataset,
            with_stopping(how(), rules),
            path=tmp_path / "a.tsv",
            model_name="linear",
            selection=Selection(skip=500),
        )
        for _ in range(2)
    )
    assert first.rows == again.rows


@pytest.mark.parametrize(
    ("rules", "sentence"),
    [
        ({"radii": 0.5}, r"radii must be several, such as \(0.5,\)"),
        ({"radii": "0.5"}, "radii must be several"),
        ({"radii": ("a",)}, "radii must be numbers, got 'a'"),
        ({"radii": (None,)}, "radii must be numbers, got None"),
        ({"tolerance": "a"}, "tolerance must be numbers, got 'a'"),
        ({"max_draws": 1e4}, r"max_draws must be a whole number, got 10000.0"),
        ({"max_draws": None}, "max_draws must be a whole number"),
    ],
)
def test_rules_that_cannot_be_are_refused(rules: dict[str, object], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        Stopping(**rules)  # type: ignore[arg-type]
