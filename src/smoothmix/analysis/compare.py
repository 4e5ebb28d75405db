"""Several certificate files side by side: what differs, paired differences, means over seeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from smoothmix._io.text import counted
from smoothmix.analysis import metrics
from smoothmix.analysis.draws import Origin
from smoothmix.analysis.measured import Floats, Ints, Measured
from smoothmix.config import TESTED_ON_TRAINING
from smoothmix.errors import UsageError
from smoothmix.noise import GAUSSIAN

FEW_IMAGES = 500
"""With fewer images, intervals of certified accuracy are wider than most differences of methods."""

TOO_FEW_IMAGES = 20
"""With fewer images, a bootstrap interval is too narrow: three equal ones would seem certain."""

MOST_NAMES = 3
"""Names in one sentence; the rest is counted."""

NOT_RECORDED = "not recorded"


def _certification(name: str) -> Callable[[Measured], str]:
    def get(measured: Measured) -> str:
        if measured.settings is None:
            return NOT_RECORDED
        return str(getattr(measured.settings.certification, name))

    return get


def _n0(measured: Measured) -> str:
    if measured.settings is None:
        return NOT_RECORDED
    return str(measured.settings.guarantee.n0)


def _alpha(measured: Measured) -> str:
    if measured.draws.alpha is None:
        return NOT_RECORDED
    return f"{measured.draws.alpha:g}"


def _noise(measured: Measured) -> str:
    # Cohen-style logs do not record their noise, which is always Gaussian.
    if measured.settings is None:
        return GAUSSIAN.description
    return measured.settings.certification.noise.description


def _sigma(measured: Measured) -> str:
    if measured.sigma is None:
        return NOT_RECORDED
    return f"{measured.sigma:g}"


def _guarantee(measured: Measured) -> str:
    if measured.draws.guarantee is None:
        return NOT_RECORDED
    return measured.draws.guarantee.description


def _data(measured: Measured) -> str:
    if measured.settings is None:
        return NOT_RECORDED
    return f"{measured.settings.data} {measured.settings.split}"


def _data_hash(measured: Measured) -> str:
    if measured.settings is None:
        return NOT_RECORDED
    return measured.settings.data_hash


def _rounding(measured: Measured) -> str:
    if measured.paper_rounding:
        return "to nearest, as logs print"
    return "down"


DATA_SET = "the data set"
GUARANTEE = "the guarantee"

REQUIRED = ("sigma", "alpha", GUARANTEE)
"""What must be known of every file, or of none, to rank them. Logs never record the rest."""

COMPARED: Mapping[str, Callable[[Measured], str]] = {
    "sigma": _sigma,
    "the noise": _noise,
    "n0": _n0,
    "alpha": _alpha,
    GUARANTEE: _guarantee,
    "precision": _certification("precision"),
    DATA_SET: _data,
    "the data behind its name": _data_hash,
    "rounding": _rounding,
}
"""What must be the same for numbers to be comparable."""


def what_differs(every: Sequence[Measured]) -> list[str]:
    """Why these files are not directly comparable, a sentence per reason; empty if they are."""
    found = []
    for name in COMPARED:
        groups = _names_by_value(every, name)
        # A file that records nothing is no other value: it may well have been the same.
        unknown = groups.pop(NOT_RECORDED, [])
        if len(groups) > 1:
            found.append(f"{name} differs: {_values_with_names(groups)}")
        if groups and unknown and name in REQUIRED:
            found.append(f"{name} is not known of {_listed(unknown)}")
    found += _different_limits(every)
    found += _different_images(every)
    return found


def not_recorded(every: Sequence[Measured]) -> list[str]:
    """What some files do not record though others do, a sentence each."""
    unrecorded: dict[str, list[str]] = {}
    for name in COMPARED:
        groups = _names_by_value(every, name)
        unknown = groups.pop(NOT_RECORDED, [])
        if not groups or name in REQUIRED:
            continue
        for file in unknown:
            unrecorded.setdefault(file, []).append(name)
    return _unrecorded_sentences(unrecorded)


def _names_by_value(every: Sequence[Measured], name: str) -> dict[str, list[str]]:
    """The values of one setting, each with the names of its files."""
    # The same images are the same data, under whatever name they were loaded.
    if name == DATA_SET and _same_split_of_same_data(every):
        return {}
    groups: dict[str, list[str]] = {}
    for measured in every:
        groups.setdefault(COMPARED[name](measured), []).append(measured.name)
    return groups


def _different_limits(every: Sequence[Measured]) -> list[str]:
    """Whether logs of unknown n and alpha show different largest radii: then these differ."""
    known: dict[str, list[str]] = {}
    highest_low = -math.inf
    lowest_high = math.inf
    for measured in every:
        limit = measured.draws.limit
        if measured.draws.origin is not Origin.UNKNOWN or limit is None:
            continue
        low, high = limit
        highest_low = max(highest_low, low)
        lowest_high = min(lowest_high, high)
        known.setdefault(f"{(low + high) / 2:.2f} sigma", []).append(measured.name)
    # Intervals that overlap may be prints of one number.
    if highest_low <= lowest_high:
        return []
    values = _values_with_names(known)
    return [f"n or alpha differ, since the largest radii do: {values}"]


def _different_images(every: Sequence[Measured]) -> list[str]:
    """Whether files hold other images, or other labels for the same ones."""
    images: dict[bytes, list[Measured]] = {}
    for measured in every:
        indices, _ = measured.images_key
        images.setdefault(indices, []).append(measured)
    found = []
    if len(images) > 1:
        found.append(f"not the same images: {_images_with_names(images.values())}")
    for files in images.values():
        found += _different_labels(files)
    return found


def _images_with_names(groups: Iterable[Sequence[Measured]]) -> str:
    texts = []
    common: set[int] | None = None
    for files in groups:
        images = set(files[0].idx.tolist())
        common = images if common is None else common & images
        listed = _listed([measured.name for measured in files])
        texts.append(f"{len(images):,} ({listed})")
    shared = len(common or ())
    return f"{'; '.join(texts)}; {shared:,} in common"


def _different_labels(files: Sequence[Measured]) -> list[str]:
    labels: dict[bytes, list[str]] = {}
    for measured in files:
        _, key = measured.images_key
        labels.setdefault(key, []).append(measured.name)
    if len(labels) == 1:
        return []
    groups = " and ".join(_listed(names) for names in labels.values())
    sentence = (
        f"the same indices with other labels ({groups}): another order of the images, "
        "or another data set"
    )
    return [sentence]


def comparable_groups(every: Sequence[Measured]) -> list[list[Measured]]:
    """The files in groups that may be ranked: certified alike on the same images, at one sigma.

    The largest group of each sigma comes before its other groups.
    """
    groups: list[list[Measured]] = []
    for measured in every:
        for group in groups:
            if not what_differs([*group, measured]):
                group.append(measured)
                break
        else:
            groups.append([measured])
    # A stable sort: groups of one size stay in the order of their files.
    return sorted(groups, key=len, reverse=True)


def _same_split_of_same_data(every: Sequence[Measured]) -> bool:
    recorded = set()
    for measured in every:
        settings = measured.settings
        recorded.add(settings and (settings.data_hash, settings.split))
    return len(recorded) == 1


def _values_with_names(groups: Mapping[str, Sequence[str]]) -> str:
    texts = []
    for value, names in groups.items():
        # The first few of many names tell nobody which files are meant.
        whose = ", ".join(names) if len(names) <= MOST_NAMES else f"{len(names)} files"
        texts.append(f"{value} ({whose})")
    return "; ".join(texts)


def _unrecorded_sentences(unrecorded: Mapping[str, Sequence[str]]) -> list[str]:
    """What some files do not record though others do."""
    files_by_settings: dict[str, list[str]] = {}
    for file, names in unrecorded.items():
        files_by_settings.setdefault(", ".join(names), []).append(file)
    sentences = []
    for settings, files in files_by_settings.items():
        listed = _listed(files)
        sentences.append(f"not recorded by {listed}: {settings}")
    return sentences


def _listed(names: Sequence[str]) -> str:
    """The first few names, and how many there are besides."""
    text = ", ".join(names[:MOST_NAMES])
    if len(names) > MOST_NAMES:
        text += f" and {len(names) - MOST_NAMES} more"
    return text


def same_images(one: Measured, other: Measured) -> bool:
    """Whether two files hold the same images, in the same order, with the same labels."""
    return np.array_equal(one.idx, other.idx) and np.array_equal(one.label, other.label)


def _all_same_images(every: Sequence[Measured]) -> bool:
    return all(same_images(every[0], other) for other in every[1:])


def shared_images(one: Measured, *others: Measured) -> Ints:
    """The images that all files hold; contradicting labels mean two data sets and are refused."""
    # Sorted, so that files in any order of images give the same result.
    common = np.sort(one.idx)
    for other in others:
        both, here, there = np.intersect1d(one.idx, other.idx, return_indices=True)
        if not np.array_equal(one.label[here], other.label[there]):
            raise UsageError(
                f"{one.name} and {other.name} have other labels for the same images: another "
                "order of the images, or not the same data set"
            )
        common = np.intersect1d(common, both)
    return np.asarray(common, dtype=np.int64)


def on_common_images(runs: Sequence[Measured]) -> tuple[Measured, ...]:
    """The files reduced to the images that all of them have."""
    if _all_same_images(runs):
        return tuple(runs)
    common = shared_images(*runs)
    return tuple(run.only(common) for run in runs)


def differences_by_image(one: Measured, other: Measured) -> Floats:
    """Certified radius of `one` minus that of `other` on each image that both have.

    A misclassified image counts as 0. The mean is the difference of the ACRs, and an interval of
    that mean is a paired one.
    """
    both = shared_images(one, other)
    return one.only(both).counted - other.only(both).counted


def same_data(one: Measured, other: Measured) -> bool:
    """Whether two files hold certificates of the same data, as far as they record it."""
    # Without a recorded hash, equal labels of the common images are the best evidence.
    if one.settings and other.settings:
        return one.settings.data_hash == other.settings.data_hash
    try:
        shared_images(one, other)
    except UsageError:
        return False
    return True


def paired_by_image(one: Measured, other: Measured) -> Floats | None:
    """The differences by image; None for other data, or hardly an image in common."""
    if not same_data(one, other):
        return None
    differences = differences_by_image(one, other)
    # Files that are small themselves may be paired on all they have.
    enough = max(1, min(TOO_FEW_IMAGES, len(one), len(other)))
    if len(differences) < enough:
        return None
    return differences


@dataclass(frozen=True, kw_only=True)
class Seeds:
    """The results of one training with several seeds."""

    count: int
    acr: float
    """Mean over seeds."""
    acr_std: float | None
    """Standard deviation with n - 1 in the denominator; None for a single seed."""
    accuracy: tuple[float, ...]
    """Mean certified accuracy at the requested radii."""
    accuracy_std: tuple[float | None, ...]
    """Its standard deviation."""


def over_seeds(every: Sequence[Measured], *, at: Sequence[float]) -> Seeds:
    """Means and standard deviations over seeds; files that differ in anything else are refused."""
    found = what_differs(every)
    if found:
        raise UsageError(f"cannot be averaged over seeds: {'; '.join(found)}")
    acrs = []
    accuracies = []
    for measured in every:
        acrs.append(metrics.average_certified_radius(measured.radius, measured.correct))
        accuracies.append(measured.accuracy_at(at))
    accuracy = np.array(accuracies)
    return Seeds(
        count=len(every),
        acr=float(np.mean(acrs)),
        acr_std=metrics.standard_deviation(acrs),
        accuracy=tuple(accuracy.mean(axis=0).tolist()),
        accuracy_std=tuple(map(metrics.standard_deviation, accuracy.T)),
    )


def warnings_about(every: Sequence[Measured]) -> list[str]:
    """Everything that a reader of a comparison must know before the numbers."""
    warnings = []
    for difference in what_differs(every):
        warnings.append(f"not directly comparable: {difference}")
    warnings += not_recorded(every)
    warnings += _inferred(every)
    warnings += _warnings_about_images(every)
    if any(measured.paper_rounding for measured in every):
        warnings.append(
            "radii count as logs print them, rounded to nearest, and those of certificate files "
            "are rounded alike: this is not sound"
        )
    warnings += _warnings_about_limits(every)
    warnings += _notes_with_names(every)
    return warnings


def _inferred(every: Sequence[Measured]) -> list[str]:
    """Which files do not record n and alpha, and how these are known nevertheless."""
    names: dict[str, list[str]] = {}
    for measured in every:
        draws = measured.draws
        if draws.origin is Origin.UNKNOWN:
            text = "n and alpha are unknown (--n and --alpha state them)"
        elif draws.origin is Origin.INFERRED:
            text = f"n {draws.n:,} and alpha {draws.alpha:g} are inferred from the largest radius"
        else:
            continue
        names.setdefault(text, []).append(measured.name)
    sentences = []
    for text, files in names.items():
        sentences.append(f"{_listed(files)}: {text}")
    return sentences


def _warnings_about_images(every: Sequence[Measured]) -> list[str]:
    too_few = []
    few = []
    for measured in every:
        if len(measured) < TOO_FEW_IMAGES:
            too_few.append(measured)
        elif len(measured) < FEW_IMAGES:
            few.append(measured)
    warnings = []
    if too_few:
        warnings.append(f"too few images for reliable intervals of means: {_with_images(too_few)}")
    if few:
        warnings.append(f"few images, so wide intervals: {_with_images(few)}")
    return warnings


def _warnings_about_limits(every: Sequence[Measured]) -> list[str]:
    """Where few noise samples hide differences: most images have the largest possible radius."""
    capped = []
    for measured in every:
        count = measured.at_the_limit
        if count > len(measured) / 2:
            capped.append(f"{measured.name} ({count:,})")
    if not capped:
        return []
    warning = (
        "most images have the largest radius that n noise samples can certify: "
        f"{_listed(capped)}; a larger n would show which are more robust"
    )
    return [warning]


def _notes_with_names(every: Sequence[Measured]) -> list[str]:
    """The notes of all files, each once, with the names of the files it is about."""
    names_by_note: dict[str, list[str]] = {}
    for measured in every:
        notes = list(measured.notes)
        # Of the notes of training this one alone invalidates the numbers.
        if measured.config and TESTED_ON_TRAINING in measured.config.notes:
            notes.insert(0, TESTED_ON_TRAINING)
        for note in notes:
            names_by_note.setdefault(note, []).append(measured.name)
    sentences = []
    for note, names in names_by_note.items():
        listed = _listed(names)
        sentences.append(f"{listed}: {note}")
    return sentences


def _with_images(every: Sequence[Measured]) -> str:
    """Names, and how many images each file has, stated once where all have the same number."""
    counts = set(map(len, every))
    names = []
    for measured in every:
        count = "" if len(counts) == 1 else f" ({len(measured):,})"
        names.append(f"{measured.name}{count}")
    if len(counts) == 1:
        return f"{_listed(names)} ({counted(counts.pop(), 'image')})"
    return _listed(names)
