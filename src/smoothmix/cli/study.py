"""The commands `study confidence | path | mixing`: the paper's measurements on trained models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from smoothmix._process.world import current_world
from smoothmix.cli.options import Files, ImageOptions, ModelOptions, Numbers, numbers
from smoothmix.cli.output import echo, progress
from smoothmix.config import Precision, require

if TYPE_CHECKING:
    from smoothmix.data import Dataset
    from smoothmix.studies.base import Draws, Model, Study

IMAGES = 100
"""How many are studied unless more or fewer are asked for."""

app = App(
    help="Repeat the paper's measurements on trained models: numbers as CSV, a figure, a section for the report."
)

Runs = Annotated[str, Parameter(required=True)]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class StudyOptions:
    """What every study of trained models asks for."""

    n: int = 1000
    """Noisy votes at each point that is classified."""

    copies: int = 16
    """Noises that smooth the classifier under attack; few make the attack weak, as it fits them."""

    seed: int = 0
    """Decides the noise of votes and attacks."""

    data: str | None = None
    """Data set; by default that of the training (`smoothmix data list`)."""

    data_dir: Path | None = None
    """Folder that holds it; by default $SMOOTHMIX_DATA or this user's cache."""

    split: str = "test"
    """Part of it."""

    skip: int | None = None
    """Take every skip-th image: 0, skip, 2 skip, ...; by default so many that --max images are spread over all."""

    maximum: Annotated[int, Parameter(name="--max")] = IMAGES
    """Stop after so many images."""

    batch: int = 256
    """Draws in one forward."""

    device: str = "auto"
    """cpu, cuda, cuda:1, ...; auto takes a GPU if there is one."""

    precision: Precision = "fp32"
    """Arithmetic of the network when it votes."""

    def __post_init__(self) -> None:
        require(self.skip is None or self.skip >= 1, f"skip must be at least 1, got {self.skip}")
        require(self.maximum >= 1, f"max must be at least 1, got {self.maximum}")

    @property
    def draws(self) -> Draws:
        """How votes are counted."""
        from smoothmix.studies.base import Draws

        return Draws(n=self.n, seed=self.seed, block=self.batch, precision=self.precision)

    def indices(self, dataset: Dataset) -> list[int]:
        """Which images of a data set are studied."""
        skip = self.skip or max(1, len(dataset) // self.maximum)
        return list(range(0, len(dataset), skip)[: self.maximum])


OPTIONS, FILES = StudyOptions(), Files()


@app.command
def confidence(
    *runs: Runs,
    eps: Numbers = None,
    steps: int = 20,
    step_size: float | None = None,
    options: StudyOptions = OPTIONS,
    files: Files = FILES,
) -> None:
    """Measure how sure models are of adversarial examples: votes for the true class, and for the strongest other.

    Parameters
    ----------
    runs
        Run folders (or zoo:NAME) of one data set; name=path gives one a name.
    eps
        Largest L2 distances of the attack, such as --eps 0,1,2; by default those of the paper, 0 to 5.
    steps
        Steps of the attack (PGD on the smoothed classifier).
    step_size
        L2 length of a step; by default 2 eps / steps.
    """
    from smoothmix.studies import confidence as measured
    from smoothmix.studies.base import Attack
    from smoothmix.studies.partial import Begun

    draws = options.draws
    epsilons = numbers(eps) or measured.EPSILONS
    attacks = [
        Attack(steps=steps, epsilon=e, step_size=step_size, copies=options.copies) for e in epsilons
    ]
    models, dataset = load(runs, options)
    begun = Begun(files.out)
    with progress("attacking", unit="images") as on_progress:
        study = measured.study(
            models,
            dataset,
            options.indices(dataset),
            epsilons=epsilons,
            attack=attacks[0],
            draws=draws,
            figure=can_draw(),
            on_progress=on_progress,
            begun=begun,
        )
    finish(study, files)
    begun.remove()


@app.command
def path(
    *runs: Runs,
    images: Numbers = None,
    first: int = 3,
    classes: int | None = None,
    points: int = 21,
    steps: int = 16,
    step_size: float = 0.5,
    options: StudyOptions = OPTIONS,
    files: Files = FILES,
) -> None:
    """Follow the votes from images to their adversarial examples, with pictures on the way.

    Parameters
    ----------
    runs
        Run folders (or zoo:NAME) of one data set; name=path gives one a name.
    images
        Positions of images in the data set, such as --images 0,5,7; by default the first that all models get right.
    first
        How many of those, of the images that --skip and --max leave.
    classes
        How many classes to draw: the true one, and those that get most votes on the way; by default 3 at most.
    points
        Evenly spaced mixing ratios from 0 to 1 at which votes are counted.
    steps
        Steps of the attack, which may go as far as they carry it.
    step_size
        L2 length of a step.
    """
    from smoothmix.studies import path as measured
    from smoothmix.studies.base import Attack
    from smoothmix.studies.partial import Begun

    draws, chosen = options.draws, [_position(number) for number in numbers(images)]
    attack = Attack(steps=steps, step_size=step_size, copies=options.copies)
    models, dataset = load(runs, options)
    begun = Begun(files.out)
    with progress("attacking", unit="images") as on_progress:
        if not chosen:
            chosen = measured.first_right(
                models, dataset, options.indices(dataset), first, draws=draws
            )
            if len(chosen) < first:
                echo(
                    f"only {len(chosen)} of the images looked at are classified right by every model"
                )
        study = measured.study(
            models,
            dataset,
            chosen,
            points=points,
            classes=classes,
            attack=attack,
            draws=draws,
            figure=can_draw(),
            on_progress=on_progress,
            begun=begun,
        )
    finish(study, files)
    begun.remove()


@app.command
def mixing(
    *runs: Runs,
    eps: float = 8.0,
    steps: int = 50,
    step_size: float | None = None,
    options: StudyOptions = OPTIONS,
    files: Files = FILES,
) -> None:
    """Find how far towards its adversarial example each image keeps its class, by bisection on votes.

    Parameters
    ----------
    runs
        Run folders (or zoo:NAME) of one data set; name=path gives one a name.
    eps
        Largest L2 distance of the attack.
    steps
        Steps of the attack (PGD on the smoothed classifier).
    step_size
        L2 length of a step; by default 2 eps / steps.
    """
    from smoothmix.studies import mixing as measured
    from smoothmix.studies.base import Attack
    from smoothmix.studies.partial import Begun

    draws = options.draws
    require(eps > 0, f"eps must be positive, got {eps:g}")
    attack = Attack(steps=steps, epsilon=eps, step_size=step_size, copies=options.copies)
    models, dataset = load(runs, options)
    begun = Begun(files.out)
    with progress("attacking", unit="images") as on_progress:
        study = measured.study(
            models,
            dataset,
            options.indices(dataset),
            attack=attack,
            draws=draws,
            figure=can_draw(),
            on_progress=on_progress,
            begun=begun,
        )
    finish(study, files)
    begun.remove()


def _position(number: float) -> int:
    require(
        number.is_integer(), f"images are given by their positions, such as 0,5,7, not {number:g}"
    )
    return int(number)


def load(runs: Sequence[str], options: StudyOptions) -> tuple[list[Model], Dataset]:
    """The trained networks of these run folders, and the data set that all of them are for."""
    from smoothmix.analysis.measured import split_name
    from smoothmix.cli.target import choose_data, load_target
    from smoothmix.runs.zoo import PREFIX
    from smoothmix.studies.base import Model

    require(current_world().alone, ONE_PROCESS)
    sources = [split_name(run) for run in runs]
    names = [name or folder.resolve().name.removeprefix(PREFIX) for name, folder in sources]
    names = [
        f"{n} ({f.parent})" if names.count(n) > 1 else n
        for n, (_, f) in zip(names, sources, strict=True)
    ]
    targets = [load_target(folder, ModelOptions(device=options.device)) for _, folder in sources]
    models, trained = [], {}
    for name, target in zip(names, targets, strict=True):
        assert target.sigma is not None
        assert target.num_classes is not None
        models.append(
            Model(
                name=name, network=target.model, sigma=target.sigma, num_classes=target.num_classes
            )
        )
        trained[name] = target.data
    require(
        len(set(trained.values())) == 1,
        "the models are for different data sets: "
        + ", ".join(f"{name} {data}" for name, data in trained.items()),
    )
    where = ImageOptions(data=options.data, data_dir=options.data_dir, split=options.split)
    return models, choose_data(targets[0], where)


ONE_PROCESS = "this study is made by one process: start it without torchrun"


def can_draw() -> bool:
    """Whether there will be a figure; says so where not, since the numbers are worth having without."""
    found = find_spec("matplotlib") is not None
    if not found:
        echo("no figure will be drawn: it needs matplotlib (pip install matplotlib)")
    return found


def finish(study: Study, files: Files) -> None:
    """Show what was found, and write its files."""
    from smoothmix.cli.report import show_grid
    from smoothmix.studies.files import save, set_aside

    show_grid(study.grid, "terminal")
    print(f"\n{study.text}")
    if earlier := set_aside(study, files.out):
        echo(
            f"the {study.name} study that was there found something else: its files are in {earlier} now"
        )
    for file in save(study, files.out, files.format):
        echo(f"wrote {file}")
