"""What commands that certify share: stopping rules, the processes of a job, and shown progress."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from smoothmix._process.signals import sigterm_raises
from smoothmix._process.world import current_world
from smoothmix.cli.options import AnytimeOptions, NetworkOptions, SeedOptions
from smoothmix.cli.output import echo, progress
from smoothmix.config import EngineName, recorded_engine, require

if TYPE_CHECKING:
    from smoothmix.certificates import Certification
    from smoothmix.certificates.seeds import Seed
    from smoothmix.certificates.selection import Selection
    from smoothmix.certify.loop import TimeLimit
    from smoothmix.certify.workers import Outcome
    from smoothmix.cli.models import LoadedNetwork
    from smoothmix.data import Dataset
    from smoothmix.stats.allocation import Budget, Goal
    from smoothmix.stats.guarantees import Guarantee, GuaranteeOptions

ANYTIME = AnytimeOptions()

TIMED_OPTIONS = ("seconds", "seconds_per_image", "extend")
"""Options that need a guarantee which holds at any time."""


def file_name(shard: str, out: Path | None, *, extend: bool) -> str:
    """The name of a file with one shard that is not merged with others; empty for merged files."""
    from smoothmix.certificates.selection import parse_shards

    alone = current_world().alone
    # Extended images come from one file, which only one process can hold.
    require(alone or not extend, "--extend draws further in one file: start it without torchrun")
    if not shard or not (out or extend):
        return ""
    shards, count = parse_shards(shard)
    option = "--extend" if extend else "--out"
    require(
        alone and len(shards) == 1,
        f"{option} with --shard takes one shard and one process, got {shard}",
    )
    return f"certificates-{shards[0]}-of-{count}.tsv"


def chosen_guarantee(
    mode: str, options: GuaranteeOptions, anytime: AnytimeOptions, path: Path
) -> Guarantee:
    """The guarantee that the options ask for; options of another mode are refused."""
    from smoothmix.certificates.settings import load_settings
    from smoothmix.stats.guarantees import GUARANTEES, Anytime, foreign_options

    existing = load_settings(path) if anytime.extend else None
    if existing is not None:
        # By default a file is extended to the number of draws that it allowed so far.
        options = replace(options, n=existing.guarantee.max_draws)
    kind = GUARANTEES[mode]
    if kind is Anytime and options.foresight is None:
        options = replace(options, foresight=_resumed_foresight(path, extend=anytime.extend))
    timed = [name for name in TIMED_OPTIONS if getattr(anytime, name)]
    if timed and not kind.holds_at_any_time:
        raise foreign_options([*options.given(), *timed], mode=Anytime.mode)
    return kind.from_options(options)


def chosen_budget(mode: str, anytime: AnytimeOptions) -> Budget | None:
    """The budget that the options ask for, if any; modes with a fixed number of draws have none."""
    from smoothmix.stats.allocation import Budget
    from smoothmix.stats.guarantees import GUARANTEES, Anytime

    if anytime.budget is None and anytime.hours is None:
        require(anytime.goal is None, "--goal goes with --budget or --hours")
        return None
    require(
        GUARANTEES[mode] is Anytime,
        "--budget and --hours go with --mode anytime: they give images draws by their votes so "
        f"far, and in mode {mode} the number of draws must not depend on the votes",
    )
    require(
        anytime.seconds_per_image is None,
        "--seconds-per-image goes without a budget for all images: leave one of them out",
    )
    goal: Goal = "acr"
    if anytime.goal is not None:
        goal = anytime.goal
    elif anytime.radii:
        goal = "accuracy"
    return Budget(draws=anytime.budget, hours=anytime.hours, goal=goal)


def note_on_budget(certification: Certification, *, labelled: bool) -> None:
    """Tell the user what a budget may waste, and what will not come out the same again."""
    budget = certification.budget
    if budget is None:
        return
    if labelled and not certification.skip_wrong:
        echo(
            "note: the budget is also spent on images that are misclassified, which gain nothing; "
            "--skip-wrong spends no draws on those whose selected class is wrong, and records that"
        )
    if not budget.reproducible:
        echo(
            "note: how far --hours go depends on the machine: another run may get other votes; "
            "--budget gives the same each time"
        )


def _resumed_foresight(path: Path, *, extend: bool) -> float | None:
    """The level of foresight of the file that is resumed: earlier versions had none."""
    from smoothmix.certificates.existing import existing_settings
    from smoothmix.certificates.settings import load_settings
    from smoothmix.certify.extend import extending_path
    from smoothmix.stats.guarantees import Anytime

    # An extension has rules of its own; one that was interrupted is resumed by these.
    existing = load_settings(extending_path(path)) if extend else existing_settings(path)
    if existing is None or not isinstance(existing.guarantee, Anytime):
        return None
    return existing.guarantee.stopping.foresight


def chosen_seed(options: SeedOptions, path: Path, *, is_shard: bool) -> Seed:
    """The seed that the options ask for; a secret one is read from its file, or made.

    `is_shard` says that `path` is the file of one shard, which is merged with others later.
    """
    from smoothmix.certificates.secret_seeds import secret_seed_for
    from smoothmix.certificates.seeds import DEFAULT_SEED, DerivedSeed

    if options.seed_from is not None:
        return DerivedSeed(options.seed_from)
    if options.seed is None:
        return DEFAULT_SEED
    if options.seed != "secret":
        return options.seed
    require(
        not is_shard or options.seed_file is not None,
        "shards that are merged later must share their secret seed: name its file by --seed-file "
        "for each of them",
    )
    seed, note = secret_seed_for(path, seed_file=options.seed_file)
    if current_world().is_main:
        echo(f"note: {note}")
    return seed


def note_without_rules(certification: Certification) -> None:
    """Tell the user if mode anytime has nothing to stop for, where it only costs radius."""
    from smoothmix.stats.guarantees import Anytime

    guarantee = certification.guarantee
    if not isinstance(guarantee, Anytime) or certification.budget is not None:
        return
    if not guarantee.stopping.has_rules:
        echo(
            "note: without --radii or --tolerance there is nothing to stop for: every image gets "
            "all draws, and --mode exact would certify larger radii with them"
        )


def require_in_reach(certification: Certification, radius: float | None, path: Path) -> None:
    """Refuse radii that the draws could not certify even if every vote agreed."""
    from smoothmix.certificates.existing import existing_settings

    in_batches = certification.in_whole_batches()
    if radius is not None:
        in_batches.require_reach(radius)
    radii = certification.guarantee.radii
    if not radii:
        return
    in_batches.require_reach(min(radii))
    # Files of earlier versions may have been started with such radii, and are finished.
    if existing_settings(path) is None:
        in_batches.require_reach(max(radii))


def require_same_images(path: Path, selection: Selection, network: NetworkOptions) -> None:
    """Refuse options that do not fit the file to extend: it keeps its images and its engine."""
    from smoothmix.certificates.settings import load_settings

    existing = load_settings(path)
    if existing is None:
        return
    skip = None
    if selection.skip > 1:
        skip = selection.skip
    _require_kept(path, "--skip", skip, existing.skip)
    _require_kept(path, "--max", selection.maximum, existing.images)
    _require_kept(path, "--shard", selection.shard or None, existing.shard or "1/1")
    require(
        network.num_classes in (None, existing.num_classes),
        f"--num-classes {network.num_classes}: {path} was made with {existing.num_classes}: "
        "leave it out",
    )
    engine = recorded_engine(existing.engine)
    require(
        network.engine in ("auto", engine),
        f"--engine {network.engine}: {path} was made with --engine {engine}, and is extended with "
        "it: leave --engine out",
    )


def _require_kept(path: Path, option: str, given: object, kept: object) -> None:
    require(
        given in (None, kept),
        f"{option} {given}: {path} was made with {option} {kept}, and --extend draws further for "
        f"the images that it has: leave {option} out",
    )


def certify_with_progress(
    network: LoadedNetwork,
    dataset: Dataset,
    certification: Certification,
    path: Path,
    *,
    selection: Selection,
    merged: bool = True,
    anytime: AnytimeOptions = ANYTIME,
    engine: EngineName = "auto",
) -> Outcome:
    """Certify a data set with all processes of this job, and show the progress.

    Unless `merged`, `path` is the file of one shard, which is not merged with others.
    """
    from smoothmix.certify.dataset import certify_file, file_settings, open_classifier
    from smoothmix.certify.engine import forget_agreement, resolve_engine
    from smoothmix.certify.extend import extend_dataset
    from smoothmix.certify.workers import Outcome, certify_together

    time_limit = None
    if certification.guarantee.holds_at_any_time:
        time_limit = _time_limit(anytime)
    # SIGTERM is what schedulers send before they kill a job: votes must be saved at once.
    with sigterm_raises(), progress("certifying", unit="images") as on_progress:
        if anytime.extend:
            file = extend_dataset(
                network.model,
                dataset,
                certification,
                path=path,
                time_limit=time_limit,
                on_progress=on_progress,
            )
            return Outcome(file)
        whole = selection.whole if merged else selection
        engine = resolve_engine(
            network.model,
            dataset,
            certification,
            path=path,
            requested=engine,
            selection=replace(whole, shard=selection.shard),
            is_part=not merged,
            processes=current_world().size,
            on_note=_show_note,
        )
        with open_classifier(
            network.model,
            dataset,
            certification,
            num_classes=network.num_classes,
            engine=engine,
        ) as sampler:
            settings = file_settings(
                sampler,
                dataset,
                certification,
                model_name=network.name,
                weights=network.weights,
                selection=whole,
            )
            if not merged:
                file = certify_file(
                    sampler,
                    dataset,
                    settings,
                    path=path,
                    time_limit=time_limit,
                    on_progress=on_progress,
                )
                return Outcome(file)
            outcome = certify_together(
                sampler,
                dataset,
                settings,
                path=path,
                world=current_world(),
                shards=selection.shard,
                time_limit=time_limit,
                on_progress=on_progress,
            )
        forget_agreement(path)
        return outcome


def _show_note(note: str) -> None:
    echo(f"note: {note}")


def _time_limit(options: AnytimeOptions) -> TimeLimit:
    from smoothmix.certify.loop import TimeLimit

    limits = {}
    if options.seconds is not None:
        limits["seconds"] = options.seconds
    if options.seconds_per_image is not None:
        limits["seconds_per_image"] = options.seconds_per_image
    return TimeLimit(**limits)
