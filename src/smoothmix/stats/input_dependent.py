"""Why a model has one noise level: what a classifier may do where its noise differs.

A classifier has probability p at x under noise of standard deviation sigma. At x', `distance` away,
its noise has standard deviation tau. How small can its probability there be? If tau = sigma, it is
at least Phi(Phi^-1(p) - distance / sigma), in any dimension. If not, it falls to 0 as the dimension
grows (the paper's theorem on input-dependent noise). For Gaussian noise the answer is exact: by
Neyman and Pearson the worst classifier is a ball where the noise grows, and all but a ball where it
shrinks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from zlib import crc32

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.special import log1p, log_ndtr, ndtri

from smoothmix.config import require, require_seed, require_sigma
from smoothmix.noise import Noise, make_noise
from smoothmix.stats.beta import Floats

Complexes = NDArray[np.complex128]

SAMPLED_NUMBERS = 2**20
"""Random numbers that are held at once: a few megabytes."""

DIMENSIONS = (1, 10, 100, 784, 3072, 150528)
"""Up to the inputs of MNIST, CIFAR-10 and ImageNet."""

RATIOS = (0.8, 0.9, 0.95, 0.99, 1.0, 1.01, 1.05, 1.1, 1.25)


@dataclass(frozen=True)
class _Question:
    """How small can the probability at x' be?"""

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

    def require_computable(self) -> None:
        """Refuse what the integration has not been tested for."""
        ratio = self.tau / self.sigma
        shift = self.distance / self.sigma
        require(self.p >= 1e-30, f"a worst case is computed for p from 1e-30 on, got {self.p:g}")
        require(
            1e-3 <= ratio <= 1e3,
            f"a worst case is computed for tau from 1e-3 to 1e3 sigma, got {ratio:g} sigma",
        )
        require(
            shift <= 1e6,
            f"a worst case is computed for distances up to 1e6 sigma, got {shift:g} sigma",
        )
        require(
            self.dimension <= 1e9,
            f"a worst case is computed for dimensions up to 1e9, got {self.dimension:g}",
        )


def worst_case(
    p: ArrayLike, *, sigma: float, tau: float, distance: float, dimension: ArrayLike
) -> Floats:
    """The smallest probability at x' of any classifier with probability p at x, by Gaussian noise.

    It has eleven digits or more. Below 1e-308 it is 0; `log_worst_case` has smaller ones.

    >>> dimensions = [1, 784]
    >>> worst_case(0.99, sigma=1, tau=1.0, distance=0.5, dimension=dimensions).round(4).tolist()
    [0.9661, 0.9661]
    >>> worst_case(0.99, sigma=1, tau=1.1, distance=0.5, dimension=dimensions).round(4).tolist()
    [0.9516, 0.0666]
    """
    return np.exp(log_worst_case(p, sigma=sigma, tau=tau, distance=distance, dimension=dimension))


def log_worst_case(
    p: ArrayLike, *, sigma: float, tau: float, distance: float, dimension: ArrayLike
) -> Floats:
    """The natural logarithm of `worst_case`, also where a float cannot hold the probability.

    >>> found = log_worst_case(0.99, sigma=1.0, tau=1.25, distance=0.5, dimension=150528)
    >>> float(found.round(3))
    -6272.304
    """

    def answer(probability: float, dimensions: float) -> float:
        return _log_worst_case(_Question(probability, sigma, tau, distance, dimensions))

    return _for_each_pair(answer, p, dimension)


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
    """The theorem's C / dimension: no worst case up to this distance is above it.

    A bound of 1 or more says nothing. The printed proof has sigma^2 + tau^2 where its last step
    needs |sigma^2 - tau^2|. The C here has the difference, so that each step holds (also without
    p > 1/2 and distance <= 1/2); `as_printed` gives the paper's C. They are equal if the first of
    the three terms is the largest, as it is for p near 1 and tau not far above sigma.
    """
    require(
        sigma != tau, f"the theorem needs two noise levels that differ, got sigma = tau = {sigma}"
    )
    require(
        1 <= fourth_moment < math.inf,
        f"at unit variance a fourth moment is at least 1, got {fourth_moment}",
    )

    def answer(probability: float, dimensions: float) -> float:
        question = _Question(probability, sigma, tau, distance, dimensions)
        return _theorem_bound(question, fourth_moment, as_printed=as_printed)

    return _for_each_pair(answer, p, dimension)


def _theorem_bound(question: _Question, fourth_moment: float, *, as_printed: bool = False) -> float:
    sigma2 = question.sigma**2
    tau2 = question.tau**2
    distance2 = question.distance**2
    eta2 = fourth_moment - 1
    gap = abs(question.tau - question.sigma) * (question.tau + question.sigma)
    margin = gap
    if as_printed:
        margin = sigma2 + tau2
    width = 4 * sigma2**2 * eta2 / (gap**2 * (1 - question.p))
    spread = (36 * tau2**2 * eta2 + 144 * tau2 * distance2) / margin**2
    return max(width, 6 * distance2 / margin, spread) / question.dimension


def _for_each_pair(
    answer: Callable[[float, float], float], p: ArrayLike, dimension: ArrayLike
) -> Floats:
    pairs = np.broadcast(np.asarray(p, dtype=np.float64), np.asarray(dimension, dtype=np.float64))
    answers = [answer(float(probability), float(dimensions)) for probability, dimensions in pairs]
    return np.asarray(answers, dtype=np.float64).reshape(pairs.shape)


@dataclass(frozen=True)
class _Ball:
    """A ball, in the coordinates of a standard Gaussian."""

    dimension: float
    offset: float
    """Squared distance of its centre from the Gaussian's."""
    square: float
    """Squared radius."""
    excess: float
    """square - dimension - offset, kept apart for its digits: near tau = sigma it is small."""


def _log_worst_case(question: _Question) -> float:
    question.require_computable()
    ratio = question.tau / question.sigma
    shift = question.distance / question.sigma
    # ratio^2 - 1, in the form that keeps its digits near ratio = 1.
    growth = (question.tau - question.sigma) / question.sigma * (ratio + 1)
    if growth == 0:
        return float(log_ndtr(ndtri(question.p) - shift))
    # The likelihood at x' over that at x depends on the distance from one point of the line through
    # both, which lies shift / growth from x. Where the noise grows it is least near that point;
    # where the noise shrinks, far from it.
    offset = (shift / growth) ** 2
    log_p = math.log(question.p)
    log_rest = math.log1p(-question.p)
    if growth > 0:
        ball = _ball_with(question.dimension, offset, log_p, log_rest)
    else:
        ball = _ball_with(question.dimension, offset, log_rest, log_p)
    inside, outside = _log_probabilities(_seen_from_x_prime(ball, ratio, growth))
    if growth > 0:
        return inside
    return outside


def _seen_from_x_prime(ball: _Ball, ratio: float, growth: float) -> _Ball:
    """The same ball in the coordinates of the noise at x'."""
    square = ball.square / ratio**2
    offset = ball.offset * ratio**2
    excess = square - ball.dimension - offset
    # Near ratio = 1 the same number has more digits in this form.
    if abs(growth) < 0.5:
        lost = growth * (ball.dimension + ball.offset * (1 + ratio**2))
        excess = (ball.excess - lost) / ratio**2
    return _Ball(ball.dimension, offset, square, excess)


def _ball_with(dimension: float, offset: float, log_inside: float, log_outside: float) -> _Ball:
    """The ball at this offset that has these probabilities."""
    mean = dimension + offset
    unit = math.sqrt(2 * dimension + 4 * offset) / mean
    # The smaller probability decides, since it has more digits.
    by_inside = log_inside < log_outside

    def ball(x: float) -> _Ball:
        return _Ball(dimension, offset, mean * math.exp(x), mean * math.expm1(x))

    def surplus(x: float) -> float:
        inside, outside = _log_probabilities(ball(x))
        if by_inside:
            return inside - log_inside
        return log_outside - outside

    low = -unit
    while surplus(low) > 0:
        low *= 2
    high = unit
    while surplus(high) < 0:
        high *= 2
    return ball(brentq(surplus, low, high, xtol=1e-15 * unit, rtol=1e-15))


# A tail is 1 / (2 pi i) times the integral of exp(K(s) - s * square) / |s| on a path across the
# real axis, below 0 for the inside, between 0 and 1/2 for the outside, where
# K(s) = -dimension / 2 * log(1 - 2s) + offset * s / (1 - 2s). On a parabola from the saddle, near
# steepest descent, the integrand is much like a Gaussian: equal steps converge exponentially, in
# any dimension. (scipy's ncx2 has no logarithms, and at offsets above 1e10 returns nan or is wrong
# in the fourth digit.) 1 - 2s is kept beside s for its digits.
STEP = 0.1
NODES = STEP * (np.arange(200) + 0.5)


def _log_probabilities(ball: _Ball) -> tuple[float, float]:
    """The logarithms of the probabilities inside and outside: a tail, and 1 less that tail."""
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
    if ball.excess >= 0:
        return log_rest, log_tail
    return log_tail, log_rest


def _saddle(ball: _Ball) -> tuple[float, float]:
    """Where the path starts, as s and 1 - 2s: the saddle, moved away from the pole at 0."""
    twice = ball.dimension + math.sqrt(ball.dimension**2 + 4 * ball.offset * ball.square)
    s = ball.excess / (2 * ball.square * (1 + 2 * ball.offset / twice))
    rest = twice / (2 * ball.square)
    pole = 4 * rest**2 / (2 * ball.dimension + 4 * ball.offset / rest)
    move = pole / 2 / (abs(s) + math.sqrt(s**2 + pole))
    if ball.excess >= 0:
        # 1/2 is a singularity too.
        move = min(move, rest / 4)
    else:
        move = -move
    return s + move, rest - 2 * move


def _exponent(ball: _Ball, s: Complexes, rest: Complexes) -> Complexes:
    """K(s) - s * square, where rest = 1 - 2s, in the form in which little cancels."""
    log_rest = np.where(np.abs(s) < 0.25, log1p(-2 * s), np.log(rest))
    if s[0].real < -0.5:
        return np.asarray(-ball.dimension / 2 * log_rest + ball.offset * s / rest - s * ball.square)
    return np.asarray(
        -ball.dimension * (log_rest / 2 + s) + 2 * ball.offset * s**2 / rest - s * ball.excess
    )


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
    """The probability at x' of the set in the theorem's proof, and its standard error.

    The set is the shell of probability p at x where the noise has a mean square near sigma^2,
    sampled by Monte Carlo. The worst case is lower. x' differs from x in one coordinate.
    """
    question = _Question(p, sigma, tau, distance, dimension)
    (answer,) = _shells(noise, [question], draws, rng)
    return answer


def _shells(
    noise: str, questions: Sequence[_Question], draws: int, rng: Generator
) -> list[tuple[float, float]]:
    """The shell's answers to questions of one p and dimension, by one sample at x and one at x'."""
    kind = _studied_noise(noise)
    p = questions[0].p
    least = round(10 / min(p, 1 - p))
    require(
        draws >= least,
        f"draws must be {least} or more to find the shell of p={p:g}, got {draws}",
    )
    dimension = int(questions[0].dimension)
    at_x = _lengths(kind, dimension, draws, rng)
    at_x_prime = _lengths(kind, dimension, draws, rng)
    return [_shell(question, at_x, at_x_prime) for question in questions]


def _studied_noise(name: str) -> Noise:
    noise = make_noise(name)
    require(
        math.isfinite(noise.fourth_moment),
        f"the noise {name} does not give its fourth moment, which the theorem needs",
    )
    return noise


@dataclass(frozen=True)
class _Lengths:
    """What the shell depends on: of each noise vector the mean square and the first coordinate."""

    mean_square: Floats
    first: Floats


def _lengths(noise: Noise, dimension: int, draws: int, rng: Generator) -> _Lengths:
    found = _Lengths(np.empty(draws), np.empty(draws))
    rows = max(1, SAMPLED_NUMBERS // dimension)
    for start in range(0, draws, rows):
        stop = min(start + rows, draws)
        vectors = np.empty((stop - start, dimension), dtype=np.float32)
        noise.fill(rng, vectors)
        found.mean_square[start:stop] = np.square(vectors).mean(axis=1, dtype=np.float64)
        found.first[start:stop] = vectors[:, 0]
    return found


def _shell(question: _Question, at_x: _Lengths, at_x_prime: _Lengths) -> tuple[float, float]:
    """The share at x' of the shell that has the share p at x, and its standard error."""
    draws = len(at_x.first)
    sigma2 = question.sigma**2
    moved = 2 * question.tau * at_x_prime.first + question.distance
    after = question.tau**2 * at_x_prime.mean_square
    after = after + moved * question.distance / question.dimension
    # The half-width is an estimate too: one standard error of the share at x moves it, and with it
    # the share at x'.
    error = math.sqrt(question.p * (1 - question.p) / draws)
    shares_at_x = [question.p - error, question.p, question.p + error]
    widths = np.quantile(np.abs(at_x.mean_square - 1) * sigma2, shares_at_x)
    low, share, high = (float(np.mean(np.abs(after - sigma2) <= width)) for width in widths)
    # One hit and one miss are added for the error: no hit does not prove a probability of 0.
    careful = (share * draws + 1) / (draws + 2)
    return share, math.hypot(math.sqrt(careful * (1 - careful) / draws), (high - low) / 2)


@dataclass(frozen=True)
class WorstCase:
    """How small the probability at x' can be, for one noise, dimension and tau / sigma."""

    noise: str
    ratio: float
    dimension: int
    worst_case: float
    """Exact for Gaussian noise. For others it is the shell's; the true one is no larger."""
    bound: float | None
    """The theorem's C / dimension, which needs a ratio other than 1."""
    standard_error: float | None
    """Of a worst case by Monte Carlo."""


def table(
    *,
    p: float = 0.99,
    sigma: float = 1.0,
    distance: float = 0.5,
    ratios: Sequence[float] = RATIOS,
    dimensions: Sequence[int] = DIMENSIONS,
    noises: Sequence[str] = ("gaussian", "uniform", "laplace"),
    draws: int = 2_000,
    seed: int = 0,
) -> list[WorstCase]:
    """One row for each noise, dimension and ratio, in this order; no row depends on the others.

    >>> rows = table(ratios=[0.9, 1.0], dimensions=[100, 3072], noises=["gaussian"])
    >>> [f"{row.worst_case:.2g}" for row in rows]
    ['0.81', '0.97', '6.1e-10', '0.97']
    """
    require_seed(seed)
    require(len(ratios) > 0, "the table needs at least one ratio of tau to sigma")
    # What makes no sense is refused before anything is computed.
    questions = {}
    for dimension in dimensions:
        questions[dimension] = [
            _Question(p, sigma, sigma * ratio, distance, dimension) for ratio in ratios
        ]
    moments = {noise: _studied_noise(noise).fourth_moment for noise in noises}
    rows = []
    for noise in noises:
        for dimension in dimensions:
            answers = _answers(noise, questions[dimension], draws, seed)
            for ratio, question, answer in zip(ratios, questions[dimension], answers, strict=True):
                rows.append(_row(noise, ratio, question, answer, moments[noise]))
    return rows


def _row(
    noise: str,
    ratio: float,
    question: _Question,
    answer: tuple[float, float | None],
    fourth_moment: float,
) -> WorstCase:
    bound = None
    if question.tau != question.sigma:
        bound = _theorem_bound(question, fourth_moment)
    value, error = answer
    return WorstCase(noise, ratio, int(question.dimension), value, bound, error)


def _answers(
    noise: str, questions: Sequence[_Question], draws: int, seed: int
) -> Sequence[tuple[float, float | None]]:
    if noise == "gaussian":
        return [(math.exp(_log_worst_case(question)), None) for question in questions]
    dimension = int(questions[0].dimension)
    rng = np.random.default_rng([seed, crc32(noise.encode()), dimension])
    return _shells(noise, questions, draws, rng)
