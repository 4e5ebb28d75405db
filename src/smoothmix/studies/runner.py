"""The runner of all studies: classifiers, images, resumption, progress and files.

No torch at import.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from smoothmix._process.progress import OnProgress, Progress, ignore_progress
from smoothmix.config import require
from smoothmix.errors import UsageError
from smoothmix.studies.case import VoteSettings, open_cases
from smoothmix.studies.files import SavedReport, save_report
from smoothmix.studies.findings import Findings
from smoothmix.studies.study import Floats, NamedClassifier, Results, Study

if TYPE_CHECKING:
    from smoothmix.data import Dataset

VOTES = VoteSettings()


def run_study(
    study: Study,
    classifiers: Sequence[NamedClassifier],
    dataset: Dataset,
    indices: Sequence[int],
    *,
    folder: Path,
    figure_format: str = "pdf",
    votes: VoteSettings = VOTES,
    on_progress: OnProgress = ignore_progress,
) -> SavedReport:
    """Measure, summarise and save a study in a folder, where an interrupted one resumes."""
    results = measure(
        study, classifiers, dataset, indices, votes=votes, folder=folder, on_progress=on_progress
    )
    saved = save_report(study.summarise(results), folder, figure_format)
    # Only now: whatever stops the command before this line must not cost the measurements.
    for path in results.findings:
        path.unlink(missing_ok=True)
    return saved


def measure(
    study: Study,
    classifiers: Sequence[NamedClassifier],
    dataset: Dataset,
    indices: Sequence[int],
    *,
    votes: VoteSettings = VOTES,
    folder: Path | None = None,
    on_progress: OnProgress = ignore_progress,
) -> Results:
    """The numbers of each image under each classifier; a folder keeps them as they are found."""
    require_comparable(classifiers, dataset, indices)
    study.check(classifiers[0].num_classes)
    numbers: dict[tuple[str, int], Floats] = {}
    findings: dict[str, Findings] = {}
    for classifier in classifiers:
        kept = Findings(folder, study, classifier.smoothed, dataset, votes)
        findings[classifier.name] = kept
        for index in indices:
            recalled = kept.recall(index)
            if recalled is not None:
                numbers[classifier.name, index] = recalled
    # All findings are read first, so that progress starts where the last run ended.
    total = len(classifiers) * len(indices)
    on_progress(Progress(len(numbers), total))
    # Classifier by classifier: a network is opened once, and only one is in use at a time.
    for classifier in classifiers:
        with open_cases(classifier.smoothed, dataset, votes) as case:
            for index in indices:
                if (classifier.name, index) in numbers:
                    continue
                found = study.one(case(index))
                # After every image: an interruption costs the current image and no more.
                findings[classifier.name].keep(index, found)
                numbers[classifier.name, index] = found
                on_progress(Progress(len(numbers), total))
    # Classifiers with the same settings share a file, hence a set.
    paths = {kept.path for kept in findings.values() if kept.path is not None}
    return Results(
        classifiers=tuple(classifiers),
        dataset=dataset,
        indices=tuple(indices),
        votes=votes,
        numbers=_stack(numbers, classifiers, indices),
        findings=frozenset(paths),
    )


def _stack(
    numbers: Mapping[tuple[str, int], Floats],
    classifiers: Sequence[NamedClassifier],
    indices: Sequence[int],
) -> Floats:
    """The numbers as one array, [classifiers, images, ...]."""
    by_classifier = []
    for classifier in classifiers:
        own = [numbers[classifier.name, index] for index in indices]
        by_classifier.append(np.stack(own))
    return np.stack(by_classifier)


def require_comparable(
    classifiers: Sequence[NamedClassifier], dataset: Dataset, indices: Sequence[int]
) -> None:
    """Refuse classifiers that do not fit the images or each other, and images that do not exist."""
    require(len(classifiers) > 0, "a study needs at least one model")
    names = [classifier.name for classifier in classifiers]
    different = len(set(names)) == len(names)
    require(different, f"the models need different names, got {', '.join(names)}")
    num_classes = classifiers[0].num_classes
    if any(classifier.num_classes != num_classes for classifier in classifiers):
        counts = [f"{classifier.name} {classifier.num_classes}" for classifier in classifiers]
        raise UsageError(f"the models have different numbers of classes: {', '.join(counts)}")
    require(len(indices) > 0, "no images are left to study")
    require(len(set(indices)) == len(indices), "an image is requested twice")
    for index in indices:
        require(
            0 <= index < len(dataset),
            f"{dataset.name} ({dataset.split}) has the images 0 to {len(dataset) - 1}, not {index}",
        )
    highest = int(dataset.labels[list(indices)].max())
    require(
        highest < num_classes,
        f"{dataset.name} has the label {highest}, but the models have only {num_classes} classes",
    )
