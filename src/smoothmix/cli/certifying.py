"""How commands that certify do it: the rules for stopping, the processes that share the work, the progress shown."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from smoothmix._process.progress import Progress as TaskProgress
from smoothmix._process.signals import sigterm_raises
from smoothmix._process.world import current_world
from smoothmix.cli.options import (
    AnytimeOptions,
    ImageOptions,
    NetworkOptions,
    parse_numbers,
)
from smoothmix.cli.output import echo, progress
from smoothmix.config import FUSED, Engine, Mode, require
from smoothmix.runs.options import given_options

if TYPE_CHECKING:
    from smoothmix.certify.workers import Outcome
    from smoothmix.cli.target import Target
    from smoothmix.config import Certification
    from smoothmix.data import Dataset
    from smoothmix.stats.anytime import Stopping

IMAGES, ANYTIME = ImageOptions(), AnytimeOptions()


def part_by_itself(shard: str, out: Path | None, *, extend: bool) -> str:
    """The usual name of the file of one part that is not to be put together with others; empty if all is usual."""
    from smoothmix.certificates.shards import parse_shards

    numbers, parts = parse_shards(shard) if shard else ((), 1)
    alone = current_world().alone
    require(alone or not extend, "--extend draws further in one file: start it without torchrun")
    if not shard or not (out or extend):
        return ""
    option = "--extend" if extend else "--out"
    require(
        alone and len(numbers) == 1,
        f"{option} with --shard goes with one part and one process, got {shard}",
    )
    return f"certificates-{numbers[0]}-of-{parts}.tsv"


def stopping_rules(
    mode: Mode, options: AnytimeOptions, how: Certification, path: Path
) -> Stopping | None:
    """The rules for stopping that were asked for; None in mode exact, which has none."""
    from smoothmix.certificates.settings import load_settings
    from smoothmix.stats.anytime import Stopping

    if mode == "exact":
        given = given_options(options)
        verb = "goes" if len(given) == 1 else "go"
        require(not given, f"{' and '.join(given)} {verb} with --mode anytime")
        return None
    require(
        not how.stop_abstaining,
        "--stop-abstaining goes with --mode exact: anytime has --radii 0 for that",
    )
    there = load_settings(path) if options.extend else None
    usual = there.certification.n if there else how.n
    return Stopping(
        radii=tuple(parse_numbers(options.radii)),
        tolerance=options.tolerance,
        max_draws=usual if options.max_draws is None else options.max_draws,
    )


def note_without_rules(rules: Stopping | None) -> None:
    """Say so where mode anytime has nothing to stop for, and only costs."""
    if rules and not rules.radii and rules.tolerance is None:
        echo(
            "note: without --radii or --tolerance there is nothing to stop for: every image gets all draws, and --mode "
            "exact would certify larger radii with them"
        )


def require_in_reach(how: Certification, rules: Stopping | None, wanted: float) -> None:
    """Refuse a radius that all draws there are could not certify, even if every vote agreed."""
    from smoothmix.stats.anytime import largest_radius
    from smoothmix.stats.binomial import require_enough_draws

    draws = rules.max_draws if rules else how.n
    require_enough_draws(draws, alpha=how.alpha, sigma=how.sigma, wanted=wanted)
    if rules:
        draws = how.batch * -(-draws // how.batch)
        reach = largest_radius(draws, n0=how.n0, alpha=how.alpha, sigma=how.sigma)
        require(
            wanted <= reach,
            f"{draws:,} draws in mode anytime can never certify the radius {wanted:g}: {reach:.3f} is the largest they "
            "can; give a larger --max-draws",
        )


def require_as_made(path: Path, images: ImageOptions, shard: str, network: NetworkOptions) -> None:
    """Refuse to extend a file by options that would mean other images than it holds, or another way to run."""
    from smoothmix.certificates.settings import load_settings

    there = load_settings(path)
    if there is None:
        return
    given = {
        "--skip": images.skip if images.skip > 1 else None,
        "--max": images.maximum,
        "--shard": shard or None,
    }
    kept = {"--skip": there.skip, "--max": there.images, "--shard": there.shard}
    for option, value in given.items():
        require(
            value in (None, kept[option]),
            f"{option} {value}: {path} was made with {option} {kept[option] or '1/1'}, and --extend draws further for "
            f"the images that it has: leave {option} out",
        )
    require(
        network.num_classes in (None, there.num_classes),
        f"--num-classes {network.num_classes}: {path} was made with {there.num_classes}: leave it out",
    )
    require(
        network.engine == "auto" or there.engine != FUSED,
        f"--engine {network.engine}: {path} was made with fused layers, and is drawn further with them: leave it out",
    )


def certify_with_progress(
    target: Target,
    dataset: Dataset,
    how: Certification,
    path: Path,
    *,
    images: ImageOptions = IMAGES,
    shard: str = "",
    by_itself: bool = False,
    stopping: Stopping | None = None,
    anytime: AnytimeOptions = ANYTIME,
    engine: Engine = "auto",
) -> Outcome:
    """Certify a data set, together with the other processes of this job if there are any, and show how far it is.

    With `by_itself`, `path` is the file of one part, which is not put together with others.
    """
    from smoothmix.certify.dataset import Progress, certify_file, file_settings
    from smoothmix.certify.extend import extend_dataset
    from smoothmix.certify.loop import Budget
    from smoothmix.certify.workers import Outcome, certify_together

    limits = {"seconds": anytime.seconds, "seconds_per_image": anytime.seconds_per_image}
    budget = (
        Budget(**{name: limit for name, limit in limits.items() if limit is not None})
        if stopping
        else None
    )

    with sigterm_raises(), progress("certifying", unit="images") as show:

        def on_progress(state: Progress) -> None:
            row, waiting = state.row, ", ".join(map(str, state.waiting_for))
            text = f"image {row.idx}: radius {f'{row.radius:.6f}'[:-3]}" if row else ""
            if state.in_work and state.planned:
                text = f"{state.draws:,} of {state.in_work * state.planned:,} draws of the next"
            elif state.in_work:
                text = f"{state.in_work} in work, {state.draws:,} draws in this run"
            done = state.done + (state.draws / state.planned if state.planned else 0.0)
            if waiting:
                text = f"waiting for others with part {waiting}"
            show(TaskProgress(done, state.total, text))

        if stopping and anytime.extend:
            return Outcome(
                extend_dataset(
                    target.model,
                    dataset,
                    how,
                    path=path,
                    stopping=stopping,
                    budget=budget,
                    on_progress=on_progress,
                )
            )
        settings = file_settings(
            target.model,
            dataset,
            how,
            model_name=target.name,
            weights=target.weights,
            num_classes=target.num_classes,
            skip=images.skip,
            maximum=images.maximum,
            shard=shard if by_itself else "",
            stopping=stopping,
            engine=engine,
        )
        if by_itself:
            return Outcome(
                certify_file(
                    target.model,
                    dataset,
                    settings,
                    path=path,
                    budget=budget,
                    on_progress=on_progress,
                )
            )
        return certify_together(
            target.model,
            dataset,
            settings,
            path=path,
            world=current_world(),
            shards=shard,
            budget=budget,
            on_progress=on_progress,
        )
