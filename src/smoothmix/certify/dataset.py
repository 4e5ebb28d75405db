"""Certify a data set into a file that survives interruption."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import final

from torch import Tensor, nn

from smoothmix._process.progress import OnProgress, Progress, ignore_progress
from smoothmix._process.signals import Stopped
from smoothmix.certificates import (
    Certificate,
    Certificates,
    Certification,
    FileSettings,
    Selection,
    Writer,
    read,
    writing,
)
from smoothmix.certificates.old_partial import import_old_votes
from smoothmix.certificates.partial import Journal
from smoothmix.certificates.settings import software_versions
from smoothmix.certify.budget import BudgetProgress, EarlierVotes, UnreadImage, budget_rows
from smoothmix.certify.engine import resolve_engine
from smoothmix.certify.loop import DrawProgress, ImageToCertify, TimeLimit, certified_rows
from smoothmix.certify.same_votes import require_same_votes
from smoothmix.certify.smoothed import Smoothed
from smoothmix.config import EngineName, require
from smoothmix.data import Dataset
from smoothmix.errors import DataError
from smoothmix.inference.guards import check_images, check_noise, warn_of_doubts
from smoothmix.inference.positions import checked_positions
from smoothmix.inference.sampler import Sampler
from smoothmix.networks import state_hash
from smoothmix.networks.sources import source_hashes
from smoothmix.noise import Noise

ALL_IMAGES = Selection()

UNWRITTEN = 0.001
"""What is missing of an image whose row is still to be written."""


def certify_dataset(
    model: nn.Module,
    dataset: Dataset,
    certification: Certification,
    *,
    path: Path | str,
    model_name: str,
    num_classes: int | None = None,
    selection: Selection = ALL_IMAGES,
    time_limit: TimeLimit | None = None,
    engine: EngineName = "auto",
    on_progress: OnProgress = ignore_progress,
) -> Certificates:
    """Certify the images of a data set into a file; an interrupted file of this run is resumed.

    The network has `num_classes` outputs, by default as many as the data set has classes. A
    selection with a shard, such as `Selection(shard="2/3")`, certifies one part of the images;
    `certificates.merge` merges the files. `time_limit` needs a guarantee that holds at any time,
    such as `Anytime`.
    """
    _require_dataset(dataset)
    require(
        time_limit is None or certification.guarantee.holds_at_any_time,
        "a time limit needs a guarantee that holds at any time: mode anytime",
    )
    engine = resolve_engine(
        model,
        dataset,
        certification,
        path=Path(path),
        requested=engine,
        selection=selection,
        is_part=bool(selection.shard),
    )
    with open_classifier(
        model, dataset, certification, num_classes=num_classes, engine=engine
    ) as sampler:
        settings = file_settings(
            sampler,
            dataset,
            certification,
            model_name=model_name,
            selection=selection,
        )
        return certify_file(
            sampler,
            dataset,
            settings,
            path=Path(path),
            time_limit=time_limit,
            on_progress=on_progress,
        )


def _require_dataset(dataset: object) -> None:
    """Refuse what only looks like a data set, such as one of torch, and say how to make it one."""
    require(
        isinstance(dataset, Dataset),
        f"the data set is a {type(dataset).__module__}.{type(dataset).__name__}, not a "
        "smoothmix.data.Dataset: load one by sm.data.load, or put the images of yours into "
        "sm.data.MemoryDataset(name=..., split=..., class_names=..., labels=..., pixels=...) with "
        "pixels uint8 [N, C, H, W]",
    )


@contextmanager
def open_classifier(
    model: nn.Module,
    dataset: Dataset,
    certification: Certification,
    *,
    num_classes: int | None = None,
    engine: EngineName = "auto",
) -> Iterator[Sampler]:
    """The smoothed classifier of these settings, opened for the images of a data set."""
    smoothed = Smoothed.for_certification(
        model, certification, num_classes=num_classes or dataset.num_classes, engine=engine
    )
    with smoothed.open(dataset.shape, seed=certification.seed) as sampler:
        yield sampler


def file_settings(
    sampler: Sampler,
    dataset: Dataset,
    certification: Certification,
    *,
    model_name: str,
    weights: str = "",
    selection: Selection = ALL_IMAGES,
) -> FileSettings:
    """The settings of a certificate file; refuses those that could never give a useful file.

    The network runs on an image here, so that its errors appear before there is any file.
    """
    certification = certification.in_whole_batches()
    certification.require_reach()
    certification.require_budget_for(selection.images(len(dataset)))
    require(
        dataset.labelled or not certification.skip_wrong,
        "skip_wrong needs labels, and these images have none",
    )
    if dataset.labelled:
        _check_labels(dataset, sampler.num_classes)
    # Images that cannot be certified by this noise are refused here too, as far as one shows it.
    check_noise(dataset.images([0]), certification.noise, [0])
    sampler.check_network(dataset.shape)
    return FileSettings(
        certification=certification,
        model=model_name,
        model_hash=state_hash(sampler.model),
        weights=weights,
        data=dataset.name,
        split=dataset.split,
        data_hash=dataset.fingerprint,
        data_content_hash=dataset.content_hash,
        data_note=dataset.note or "",
        preparation=dataset.preparation,
        num_classes=sampler.num_classes,
        class_numbers=dataset.class_numbers,
        labels="" if dataset.labelled else "none",
        skip=selection.skip,
        images=selection.images(len(dataset)),
        shard=selection.shard,
        engine=sampler.engine,
        probe=sampler.probe,
        positions=checked_positions(sampler.network, dataset.shape, certification),
        noise_scheme=certification.noise.scheme,
        versions=software_versions(),
        sources=source_hashes(sampler.model),
        has_digests=True,
    )


def _check_labels(dataset: Dataset, num_classes: int) -> None:
    low = int(dataset.labels.min())
    high = int(dataset.labels.max())
    if low >= 0 and high < num_classes:
        return
    hint = ""
    if low >= 1 and high == num_classes:
        hint = ": they count from 0, so subtract 1"
    raise DataError(
        f"{dataset.name}: labels run from {low} to {high}, where the network has "
        f"{num_classes} classes{hint}"
    )


def certify_file(
    sampler: Sampler,
    dataset: Dataset,
    settings: FileSettings,
    *,
    path: Path,
    time_limit: TimeLimit | None = None,
    on_progress: OnProgress = ignore_progress,
) -> Certificates:
    """Certify the images that a file of these settings (see `file_settings`) still lacks."""
    require(
        bool(settings.indices),
        f"{path}: shard {settings.shard} holds none of the {settings.images} images",
    )
    journal = Journal(path, settings)
    # The lock of the file protects the journal as well.
    with writing(path, settings) as writer:
        certify_remaining(
            writer, sampler, dataset, journal, time_limit=time_limit, on_progress=on_progress
        )
        if writer.whole:
            journal.remove_if_finished(set(writer.file_settings.indices))
    # Without a row there is no file to return, although votes were saved.
    if not path.exists():
        raise unfinished(path, settings)
    return read(path)


def unfinished(path: Path, settings: FileSettings) -> Stopped:
    """The message of a run whose time ran out before its first row."""
    if settings.certification.budget is not None:
        return Stopped(
            f"{path}: the budget could not be spent in the time given, and rows are written once "
            "it is; partial votes are saved, and the same command resumes them"
        )
    return Stopped(
        f"{path}: the first image could not be finished in the time given, and rows are written in "
        "the order of the images; partial votes are saved, and the same command resumes them"
    )


def certify_remaining(
    writer: Writer,
    sampler: Sampler,
    dataset: Dataset,
    journal: Journal,
    *,
    time_limit: TimeLimit | None,
    on_progress: OnProgress,
    earlier: Mapping[int, Certificate] | None = None,
) -> None:
    """Append the rows that a file lacks; `earlier` rows of an extension are drawn further."""
    settings = writer.settings
    remaining = writer.remaining
    if remaining:
        require_same_votes(
            writer.path, writer.done, writer.file_settings, settings, sampler, dataset
        )
    import_old_votes(writer.path, writer.file_settings, journal)
    if settings.certification.budget is not None:
        _spend_budget(
            writer,
            sampler,
            dataset,
            journal,
            time_limit=time_limit,
            on_progress=on_progress,
            earlier=earlier,
        )
        return
    # Votes of other stopping rules could make an image stop later than in an undisturbed run; in
    # an extension that is what is wanted.
    partial = journal.read(any_rules=earlier is not None)
    report = _Report(writer=writer, on_progress=on_progress)
    report.start(sum(partial[index].drawn for index in remaining if index in partial))
    # Once per run, on one image: the pixels of a data set have one scale.
    warn_of_doubts(settings.certification.sigma, dataset)
    rows = certified_rows(
        sampler,
        _images(dataset, remaining, settings.certification.noise),
        settings.certification,
        time_limit=time_limit,
        earlier=earlier,
        partial=partial,
        save=journal.append,
        on_draws=report.draws,
    )
    # Closing tells the loop to save its votes if the run is interrupted while a row is written.
    with closing(rows):
        for row in rows:
            writer.append(row)
            report.row(row)


def _spend_budget(
    writer: Writer,
    sampler: Sampler,
    dataset: Dataset,
    journal: Journal,
    *,
    time_limit: TimeLimit | None,
    on_progress: OnProgress,
    earlier: Mapping[int, Certificate] | None,
) -> None:
    """Append the rows that a file with a budget lacks, after drawing for all of its images."""
    settings = writer.settings
    if not writer.remaining:
        return
    certification = settings.certification
    warn_of_doubts(certification.sigma, dataset)

    def unread(index: int) -> UnreadImage:
        def pixels() -> Tensor:
            return _pixels(dataset, index, certification.noise)

        return UnreadImage(index=index, label=int(dataset.labels[index]), read=pixels)

    # All images, also those that have their rows: the draws of each depend on all the others.
    images = [unread(index) for index in settings.indices]

    def report(state: BudgetProgress) -> None:
        # The last image is done when its row is written.
        done = min(state.share * len(images), len(images) - UNWRITTEN)
        on_progress(Progress(done, len(images), state.note))

    rows = budget_rows(
        sampler,
        images,
        certification,
        draws=settings.budget_draws,
        time_limit=time_limit,
        earlier=EarlierVotes(
            rows=earlier or {},
            positions=journal.read_positions(),
            spent=bool(writer.done),
        ),
        skip_rows=len(writer.done),
        save=journal.append,
        on_progress=report,
    )
    with closing(rows):
        for row in rows:
            writer.append(row)
    if not writer.remaining:
        on_progress(Progress(len(images), len(images)))


@final
@dataclass(kw_only=True)
class _Report:
    """Reports the progress of a file: its rows, and the draws of images without one."""

    writer: Writer
    on_progress: OnProgress
    _unwritten: int = 0
    """Draws of images that have no row yet."""

    def start(self, unwritten: int) -> None:
        """Report what earlier runs have left."""
        self._unwritten = unwritten
        self._report("")

    def draws(self, state: DrawProgress) -> None:
        """Report draws of images without a row."""
        self._unwritten = state.unwritten
        note = f"{state.active} active, {state.in_this_run:,} draws in this run"
        if self._has_fixed_draws:
            planned = state.active * self.writer.settings.guarantee.max_draws
            note = f"{state.unwritten:,} of {planned:,} draws of the next"
        self._report(note)

    def row(self, row: Certificate) -> None:
        """Report a new row."""
        self._unwritten = max(0, self._unwritten - (row.n or 0))
        # Radii are rounded down, here as in the file.
        self._report(f"image {row.idx}: radius {f'{row.radius:.6f}'[:-3]}")

    @property
    def _has_fixed_draws(self) -> bool:
        return not self.writer.settings.guarantee.holds_at_any_time

    def _report(self, note: str) -> None:
        done = float(len(self.writer.done))
        # How many draws an image needs is known beforehand only if all get the same number.
        if self._has_fixed_draws:
            done += self._unwritten / self.writer.settings.guarantee.max_draws
        self.on_progress(Progress(done, len(self.writer.settings.indices), note))


def _images(dataset: Dataset, indices: Sequence[int], noise: Noise) -> Iterator[ImageToCertify]:
    """The images, each read when it is needed."""
    for index in indices:
        # One by one: images of a folder may not fit into memory.
        pixels = _pixels(dataset, index, noise)
        yield ImageToCertify(index=index, label=int(dataset.labels[index]), pixels=pixels)


def _pixels(dataset: Dataset, index: int, noise: Noise) -> Tensor:
    """The pixels of an image that can be certified."""
    pixels = dataset.images([index])
    check_images(pixels)
    check_noise(pixels, noise, [index])
    return pixels[0]
