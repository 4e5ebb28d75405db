"""What the page shows, as plain values: numbers first, the template after them. No torch."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from smoothmix.analysis import Estimate
from smoothmix.config import require


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A line to be drawn."""

    x: Sequence[float]
    y: Sequence[float]


@dataclass(frozen=True, kw_only=True)
class Difference:
    """How far a run's ACR lies from the baseline's on the images that both have."""

    versus: str
    """Name of the baseline."""
    images: int
    """How many images both have."""
    acr: Estimate
    """The paired difference, positive where this run is more robust."""


@dataclass(frozen=True, kw_only=True)
class PublishedRow:
    """What the paper says of the preset that a run is."""

    acr: float
    """The mean over seeds where the paper has it, otherwise the main table's number."""
    digits: int
    """That the paper prints of it."""
    deviation: float | None
    """Over the paper's seeds."""
    accuracy: Mapping[float, float]
    """Of the same runs, by radius, as a share of 1."""
    deviations_away: float | None
    """How many of those deviations this run's ACR lies above it; None without a deviation, or where epochs or draws
    were cut, so that nothing follows from it."""
    source: str
    caution: str
    """Why the two may not be compared as they stand (fewer epochs, images or draws); empty where they may."""
    note: str = ""
    """What else a reader of the published number must know."""


@dataclass(frozen=True, kw_only=True)
class Training:
    """What metrics.jsonl holds, by epoch."""

    epochs: Sequence[int]
    loss: Sequence[float]
    accuracy: Sequence[float]
    """Share of noisy test images classified right."""
    learning_rate: Sequence[float]
    parts: Mapping[str, Sequence[float]]
    """The parts of the loss by name."""


@dataclass(frozen=True, kw_only=True)
class RunView:
    """One certificate file and what is known of the network behind it."""

    name: str
    method: str
    """Such as `gaussian`; empty where it is not recorded."""
    sigma: float | None
    data: str
    images: int
    n: int | None
    alpha: float | None
    mode: str
    acr: Estimate
    accuracy: Sequence[Estimate]
    """Certified accuracy at the page's `radii`."""
    accuracy_bound: Sequence[float] | None
    """What certified accuracy is at least, with confidence 1 - rho (Cohen et al.); None where alpha is not recorded."""
    abstention: Estimate | None
    """None where it was not measured."""
    difference: Difference | None
    """None for the baseline itself, and where there is nothing to compare with."""
    published: PublishedRow | None
    largest_radius: float | None
    """What its draws could certify at most: where every curve must fall to zero."""
    curve: Curve
    """Certified accuracy against radius."""
    probabilities: Curve | None
    """Share of images that are right with a p_A of at least x."""
    histogram: Curve
    """Left edges of bins of the radius, and the share of images in each; wrong images are in none."""
    training: Training | None
    settings: Mapping[str, str]
    commands: Sequence[str]
    """What to type to get this run again."""
    notes: Sequence[str]

    def accuracy_within_reach(self, radii: Sequence[float]) -> list[Estimate | None]:
        """Certified accuracy at the page's radii; None where no network at all could be certified with its draws."""
        # Radii that are rounded as in the paper may lie above the largest.
        reach = math.inf if self.largest_radius is None else self.largest_radius
        return [
            share if share.value > 0 or radius <= reach else None
            for radius, share in zip(radii, self.accuracy, strict=True)
        ]


@dataclass(frozen=True, kw_only=True)
class Vote:
    """What one run says of one image."""

    run: int
    """Position of the run on the page."""
    predict: str | None
    """Name of the class; None where it abstains."""
    correct: bool
    radius: float
    votes: Sequence[tuple[str, int]]
    """The classes with most votes; empty where the file has none."""
    n: int | None


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A test image with what every run says of it."""

    idx: int
    label: str
    source: str
    """A data: address of the picture; empty where the data set is not at hand."""
    width: int
    height: int
    tags: Sequence[str]
    """Of `wrong`, `abstained`, `smallest radius`, `models disagree`."""
    verdicts: Sequence[Vote]


@dataclass(frozen=True, kw_only=True)
class Section:
    """A part of the page that something else measured, such as a study: text, numbers and a picture, no markup."""

    title: str
    text: str
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    notes: tuple[str, ...] = ()
    figure: str = ""
    """A data: address of a picture; empty where there is none."""

    def __post_init__(self) -> None:
        require(
            all(len(row) == len(self.columns) for row in self.rows),
            f"{self.title}: rows need {len(self.columns)} cells",
        )
        picture = self.figure.startswith("data:image/png;base64,")
        require(
            picture or not self.figure, f"{self.title}: the figure must be a PNG inside the page"
        )


@dataclass(frozen=True, kw_only=True)
class Page:
    """Everything on the page."""

    title: str
    made: str
    """When, and by which version."""
    radii: Sequence[float]
    """Columns of the summary table."""
    confidence: float
    """Of the intervals."""
    rho: float
    """Chance that `accuracy_bound` is too high."""
    paper_rounding: bool
    warnings: Sequence[str]
    runs: Sequence[RunView]
    unlike: Collection[float | None] = ()
    """Noise levels whose runs were not certified alike, so that none of them may be said to beat another."""
    runners_up: Mapping[float | None, Difference] = field(default_factory=dict)
    """By noise level: how far the highest ACR lies above the next, image by image, where the two share images."""
    pictures: Sequence[Picture] = ()
    pictures_note: str = ""
    """What is to be known about the pictures, such as that they are a choice of many."""
    sections: Sequence[Section] = field(default_factory=tuple)

    @property
    def comparable(self) -> bool:
        """Whether runs of one noise level were certified alike, at each."""
        return not self.unlike

    @property
    def out_of_reach(self) -> bool:
        """Whether the table has a radius that some run could not have certified for any image."""
        return any(None in run.accuracy_within_reach(self.radii) for run in self.runs)

    @property
    def by_sigma(self) -> dict[float | None, list[RunView]]:
        """The runs of each noise level, in the order in which they come."""
        levels = dict.fromkeys(run.sigma for run in self.runs)
        return {sigma: [run for run in self.runs if run.sigma == sigma] for sigma in levels}
