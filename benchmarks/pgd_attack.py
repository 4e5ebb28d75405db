"""Our attack against PGD: `python -m benchmarks.pgd_attack zoo:mnist-0.50-gaussian ATTACKS`.

ATTACKS is the attacks.tsv that `smoothmix attack` has written for this network. PGD has the
settings of the evaluations that SmoothAdv and its successors have released: 20 steps of 2 radius /
20, with one noise sample. It gets every advantage: its radius is doubled until it succeeds and then
bisected, and each of its results is judged by the same test as ours. The share of images on which
our example is nearer is printed in the end.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import torch
from torch import Tensor

from smoothmix import data
from smoothmix.attacks import pgd, smoothed_cross_entropy
from smoothmix.attacks.target import Target, model_for_gradients
from smoothmix.certificates import Attack, read_attacks
from smoothmix.cli.models import load_network
from smoothmix.cli.options import NetworkOptions
from smoothmix.noise import Domain, DrawRange, GridNoise, make_noise
from smoothmix.stats.binomial import ABSTAIN

STEPS = 20
COPIES = 1
FIRST_RADIUS = 0.125
DOUBLINGS = 7
BISECTIONS = 6

FIRST_TEST = 1_000
"""Judgements of PGD are numbered from here: no judgement of ours has seen their noise."""

HEADER = "idx\tours\tpgd\tratio"


@dataclass(kw_only=True)
class Search:
    """The smallest distance at which PGD succeeds on one image."""

    target: Target
    before: int
    best: float | None = None
    tests: int = 0

    def distance(self) -> float | None:
        """Doubled radii, and bisection between the last failure and the first success."""
        low = 0.0
        radius = FIRST_RADIUS
        for _ in range(DOUBLINGS):
            if self.succeeds(radius):
                break
            low = radius
            radius *= 2
        else:
            return None
        high = radius
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            if self.succeeds(middle):
                high = middle
            else:
                low = middle
        return self.best

    def succeeds(self, radius: float) -> bool:
        """Whether the result of PGD has another class by fresh noise."""
        point = self.target.allowed(self.attacked(radius))
        self.tests += 1
        found, _ = self.target.judged_class(point, self.before, test=FIRST_TEST + self.tests)
        if found in (ABSTAIN, self.before):
            return False
        distance = self.target.distance(point)
        if self.best is None or distance < self.best:
            self.best = distance
        return True

    def attacked(self, radius: float) -> Tensor:
        """The result of PGD within a radius."""
        target = self.target
        sampler = target.sampler
        draws = DrawRange(sampler.seed, Domain.STUDY, target.index, self.tests, COPIES)
        noise = sampler.noise.sample(draws, tuple(target.image.shape), sigma=sampler.sigma)
        found = pgd(
            target.model,
            target.image[None],
            torch.from_numpy(noise)[:, None],
            objective=smoothed_cross_entropy(torch.tensor([self.before])),
            radius=radius,
            steps=STEPS,
        )
        return found[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("network", type=Path, help="the run folder or zoo:NAME that was attacked")
    parser.add_argument("attacks", type=Path, help="its attacks.tsv")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--max", type=int, help="compare the first images only")
    options = parser.parse_args()
    file = read_attacks(options.attacks)
    settings = file.settings
    loaded = load_network(options.network, NetworkOptions())
    images = data.load(settings.data, settings.split, data_dir=options.data_dir)
    smoothed = loaded.smoothed(
        sigma=settings.sigma,
        noise=GridNoise(settings.levels) if settings.levels else make_noise(settings.noise),
        num_classes=settings.num_classes,
        batch=settings.batch,
        precision=settings.precision,
        engine="auto",
    )
    pairs = []
    print(HEADER)
    with smoothed.open(images.shape, seed=settings.search.seed) as sampler:
        model = model_for_gradients(sampler)
        for row in file.rows[: options.max]:
            (image,) = images.images([row.idx])
            found = None
            # Without a class there is nothing that either attack could change.
            if row.before != ABSTAIN:
                target = Target(
                    sampler=sampler,
                    image=image,
                    index=row.idx,
                    search=settings.search,
                    model=model,
                )
                found = Search(target=target, before=row.before).distance()
            print(_line(row, found), flush=True)
            pairs.append((row.distance, found))
    _summarise(pairs)


def _line(row: Attack, found: float | None) -> str:
    cells = [str(row.idx), _number(row.distance), _number(found), ""]
    if row.distance is not None and found is not None:
        cells[3] = f"{row.distance / found:.3f}"
    return "\t".join(cells)


def _number(distance: float | None) -> str:
    return "" if distance is None else f"{distance:.4f}"


def _summarise(pairs: list[tuple[float | None, float | None]]) -> None:
    ratios = [ours / theirs for ours, theirs in pairs if ours is not None and theirs is not None]
    alone = sum(ours is not None and theirs is None for ours, theirs in pairs)
    missed = sum(ours is None and theirs is not None for ours, theirs in pairs)
    print(f"images: {len(pairs)}; only ours succeeds: {alone}; only PGD succeeds: {missed}")
    if not ratios:
        print("both succeed on no image: nothing to compare")
        return
    nearer = sum(ratio < 1 for ratio in ratios)
    print(
        f"both succeed: {len(ratios)}; ours is nearer on {nearer} ({nearer / len(ratios):.0%}); "
        f"distance as a share of PGD's: median {median(ratios):.3f}, largest {max(ratios):.3f}"
    )


if __name__ == "__main__":
    main()
