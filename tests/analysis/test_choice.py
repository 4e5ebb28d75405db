"""Choosing sigma, draws and alpha for a radius: against the bounds, the tables and real files."""

from __future__ import annotations

import math

import numpy as np
import pytest

import smoothmix as sm
from smoothmix import presets
from smoothmix.analysis import Candidate, ObservedVotes, candidates, choose
from smoothmix.noise import NOISES, make_noise
from smoothmix.stats import FixedDraws, SelectedVotes
from tests.conftest import ROOT


@pytest.mark.parametrize("mode", ["exact", "anytime"])
@pytest.mark.parametrize("noise", NOISES)
def test_the_votes_needed_are_the_fewest_that_certify(mode: str, noise: str) -> None:
    for candidate in candidates(sigmas=(0.5,), draws=(200, 2_000), mode=mode, noise=noise):
        for radius in (0.0, 0.3, 0.7):
            needed = candidate.needed_votes(radius)
            if needed is None:
                assert candidate.largest_radius < radius
                continue
            share = float(candidate.noise.probability(radius, sigma=0.5))
            radii = []
            for votes in (needed - 1, needed):
                k0 = 100 if votes == candidate.n else math.floor(100 * share)
                bound = candidate.guarantee.lower_bound(
                    SelectedVotes(
                        np.array([votes]), np.array([candidate.n]), np.array([k0]), np.array([100])
                    )
                )
                radii.append(float(candidate.noise.radius(bound, sigma=0.5)[0]))
            assert radii[0] == 0 or radii[0] < radius
            assert radii[1] > 0
            assert radii[1] >= radius
            assert candidate.lost_radius(radius) >= 0


def test_the_choice_reaches_the_radius_and_fewer_draws_lose_more() -> None:
    for radius in (0.1, 0.5, 1.0, 3.0):
        choice = choose(radius, alphas=(0.01, 0.001))
        chosen = choice.chosen
        assert chosen.alpha == 0.001
        assert chosen.largest_radius >= radius
        assert chosen.lost_radius(radius) <= 0.05 * radius
        same = [each for each in choice.candidates if each.sigma == chosen.sigma]
        for each in same:
            if each.alpha == chosen.alpha and each.n < chosen.n:
                assert each.lost_radius(radius) > 0.05 * radius


def test_the_advised_sigma_is_near_the_best_of_the_published_tables() -> None:
    lost = []
    for data in ("mnist", "cifar10", "imagenet"):
        for method in ("gaussian", "smoothmix"):
            best: dict[float, dict[float, float]] = {}
            for name in presets.names(data=data, method=method):
                preset = presets.get(name)
                if preset.published is None:
                    continue
                for radius, accuracy in preset.published.accuracy.items():
                    of_radius = best.setdefault(radius, {})
                    sigma = preset.config.sigma
                    of_radius[sigma] = max(accuracy, of_radius.get(sigma, 0.0))
            for radius, of_radius in best.items():
                if radius == 0 or len(of_radius) < 2:
                    continue
                advised = choose(radius, sigmas=tuple(of_radius), draws=(100_000,))
                lost.append(max(of_radius.values()) - of_radius[advised.sigma])
    assert len(lost) >= 45
    # Points of certified accuracy.
    assert np.mean(lost) < 1.0
    assert np.mean(np.array(lost) == 0) > 0.8


def test_votes_of_a_file_tell_which_images_reach_a_radius() -> None:
    file = sm.certificates.read(ROOT / "results" / "mnist-0.50-gaussian" / "certificates.tsv.xz")
    assert file.settings is not None
    votes = ObservedVotes.in_file(file)
    same = Candidate(
        sigma=0.5, guarantee=file.settings.guarantee, noise=file.settings.certification.noise
    )
    for radius in (0.25, 1.0, 1.5):
        certified = float(((file.radius >= radius) & file.correct).mean())
        assert abs(votes.share_that_reaches(same, radius) - certified) < 0.01
    # Fewer draws certify fewer images, and never more than sufficiently many do.
    fewer = Candidate(sigma=0.5, guarantee=FixedDraws(1_000), noise=same.noise)
    assert votes.share_that_reaches(fewer, 1.0) < votes.share_that_reaches(same, 1.0)
    assert votes.share_that_reaches(fewer, 1.5) == 0
    other = Candidate(sigma=0.25, guarantee=FixedDraws(1_000), noise=same.noise)
    assert math.isnan(votes.share_that_reaches(other, 0.5))


def test_what_a_network_shows_decides_between_noise_levels() -> None:
    draws = np.full(10, 1_000)
    weak = ObservedVotes(0.25, np.full(10, 900), draws)
    strong = ObservedVotes(0.5, np.full(10, 950), draws)
    assert choose(0.5).sigma == 0.25
    choice = choose(0.5, observed=(weak, strong))
    assert choice.sigma == 0.5
    assert choice.share_that_reaches(choice.chosen) > 0.99
    assert choice.guarantee.max_draws == choice.chosen.n


def test_the_share_that_reaches_holds_in_simulation() -> None:
    rng = np.random.default_rng(0)
    # Images of which a third truly reach the radius, seen through 500 draws each.
    truth = rng.choice([0.7, 0.8, 0.99], size=3_000)
    votes = ObservedVotes(0.5, rng.binomial(500, truth), np.full(3_000, 500))
    candidate = Candidate(sigma=0.5, guarantee=FixedDraws(10_000), noise=make_noise("grid"))
    needed = candidate.needed_votes(0.5)
    assert needed is not None
    certified = rng.binomial(10_000, truth) >= needed
    assert abs(votes.share_that_reaches(candidate, 0.5) - certified.mean()) < 0.02


def test_what_is_no_question_is_refused() -> None:
    with pytest.raises(sm.SmoothmixError, match="no setting reaches radius 9"):
        choose(9.0)
    for radius in (0.0, -1.0, math.inf):
        with pytest.raises(sm.SmoothmixError, match="must be positive"):
            choose(radius)
    with pytest.raises(sm.SmoothmixError, match="at least one sigma"):
        choose(0.5, sigmas=())
    with pytest.raises(sm.SmoothmixError, match="one number per image"):
        ObservedVotes(0.5, np.array([], dtype=int), np.array([], dtype=int))
