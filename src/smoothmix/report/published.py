"""A run beside the paper's row: what was cut, and how far apart the two are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from smoothmix import presets
from smoothmix.analysis import Measured, average_certified_radius
from smoothmix.certificates import FileSettings
from smoothmix.config import METHOD_EPOCHS, RunConfig
from smoothmix.presets import Preset
from smoothmix.runs.plan import OTHER_SCHEDULE, schedule_differences
from smoothmix.stats.binomial import Ints

PAPER_SELECTION, PAPER_DRAWS = 100, 100_000
PAPER_ALPHA = 0.001
PAPER_IMAGES = {"mnist": range(10_000), "cifar10": range(10_000), "imagenet": range(0, 50_000, 100)}
"""How the paper certified: n, alpha, and which test images of each data set."""


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
    """What this run did less of than the paper's row, or otherwise."""
    images = _image_cuts(measured.idx, PAPER_IMAGES.get(preset.config.data))
    if measured.settings and measured.settings.data_note:
        images.append(f"of a data set of {measured.settings.data_note}")
    return Cuts(
        schedule=_training_cuts(measured.config, preset) if measured.config else (),
        certification=_certification_cuts(measured.settings, preset) if measured.settings else (),
        images=tuple(images),
    )


def _image_cuts(ours: Ints, theirs: range | None) -> list[str]:
    if theirs is None or np.array_equal(np.sort(ours), theirs):
        return []
    if np.isin(ours, theirs).all():
        return [f"{len(ours):,} of {len(theirs):,} images"]
    every = "all" if theirs.step == 1 else f"every {theirs.step}th"
    return [f"{len(ours):,} other images than the paper's {len(theirs):,} ({every}, from 0 on)"]


def _training_cuts(config: RunConfig, preset: Preset) -> tuple[str, ...]:
    epochs, full = config.recipe.epochs, preset.config.recipe.epochs
    said = [f"{epochs} of {full} epochs"] if epochs != full else []
    if config.data != preset.config.data:
        said.append(f"{config.data} instead of {preset.config.data}")
    if config.method.get("fidelity", "official") != "official":
        said.append("trained as the paper's text says, not as its tables were made")
    return (
        *said,
        *_other_schedule(config, preset),
        *(n for n in config.notes if not n.startswith(OTHER_SCHEDULE)),
    )


def _other_schedule(config: RunConfig, preset: Preset) -> list[str]:
    """What else the recipe has otherwise than epochs, and what is scaled with them."""
    as_it_is = presets.get(preset.name, fidelity=config.method.get("fidelity", "official")).config
    differ = schedule_differences(config, as_it_is)
    scaled = (
        {"epochs", "drops", *METHOD_EPOCHS.get(preset.config.method["name"], {})}
        if "epochs" in differ
        else set()
    )
    said = [words for name, words in differ.items() if name not in scaled]
    return [f"{OTHER_SCHEDULE} {preset.name}: {', '.join(said)}"] if said else []


def _certification_cuts(settings: FileSettings, preset: Preset) -> tuple[str, ...]:
    how = settings.certification
    asked = {
        "n": (how.n, PAPER_DRAWS if settings.mode == "exact" else how.n),
        "n0": (how.n0, PAPER_SELECTION),
        "alpha": (how.alpha, PAPER_ALPHA),
        "sigma": (how.sigma, preset.config.sigma),
        "data": (f"{settings.data} {settings.split}", f"{preset.config.data} test"),
    }
    other = {name: pair for name, pair in asked.items() if pair[0] != pair[1]}
    said = [
        f"{name} {_plain(ours)} instead of {_plain(theirs)}"
        for name, (ours, theirs) in other.items()
    ]
    return tuple(said if settings.mode == "exact" else [settings.guarantee, *said])


def _plain(value: object) -> str:
    return (
        f"{value:,}"
        if isinstance(value, int)
        else f"{value:g}"
        if isinstance(value, float)
        else str(value)
    )


def paper_acr(every: tuple[Measured, ...]) -> float:
    """The mean ACR over seeds with radii rounded as in the paper's logs: like beside like."""
    as_there = [m.as_in_the_paper() for m in every]
    return float(np.mean([average_certified_radius(m.radius, m.correct) for m in as_there]))
