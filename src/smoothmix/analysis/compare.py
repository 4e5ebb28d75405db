"""Several certificate files side by side: what sets them apart, paired differences, means over seeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from smoothmix._io.text import counted
from smoothmix.analysis import metrics
from smoothmix.analysis.measured import Floats, Ints, Measured
from smoothmix.config import TESTED_ON_TRAINING
from smoothmix.errors import UsageError

FEW_IMAGES = 500
"""Below this, an interval of certified accuracy is wider than most differences between methods."""


TOO_FEW_IMAGES = 20
"""Below this, resampling them says little about images that are not there: three equal ones would seem certain."""


def what_differs(every: Sequence[Measured]) -> list[str]:
    """What keeps these files from being compared as they stand, a sentence each; empty where nothing does."""
    found = []
    silent: dict[str, list[str]] = {}
    for name, get in QUESTIONS.items():
        if (
            name == "the data set"
            and len({m.settings and (m.settings.data_hash, m.settings.split) for m in every}) == 1
        ):
            continue  # the same images, wherever they lay
        groups: dict[str, list[str]] = {}
        for m in every:
            groups.setdefault(get(m), []).append(m.name)
        if len(groups) > 1:
            for quiet in groups.pop(NOT_RECORDED, []):
                silent.setdefault(quiet, []).append(name)
        if len(groups) > 1:
            said = "; ".join(f"{answer} ({_some_names(names)})" for answer, names in groups.items())
            found.append(f"{name} differs: {said}")
    found += _silences(silent)
    if len(every) > 1 and not all(same_images(every[0], other) for other in every[1:]):
        counts = ", ".join(f"{m.name}: {len(m)}" for m in every)
        found.append(f"not the same images ({counts})")
    return found


def _silences(silent: Mapping[str, Sequence[str]]) -> list[str]:
    """What files do not say of themselves, though others do: one sentence for all that keep silent about the same."""
    alike: dict[str, list[str]] = {}
    for file, names in silent.items():
        alike.setdefault(", ".join(names), []).append(file)
    return [f"not recorded by {_some_names(files)}: {names}" for names, files in alike.items()]


NOT_RECORDED = "not recorded"


def _certification(name: str) -> Callable[[Measured], str]:
    return lambda m: str(getattr(m.settings.certification, name)) if m.settings else NOT_RECORDED


QUESTIONS: Mapping[str, Callable[[Measured], str]] = {
    "sigma": lambda m: NOT_RECORDED if m.sigma is None else f"{m.sigma:g}",
    "n0": _certification("n0"),
    "alpha": _certification("alpha"),
    "the guarantee": lambda m: m.settings.guarantee if m.settings else NOT_RECORDED,
    "precision": _certification("precision"),
    "the data set": lambda m: (
        f"{m.settings.data} {m.settings.split}" if m.settings else NOT_RECORDED
    ),
    "the data behind its name": lambda m: m.settings.data_hash if m.settings else NOT_RECORDED,
    "rounding": lambda m: "to nearest, as in the paper" if m.paper_rounding else "down",
}
"""What must be the same where two numbers are to be compared."""


def _some_names(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def same_images(one: Measured, other: Measured) -> bool:
    """Whether two files hold the same images, in the same order, with the same labels."""
    return np.array_equal(one.idx, other.idx) and np.array_equal(one.label, other.label)


def shared_images(one: Measured, *others: Measured) -> Ints:
    """The images that all files hold; labels that contradict each other mean two data sets, which are refused."""
    common = np.sort(one.idx)
    for other in others:
        both, here, there = np.intersect1d(one.idx, other.idx, return_indices=True)
        if not np.array_equal(one.label[here], other.label[there]):
            raise UsageError(
                f"{one.name} and {other.name} have other labels for the same images: not the same data set"
            )
        common = np.intersect1d(common, both)
    return np.asarray(common, dtype=np.int64)


def on_common_images(runs: Sequence[Measured]) -> tuple[Measured, ...]:
    """The files as if they held only the images that all of them have."""
    if all(same_images(runs[0], run) for run in runs):
        return tuple(runs)
    common = shared_images(*runs)
    return tuple(run.only(common) for run in runs)


def differences_by_image(one: Measured, other: Measured) -> Floats:
    """Certified radius of `one` minus that of `other` on each image that both have, wrong ones counting as 0.

    Its mean is the difference of their ACRs, and an interval for that mean is a paired one.
    """
    both = shared_images(one, other)
    return one.only(both).counted - other.only(both).counted


def same_data(one: Measured, other: Measured) -> bool:
    """Whether two files are of the same images behind the same numbers, as far as they say."""
    if one.settings and other.settings:
        return one.settings.data_hash == other.settings.data_hash
    try:
        shared_images(one, other)
    except UsageError:
        return False
    return True


def paired_by_image(one: Measured, other: Measured) -> Floats | None:
    """The differences by image; None where they would say nothing: of other data, or of hardly an image in common."""
    if not same_data(one, other):
        return None
    found = differences_by_image(one, other)
    return found if len(found) >= max(1, min(TOO_FEW_IMAGES, len(one), len(other))) else None


@dataclass(frozen=True, kw_only=True)
class Seeds:
    """The same training with several seeds."""

    count: int
    acr: float
    acr_std: float | None
    """With n - 1 in the denominator; None for a single seed."""
    accuracy: tuple[float, ...]
    """Mean certified accuracy at the radii asked for."""
    accuracy_std: tuple[float | None, ...]


def over_seeds(every: Sequence[Measured], *, at: Sequence[float]) -> Seeds:
    """Mean and deviation over seeds; files that differ in more than the seed are refused by what differs."""
    found = what_differs(every)
    if found:
        raise UsageError(f"cannot be averaged over seeds: {'; '.join(found)}")
    acrs = [metrics.average_certified_radius(m.radius, m.correct) for m in every]
    accuracy = np.array([m.accuracy_at(at) for m in every])
    return Seeds(
        count=len(every),
        acr=float(np.mean(acrs)),
        acr_std=metrics.deviation(acrs),
        accuracy=tuple(accuracy.mean(axis=0).tolist()),
        accuracy_std=tuple(metrics.deviation(column) for column in accuracy.T),
    )


def warnings_about(every: Sequence[Measured]) -> list[str]:
    """Everything that a reader of a comparison must know before the numbers."""
    too_few = [m for m in every if len(m) < TOO_FEW_IMAGES]
    few = [m for m in every if TOO_FEW_IMAGES <= len(m) < FEW_IMAGES]
    said = [f"not to be compared as they stand: {difference}" for difference in what_differs(every)]
    if too_few:
        said.append(
            f"too few images for intervals of means that can be trusted: {_with_images(too_few)}"
        )
    if few:
        said.append(f"few images, so wide intervals: {_with_images(few)}")
    if any(m.paper_rounding for m in every):
        said.append(
            "radii are rounded to nearest at three digits, as in the paper's logs, which is not sound"
        )
    notes: dict[str, list[str]] = {}
    for m in every:
        grave = [
            note for note in (m.config.notes if m.config else ()) if note == TESTED_ON_TRAINING
        ]
        for note in (*grave, *m.notes):
            notes.setdefault(note, []).append(m.name)
    if capped := [f"{m.name} ({m.at_the_limit:,})" for m in every if m.at_the_limit > len(m) / 2]:
        said.append(
            f"most images have the largest radius that the draws can certify: {_some_names(capped)}; "
            "a larger n would tell more of them"
        )
    return said + [f"{_some_names(names)}: {note}" for note, names in notes.items()]


def _with_images(every: Sequence[Measured]) -> str:
    """Names, and how many images each has, or all of them."""
    counts = {len(m) for m in every}
    if len(counts) == 1:
        return f"{_some_names([m.name for m in every])} ({counted(counts.pop(), 'image')})"
    return _some_names([f"{m.name} ({len(m):,})" for m in every])
