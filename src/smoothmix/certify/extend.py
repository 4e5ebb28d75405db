"""Draw further for the images of an anytime file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from torch import nn

from smoothmix._io.locks import exclusive
from smoothmix._process.progress import OnProgress, ignore_progress
from smoothmix.certificates import (
    Certificates,
    Certification,
    FileSettings,
    Selection,
    read,
    settings_path,
    verify,
    writing,
)
from smoothmix.certificates.file import continued_records, read_by
from smoothmix.certificates.old_partial import import_old_votes
from smoothmix.certificates.output import real_output, require_output
from smoothmix.certificates.partial import Journal
from smoothmix.certificates.settings import (
    FREE,
    RULES,
    differences,
    load_bound_settings,
    load_settings,
)
from smoothmix.certify.dataset import (
    certify_remaining,
    file_settings,
    open_classifier,
    unfinished,
)
from smoothmix.certify.engine import engine_of_record
from smoothmix.certify.loop import TimeLimit
from smoothmix.certify.same_votes import require_same_votes
from smoothmix.config import require
from smoothmix.data import Dataset
from smoothmix.errors import UsageError
from smoothmix.inference.sampler import Sampler
from smoothmix.stats.guarantees import Guarantee


def extend_dataset(
    model: nn.Module,
    dataset: Dataset,
    certification: Certification,
    *,
    path: Path,
    time_limit: TimeLimit | None = None,
    on_progress: OnProgress = ignore_progress,
) -> Certificates:
    """Draw further for the images of an anytime file, by other stopping rules.

    This is valid because the anytime guarantee holds whenever one stops. An interrupted extension
    is resumed. The file is replaced once all images are finished, and is the old one until then.
    """
    # Not a link to it: the file itself is replaced in the end.
    path = real_output(require_output(path))
    # Held for the whole extension: nobody may add rows to the file that is going to be replaced.
    with exclusive(path):
        _finish_replacing(path)
        old = _verified(path, certification.in_whole_batches().guarantee)
        assert old.settings is not None
        with open_classifier(
            model,
            dataset,
            certification,
            num_classes=old.settings.num_classes,
            engine=engine_of_record(old.path, old.settings.engine),
        ) as sampler:
            settings = _extended_settings(old, sampler, dataset, certification)
            return _extend(
                old, sampler, dataset, settings, time_limit=time_limit, on_progress=on_progress
            )


def extending_path(path: Path) -> Path:
    """Where the rows of an extension are until it is finished."""
    return path.with_name(f"{path.stem}-extending.tsv")


def _extend(
    old: Certificates,
    sampler: Sampler,
    dataset: Dataset,
    settings: FileSettings,
    *,
    time_limit: TimeLimit | None,
    on_progress: OnProgress,
) -> Certificates:
    path = old.path
    new = extending_path(path)
    _refuse_another_extension(path, new, settings)
    # One journal for both files: what the old run has drawn for unfinished images counts as well.
    journal = Journal(path, settings)
    assert old.settings is not None
    import_old_votes(path, old.settings, Journal(path, old.settings))
    require_same_votes(path, old.rows, old.settings, settings, sampler, dataset)
    earlier = {row.idx: row for row in old.rows}
    with writing(new, settings) as writer:
        certify_remaining(
            writer,
            sampler,
            dataset,
            journal,
            time_limit=time_limit,
            on_progress=on_progress,
            earlier=earlier,
        )
        whole = not writer.remaining
    if whole:
        # The rows first: should the process die here, the settings that are left tell the next one
        # what to do, and rows without digests hold by the old settings as well.
        new.replace(path)
        settings_path(new).replace(settings_path(path))
        journal.remove_if_finished(set(settings.indices))
        return read(path)
    if not new.exists():
        raise unfinished(new, settings)
    return read(new)


def _finish_replacing(path: Path) -> None:
    """Give extended rows their settings, if a process died after it had put the rows in place."""
    new = extending_path(path)
    if new.exists() or not path.exists():
        return
    settings, digests = load_bound_settings(new)
    if settings is None or digests is None or not digests.finished:
        return
    if verify(read_by(path, new)).ok:
        settings_path(new).replace(settings_path(path))


def _verified(path: Path, guarantee: Guarantee) -> Certificates:
    """The file, if it can be extended and its rows follow from their votes."""
    file = read(path)
    if file.settings is None:
        raise UsageError(
            f"{path}: has no {settings_path(path).name} beside it to say how it was made"
        )
    problem = guarantee.extension_problem(file.settings.guarantee)
    if problem:
        raise UsageError(f"{path}: {problem}")
    problems = verify(file).problems
    if problems:
        raise UsageError(f"{path}: cannot be extended: {problems[0]}")
    return file


def _refuse_another_extension(path: Path, new: Path, settings: FileSettings) -> None:
    existing = load_settings(new)
    if existing is not None and existing.guarantee != settings.guarantee:
        raise UsageError(
            f"{path}: an extension to {existing.guarantee.description} is not finished: "
            f"finish it with the same options, or delete {new.name} and {settings_path(new).name}"
        )


def _extended_settings(
    old: Certificates,
    sampler: Sampler,
    dataset: Dataset,
    certification: Certification,
) -> FileSettings:
    """The settings of a file that is drawn further, or why it cannot be."""
    before = old.settings
    assert before is not None
    after = file_settings(
        sampler,
        dataset,
        certification,
        model_name=before.model,
        weights=before.weights,
        selection=Selection(skip=before.skip, maximum=before.images, shard=before.shard),
    )
    # All but the guarantee must be the same, or the votes of both would not belong together.
    found = differences(before, after, free=(*FREE, *RULES))
    if found:
        raise UsageError(f"{old.path}: cannot be extended: {'; '.join(found)}")
    _require_unspent(old, after)
    return replace(after, **continued_records(old.path, before, after))


def _require_unspent(old: Certificates, settings: FileSettings) -> None:
    """Refuse a budget that is less than what the file took already."""
    limit = settings.budget_draws
    if limit is None:
        return
    spent = 0
    for row in old.rows:
        spent += settings.guarantee.n0 + (row.n or 0)
    require(
        spent <= limit,
        f"{old.path}: took {spent:,} draws already, and a budget counts all draws of a file: give "
        f"a larger one than {limit:,}",
    )
