"""How many draws mode anytime saves, on votes simulated from the p_A that published logs imply.

python -m benchmarks.anytime_draws FOLDER     # the folder of published logs, with mnist/ in it
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from smoothmix.analysis import measure
from smoothmix.stats import anytime
from smoothmix.stats.anytime import Stopping
from smoothmix.stats.binomial import largest_radius, lower_bound, radius

N0, N, ALPHA, BLOCK = 100, 100_000, 0.001, 256
LOGS = {
    "SmoothMix, sigma 0.50": ("mnist/smoothmix/smix_1.0_4_m0/tau_5.0/num_4/0/noise_0.5", 0.5),
    "SmoothMix, sigma 1.00": ("mnist/smoothmix/smix_1.0_8_m1/tau_5.0/num_4/0/noise_1.0", 1.0),
}
TABLE = tuple(0.25 * k for k in range(12))


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
    acr: float
    exact_acr: float


def probabilities(path: Path, sigma: float) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """The p_A behind a log's radii, by the votes that gave them, and which images are right.

    An abstention counts as p_A = 1/2: its votes are unknown, and that takes most draws to decide.
    """
    measured = measure(path, paper_rounding=True)
    bounds = lower_bound(np.arange(N + 1), N, alpha=ALPHA)
    votes = np.minimum(np.searchsorted(bounds, ndtr(measured.radius / sigma)), N)
    return np.where(measured.radius > 0, (votes + 0.5) / (N + 1), 0.5), measured.correct


def simulate(
    p: NDArray[np.float64], sigma: float, stopping: Stopping, *, seed: int = 0
) -> tuple[NDArray, NDArray]:
    """Draws and certified radius of every image, by the rounds of a real run."""
    rng = np.random.default_rng(seed)
    k0 = rng.binomial(N0, p)
    k, n = np.zeros(len(p), dtype=np.int64), np.zeros(len(p), dtype=np.int64)
    active = np.arange(len(p))
    total = 0
    while len(active):
        total = anytime.next_total(total, block=BLOCK, max_draws=stopping.max_draws)
        k[active] += rng.binomial(total - n[active], p[active])
        n[active] = total
        done = anytime.decided(
            k[active], n[active], k0=k0[active], n0=N0, alpha=ALPHA, sigma=sigma, stopping=stopping
        )
        active = active[~done]
    return n, radius(anytime.lower_bound(k, n, k0=k0, n0=N0, alpha=ALPHA), sigma=sigma)


def saved(folder: Path) -> list[Saved]:
    """Every log with every rule."""
    found = []
    for name, (path, sigma) in LOGS.items():
        p, correct = probabilities(folder / path, sigma)
        exact = (
            radius(
                lower_bound(np.random.default_rng(1).binomial(N, p), N, alpha=ALPHA), sigma=sigma
            )
            * correct
        )
        table = tuple(r for r in TABLE if r < largest_radius(N, alpha=ALPHA, sigma=sigma))
        for rule, stopping in {
            "radius 0.5": Stopping(radii=(0.5,), max_draws=N),
            "all radii of the table": Stopping(radii=table, max_draws=N),
            "tolerance 0.05": Stopping(tolerance=0.05, max_draws=N),
            "none": Stopping(max_draws=N),
        }.items():
            n, certified = simulate(p, sigma, stopping)
            counted = certified * correct
            radii = stopping.radii or table
            points = max(100 * float((exact >= r).mean() - (counted >= r).mean()) for r in radii)
            found.append(
                Saved(
                    name,
                    rule,
                    float(n.mean()),
                    N / float(n.mean()),
                    points,
                    float(counted.mean()),
                    float(exact.mean()),
                )
            )
    return found


def main(folder: Path) -> None:
    titles = f"{'draws':>9} {'fewer':>7} {'points lost':>12} {'ACR':>8} {'exact':>8}"
    print(f"{'log':24} {'rule':24} {titles}")
    for s in saved(folder):
        numbers = f"{s.draws:9.0f} {s.fewer:6.1f}x {s.points:12.2f} {s.acr:8.4f} {s.exact_acr:8.4f}"
        print(f"{s.log:24} {s.rule:24} {numbers}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
