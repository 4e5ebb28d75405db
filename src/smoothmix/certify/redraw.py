"""Draw the votes of a certificate file again, and compare them with those on record.

A radius can be checked against the votes of its row, but votes only against the network. What
`same_votes` cannot explain by rounding is an edit.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import final

from torch import Tensor, nn

from smoothmix._process.progress import OnProgress, Progress, ignore_progress
from smoothmix.certificates import (
    Certificate,
    Certificates,
    FileSettings,
    Selection,
    verify,
)
from smoothmix.certificates.settings import differences
from smoothmix.certify.dataset import file_settings, open_classifier
from smoothmix.certify.engine import engine_of_record
from smoothmix.certify.same_votes import compare_votes, near_tie_width
from smoothmix.config import require
from smoothmix.data import Dataset
from smoothmix.errors import CertificateError, UsageError
from smoothmix.inference.guards import check_images
from smoothmix.inference.sampler import ImageDraws, Sampler
from smoothmix.noise.streams import Domain

EDITED_SHARE = 0.05
"""The share of edited rows for which the chance of missing all of them is reported."""

PROBE_SECONDS = 0.5
"""How long the draws are timed that tell how long all will take."""


@final
@dataclass(frozen=True, kw_only=True)
class RedrawnRow:
    """What drawing one row again has shown."""

    idx: int
    draws: int
    """Selection and estimation draws, all of which were made again."""
    differing: int
    """The least number of these draws that voted otherwise than recorded."""
    problems: tuple[str, ...] = ()
    """Differences that rounding does not explain: the row was edited, or made another way."""

    @property
    def is_rounded(self) -> bool:
        """Whether votes differ in a way that rounding on other hardware explains."""
        return self.differing > 0 and not self.problems


@final
@dataclass(frozen=True, kw_only=True)
class Redraw:
    """What drawing some rows of a file again has shown."""

    rows: tuple[RedrawnRow, ...]
    of_rows: int
    """Rows of the file."""

    @property
    def edited(self) -> tuple[RedrawnRow, ...]:
        """Rows whose votes the network does not give."""
        return tuple(row for row in self.rows if row.problems)

    @property
    def rounded(self) -> tuple[RedrawnRow, ...]:
        """Rows whose votes differ by what rounding on other hardware explains."""
        return tuple(row for row in self.rows if row.is_rounded)

    @property
    def chance_missed(self) -> float:
        """The chance that none of these rows is an edited one, if 5 % of all rows were edited."""
        return chance_missed(self.of_rows, len(self.rows))


def redraw_dataset(
    model: nn.Module,
    dataset: Dataset,
    file: Certificates,
    *,
    rows: int = 20,
    seed: int | None = None,
    on_progress: OnProgress = ignore_progress,
) -> Redraw:
    """What drawing some rows of a file again shows; they are chosen at random, or by a seed.

    The network and the data set must be those of the file. All else is as the file records it.
    """
    chosen = choose_rows(file, rows, seed=seed)
    with open_recorded(model, dataset, file) as (sampler, near_tie):
        return redraw_rows(
            sampler, dataset, file, chosen, near_tie=near_tie, on_progress=on_progress
        )


def edited_rows(rows: int, *, share: float = EDITED_SHARE) -> int:
    """The number of rows that make up this share of a file, rounded up."""
    return math.ceil(share * rows)


def chance_missed(rows: int, checked: int, *, share: float = EDITED_SHARE) -> float:
    """The chance that so many rows, chosen at random, are all among the rows not edited.

    >>> round(chance_missed(500, 20), 3), round(chance_missed(10**6, 20), 3)
    (0.351, 0.358)
    """
    untouched = rows - edited_rows(rows, share=share)
    # Chosen without replacement: one factor for each row that is checked.
    factors = [max(0, untouched - i) / (rows - i) for i in range(min(checked, rows))]
    return math.prod(factors)


def choose_rows(
    file: Certificates, count: int, *, seed: int | None = None
) -> tuple[Certificate, ...]:
    """Rows of a file chosen at random, in their order; a file that fails `verify` is refused.

    The choice comes from the system's entropy, so that nobody knows it in advance; with a seed it
    can be repeated.
    """
    require(count >= 1, f"redraw needs at least one row, got {count}")
    found = verify(file)
    if found.problems:
        raise CertificateError(f"{file.path}: {found.problems[0]}")
    if not found.recomputed:
        raise CertificateError(f"{file.path}: has no votes that could be drawn again")
    source = random.SystemRandom() if seed is None else random.Random(seed)
    chosen = source.sample(range(len(file.rows)), min(count, len(file.rows)))
    return tuple(file.rows[position] for position in sorted(chosen))


@contextmanager
def open_recorded(
    model: nn.Module, dataset: Dataset, file: Certificates
) -> Iterator[tuple[Sampler, float]]:
    """The classifier that a file records, ready to draw, and the width of a near tie.

    A network or data set that is not the one of the file is refused.
    """
    settings = file.settings
    if settings is None:
        raise CertificateError(f"{file.path}: has no settings that tell how it was drawn")
    with open_classifier(
        model,
        dataset,
        settings.certification,
        num_classes=settings.num_classes,
        engine=engine_of_record(file.path, settings.engine),
    ) as sampler:
        _require_recorded(file, settings, sampler, dataset)
        yield sampler, near_tie_width(settings, sampler.probe)


def _require_recorded(
    file: Certificates, settings: FileSettings, sampler: Sampler, dataset: Dataset
) -> None:
    here = file_settings(
        sampler,
        dataset,
        settings.certification,
        model_name=settings.model,
        weights=settings.weights,
        selection=Selection(skip=settings.skip, maximum=settings.images, shard=settings.shard),
    )
    found = differences(settings, here)
    if found:
        raise UsageError(
            f"{file.path}: cannot be drawn again with this network and data: {'; '.join(found)}"
        )


def seconds_needed(sampler: Sampler, dataset: Dataset, rows: Sequence[Certificate]) -> float:
    """About how long drawing these rows again will take, from a few timed draws."""
    planned = sum(_draws_of(row) for row in rows)
    first = rows[0]
    pixels = _pixels(dataset, first.idx)
    draws = min(planned, sampler.threads * sampler.batch)
    while True:
        start = time.perf_counter()
        sampler.votes(pixels, first.idx, Domain.ESTIMATION, stop=draws)
        seconds = time.perf_counter() - start
        # Few draws of a small network take no measurable time.
        if seconds >= PROBE_SECONDS or draws >= planned:
            return seconds / draws * planned
        draws = min(planned, 4 * draws)


def redraw_rows(
    sampler: Sampler,
    dataset: Dataset,
    file: Certificates,
    rows: Sequence[Certificate],
    *,
    near_tie: float,
    on_progress: OnProgress = ignore_progress,
) -> Redraw:
    """Draw rows of a file again with the classifier of `open_recorded`, and compare the votes."""
    redrawn = []
    for number, row in enumerate(rows):
        on_progress(Progress(number, len(rows), f"image {row.idx}"))
        pixels = _pixels(dataset, row.idx)
        label = int(dataset.labels[row.idx])
        redrawn.append(_redrawn(sampler, row, pixels, label, near_tie=near_tie))
    on_progress(Progress(len(rows), len(rows), ""))
    return Redraw(rows=tuple(redrawn), of_rows=len(file.rows))


def _redrawn(
    sampler: Sampler, row: Certificate, pixels: Tensor, label: int, *, near_tie: float
) -> RedrawnRow:
    problems = []
    if row.label != label:
        problems.append(f"says label {row.label}, but the data set says {label}")
    differing = 0
    for domain, counts in _recorded(row):
        stop = sum(counts.values())
        # A wrong image that was skipped has no estimation draws.
        if stop == 0:
            continue
        draws = ImageDraws(image=pixels, index=row.idx, domain=domain, start=0, stop=stop)
        compared = compare_votes(sampler, draws, counts, near_tie=near_tie)
        differing += compared.differing
        if compared.problem:
            problems.append(compared.problem)
    return RedrawnRow(
        idx=row.idx, draws=_draws_of(row), differing=differing, problems=tuple(problems)
    )


def _recorded(row: Certificate) -> tuple[tuple[Domain, Mapping[int, int]], ...]:
    assert row.selection_counts is not None
    assert row.counts is not None
    return ((Domain.SELECTION, row.selection_counts), (Domain.ESTIMATION, row.counts))


def _draws_of(row: Certificate) -> int:
    return sum(sum(counts.values()) for _, counts in _recorded(row))


def _pixels(dataset: Dataset, index: int) -> Tensor:
    images = dataset.images([index])
    check_images(images)
    return images[0]
