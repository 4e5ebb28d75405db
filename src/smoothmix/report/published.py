"""A run beside the paper's row for its preset: what was cut, and how far apart the two are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from smoothmix import presets
from smoothmix.analysis import Measured, average_certified_radius
from smoothmix.certificates import FileSettings
from smoothmix.config import RunConfig
from smoothmix.methods.registry import METHODS
from smoothmix.noise import GAUSSIAN
from smoothmix.presets import Preset
from smoothmix.report.views import PublishedRow
from smoothmix.runs.schedule import OTHER_SCHEDULE, schedule_differences
from smoothmix.stats.binomial import Ints
from smoothmix.stats.guarantees import GUARANTEE, FixedDraws

PAPER_GUARANTEE = FixedDraws(100_000, n0=100, alpha=0.001)
PAPER_IMAGES = {"mnist": range(10_000), "cifar10": range(10_000), "imagenet": range(0, 50_000, 100)}
"""How the paper certified: n0, n, alpha, and which test images of each data set."""


@dataclass(frozen=True, kw_only=True)
class Cuts:
    """What a run did less of than the paper's, or differently; empty where it did the same."""

    schedule: tuple[str, ...] = ()
    """Training: other epochs or another recipe, which makes the numbers incomparable."""
    certification: tuple[str, ...] = ()
    """Noise samples or alpha, which makes them incomparable as well."""
    images: tuple[str, ...] = ()
    """Fewer images: the numbers are comparable, with the interval over images."""

    @property
    def every(self) -> tuple[str, ...]:
        """All of them."""
        return self.schedule + self.certification + self.images

    @property
    def comparable(self) -> bool:
        """Whether the run may be compared with the published number."""
        return not (self.schedule or self.certification)


def published_row(measured: Measured) -> PublishedRow | None:
    """The paper's row beside the run, if the run is one of its presets."""
    preset = preset_of(measured)
    if preset is None or preset.published is None:
        return None
    row = preset.published
    cut = cuts(measured, preset)
    # All numbers of one set of runs: the means over seeds where the paper has them, or else the
    # single run of the main table.
    if row.acr_mean is None:
        acr, percents, digits = row.acr, row.accuracy, 3
    else:
        acr, percents, digits = row.acr_mean, row.accuracy_mean, 4
    deviations_away = None
    # With a part of the images, their selection moves the ACR far more than a seed does.
    if row.acr_std and cut.comparable and not cut.images:
        deviations_away = (paper_acr((measured,)) - acr) / row.acr_std
    return PublishedRow(
        acr=acr,
        deviation=row.acr_std,
        digits=digits,
        note=preset.note,
        accuracy={radius: percent / 100 for radius, percent in percents.items()},
        deviations_away=deviations_away,
        source=row.source,
        caution=", ".join(cut.every),
    )


def preset_of(measured: Measured) -> Preset | None:
    """The preset of a run, if it is one with published numbers."""
    if measured.config is None or measured.config.preset not in presets.names():
        return None
    preset = presets.get(measured.config.preset)
    if preset.published is None:
        return None
    return preset


def cuts(measured: Measured, preset: Preset) -> Cuts:
    """What this run did less of than the paper's row, or differently."""
    schedule: tuple[str, ...] = ()
    certification: tuple[str, ...] = ()
    images = _image_cuts(measured.idx, PAPER_IMAGES.get(preset.config.data))
    if measured.config:
        schedule = _training_cuts(measured.config, preset)
    if measured.settings:
        certification = _certification_cuts(measured.settings, preset)
        # A data set of one's own may be a part of the paper's.
        if measured.settings.data_note:
            images.append(f"of a data set of {measured.settings.data_note}")
    return Cuts(schedule=schedule, certification=certification, images=tuple(images))


def _image_cuts(ours: Ints, theirs: range | None) -> list[str]:
    if theirs is None or np.array_equal(np.sort(ours), theirs):
        return []
    if np.isin(ours, theirs).all():
        return [f"{len(ours):,} of {len(theirs):,} images"]
    every = "all" if theirs.step == 1 else f"every {theirs.step}th"
    return [f"{len(ours):,} other images than the paper's {len(theirs):,} ({every}, from 0 on)"]


def _training_cuts(config: RunConfig, preset: Preset) -> tuple[str, ...]:
    found = []
    epochs = config.recipe.epochs
    full = preset.config.recipe.epochs
    if epochs != full:
        found.append(f"{epochs} of {full} epochs")
    if config.data != preset.config.data:
        found.append(f"{config.data} instead of {preset.config.data}")
    if config.method.get("fidelity", "official") != "official":
        found.append("trained as the paper's text describes, not as its tables were made")
    found += _other_schedule(config, preset)
    # The note that training left about the schedule is what was just computed.
    found += [note for note in config.notes if not note.startswith(OTHER_SCHEDULE)]
    return tuple(found)


def _other_schedule(config: RunConfig, preset: Preset) -> list[str]:
    """What else of the recipe differs, besides the epochs and what is scaled with them."""
    fidelity = config.method.get("fidelity", "official")
    original = presets.get(preset.name, fidelity=fidelity).config
    differences = schedule_differences(config, original)
    scaled_with_epochs: set[str] = set()
    if "epochs" in differences:
        method = preset.config.method["name"]
        scaled_with_epochs = {"epochs", "drops", *METHODS[method].epoch_settings}
    found = [text for name, text in differences.items() if name not in scaled_with_epochs]
    if not found:
        return []
    return [f"{OTHER_SCHEDULE} {preset.name}: {', '.join(found)}"]


def _certification_cuts(settings: FileSettings, preset: Preset) -> tuple[str, ...]:
    found = []
    for name, ours, theirs in settings.guarantee.differences(PAPER_GUARANTEE):
        if name == GUARANTEE:
            found.append(str(ours))
        elif name != "stop_abstaining":
            found.append(f"{name} {_plain(ours)} instead of {_plain(theirs)}")
    certification = settings.certification
    if certification.noise != GAUSSIAN:
        found.append(certification.noise.description)
    if certification.sigma != preset.config.sigma:
        found.append(
            f"sigma {_plain(certification.sigma)} instead of {_plain(preset.config.sigma)}"
        )
    if (settings.data, settings.split) != (preset.config.data, "test"):
        found.append(f"data {settings.data} {settings.split} instead of {preset.config.data} test")
    return tuple(found)


def _plain(value: object) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)


def paper_acr(every: Sequence[Measured]) -> float:
    """The mean ACR over seeds with radii rounded as in the paper's logs, for a fair comparison."""
    acrs = []
    for measured in every:
        rounded = measured.as_in_the_paper()
        acrs.append(average_certified_radius(rounded.radius, rounded.correct))
    return float(np.mean(acrs))
