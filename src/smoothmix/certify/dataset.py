"""Certify a data set into a file that survives interruption."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from torch import nn

from smoothmix._process.signals import Stopped
from smoothmix.certificates import Certificate, Certificates, FileSettings, Writer, read, writing
from smoothmix.certificates.partial import keep_begun, load_begun, remove_begun
from smoothmix.certificates.settings import software_versions
from smoothmix.certify.loop import Budget, InWork, certified_rows
from smoothmix.certify.smoothed import require_reach
from smoothmix.config import FUSED, Certification, Engine, require
from smoothmix.data import Dataset
from smoothmix.errors import DataError
from smoothmix.inference.guards import check_images, say_doubts
from smoothmix.inference.sampler import Images, Sampler
from smoothmix.networks.weights import state_hash
from smoothmix.noise import addresses as randomness
from smoothmix.stats.anytime import Stopping


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far a run over a data set is."""

    done: int
    """Images in the file."""
    total: int
    """Images that it is to hold."""
    row: Certificate | None = None
    """The newest; None before the first of this run."""
    waiting_for: tuple[int, ...] = ()
    """Parts in the hands of other processes, where there is nothing else left to do."""
    in_work: int = 0
    """Images that are being drawn for."""
    draws: int = 0
    """In mode anytime those of this run; in mode exact those of images that are not written yet."""
    planned: int = 0
    """Draws that each image is to have, in mode exact."""


def certify_dataset(
    model: nn.Module,
    dataset: Dataset,
    how: Certification,
    *,
    path: Path | str,
    model_name: str,
    num_classes: int | None = None,
    skip: int = 1,
    maximum: int | None = None,
    shard: str = "",
    stopping: Stopping | None = None,
    budget: Budget | None = None,
    engine: Engine = "auto",
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> Certificates:
    """Certify every `skip`-th image of a data set into a file, from where an earlier run with it stopped.

    The network tells `num_classes` apart, by default as many as the data set has. `shard` takes one part of the images,
    such as `2/3`, for as many processes as there are parts; `certificates.merge` puts them together. With `stopping`,
    the guarantee is the anytime one, and each image gets only the draws that it needs; `budget` limits the time.
    """
    require(
        stopping is not None or budget is None,
        "a budget of time goes with rules for stopping: mode anytime",
    )
    settings = file_settings(
        model,
        dataset,
        how,
        model_name=model_name,
        num_classes=num_classes,
        skip=skip,
        maximum=maximum,
        shard=shard,
        stopping=stopping,
        engine=engine,
    )
    return certify_file(
        model, dataset, settings, path=Path(path), budget=budget, on_progress=on_progress
    )


def certify_file(
    model: nn.Module,
    dataset: Dataset,
    settings: FileSettings,
    *,
    path: Path,
    budget: Budget | None = None,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> Certificates:
    """Certify what a file of these settings (see `file_settings`) still lacks."""
    require(
        bool(settings.indices),
        f"{path}: part {settings.shard} holds none of the {settings.images} images",
    )
    with writing(path, settings) as writer, file_sampler(model, settings) as sampler:
        fill(writer, sampler, dataset, budget, on_progress)
    if not path.exists():
        raise undecided(path)
    return read(path)


def undecided(path: Path) -> Stopped:
    """That the time was up too early, and what to do."""
    return Stopped(
        f"{path}: the first image could not be finished in the time given, and rows come in the order of the images; "
        "those in work are kept, and the same command goes on with them"
    )


def file_sampler(model: nn.Module, settings: FileSettings) -> Sampler:
    """What counts the votes for a file of these settings; it may serve for several parts of one run."""
    how, recorded = settings.certification, settings.engine
    return _sampler(model, how, settings.num_classes, wished(settings), recorded=recorded)


def _sampler(
    model: nn.Module, how: Certification, num_classes: int, engine: Engine, *, recorded: str = ""
) -> Sampler:
    return Sampler(
        model=model,
        sigma=how.sigma,
        num_classes=num_classes,
        seed=how.seed,
        block=how.batch,
        precision=how.precision,
        engine=engine,
        recorded=recorded,
    )


def fill(
    writer: Writer,
    sampler: Sampler,
    dataset: Dataset,
    budget: Budget | None,
    on_progress: Callable[[Progress], None],
    earlier: Mapping[int, Certificate] | None = None,
) -> None:
    """Certify what the file still lacks."""
    how, stopping, total = (
        writer.settings.certification,
        writer.settings.stopping,
        len(writer.settings.indices),
    )
    remaining = writer.remaining
    kept = load_begun(writer.path, writer.announced)
    begun = {i: row for i, row in kept.items() if i in remaining}
    # A look at the first images only (--max) keeps what others have had.
    beyond = [row for i, row in kept.items() if i not in writer.settings.indices]
    state = Progress(done=len(writer.done), total=total, planned=0 if stopping else how.n)
    on_progress(
        state if stopping else replace(state, draws=sum(row.n or 0 for row in begun.values()))
    )
    say_doubts(how.sigma, dataset)
    images = _images(dataset, remaining)

    def keep(rows: Sequence[Certificate]) -> None:
        keep_begun(writer.path, writer.announced, [*rows, *beyond])

    waiting = 0

    def hear(state: InWork) -> None:
        nonlocal waiting
        waiting = state.drawn
        told = Progress(done=len(writer.done), total=total, in_work=state.images)
        on_progress(
            replace(told, draws=state.draws)
            if stopping
            else replace(told, draws=waiting, planned=how.n)
        )

    rows = certified_rows(
        sampler,
        images,
        how,
        stopping,
        budget=budget,
        earlier=earlier,
        begun=begun,
        keep=keep,
        on_draws=hear,
    )
    with closing(rows):  # so that they hear of it if this is where one is told to stop
        for row in rows:
            writer.append(row)
            told = Progress(done=len(writer.done), total=total, row=row)
            waiting = max(0, waiting - (row.n or 0))
            on_progress(told if stopping else replace(told, draws=waiting, planned=how.n))
    if writer.whole:
        remove_begun(writer.path)


def wished(settings: FileSettings) -> Engine:
    """What to ask for to get the engine that a file names."""
    return "auto" if settings.engine == FUSED else "eager"


def _images(dataset: Dataset, indices: Sequence[int]) -> Images:
    """Number, label and pixels of each image, read when it is its turn."""
    for index in indices:
        (image,) = dataset.images([index])
        check_images(image[None])
        yield index, int(dataset.labels[index]), image


def file_settings(
    model: nn.Module,
    dataset: Dataset,
    how: Certification,
    *,
    model_name: str,
    weights: str = "",
    num_classes: int | None = None,
    skip: int = 1,
    maximum: int | None = None,
    shard: str = "",
    stopping: Stopping | None = None,
    engine: Engine = "auto",
) -> FileSettings:
    """What the certificate file of this run says about itself; refuses what could never give a useful file.

    The network is run on an image for that: what is wrong with it is said before there is any file.
    """
    if stopping:
        # Whole blocks only: an image that is drawn further later sees the same blocks as one that never stopped.
        draws = how.batch * -(-stopping.max_draws // how.batch)
        stopping, how = replace(stopping, max_draws=draws), replace(how, n=draws)
    num_classes = dataset.num_classes if num_classes is None else num_classes
    require(skip >= 1, f"skip must be at least 1, got {skip}")
    require(maximum is None or maximum >= 1, f"max must be at least 1, got {maximum}")
    require_reach(how, stopping)
    available = -(-len(dataset) // skip)
    low, high = int(dataset.labels.min()), int(dataset.labels.max())
    if low < 0 or high >= num_classes:
        hint = ": they count from 0, so subtract 1" if low >= 1 and high == num_classes else ""
        raise DataError(
            f"{dataset.name}: labels run from {low} to {high}, where the network tells {num_classes} apart{hint}"
        )
    with _sampler(model, how, num_classes, engine) as sampler:
        ready = sampler.rehearse(dataset.shape)
    return FileSettings(
        certification=how,
        mode="anytime" if stopping else "exact",
        stopping=stopping,
        model=model_name,
        model_hash=state_hash(model),
        weights=weights,
        data=dataset.name,
        split=dataset.split,
        data_hash=dataset.fingerprint,
        data_note=dataset.note or "",
        num_classes=num_classes,
        skip=skip,
        images=available if maximum is None else min(available, maximum),
        shard=shard,
        engine=ready.engine,
        probe=ready.probe,
        noise=randomness.SCHEME,
        versions=software_versions(),
    )
