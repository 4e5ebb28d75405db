"""How long it takes to draw noise on a grid, against noise in floats, in one process by turns."""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np

from benchmarks.__main__ import processor
from smoothmix.noise import GAUSSIAN, Domain, DrawRange, GridNoise, Noise

DRAWS = (1000, 256)
"""Inputs at a time; certification makes 256."""
SHAPES = {"LeNet": (1, 28, 28), "CIFAR-10": (3, 32, 32)}
SIGMAS = (0.25, 0.5, 1.0)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.noise", description=__doc__)
    parser.add_argument("--repeats", type=int, default=51, help="turns of each noise (51)")
    options = parser.parse_args()
    print(f"{processor()}, one thread: median milliseconds of processor time")
    print("| inputs | sigma | levels | grid | gaussian | ratio |\n|---|---|---|---|---|---|")
    for count in DRAWS:
        for name in SHAPES:
            for sigma in SIGMAS:
                print(line(name, count, sigma, 255, options.repeats), flush=True)
    print(line("LeNet", 256, 0.5, 65535, options.repeats), flush=True)


def line(name: str, count: int, sigma: float, levels: int, repeats: int) -> str:
    """One row of the table."""
    grid = GridNoise(levels=levels)
    image = np.zeros(SHAPES[name], dtype=np.float32)
    draws = DrawRange(0, Domain.ESTIMATION, 0, 0, count)
    # The first turn makes tables, which later ones find.
    seconds(grid, image, draws, sigma)
    seconds(GAUSSIAN, image, draws, sigma)
    turns = []
    for _ in range(repeats):
        of_both = seconds(grid, image, draws, sigma), seconds(GAUSSIAN, image, draws, sigma)
        turns.append(of_both)
    of_grid = statistics.median(turn[0] for turn in turns)
    of_gaussian = statistics.median(turn[1] for turn in turns)
    # The ratio of neighbours in time: other load affects both of them.
    ratio = statistics.median(turn[0] / turn[1] for turn in turns)
    return (
        f"| {count} {name} | {sigma} | {levels} | {1000 * of_grid:.2f} | {1000 * of_gaussian:.2f} "
        f"| {ratio:.2f} |"
    )


def seconds(noise: Noise, image: np.ndarray, draws: DrawRange, sigma: float) -> float:
    """Processor time of one range of draws; unlike the clock, it leaves out other processes."""
    started = time.process_time()
    noise.noisy_images(image, draws, sigma=sigma)
    return time.process_time() - started


if __name__ == "__main__":
    main()
