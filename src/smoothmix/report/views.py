"""The numbers of one run that tables and charts show. No torch."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from smoothmix.analysis import Estimate
from smoothmix.analysis.draws import Origin

DECIMAL = re.compile(r"(?<![\d.])\d+\.\d+(?![\d.])")
"""A number with a point in a name: sigmas are mostly written so, and few other numbers are."""


@dataclass(frozen=True, kw_only=True)
class Curve:
    """The points of a line."""

    x: Sequence[float]
    y: Sequence[float]


@dataclass(frozen=True, kw_only=True)
class Difference:
    """The difference of a run's ACR from that of another run, on the images that both certified."""

    versus: str
    """Name of the other run."""
    images: int
    """Number of images that both runs certified."""
    acr: Estimate
    """The paired difference, positive where this run is more robust."""


@dataclass(frozen=True, kw_only=True)
class PublishedRow:
    """The paper's numbers for the preset of a run."""

    acr: float
    """The mean over seeds where the paper has it, otherwise the number of the main table."""
    digits: int
    """Digits after the point in print."""
    deviation: float | None
    """Standard deviation over the paper's seeds."""
    accuracy: Mapping[float, float]
    """Certified accuracy by radius, as a share of 1, of the same runs."""
    deviations_away: float | None
    """How many standard deviations this run's ACR lies above the published one. None without a
    standard deviation, or where epochs or noise samples were cut, which makes it meaningless."""
    source: str
    """Which table of the paper."""
    caution: str
    """Why the two are not directly comparable (fewer epochs, images or noise samples), if so."""
    note: str = ""
    """What else a reader of the published number must know."""

    def accuracy_at(self, radius: float) -> float | None:
        """The published certified accuracy at a radius; None where the paper has none."""
        for known, share in self.accuracy.items():
            if math.isclose(known, radius, abs_tol=1e-9):
                return share
        return None


@dataclass(frozen=True, kw_only=True)
class Training:
    """The metrics of a training by epoch, as metrics.jsonl has them."""

    epochs: Sequence[int]
    loss: Sequence[float]
    accuracy: Sequence[float]
    """Share of noisy test images that are classified correctly."""
    learning_rate: Sequence[float]
    parts: Mapping[str, Sequence[float]]
    """The parts of the loss by name."""


def sigma_suffix(sigma: float) -> str:
    """What is added to a name that runs of several sigmas share."""
    return f", sigma {sigma:g}"


def base_name(name: str, sigma: float | None) -> str:
    """A name without the sigma that was added to it: beside other runs of that sigma it is enough.

    >>> base_name("macer, sigma 0.5", 0.5), base_name("macer, sigma 0.5", 1.0)
    ('macer', 'macer, sigma 0.5')
    """
    if sigma is None:
        return name
    return name.removesuffix(sigma_suffix(sigma))


def series_name(name: str, sigma: float | None) -> str:
    """A name without its sigma, wherever that stands: the same for a method at every sigma.

    >>> series_name("mnist-0.50-gaussian", 0.5), series_name("macer, sigma 1", 1.0)
    ('mnist--gaussian', 'macer')
    """

    def without(number: re.Match[str]) -> str:
        # Another number, such as a weight, distinguishes methods.
        return "" if float(number[0]) == sigma else number[0]

    return DECIMAL.sub(without, base_name(name, sigma))


@dataclass(frozen=True, kw_only=True)
class RunView:
    """One certificate file, and what is known about the network behind it."""

    name: str
    method: str
    """The training method, such as `gaussian`; empty where it is not recorded."""
    sigma: float | None
    data: str
    images: int
    n: int | None
    alpha: float | None
    origin: Origin
    """How n and alpha are known: recorded, stated, inferred or unknown."""
    mode: str
    draws_vary: bool
    """Whether n is only the most that an image may get."""
    norm: str
    """The norm in which radii are measured, such as L2."""
    noise: str
    """The noise that certified it, in words, such as Gaussian noise."""
    acr: Estimate
    accuracy: Sequence[Estimate]
    """Certified accuracy at the radii of the comparison."""
    accuracy_bound: Sequence[float] | None
    """Lower bounds of certified accuracy with confidence 1 - rho (Cohen et al., 2019); None where
    alpha is not recorded."""
    abstention: Estimate | None
    """Share of images without a prediction; None where it was not measured."""
    difference: Difference | None
    """Difference from the baseline. None for the baseline itself, and where there is none."""
    published: PublishedRow | None
    largest_radius: float | None
    """The largest radius that this number of noise samples can certify: every curve ends there."""
    curve: Curve
    """Certified accuracy against radius."""
    probabilities: Curve | None
    """Share of images classified correctly with p_A of at least x."""
    histogram: Curve
    """Left edges of bins of the radius, and the share of images in each. Misclassified images are
    in no bin."""
    training: Training | None
    settings: Mapping[str, Mapping[str, str]]
    """Every recorded setting by group ("training", "certification", or "" for the rest)."""
    commands: Sequence[str]
    """The commands that train and certify this run again."""
    notes: Sequence[str]
    group: int = 0
    """Runs of one group have one sigma and were certified alike on the same images, so they are
    ranked. Larger groups come first."""

    @property
    def base_name(self) -> str:
        """The name without the sigma that tells it from runs of other sigmas."""
        return base_name(self.name, self.sigma)

    def accuracy_within_reach(self, radii: Sequence[float]) -> list[Estimate | None]:
        """Certified accuracy at the radii; None where n noise samples cannot certify any image."""
        if self.largest_radius is None:
            return list(self.accuracy)
        found: list[Estimate | None] = list(self.accuracy)
        for position, radius in enumerate(radii):
            # Radii that are rounded as in the paper may lie above the largest.
            nothing_certified = self.accuracy[position].value == 0
            if nothing_certified and radius > self.largest_radius:
                found[position] = None
        return found
