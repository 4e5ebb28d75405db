"""Why one noise level per model: what a classifier may do at x' if its noise there has another deviation. No torch.

A classifier has probability p at x under noise of deviation sigma; at x', `distance` away, its noise has deviation tau.
How small can its probability there be? Phi(Phi^-1(p) - distance / sigma) if tau = sigma, in any dimension; if not, it
falls to 0 as the dimension grows (the paper's theorem on input-dependent noise). For Gaussian noise it is exact: by
Neyman and Pearson the worst classifier is a ball where the noise grows, all but a ball where it shrinks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from zlib import crc32

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.special import log1p, log_ndtr, ndtri

from smoothmix.config import require, require_seed, require_sigma
from smoothmix.noise import Noise, make_noise

Floats = NDArray[np.float64]
Complexes = NDArray[np.complex128]


@dataclass(frozen=True)
class _Case:
    p: float
    sigma: float
    tau: float
    distance: float
    dimension: float

    def __post_init__(self) -> None:
        require(0 < self.p < 1, f"p must lie strictly between 0 and 1, got {self.p}")
        require_sigma(self.sigma)
        require(0 < self.tau < math.inf, f"tau must be a positive number, got {self.tau}")
        require(
            0 <= self.distance < math.inf, f"distance must be zero or more, got {self.distance}"
        )
        whole = self.dimension >= 1 and self.dimension % 1 == 0
        require(whole, f"dimension must be a whole number from 1 on, got {self.dimension}")


def worst_case(
    p: ArrayLike, *, sigma: float, tau: float, distance: float, dimension: ArrayLike
) -> Floats:
    """The smallest probability at x' of any classifier with probability p at x, under Gaussian noise.

    It has eleven digits or more; below 1e-308 it is 0, where `log_worst_case` goes on.

    >>> [worst_case(0.99, sigma=1, tau=t, distance=0.5, dimension=[1, 784]).round(4).tolist() for t in (1.0, 1.1)]
    [[0.9661, 0.9661], [0.9516, 0.0666]]
    """
    return np.exp(log_worst_case(p, sigma=sigma, tau=tau, distance=distance, dimension=dimension))


def log_worst_case(
    p: ArrayLike, *, sigma: float, tau: float, distance: float, dimension: ArrayLike
) -> Floats:
    """The natural logarithm of `worst_case`, also where the probability itself is too small for a float.

    >>> float(log_worst_case(0.99, sigma=1.0, tau=1.25, distance=0.5, dimension=150528).round(3))
    -6272.304
    """
    return _each(lambda q, d: _log_worst_case(_Case(q, sigma, tau, distance, d)), p, dimension)


def theorem_bound(
    p: ArrayLike,
    *,
    sigma: float,
    tau: float,
    distance: float,
    dimension: ArrayLike,
    fourth_moment: float = 3.0,
    as_printed: bool = False,
) -> Floats:
    """The theorem's C / dimension: no worst case up to this distance is above it. Beyond 1 it says nothing.

    The printed proof has sigma^2 + tau^2 where its last step needs |sigma^2 - tau^2|. The C here has the difference, so
    that each step holds (also without p > 1/2 and distance <= 1/2); `as_printed` gives the paper's C. They are equal if
    the first of the three terms is the largest, as it is for p near 1 and tau not far above sigma.
    """
    require(
        sigma != tau, f"the theorem needs two noise levels that differ, got sigma = tau = {sigma}"
    )
    require(
        1 <= fourth_moment < math.inf,
        f"at unit variance a fourth moment is at least 1, got {fourth_moment}",
    )
    return _each(
        lambda q, d: _bound(_Case(q, sigma, tau, distance, d), fourth_moment, as_printed),
        p,
        dimension,
    )


def _bound(case: _Case, fourth_moment: float, as_printed: bool = False) -> float:
    sigma2, tau2, distance2, eta2 = case.sigma**2, case.tau**2, case.distance**2, fourth_moment - 1
    gap = abs(case.tau - case.sigma) * (case.tau + case.sigma)
    margin = sigma2 + tau2 if as_printed else gap
    width = 4 * sigma2**2 * eta2 / (gap**2 * (1 - case.p))
    spread = (36 * tau2**2 * eta2 + 144 * tau2 * distance2) / margin**2
    return max(width, 6 * distance2 / margin, spread) / case.dimension


def _each(answer: Callable[[float, float], float], p: ArrayLike, dimension: ArrayLike) -> Floats:
    pairs = np.broadcast(np.asarray(p, dtype=np.float64), np.asarray(dimension, dtype=np.float64))
    return np.asarray([answer(float(q), float(d)) for q, d in pairs], dtype=np.float64).reshape(
        pairs.shape
    )


@dataclass(frozen=True)
class _Ball:
    """A ball as a standard Gaussian sees it: its squared distance and radius, and what that has above its mean."""

    dimension: float
    offset: float
    square: float
    excess: float  # square - dimension - offset, with digits of its own: as tau nears sigma it is small beside them


def _log_worst_case(case: _Case) -> float:
    ratio, shift = case.tau / case.sigma, case.distance / case.sigma
    require(case.p >= 1e-30, f"a worst case is computed for p from 1e-30 on, got {case.p:g}")
    require(
        1e-3 <= ratio <= 1e3,
        f"a worst case is computed for tau from 1e-3 to 1e3 sigma, got {ratio:g} sigma",
    )
    require(
        shift <= 1e6, f"a worst case is computed for distances up to 1e6 sigma, got {shift:g} sigma"
    )
    require(
        case.dimension <= 1e9,
        f"a worst case is computed for dimensions up to 1e9, got {case.dimension:g}",
    )
    growth = (case.tau - case.sigma) / case.sigma * (ratio + 1)  # ratio^2 - 1
    if growth == 0:
        return float(log_ndtr(ndtri(case.p) - shift))
    # The likelihood at x' over that at x depends on the distance from one point of the line through both, which lies
    # shift / growth from x. Where the noise grows it is least near that point; where the noise shrinks, far from it.
    offset, logs = (shift / growth) ** 2, (math.log(case.p), math.log1p(-case.p))
    ball = _ball_with(case.dimension, offset, *(logs if growth > 0 else logs[::-1]))
    square, new_offset = ball.square / ratio**2, offset * ratio**2
    excess = square - case.dimension - new_offset
    if abs(growth) < 0.5:  # the same, with more digits
        excess = (ball.excess - growth * (case.dimension + offset * (1 + ratio**2))) / ratio**2
    return _log_probabilities(_Ball(case.dimension, new_offset, square, excess))[
        0 if growth > 0 else 1
    ]


def _ball_with(dimension: float, offset: float, log_inside: float, log_outside: float) -> _Ball:
    """The ball at this offset that has these probabilities; the smaller one decides, for it has more digits."""
    mean, unit = dimension + offset, math.sqrt(2 * dimension + 4 * offset) / (dimension + offset)
    which, sign, target = (0, 1, log_inside) if log_inside < log_outside else (1, -1, log_outside)

    def ball(x: float) -> _Ball:
        return _Ball(dimension, offset, mean * math.exp(x), mean * math.expm1(x))

    def surplus(x: float) -> float:
        return sign * (_log_probabilities(ball(x))[which] - target)

    low, high = -unit, unit
    while surplus(low) > 0:
        low *= 2
    while surplus(high) < 0:
        high *= 2
    return ball(brentq(surplus, low, high, xtol=1e-15 * unit, rtol=1e-15))


# A tail is 1 / (2 pi i) times the integral of exp(K(s) - s * square) / |s| on a path across the real axis, below 0 for
# the inside, between 0 and 1/2 for the outside; K(s) = -dimension / 2 * log(1 - 2s) + offset * s / (1 - 2s). On a
# parabola from the saddle, near steepest descent, the integrand is much like a Gaussian: equal steps converge
# exponentially, in any dimension. (scipy's ncx2 has no logarithms, and at offsets above 1e10 returns nan or is wrong in
# the fourth digit.) 1 - 2s stays beside s for its digits.
STEP = 0.1
NODES = STEP * (np.arange(200) + 0.5)


def _log_probabilities(ball: _Ball) -> tuple[float, float]:
    """The logarithms of the probabilities inside and outside: the tail by integration, the other from it."""
    start, rest = _saddle(ball)
    curvature = 2 * ball.dimension + 4 * ball.offset / rest
    bend = (8 * ball.dimension + 24 * ball.offset / rest) / (6 * curvature * rest)
    unit = rest / math.sqrt(curvature + (rest / start) ** 2)
    y = unit * NODES
    path: Complexes = np.append(0j, 1j * y + bend * y**2)
    exponent = _exponent(ball, start + path, rest - 2 * path)
    values = np.exp(exponent[1:] - exponent[0]) * (1 - 2j * bend * y) / (start + path[1:])
    log_tail = float(exponent[0].real) + math.log(abs(values.real.sum()) * STEP * unit / math.pi)
    log_rest = math.log1p(-math.exp(log_tail))
    return (log_rest, log_tail) if ball.excess >= 0 else (log_tail, log_rest)


def _saddle(ball: _Ball) -> tuple[float, float]:
    """Where the path starts, as s and 1 - 2s: at the saddle of K(s) - s * square, moved away from the pole at 0."""
    twice = ball.dimension + math.sqrt(ball.dimension**2 + 4 * ball.offset * ball.square)
    s, rest = (
        ball.excess / (2 * ball.square * (1 + 2 * ball.offset / twice)),
        twice / (2 * ball.square),
    )
    pole = 4 * rest**2 / (2 * ball.dimension + 4 * ball.offset / rest)
    move = pole / 2 / (abs(s) + math.sqrt(s**2 + pole))
    move = min(move, rest / 4) if ball.excess >= 0 else -move  # 1/2 is a singularity too
    return s + move, rest - 2 * move


def _exponent(ball: _Ball, s: Complexes, rest: Complexes) -> Complexes:
    """K(s) - s * square, where rest = 1 - 2s: in the form in which little cancels."""
    log_rest = np.where(np.abs(s) < 0.25, log1p(-2 * s), np.log(rest))
    if s[0].real < -0.5:
        return np.asarray(-ball.dimension / 2 * log_rest + ball.offset * s / rest - s * ball.square)
    return np.asarray(
        -ball.dimension * (log_rest / 2 + s) + 2 * ball.offset * s**2 / rest - s * ball.excess
    )


def _noise(name: str) -> Noise:
    noise = make_noise(name)
    require(
        math.isfinite(noise.fourth_moment),
        f"the noise {name} does not give its fourth moment, which the theorem needs",
    )
    return noise


def shell_worst_case(
    noise: str,
    p: float,
    *,
    sigma: float,
    tau: float,
    distance: float,
    dimension: int,
    draws: int,
    rng: Generator,
) -> tuple[float, float]:
    """The probability at x' of the set in the theorem's proof, by Monte Carlo, and its standard error.

    The set is the shell of probability p at x where the noise has a mean square near sigma^2. The worst case lies
    below. x' differs from x in one coordinate.
    """
    return _shells(noise, [_Case(p, sigma, tau, distance, dimension)], draws, rng)[0]


def _shells(
    noise: str, cases: Sequence[_Case], draws: int, rng: Generator
) -> list[tuple[float, float]]:
    """The shell's answer to cases of one p and dimension, from one sample at x and one at x'."""
    kind = _noise(noise)
    least = round(10 / min(cases[0].p, 1 - cases[0].p))
    require(
        draws >= least,
        f"draws must be {least} or more to find the shell of p={cases[0].p:g}, got {draws}",
    )
    samples = [_lengths(kind, int(cases[0].dimension), draws, rng) for _ in range(2)]
    return [_shell(case, *samples) for case in cases]


def _lengths(noise: Noise, dimension: int, draws: int, rng: Generator) -> Floats:
    """Of each noise vector the mean square and the first coordinate, which is all that the shell asks of it."""
    found = np.empty((2, draws))
    rows = max(1, 2**20 // dimension)  # a few megabytes at once
    for start in range(0, draws, rows):
        vectors = np.empty((min(rows, draws - start), dimension), dtype=np.float32)
        noise.fill(rng, vectors)
        found[:, start : start + rows] = (
            np.square(vectors).mean(axis=1, dtype=np.float64),
            vectors[:, 0],
        )
    return found


def _shell(case: _Case, at_x: Floats, at_other: Floats) -> tuple[float, float]:
    (before, _), (after, first), draws = at_x, at_other, at_x.shape[1]
    after = (
        case.tau**2 * after
        + (2 * case.tau * first + case.distance) * case.distance / case.dimension
    )
    # The half-width is an estimate too: one deviation of the share at x moves it, and with it the share at x'.
    error = math.sqrt(case.p * (1 - case.p) / draws)
    widths = np.quantile(
        np.abs(before - 1) * case.sigma**2, [case.p - error, case.p, case.p + error]
    )
    low, share, high = (float(np.mean(np.abs(after - case.sigma**2) <= width)) for width in widths)
    # One hit and one miss are added for the error: nothing hit does not prove 0 without any.
    careful = (share * draws + 1) / (draws + 2)
    return share, math.hypot(math.sqrt(careful * (1 - careful) / draws), (high - low) / 2)


@dataclass(frozen=True)
class Row:
    """How small the probability at x' can be, for one noise, dimension and ratio of tau to sigma."""

    noise: str
    ratio: float
    dimension: int
    worst_case: (
        float  # exact for Gaussian noise; for others the shell's, and the true one is no larger
    )
    bound: float | None  # the theorem's C / dimension, which needs a ratio other than 1
    standard_error: float | None  # of a worst case by Monte Carlo


def table(
    *,
    p: float = 0.99,
    sigma: float = 1.0,
    distance: float = 0.5,
    ratios: Sequence[float] = (0.8, 0.9, 0.95, 0.99, 1.0, 1.01, 1.05, 1.1, 1.25),
    dimensions: Sequence[int] = (
        1,
        10,
        100,
        784,
        3072,
        150528,
    ),  # to the inputs of MNIST, CIFAR-10 and ImageNet
    noises: Sequence[str] = ("gaussian", "uniform", "laplace"),
    draws: int = 2_000,
    seed: int = 0,
) -> list[Row]:
    """A row for each noise, dimension and ratio, in this order; none depends on which others are asked for.

    >>> [f"{row.worst_case:.2g}" for row in table(ratios=[0.9, 1.0], dimensions=[100, 3072], noises=["gaussian"])]
    ['0.81', '0.97', '6.1e-10', '0.97']
    """
    require_seed(seed)
    require(len(ratios) > 0, "the table needs at least one ratio of tau to sigma")
    moments = {noise: _noise(noise).fourth_moment for noise in noises}
    cells = [
        [_Case(p, sigma, sigma * ratio, distance, dimension) for ratio in ratios]
        for dimension in dimensions
    ]
    rows = []
    for noise, cases in product(noises, cells):
        for ratio, case, (value, error) in zip(
            ratios, cases, _answers(noise, cases, draws, seed), strict=True
        ):
            bound = None if case.tau == sigma else _bound(case, moments[noise])
            rows.append(Row(noise, ratio, int(case.dimension), value, bound, error))
    return rows


def _answers(
    noise: str, cases: Sequence[_Case], draws: int, seed: int
) -> Sequence[tuple[float, float | None]]:
    if noise == "gaussian":
        return [(math.exp(_log_worst_case(case)), None) for case in cases]
    return _shells(
        noise,
        cases,
        draws,
        np.random.default_rng([seed, crc32(noise.encode()), int(cases[0].dimension)]),
    )
