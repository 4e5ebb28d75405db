"""The shell under noise that is not Gaussian: by moments, by simulation and by the theorem."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import chi2, ncx2

from smoothmix.errors import UsageError
from smoothmix.noise import NOISES, Domain, DrawRange, make_noise
from smoothmix.stats.input_dependent import shell_worst_case, theorem_bound, worst_case


@pytest.mark.parametrize("name", NOISES)
def test_noises_have_the_moments_that_they_claim(name: str) -> None:
    noise = make_noise(name)
    draws = DrawRange(seed=5, domain=Domain.STUDY, item=0, first=0, count=1000)
    values = noise.sample(draws, (1000,), sigma=1.0).astype(np.float64)
    moments = {1: 0.0, 2: 1.0, 3: 0.0}
    # Only the study of input-dependent noise needs the fourth, and it refuses noise on a grid.
    if not np.isnan(noise.fourth_moment):
        moments[4] = noise.fourth_moment
    for power, moment in moments.items():
        assert abs((values**power).mean() - moment) < 4 * (values**power).std() / 1000


def shell(
    name: str, p: float, tau: float, dimension: int, draws: int = 20_000, seed: int = 0
) -> tuple[float, float]:
    setting = {"sigma": 1.0, "tau": tau, "distance": 0.5, "dimension": dimension}
    return shell_worst_case(name, p, **setting, draws=draws, rng=np.random.default_rng(seed))


@pytest.mark.parametrize("tau", [0.9, 1.1])
@pytest.mark.parametrize("dimension", [1, 10, 100, 300])
def test_the_gaussian_shell_is_chi_square(dimension: int, tau: float) -> None:
    ends = dimension * np.array([-1.0, 1.0])
    width = brentq(lambda k: np.diff(chi2.cdf(dimension + k * ends, dimension))[0] - 0.9, 0.0, 10.0)
    squares = np.maximum(dimension + width * ends, 0.0) / tau**2
    exact = np.diff(ncx2.cdf(squares, dimension, 0.25 / tau**2))[0]
    share, error = shell("gaussian", 0.9, tau, dimension)
    assert abs(share - exact) <= 3 * error
    assert worst_case(0.9, sigma=1.0, tau=tau, distance=0.5, dimension=dimension) <= exact


def test_the_standard_error_is_that_of_repeated_estimates() -> None:
    """It counts the shell's own width, which for p near 1 is most of it."""
    found = [shell("laplace", 0.95, 1.2, 30, draws=1000, seed=seed) for seed in range(300)]
    shares, errors = np.array(found).T
    assert shares.std() == pytest.approx(errors.mean(), rel=0.15)


@pytest.mark.parametrize("name", ["uniform", "laplace"])
@pytest.mark.parametrize("tau", [0.8, 1.25])
def test_shells_of_other_noises_empty_under_the_theorem(name: str, tau: float) -> None:
    (few, _), (more, _), (many, error) = (
        shell(name, 0.9, tau, dimension, draws=2000) for dimension in (20, 200, 2000)
    )
    setting = {"sigma": 1.0, "tau": tau, "distance": 0.5, "dimension": 2000}
    assert (
        few
        > more
        >= many
        == 0
        < theorem_bound(0.9, **setting, fourth_moment=make_noise(name).fourth_moment)
        < 1
    )
    assert error > 0  # nothing hit is no proof of 0


def test_too_few_draws_to_find_the_shell_are_refused() -> None:
    with pytest.raises(UsageError, match="draws must be 100 or more to find the shell"):
        shell("uniform", 0.9, 1.1, 5, draws=99)
