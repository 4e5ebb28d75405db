"""What the studies measure, against known smoothed classifiers, and what they refuse."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import ndtr

from smoothmix.analysis import Estimate
from smoothmix.data import load
from smoothmix.errors import UsageError
from smoothmix.noise.philox import Address
from smoothmix.noise.streams import Domain
from smoothmix.studies import (
    ConfidenceStudy,
    MixingStudy,
    NamedClassifier,
    PathStudy,
    SmoothedAttack,
    VoteSettings,
    measure,
)
from smoothmix.studies.case import distance, open_cases
from smoothmix.studies.confidence import Confidences
from smoothmix.studies.mixing import TOLERANCE, MixingRatios, least_change, median
from smoothmix.studies.path import VotePath, first_right
from tests.helpers.studies import VOTES, deviations, half_space, images, named, small_model, trained


def confidences(study: ConfidenceStudy, *what: Any, **options: Any) -> list[Confidences]:
    return study.confidences(measure(study, *what, **options))


def ratios(study: MixingStudy, *what: Any, **options: Any) -> list[MixingRatios]:
    return study.ratios(measure(study, *what, **options))


def paths(study: PathStudy, *what: Any, **options: Any) -> list[VotePath]:
    return study.paths(measure(study, *what, **options))


# What is known exactly


def test_confidence_falls_as_phi_of_the_margin_that_the_attack_leaves() -> None:
    margins, epsilons = np.array([0.2, 0.5, 1.0, -0.3]), (0.0, 0.5, 1.0, 1.5)
    study = ConfidenceStudy(epsilons=epsilons)
    (found,) = confidences(study, [half_space()], images(*margins), range(4), votes=VOTES)
    expected = ndtr((margins - np.array(epsilons)[:, None]) / 0.5)
    assert deviations(found.true, expected, VOTES.n).max() < 4
    assert deviations(found.off, 1 - expected, VOTES.n).max() < 4
    np.testing.assert_allclose(found.distances, np.repeat(epsilons, 4).reshape(4, 4), atol=1e-5)


def test_the_strongest_other_class_is_counted_and_never_the_true_one() -> None:
    votes = np.array([[[5, 3, 2], [0, 1, 9], [4, 4, 2]]])
    found = Confidences(half_space(classes=3), votes, np.array([0, 2, 1]), np.zeros((1, 3)))
    np.testing.assert_allclose(found.true, [[0.5, 0.9, 0.4]])
    np.testing.assert_allclose(found.off, [[0.3, 0.1, 0.4]])


def test_adversarial_examples_stay_in_the_ball_and_among_pixels() -> None:
    dataset = images(0.0, 3.5, 3.9)  # the last two are nearly black and white
    for epsilon in (1.0, 6.0):
        with open_cases(half_space().smoothed, dataset, VOTES) as case:
            for index in range(3):
                point = case(index).adversarial(SmoothedAttack(steps=10, epsilon=epsilon))
                assert 0 <= float(point.min()) <= float(point.max()) <= 1
                assert distance(point, case(index).image) <= epsilon * (1 + 1e-5)


def test_mixing_ratios_are_where_the_line_meets_the_boundary() -> None:
    margins = np.array([0.31, 0.77, 1.21, 1.93, 2.5, -0.2])
    study = MixingStudy(attack=SmoothedAttack(steps=10, epsilon=2.0))
    (found,) = ratios(study, [half_space(sigma=0.1)], images(*margins), range(6), votes=VOTES)
    # Votes tell the boundary to about 0.5 / sqrt(n) / (phi(0) * 2 / 0.1) = 0.001 of the line.
    np.testing.assert_allclose(found.ratio[:4], margins[:4] / 2, atol=TOLERANCE / 2 + 0.005)
    assert math.isinf(found.ratio[4])
    assert math.isnan(found.ratio[5])
    assert (found.wrong, found.unchanged, len(found.right)) == (1, 1, 5)
    np.testing.assert_allclose(found.distance[:5], 2.0, atol=1e-5)
    assert found.median is not None
    assert found.median.value == found.ratio[2]


def test_a_class_that_leads_only_for_a_while_is_found() -> None:
    """Bisection between the ends alone would see no change at all."""
    assert least_change(lambda ratio: 0.3 < ratio < 0.6) == pytest.approx(0.3, abs=TOLERANCE / 2)
    assert least_change(lambda ratio: ratio >= 1) == pytest.approx(1, abs=TOLERANCE)
    assert least_change(lambda ratio: True) == pytest.approx(0, abs=TOLERANCE)
    assert least_change(lambda ratio: False) == math.inf


def test_bisection_asks_no_more_often_than_it_must() -> None:
    asked: list[float] = []

    def changed(ratio: float) -> bool:
        asked.append(ratio)
        return ratio > 0.99

    least_change(changed)
    assert len(asked) == len(set(asked)) == 8 + 3


def test_the_interval_of_the_median_holds_it_as_often_as_it_says() -> None:
    """Also where a third of the values is infinite."""
    rng = np.random.default_rng(0)
    values = rng.exponential(size=(2000, 30))
    values[rng.random(values.shape) < 1 / 3] = np.inf
    middle = -math.log(
        1 - 0.75
    )  # 2/3 of the values are finite: their 75 % quantile is the median of all
    held = [e.low <= middle <= e.high for e in map(median, values)]
    assert 0.94 <= np.mean(held) <= 0.98
    assert median([0.5]) == Estimate(0.5, 0.0, math.inf)
    with pytest.raises(UsageError, match="at least one"):
        median([])


def test_votes_along_a_path_follow_phi() -> None:
    study = PathStudy(points=9, attack=SmoothedAttack(steps=4, step_size=0.5))
    (found,) = paths(study, [half_space()], images(0.8), [0], votes=VOTES)
    expected = ndtr((0.8 - 2 * np.linspace(0, 1, 9)) / 0.5)
    assert deviations(found.votes[:, 0] / VOTES.n, expected, VOTES.n).max() < 4
    assert found.distance == pytest.approx(2.0, abs=1e-5)
    assert found.change == pytest.approx(0.5)  # the first of the nine ratios beyond 0.4
    assert found.images.shape == (5, 1, 8, 8)
    np.testing.assert_allclose(found.images[2], (found.images[0] + found.images[4]) / 2, atol=1e-6)


def test_a_path_shows_the_true_class_first_even_where_it_has_no_votes() -> None:
    votes = np.array([[0, 9, 1, 0], [0, 2, 3, 5]])
    found = VotePath(
        half_space(classes=4), 0, 0, np.array([0.0, 1.0]), votes, 1.0, np.zeros((5, 1, 8, 8))
    )
    assert found.leading(3) == [0, 1, 3]
    assert found.change == 0.0


def test_the_first_images_that_all_models_get_right() -> None:
    dataset = images(-0.5, 0.5, -0.5, 0.5, 0.5)
    assert first_right([half_space("a"), half_space("b")], dataset, range(5), 2) == [1, 3]
    assert first_right([half_space()], dataset, [4, 0], 3) == [4]


# Randomness


def test_an_image_gets_the_same_numbers_whatever_else_is_measured() -> None:
    model, dataset = small_model(), load("sample", "test")
    attack = SmoothedAttack(steps=3, epsilon=1.0, copies=4)
    study = ConfidenceStudy(epsilons=(1.0,), attack=attack)
    votes = VoteSettings(n=150, seed=1)
    (whole,) = confidences(study, [model], dataset, [5, 7, 11], votes=votes)
    (part,) = confidences(study, [model], dataset, [11, 5], votes=votes)
    other_votes = replace(votes, seed=2)
    (other,) = confidences(study, [model], dataset, [5, 7, 11], votes=other_votes)
    np.testing.assert_array_equal(whole.votes[:, [2, 0]], part.votes)
    np.testing.assert_array_equal(whole.distances[:, [2, 0]], part.distances)
    assert not np.array_equal(whole.votes, other.votes)


def test_attacks_and_votes_have_noise_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """An attack that had seen the votes' noise would fool those draws more than the classifier."""
    seen: list[tuple[int, int]] = []
    move = Address.move

    def watched(address: Address, *rest: Any) -> Any:
        seen.append((address.domain, address.item))
        return move(address, *rest)

    monkeypatch.setattr(Address, "move", watched)
    study = ConfidenceStudy(epsilons=(1.0,))
    measure(study, [half_space()], images(0.1, 0.2), [1], votes=VoteSettings(n=10))
    assert set(seen) == {(Domain.ATTACK, 1), (Domain.STUDY, 1)}


def test_votes_leave_no_mark_on_the_network_that_an_attack_could_see() -> None:
    attack = SmoothedAttack(steps=3, epsilon=2.0, copies=4)
    dataset = load("sample", split="test")
    with open_cases(small_model().smoothed, dataset, VoteSettings(n=300)) as case:
        before = case(3).adversarial(attack)
        case(3).votes(before)
        assert case(3).adversarial(attack).equal(before)


def test_the_network_is_left_as_it_was() -> None:
    network = trained()
    network.train()
    before = {name: weight.clone() for name, weight in network.state_dict().items()}
    study = MixingStudy(attack=SmoothedAttack(steps=2, epsilon=1.0))
    model = named("small", network, sigma=0.5, classes=10)
    measure(study, [model], load("sample", "test"), [0], votes=VoteSettings(n=20))
    assert all(module.training for module in network.modules())
    assert all(weight.grad is None and weight.requires_grad for weight in network.parameters())
    assert all(torch.equal(before[name], weight) for name, weight in network.state_dict().items())


# Refusals


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: SmoothedAttack(epsilon=-1.0), "eps must be a number of zero or more, got -1"),
        (lambda: SmoothedAttack(epsilon=math.inf), "eps must be a number of zero or more"),
        (SmoothedAttack, "an attack without a largest distance needs a step size"),
        (lambda: SmoothedAttack(epsilon=1.0, steps=0), "at least 1 step"),
        (lambda: SmoothedAttack(epsilon=1.0, copies=0), "at least 1 noise sample"),
        (lambda: SmoothedAttack(step_size=0.0), "step size must be a positive number"),
        (lambda: VoteSettings(n=0), "n must be at least 1, got 0"),
        (lambda: VoteSettings(seed=-1), "seed must lie in"),
        (lambda: half_space(sigma=0.0), "sigma must be a positive number"),
        (lambda: measured([], [0]), "at least one model"),
        (lambda: measured([half_space()], []), "no images are left to study"),
        (lambda: measured([half_space()], [0, 2]), "lines (test) has the images 0 to 1, not 2"),
        (lambda: measured([half_space()], [-1]), "has the images 0 to 1, not -1"),
        (lambda: measured([half_space()], [1, 1]), "an image is requested twice"),
        (
            lambda: measured([half_space(), half_space()], [0]),
            "the models need different names, got half, half",
        ),
        (
            lambda: measured([half_space("a"), half_space("b", classes=3)], [0]),
            "different numbers of classes: a 2, b 3",
        ),
        (
            lambda: measured([half_space()], [0], label=2),
            "has the label 2, but the models have only 2 classes",
        ),
        (lambda: measured([half_space()], [0], epsilons=()), "at least one eps"),
        (lambda: measured([half_space()], [0], epsilons=(1.0, 1.0)), "an eps is requested twice"),
        (
            lambda: measure(PathStudy(classes=3), [half_space()], images(0.5), [0]),
            "3 classes are requested, but the models have only 2",
        ),
        (
            lambda: PathStudy(classes=1),
            "classes must be at least 2",
        ),
        (lambda: PathStudy(points=1), "at least 2 points"),
        (
            lambda: first_right([half_space()], images(-2.0), [0], 1),
            "none of 1 is classified right by every model",
        ),
    ],
)
def test_what_cannot_be_studied_is_refused(make: Any, sentence: str) -> None:
    with pytest.raises(UsageError) as refused:
        make()
    assert sentence in str(refused.value)


def measured(
    models: Sequence[NamedClassifier], indices: Sequence[int], *, label: int = 0, **options: Any
) -> object:
    classes = max(2, label + 1)
    dataset = images(0.1, 0.2, label=label, classes=classes)
    return measure(ConfidenceStudy(**options), models, dataset, indices)
