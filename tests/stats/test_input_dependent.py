"""The worst case under two noise levels.

By simulation, in high precision, by its properties, and under the theorem.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product

import mpmath as mp
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.stats import ncx2, norm

from smoothmix.errors import UsageError
from smoothmix.stats.input_dependent import (
    WorstCase,
    log_worst_case,
    table,
    theorem_bound,
    worst_case,
)
from smoothmix.studies.dimension import dimension_report

PS = st.floats(0.01, 0.999)
RATIOS = st.floats(0.5, 2.0).filter(lambda ratio: abs(ratio - 1) > 1e-4)
DISTANCES = st.floats(0.0, 3.0)
DIMENSIONS = st.integers(1, 200_000)


def worst(
    p: float, *, sigma: float = 1.0, tau: float, distance: float = 0.5, dimension: int = 1
) -> float:
    return float(worst_case(p, sigma=sigma, tau=tau, distance=distance, dimension=dimension))


def log_worst(p: float, *, tau: float, distance: float = 0.5, dimension: int = 1) -> float:
    return float(log_worst_case(p, sigma=1.0, tau=tau, distance=distance, dimension=dimension))


def worst_set(p: float, tau: float, dimension: int) -> Callable[[np.ndarray], np.ndarray]:
    """The worst classifier at sigma 1, written down anew with scipy.

    X is the origin, x' 1/2 along the first axis.
    """
    centre = -0.5 / (tau**2 - 1)
    square = ncx2.ppf(p if tau > 1 else 1 - p, dimension, centre**2)

    def classifier(points: np.ndarray) -> np.ndarray:
        squares = (points[:, 0] - centre) ** 2 + np.square(points[:, 1:]).sum(axis=1)
        return squares <= square if tau > 1 else squares > square

    return classifier


@pytest.mark.parametrize(("tau", "p"), [(0.8, 0.99), (1.25, 0.99), (0.9, 0.6), (1.1, 0.6)])
@pytest.mark.parametrize(
    ("dimension", "draws"), [(1, 10**6), (2, 10**6), (10, 300_000), (100, 50_000)]
)
def test_simulation_agrees_to_three_deviations(
    dimension: int, draws: int, tau: float, p: float
) -> None:
    rng = np.random.default_rng([dimension, round(100 * tau), round(100 * p)])
    classifier = worst_set(p, tau, dimension)
    at_x = rng.standard_normal((draws, dimension))
    at_other = tau * rng.standard_normal((draws, dimension)) + 0.5 * np.eye(1, dimension)
    for points, exact in [(at_x, p), (at_other, worst(p, tau=tau, dimension=dimension))]:
        share = classifier(points).mean()
        assert abs(share - exact) <= 3 * math.sqrt(exact * (1 - exact) / draws)


@given(
    p=PS,
    tau=RATIOS,
    distance=DISTANCES,
    dimension=st.integers(1, 50),
    where=st.floats(-5, 5),
    off=st.floats(0, 5),
)
def test_no_ball_and_no_complement_of_one_does_worse(
    p: float, tau: float, distance: float, dimension: int, where: float, off: float
) -> None:
    off = off if dimension > 1 else 0.0  # off the line through x and x'
    least = worst(p, tau=tau, distance=distance, dimension=dimension)
    at_x, at_other = where**2 + off**2, ((where - distance) ** 2 + off**2) / tau**2
    inside = ncx2.cdf(ncx2.ppf(p, dimension, at_x) / tau**2, dimension, at_other)
    outside = ncx2.sf(ncx2.isf(p, dimension, at_x) / tau**2, dimension, at_other)
    assert least <= min(inside, outside) + 1e-9


@given(p=PS, tau=RATIOS, distance=DISTANCES, dimension=DIMENSIONS, cosine=st.floats(-1, 1))
def test_no_half_space_does_worse(
    p: float, tau: float, distance: float, dimension: int, cosine: float
) -> None:
    half_space = norm.cdf((norm.ppf(p) - cosine * distance) / tau)
    assert worst(p, tau=tau, distance=distance, dimension=dimension) <= half_space + 1e-12


def log_inside_and_outside(dimension: int, offset: mp.mpf, square: mp.mpf) -> tuple[mp.mpf, mp.mpf]:
    """Non-central chi-square as one sum of positive terms.

    Poisson probabilities of at most i, times steps of gamma.
    """
    x, a, half = square / 2, mp.mpf(dimension) / 2, offset / 2
    step, poisson = mp.exp(a * mp.log(x) - x - mp.loggamma(a + 1)), mp.exp(-half)
    at_most, inside, above, i = poisson, step * poisson, step * (1 - poisson), 0
    while i < x - a or step > inside * mp.mpf(10) ** -(mp.mp.dps - 5):
        i += 1
        step, poisson = step * x / (a + i), poisson * half / i
        at_most += poisson
        inside, above = inside + step * at_most, above + step * (1 - at_most)
    return mp.log(inside), mp.log(mp.gammainc(a, x, mp.inf, regularized=True) + above)


def exact_log_worst(p: float, tau: float, distance: float, dimension: int) -> mp.mpf:
    """The same in 60 digits, its radius by secants."""
    p_, tau_, growth = mp.mpf(p), mp.mpf(tau), mp.mpf(tau) ** 2 - 1
    offset, which = (mp.mpf(distance) / growth) ** 2, 0 if growth > 0 else 1
    guess = ncx2.ppf(p if growth > 0 else 1 - p, dimension, float(offset))

    def surplus(square: mp.mpf) -> mp.mpf:
        return log_inside_and_outside(dimension, offset, square)[which] - mp.log(p_)

    square = mp.findroot(surplus, (guess, guess * (1 + mp.mpf(10) ** -6)), tol=1e-50)
    return log_inside_and_outside(dimension, offset * tau_**2, square / tau_**2)[which]


@pytest.mark.parametrize(
    ("p", "tau", "distance", "dimension"),
    [
        (0.999, 0.001, 0.5, 1),
        (1e-6, 1.1, 0.5, 1),
        (0.5, 10.0, 3.0, 2),
        (0.9, 0.999, 0.01, 3),
        (0.999, 1.01, 0.1, 10),
        (0.01, 0.5, 1.0, 10),
        (0.99, 1.25, 0.5, 784),
        (0.6, 0.95, 0.5, 3072),
    ],
)
def test_it_has_the_digits_that_it_claims(
    p: float, tau: float, distance: float, dimension: int
) -> None:
    with mp.workdps(80):
        exact = exact_log_worst(p, tau, distance, dimension)
        ours = log_worst(p, tau=tau, distance=distance, dimension=dimension)
        assert abs(ours - exact) <= 1e-13 * max(1, abs(exact))


@pytest.mark.parametrize("tau", [1 - 1e-3, 1 - 1e-8, 1 - 1e-14, 1 + 1e-14, 1 + 1e-8, 1 + 1e-3])
@pytest.mark.parametrize("p", [1e-9, 0.3, 0.99])
def test_on_a_line_it_is_an_interval_however_far_away(p: float, tau: float) -> None:
    """Near sigma the centre is up to 1e13 away and the far end out of reach.

    One tail, at the near end.
    """
    with mp.workdps(80):
        side, z = (1 if tau > 1 else -1), mp.sqrt(2) * mp.erfinv(2 * mp.mpf(p) - 1)
        centre = mp.mpf(0.5) / abs(mp.mpf(tau) ** 2 - 1)
        radius = centre + side * z
        exact = mp.log(mp.ncdf(side * (radius - centre * mp.mpf(tau) ** 2) / mp.mpf(tau)))
        assert abs(log_worst(p, tau=tau) - exact) <= 1e-13 * max(1, abs(exact))


@given(p=PS, distance=DISTANCES, dimension=DIMENSIONS, sigma=st.floats(0.1, 2.0))
def test_one_noise_level_gives_the_known_bound(
    p: float, distance: float, dimension: int, sigma: float
) -> None:
    known = norm.cdf(norm.ppf(p) - distance / sigma)
    assert worst(
        p, sigma=sigma, tau=sigma, distance=distance, dimension=dimension
    ) == pytest.approx(known, abs=1e-14)
    for tau in (sigma * (1 - 1e-11), sigma * (1 + 1e-11)):
        near = worst(p, sigma=sigma, tau=tau, distance=distance, dimension=dimension)
        assert near == pytest.approx(known, abs=1e-7)


@given(p=PS, tau=RATIOS, distance=DISTANCES, dimension=st.integers(1, 5000))
def test_the_two_directions_mirror_each_other(
    p: float, tau: float, distance: float, dimension: int
) -> None:
    """The complement of the worst set from x to x' is the worst set from x' to x."""
    there = worst(p, tau=tau, distance=distance, dimension=dimension)
    assume(there > 1e-12)
    back = worst(1 - there, sigma=tau, tau=1.0, distance=distance, dimension=dimension)
    # 1 - there has lost digits to rounding, which the way back enlarges.
    assert back == pytest.approx(1 - p, rel=1e-6 + 1e-13 / there)


@given(p=PS, tau=RATIOS, distance=DISTANCES, dimension=DIMENSIONS, more=st.floats(1.01, 3.0))
def test_it_falls_with_distance_and_dimension_and_rises_with_p(
    p: float, tau: float, distance: float, dimension: int, more: float
) -> None:
    here = log_worst(p, tau=tau, distance=distance, dimension=dimension)
    slack = 1e-12 * max(1.0, -here)
    assert log_worst(p, tau=tau, distance=distance * more, dimension=dimension) <= here + slack
    assert (
        log_worst(p, tau=tau, distance=distance, dimension=math.ceil(dimension * more))
        <= here + slack
    )
    assert log_worst(p / more, tau=tau, distance=distance, dimension=dimension) <= here + slack
    assert here <= math.log(p) + slack


@given(p=PS, tau=RATIOS, distance=DISTANCES, dimension=DIMENSIONS, scale=st.floats(0.01, 100.0))
def test_only_the_ratios_of_lengths_count(
    p: float, tau: float, distance: float, dimension: int, scale: float
) -> None:
    scaled = log_worst_case(
        p, sigma=scale, tau=scale * tau, distance=scale * distance, dimension=dimension
    )
    # Rounding scale * tau moves tau / sigma by 1e-16, the logarithm by up to the dimension times
    # as much.
    here = log_worst(p, tau=tau, distance=distance, dimension=dimension)
    assert float(scaled) == pytest.approx(here, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("dimension", [1, 3072, 150528, 10**6, 10**9])
@pytest.mark.parametrize("tau", [1e-3, 0.9, 1 - 1e-9, 1 + 1e-15, 1.1, 1e3])
def test_nothing_overflows_in_the_corners(tau: float, dimension: int) -> None:
    for p, distance in product([1e-30, 0.5, 1 - 1e-16], [0.0, 1e-9, 0.5, 1e6]):
        value = log_worst(p, tau=tau, distance=distance, dimension=dimension)
        assert -math.inf < value <= math.log(p) + 1e-9


def test_one_model_with_two_noise_levels_has_no_certificate_in_many_dimensions() -> None:
    """A tenth more or less noise, p = 0.99.

    MNIST keeps a few per cent, CIFAR-10 nothing, ImageNet less.
    """
    for tau in (0.9, 1.1):
        mnist, cifar, imagenet = log_worst_case(
            0.99, sigma=1, tau=tau, distance=0.5, dimension=[784, 3072, 150528]
        )
        assert math.log(0.02) < mnist < math.log(0.1)
        assert cifar < math.log(1e-6)
        assert imagenet < math.log(1e-307) < -500
    assert worst(0.99, tau=1.0, dimension=150528) == pytest.approx(0.9661, abs=1e-4)


def test_probabilities_and_dimensions_broadcast() -> None:
    ps, dimensions = np.array([[0.6], [0.9]]), np.array([1, 10, 100])
    grid = worst_case(ps, sigma=1.0, tau=1.1, distance=0.5, dimension=dimensions)
    assert grid.shape == (2, 3)
    assert grid[1, 2] == worst(0.9, tau=1.1, dimension=100)
    assert theorem_bound(ps, sigma=1.0, tau=1.1, distance=0.5, dimension=dimensions).shape == (2, 3)


@given(p=PS, tau=RATIOS, distance=DISTANCES, dimension=DIMENSIONS, as_printed=st.booleans())
def test_the_theorem_holds(
    p: float, tau: float, distance: float, dimension: int, as_printed: bool
) -> None:
    bound = theorem_bound(
        p, sigma=1.0, tau=tau, distance=distance, dimension=dimension, as_printed=as_printed
    )
    # Its supremum over distances up to this one is at 0: the worst case falls with distance.
    assert worst(p, tau=tau, distance=0.0, dimension=dimension) <= bound


@pytest.mark.parametrize(
    ("p", "tau", "distance"), [(0.99, 0.9, 0.5), (0.6, 1.1, 0.5), (0.6, 3.0, 0.5), (0.6, 0.1, 9)]
)
def test_the_constant_is_the_one_on_paper(p: float, tau: float, distance: float) -> None:
    """By hand at sigma 1 and Laplace noise, whose eta^2 is 5; each term is the largest once."""
    gap, total = abs(tau**2 - 1), tau**2 + 1
    setting = {"sigma": 1.0, "tau": tau, "distance": distance, "dimension": 7, "fourth_moment": 6.0}
    for as_printed, margin in [(False, gap), (True, total)]:
        spread = (180 * tau**4 + 144 * tau**2 * distance**2) / margin**2
        terms = 20 / (gap**2 * (1 - p)), 6 * distance**2 / margin, spread
        assert theorem_bound(p, **setting, as_printed=as_printed) == pytest.approx(max(terms) / 7)


def test_the_table_has_a_row_for_each_question_whatever_else_is_asked() -> None:
    rows = table(ratios=[0.8, 1.0], dimensions=[10, 784], draws=1100, seed=3)
    assert [(row.noise, row.dimension, row.ratio) for row in rows] == [
        (noise, dimension, ratio)
        for noise in ("gaussian", "uniform", "laplace")
        for dimension in (10, 784)
        for ratio in (0.8, 1.0)
    ]
    assert table(noises=["laplace"], ratios=[0.8], dimensions=[784], draws=1100, seed=3) == [
        rows[-2]
    ]
    exact = worst(0.99, tau=0.8, dimension=784)
    bound = float(theorem_bound(0.99, sigma=1.0, tau=0.8, distance=0.5, dimension=784))
    assert rows[2] == WorstCase("gaussian", 0.8, 784, exact, bound, None)
    assert all((row.bound is None) == (row.ratio == 1) for row in rows)
    assert all((row.standard_error is None) == (row.noise == "gaussian") for row in rows)


def test_the_text_says_that_a_guarantee_is_lost_only_where_it_is() -> None:
    some = table(p=0.99, sigma=0.5, distance=0.5, ratios=(0.5, 1.0, 1.1), dimensions=(2, 3072))
    text = dimension_report(some, p=0.99, sigma=0.5, distance=0.5).text
    assert "In 3,072 dimensions it is less than one half at tau / sigma 0.5" in text
    mild = table(p=0.99, sigma=0.5, distance=0.5, ratios=(0.95, 1.0), dimensions=(2,))
    kept = dimension_report(mild, p=0.99, sigma=0.5, distance=0.5)
    assert "lost" not in kept.text
    assert "In 2 dimensions it is more at 0.95 (0.9" in kept.text
    bounds = [float(row.cells[5].shown) for row in kept.grid.rows if row.cells[5].shown]
    assert all(bound < 1 for bound in bounds)


def test_questions_without_an_answer_are_refused() -> None:
    good = {"p": 0.9, "sigma": 1.0, "tau": 1.1, "distance": 0.5, "dimension": 10}
    bad = {
        "p": [0.0, 1.0, math.nan],
        "sigma": [0.0, math.inf],
        "tau": [-1.0, math.nan],
        "distance": [-0.1, math.inf],
    }
    for name, values in {**bad, "dimension": [0, 2.5, math.inf]}.items():
        for value in values:
            for function in (worst_case, log_worst_case, theorem_bound):
                with pytest.raises(UsageError, match=rf"^{name} must .*got {value}"):
                    function(**{**good, name: value})


@pytest.mark.parametrize(
    "beyond", [{"p": 1e-31}, {"tau": 1001.0}, {"distance": 2e6}, {"dimension": 2 * 10**9}]
)
def test_what_was_never_tested_is_refused(beyond: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=r"^a worst case is computed for .*got"):
        worst_case(
            **{"p": 0.9, "sigma": 1.0, "tau": 1.1, "distance": 0.5, "dimension": 10} | beyond
        )


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (
            lambda: theorem_bound(0.9, sigma=1, tau=1, distance=0.5, dimension=9),
            "two noise levels that differ",
        ),
        (
            lambda: theorem_bound(
                0.9, sigma=1, tau=2, distance=0.5, dimension=9, fourth_moment=0.5
            ),
            "is at least 1",
        ),
        (lambda: table(noises=["unifrom"]), "did you mean 'uniform'"),
        (lambda: table(ratios=[]), "at least one ratio"),
        (lambda: table(ratios=[-1.0]), "tau must be a positive number"),
    ],
)
def test_the_other_functions_refuse_too(ask: Callable[[], object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ask()
