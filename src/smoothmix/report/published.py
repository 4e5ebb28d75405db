"""A run beside the paper's row: what was cut, and how far apart the two are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from smoothmix import presets
from smoothmix.analysis import Measured, average_certified_radius
from smoothmix.presets import Preset

PAPER_DRAWS = 100_000
PAPER_ALPHA = 0.001
PAPER_IMAGES = {"mnist": 10_000, "cifar10": 10_000, "imagenet": 500}
"""How the paper certified: n, alpha, and how many test images of each data set."""


@dataclass(frozen=True, kw_only=True)
class Cuts:
    """What a run did less of than the paper's, in words; nothing where it did as much."""

    schedule: tuple[str, ...] = ()
    """Training: other epochs or another recipe. The numbers may not be held against each other."""
    certification: tuple[str, ...] = ()
    """Draws or alpha: the same holds."""
    images: tuple[str, ...] = ()
    """Fewer images: they may, with the interval over images."""

    @property
    def every(self) -> tuple[str, ...]:
        """All of them."""
        return self.schedule + self.certification + self.images

    @property
    def comparable(self) -> bool:
        """Whether the run may be held against the published number."""
        return not (self.schedule or self.certification)


def preset_of(measured: Measured) -> Preset | None:
    """The preset that a run is, if it is one that has published numbers."""
    name = measured.config.preset if measured.config else ""
    preset = presets.get(name) if name in presets.names() else None
    return preset if preset and preset.published else None


def cuts(measured: Measured, preset: Preset) -> Cuts:
    """What this run did less of than the paper's row."""
    schedule, certification = [], []
    if measured.config:
        epochs, full = measured.config.recipe.epochs, preset.config.recipe.epochs
        if epochs != full:
            schedule.append(f"{epochs} of {full} epochs")
        if measured.config.data != preset.config.data:
            schedule.append(f"{measured.config.data} instead of {preset.config.data}")
        schedule += [note for note in measured.config.notes if epochs == full or "not the schedule" not in note]
    if measured.settings:
        how = measured.settings.certification
        if how.n != PAPER_DRAWS:
            certification.append(f"n {how.n:,} instead of {PAPER_DRAWS:,}")
        if how.alpha != PAPER_ALPHA:
            certification.append(f"alpha {how.alpha:g} instead of {PAPER_ALPHA:g}")
        if how.sigma != preset.config.sigma:
            certification.append(f"certified with sigma {how.sigma:g} instead of {preset.config.sigma:g}")
    expected = PAPER_IMAGES.get(preset.config.data, len(measured))
    images = (f"{len(measured):,} of {expected:,} images",) if len(measured) < expected else ()
    return Cuts(schedule=tuple(schedule), certification=tuple(certification), images=images)


def paper_acr(every: tuple[Measured, ...]) -> float:
    """The mean ACR over seeds with radii rounded as in the paper's logs: like beside like."""
    as_there = [m.as_in_the_paper() for m in every]
    return float(np.mean([average_certified_radius(m.radius, m.correct) for m in as_there]))
