"""Draw further for the images of an anytime file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from torch import nn

from smoothmix._io.locks import exclusive
from smoothmix.certificates import Certificates, FileSettings, read, settings_path, verify, writing
from smoothmix.certificates.file import continued_versions
from smoothmix.certificates.partial import keep_begun, load_begun, remove_begun
from smoothmix.certificates.settings import FREE, differences, load_settings, require_tsv
from smoothmix.certify.dataset import Progress, file_sampler, file_settings, fill, undecided, wished
from smoothmix.certify.loop import Budget
from smoothmix.config import Certification, require
from smoothmix.data import Dataset
from smoothmix.errors import UsageError
from smoothmix.stats.anytime import Stopping


def extend_dataset(
    model: nn.Module,
    dataset: Dataset,
    how: Certification,
    *,
    path: Path,
    stopping: Stopping,
    budget: Budget | None = None,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> Certificates:
    """Draw further for the images of an anytime file, by other rules for stopping, and replace it once all are done.

    Valid because that guarantee holds whenever one stops. Interrupted, it goes on where it was; the file is the old one
    until the new one is whole.
    """
    require_tsv(path)
    new = path.with_name(f"{path.stem}-extending.tsv")
    with exclusive(path):
        old = _verified(path)
        settings = _extended(old, model, dataset, how, stopping)
        begun = load_settings(new)
        require(
            begun is None or begun.stopping == settings.stopping,
            f"{path}: an extension to {begun.guarantee if begun else ''} is not finished: finish it with the same "
            f"options, or delete {new.name} and {settings_path(new).name}",
        )
        _take_along_begun(path, old, new, settings)
        with writing(new, settings) as writer, file_sampler(model, settings) as sampler:
            fill(
                writer,
                sampler,
                dataset,
                budget,
                on_progress,
                earlier={row.idx: row for row in old.rows},
            )
            whole = not writer.remaining
        if not whole and not new.exists():
            raise undecided(new)
        if whole:
            # The rows first: should this be cut off here, they hold by the old settings as well.
            new.replace(path)
            settings_path(new).replace(settings_path(path))
            remove_begun(path)
    return read(new if new.exists() else path)


def _verified(path: Path) -> Certificates:
    """The file, once its rows have been found to follow from votes that its settings allow."""
    file = read(path)
    problems = verify(file).problems if file.settings else ()
    require(not problems, f"{path}: cannot be extended: {problems[0] if problems else ''}")
    return file


def _take_along_begun(path: Path, old: Certificates, new: Path, settings: FileSettings) -> None:
    """Images that the file has in work, and no row of yet, go on by the new rules."""
    assert old.settings is not None
    done = {row.idx for row in old.rows}
    left = [row for row in load_begun(path, old.settings).values() if row.idx not in done]
    if left and not load_begun(new, settings):
        keep_begun(new, settings, left)


def _extended(
    old: Certificates, model: nn.Module, dataset: Dataset, how: Certification, stopping: Stopping
) -> FileSettings:
    """The settings of a file that is drawn further, or why it cannot be."""
    there = old.settings
    if there is None:
        raise UsageError(
            f"{old.path}: has no {settings_path(old.path).name} beside it to say how it was made"
        )
    if there.mode != "anytime":
        raise UsageError(
            f"{old.path}: was made with a fixed number of draws, and looking at the result before drawing more is not "
            "the test that its guarantee rests on; certify anew with --mode anytime"
        )
    here = file_settings(
        model,
        dataset,
        how,
        model_name=there.model,
        weights=there.weights,
        num_classes=there.num_classes,
        skip=there.skip,
        maximum=there.images,
        shard=there.shard,
        stopping=stopping,
        engine=wished(there),
    )
    found = differences(there, here, free=(*FREE, "stopping", "n"))
    if found:
        raise UsageError(f"{old.path}: cannot be extended: {'; '.join(found)}")
    require(
        here.certification.n >= there.certification.n,
        f"{old.path}: has a budget of {there.certification.n:,} draws an image: extending it takes at least as many, "
        f"not {here.certification.n:,}",
    )
    return replace(here, versions=continued_versions(old.path, there, here))
