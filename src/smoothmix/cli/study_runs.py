"""The commands `study ablation | seeds | dimension`: runs of presets, and the theorem on input-dependent noise."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from smoothmix._process.world import current_world
from smoothmix.cli.options import Files, ImageOptions, Numbers, numbers, radii_of
from smoothmix.cli.output import echo
from smoothmix.cli.study import ONE_PROCESS, can_draw, finish
from smoothmix.config import require
from smoothmix.runs.options import Overrides, TrainingOptions

if TYPE_CHECKING:
    from smoothmix.reproduce.table import Reproduced


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How much of the paper's training and certification is done."""

    epochs: int | None = None
    """Passes over the data; learning-rate drops, warm-up and deferral stay where they are."""

    epochs_scale: float | None = None
    """Multiply epochs, drops, warm-up and deferral."""

    skip: int | None = None
    """Certify every skip-th test image; by default those of the paper: every 100th of ImageNet, all of the others."""

    maximum: Annotated[int | None, Parameter(name="--max")] = None
    """Certify at most so many images."""

    n: int = 100_000
    """Draws an image."""

    skip_wrong: Annotated[bool, Parameter(negative="")] = False
    """Spend no further draws on an image whose selected class is wrong."""

    data: str | None = None
    """Another data set than the paper's: `sample` to try things out."""

    data_dir: Path | None = None
    """Folder that holds the data set; by default $SMOOTHMIX_DATA or this user's cache."""

    device: str = "auto"
    """cpu, cuda, cuda:1, ...; auto takes a GPU if there is one."""

    runs: Path = Path("runs/reproduce")
    """Folder for the runs, the same as that of `smoothmix reproduce`: what is done there is not done again."""


RUNS, FILES = RunOptions(), Files()


def ablation(
    *families: str, radii: Numbers = None, options: RunOptions = RUNS, files: Files = FILES
) -> None:
    """Train and certify the paper's ablations of SmoothMix, with what an epoch of each costs.

    Parameters
    ----------
    families
        Which of eta, steps, limit and copies; by default all four.
    radii
        Radii of the table; by default the paper's.
    """
    from smoothmix.errors import unknown_name
    from smoothmix.reproduce.jobs import choose
    from smoothmix.studies.families import FAMILIES
    from smoothmix.studies.families import ablation as made

    for family in families:
        if family not in FAMILIES:
            raise unknown_name("ablation", family, FAMILIES)
    names = choose(
        "ablation", rows=["gaussian", *(f"{family}/*" for family in families or FAMILIES)]
    )
    at = radii_of(radii) or None
    if rows := run_all(names, 1, options):
        finish(made(rows, radii=at, figure=can_draw()), files)


def seeds(
    preset: str,
    /,
    *,
    count: int = 5,
    radii: Numbers = None,
    options: RunOptions = RUNS,
    files: Files = FILES,
) -> None:
    """Train and certify one preset with several seeds: mean and deviation beside the paper's.

    Parameters
    ----------
    preset
        A row of the paper or a quick one (`smoothmix presets`).
    count
        How many seeds.
    radii
        Radii of the table; by default the paper's.
    """
    from smoothmix import presets
    from smoothmix.studies.families import seeds as made

    require(count >= 2, f"a deviation needs at least 2 seeds, got {count}")
    at = radii_of(radii) or None
    for row in run_all([presets.get(preset).name], count, options):
        finish(made(row, radii=at, figure=can_draw()), files)


def dimension(
    *,
    p: float = 0.99,
    sigma: float = 1.0,
    distance: float = 0.5,
    ratios: Numbers = None,
    dimensions: Numbers = None,
    noises: str = "gaussian,uniform,laplace",
    draws: int = 2_000,
    seed: int = 0,
    files: Files = FILES,
) -> None:
    """Compute how little noise that depends on the input guarantees: the paper's theorem, exactly for Gaussian noise.

    Parameters
    ----------
    p
        Probability of the class at x.
    sigma
        Deviation of the noise at x.
    distance
        L2 distance of x' from x.
    ratios
        Deviation of the noise at x' divided by sigma, such as --ratios 0.9,1,1.1; by default nine from 0.8 to 1.25.
    dimensions
        Numbers of inputs, such as --dimensions 784,3072; by default six from 1 to ImageNet's 150,528.
    noises
        gaussian is exact; uniform and laplace are by Monte Carlo.
    draws
        Samples of those.
    seed
        Decides the samples.
    """
    from smoothmix.stats import input_dependent as computed
    from smoothmix.studies import input_dependent

    require(current_world().alone, ONE_PROCESS)
    given: dict[str, object] = {}
    if ratios:
        given["ratios"] = numbers(ratios)
    if dimensions:
        given["dimensions"] = [_dimension(number) for number in numbers(dimensions)]
        require(bool(given["dimensions"]), "no dimensions were given: write --dimensions 784,3072")
    kinds = [noise.strip() for noise in noises.split(",") if noise.strip()]
    require(bool(kinds), "no noises were given: write --noises gaussian,uniform")
    rows = computed.table(
        p=p,
        sigma=sigma,
        distance=distance,
        noises=kinds,
        draws=draws,
        seed=seed,
        **given,  # type: ignore[arg-type]
    )
    finish(
        input_dependent.study(rows, p=p, sigma=sigma, distance=distance, figure=can_draw()), files
    )


def _dimension(number: float) -> int:
    require(
        number.is_integer() and number >= 1,
        f"dimensions are whole numbers, such as 784, not {number:g}",
    )
    return int(number)


def run_all(names: list[str], count: int, options: RunOptions) -> list[Reproduced]:
    """Train and certify these presets with so many seeds, skipping what is done; the rows, in the main process."""
    from smoothmix.cli.reproduce import train_and_certify
    from smoothmix.reproduce.jobs import certifications, make_jobs, usual_skip
    from smoothmix.reproduce.results import results

    overrides = Overrides(
        data=options.data, epochs=options.epochs, epochs_scale=options.epochs_scale
    )
    jobs = make_jobs(names, seeds=count, overrides=overrides, out=options.runs)
    skip = usual_skip(jobs) if options.skip is None else options.skip
    images = ImageOptions(data_dir=options.data_dir, skip=skip, maximum=options.maximum)
    training = TrainingOptions(data_dir=options.data_dir, device=options.device)
    hows = certifications(jobs, n=options.n, skip_wrong=options.skip_wrong)
    for number, (job, how) in enumerate(zip(jobs, hows, strict=True), start=1):
        echo(f"\nrun {number} of {len(jobs)}: {job.preset.name}, seed {job.config.recipe.seed}")
        train_and_certify(job.config, job.folder, how, images, training)
    echo()
    return results(jobs) if current_world().is_main else []
