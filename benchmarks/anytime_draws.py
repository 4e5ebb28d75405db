"""How many draws mode anytime saves, on votes simulated from the p_A that published logs imply.

The second table is about budgets for the whole run, which images share by expected gain.

python -m benchmarks.anytime_draws FOLDER       # the folder of published logs, with mnist/ in it
python -m benchmarks.anytime_draws FOLDER 10    # the same on every tenth image
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from smoothmix.analysis import measure
from smoothmix.noise import GAUSSIAN
from smoothmix.stats.allocation import Allocator, Goal
from smoothmix.stats.anytime import FORESIGHT, Stopping
from smoothmix.stats.binomial import lower_bound
from smoothmix.stats.guarantees import Anytime, FixedDraws, SelectedVotes

N = 100_000
BATCH = 256
FIXED = FixedDraws(N, n0=100, alpha=0.001)
LOGS = {
    "SmoothMix, sigma 0.50": ("mnist/smoothmix/smix_1.0_4_m0/tau_5.0/num_4/0/noise_0.5", 0.5),
    "SmoothMix, sigma 1.00": ("mnist/smoothmix/smix_1.0_8_m1/tau_5.0/num_4/0/noise_1.0", 1.0),
}
TABLE = tuple(0.25 * k for k in range(12))


SHARES = (0.1, 0.05)
"""Budgets, as shares of N draws for every image."""


@dataclass(frozen=True)
class Saved:
    """What one way of stopping costs, beside n draws for every image."""

    log: str
    rule: str
    draws: float
    """Mean over images."""
    fewer: float
    """How many times fewer than N."""
    points: float
    """Largest loss of certified accuracy over the requested radii, in percentage points."""
    points_before_last: float
    """The same without the last radius, which is closest to what the draws can certify at all."""
    acr: float
    exact_acr: float
    same_draws_acr: float
    """ACR of mode exact with n set to these mean draws."""


def probabilities(path: Path, sigma: float) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """The p_A behind a log's radii, by the votes that gave them, and which images are right.

    An abstention counts as p_A = 1/2: its votes are unknown, and that takes most draws to decide.
    """
    measured = measure(path, paper_rounding=True)
    bounds = lower_bound(np.arange(N + 1), N, alpha=FIXED.alpha)
    votes = np.minimum(np.searchsorted(bounds, ndtr(measured.radius / sigma)), N)
    return np.where(measured.radius > 0, (votes + 0.5) / (N + 1), 0.5), measured.correct


def simulate(
    p: NDArray[np.float64], sigma: float, guarantee: Anytime, *, seed: int = 0
) -> tuple[NDArray, NDArray]:
    """Draws and certified radius of every image, with the checks of a real run."""
    rng = np.random.default_rng(seed)
    selection_votes = rng.binomial(guarantee.n0, p)
    selection_draws = np.full(len(p), guarantee.n0)
    votes = np.zeros(len(p), dtype=np.int64)
    draws = np.zeros(len(p), dtype=np.int64)

    def votes_of(images: NDArray[np.int64]) -> SelectedVotes:
        return SelectedVotes(
            votes[images], draws[images], selection_votes[images], selection_draws[images]
        )

    active = np.arange(len(p))
    drawn = 0
    while len(active):
        drawn = guarantee.next_check(drawn, batch=BATCH)
        votes[active] += rng.binomial(drawn - draws[active], p[active])
        draws[active] = drawn
        # Many images have the same votes: each kind is checked once.
        kinds = np.stack([votes[active], selection_votes[active]])
        _, first, kind = np.unique(kinds, axis=1, return_index=True, return_inverse=True)
        done = guarantee.enough(votes_of(active[first]), GAUSSIAN, sigma=sigma)
        active = active[~done[kind.ravel()]]
    bounds = guarantee.lower_bound(votes_of(np.arange(len(p))))
    return draws, GAUSSIAN.radius(bounds, sigma=sigma)


def exact_radii(p: NDArray[np.float64], sigma: float, *, n: int) -> NDArray[np.float64]:
    """The radii that mode exact certifies with n draws."""
    votes = np.random.default_rng(1).binomial(n, p)
    bounds = lower_bound(votes, n, alpha=FIXED.alpha)
    return GAUSSIAN.radius(bounds, sigma=sigma)


def rules_for(table: tuple[float, ...]) -> dict[str, Stopping]:
    """The ways of stopping that are compared, by name."""
    rules = {
        "radius 0.5": Stopping(radii=(0.5,), max_draws=N),
        "all radii of the table": Stopping(radii=table, max_draws=N),
        "gain 0.003 per 1,000 draws": Stopping(min_gain=0.003, max_draws=N),
        "tolerance 0.05": Stopping(tolerance=0.05, max_draws=N),
    }
    found = {}
    for name, rule in rules.items():
        found[name] = rule
        if rule.can_foresee:
            found[f"{name}, foresight"] = replace(rule, foresight=FORESIGHT)
    found["none"] = Stopping(max_draws=N)
    return found


def saved(folder: Path, *, skip: int) -> Iterator[Saved]:
    """Every log with every rule, on every `skip`-th image."""
    for name, (path, sigma) in LOGS.items():
        p, correct = probabilities(folder / path, sigma)
        p, correct = p[::skip], correct[::skip]
        exact = exact_radii(p, sigma, n=N) * correct
        largest = FIXED.largest_radius(GAUSSIAN, sigma=sigma)
        table = tuple(r for r in TABLE if r < largest)
        for rule, stopping in rules_for(table).items():
            guarantee = Anytime(stopping=stopping, n0=FIXED.n0, alpha=FIXED.alpha)
            draws, certified = simulate(p, sigma, guarantee)
            counted = certified * correct
            same_draws = exact_radii(p, sigma, n=round(draws.mean())) * correct
            lost = [
                100 * float((exact >= r).mean() - (counted >= r).mean())
                for r in stopping.radii or table
            ]
            yield Saved(
                log=name,
                rule=rule,
                draws=float(draws.mean()),
                fewer=N / float(draws.mean()),
                points=max(lost),
                points_before_last=max(lost[:-1] or lost),
                acr=float(counted.mean()),
                exact_acr=float(exact.mean()),
                same_draws_acr=float(same_draws.mean()),
            )


@dataclass(frozen=True)
class Spent:
    """What a budget certifies, beside n draws for every image."""

    log: str
    goal: Goal
    share: float
    """Of N draws for every image."""
    by_label: bool
    """Whether images that the log says are wrong get no draws."""
    draws: float
    """Mean over images, selection draws included."""
    points: float
    """Mean loss of certified accuracy over the radii of the table, in percentage points."""
    points_before_last: float
    """The same without the last radius."""
    worst: float
    """The largest loss before the last radius."""
    acr: float
    exact_acr: float
    same_draws_acr: float
    """ACR of mode exact with n set to these mean draws."""
    without: int
    """Images that got no draws."""


def allocate(
    p: NDArray[np.float64],
    sigma: float,
    guarantee: Anytime,
    goal: Goal,
    *,
    budget: int,
    eligible: NDArray[np.bool_] | None = None,
    seed: int = 0,
) -> Allocator:
    """Spend a budget, by the rounds of a real run."""
    rng = np.random.default_rng(seed)
    allocator = Allocator(
        guarantee,
        GAUSSIAN,
        sigma=sigma,
        batch=BATCH,
        goal=goal,
        selection_votes=rng.binomial(guarantee.n0, p),
        eligible=eligible,
    )
    while blocks := allocator.plan(budget - allocator.spent):
        positions = np.array([block.position for block in blocks])
        stops = np.array([block.stop for block in blocks])
        more = rng.binomial(stops - allocator.draws[positions], p[positions])
        allocator.add(positions.tolist(), allocator.votes[positions] + more, stops)
    return allocator


def spent(folder: Path, *, skip: int) -> Iterator[Spent]:
    """Every log with every goal and budget, on every `skip`-th image."""
    for name, (path, sigma) in LOGS.items():
        p, correct = probabilities(folder / path, sigma)
        p, correct = p[::skip], correct[::skip]
        exact = exact_radii(p, sigma, n=N) * correct
        table = tuple(r for r in TABLE if r < FIXED.largest_radius(GAUSSIAN, sigma=sigma))
        rules: dict[Goal, Stopping] = {
            "accuracy": Stopping(radii=table, max_draws=N, foresight=FORESIGHT),
            "acr": Stopping(max_draws=N),
        }
        for (goal, stopping), share, by_label in product(rules.items(), SHARES, (False, True)):
            guarantee = Anytime(stopping, n0=FIXED.n0, alpha=FIXED.alpha)
            allocator = allocate(
                p,
                sigma,
                guarantee,
                goal,
                budget=int(share * N * len(p)),
                eligible=correct if by_label else None,
            )
            selection = np.full(len(p), FIXED.n0)
            votes = (allocator.votes, allocator.draws, allocator.selection_votes, selection)
            bounds = guarantee.lower_bound(SelectedVotes(*votes))
            counted = GAUSSIAN.radius(bounds, sigma=sigma) * correct
            draws = allocator.spent / len(p)
            lost = []
            for radius in table:
                lost.append(100 * float((exact >= radius).mean() - (counted >= radius).mean()))
            same_draws = exact_radii(p, sigma, n=round(draws)) * correct
            yield Spent(
                log=name,
                goal=goal,
                share=share,
                by_label=by_label,
                draws=draws,
                points=float(np.mean(lost)),
                points_before_last=float(np.mean(lost[:-1])),
                worst=max(lost[:-1]),
                acr=float(counted.mean()),
                exact_acr=float(exact.mean()),
                same_draws_acr=float(same_draws.mean()),
                without=int((allocator.draws == 0).sum()),
            )


def show_budgets(folder: Path, skip: int) -> None:
    """Print the table of budgets."""
    lost = f"{'points lost':>12} {'before last':>12} {'at most':>8}"
    acrs = f"{'ACR':>8} {'exact':>8} {'same draws':>11}"
    print(f"{'log':22} {'budget':34} {'draws':>9} {lost} {acrs} {'without':>8}")
    for s in spent(folder, skip=skip):
        budget = f"{s.share:g} of all draws, {s.goal}"
        if s.by_label:
            budget += ", by label"
        lost = f"{s.points:12.2f} {s.points_before_last:12.2f} {s.worst:8.2f}"
        acrs = f"{s.acr:8.4f} {s.exact_acr:8.4f} {s.same_draws_acr:11.4f}"
        print(f"{s.log:22} {budget:34} {s.draws:9.0f} {lost} {acrs} {s.without:8}", flush=True)


def main(folder: Path, skip: int) -> None:
    lost = f"{'points lost':>12} {'before last':>12}"
    acrs = f"{'ACR':>8} {'exact':>8} {'same draws':>11}"
    print(f"{'log':22} {'rule':34} {'draws':>9} {'fewer':>7} {lost} {acrs}")
    for s in saved(folder, skip=skip):
        lost = f"{s.points:12.2f} {s.points_before_last:12.2f}"
        acrs = f"{s.acr:8.4f} {s.exact_acr:8.4f} {s.same_draws_acr:11.4f}"
        numbers = f"{s.draws:9.0f} {s.fewer:6.1f}x {lost} {acrs}"
        print(f"{s.log:22} {s.rule:34} {numbers}", flush=True)
    print()
    show_budgets(folder, skip)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1)
