"""The commands `study confidence | path | mixing`: measurements on trained models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from smoothmix._process.signals import sigterm_raises
from smoothmix.cli.options import (
    USUAL_GROUP,
    BatchOption,
    DataOptions,
    ImageOptions,
    ModelOptions,
    NetworkSource,
    Numbers,
    StudyFiles,
    parse_numbers,
)
from smoothmix.cli.output import echo, progress
from smoothmix.cli.study import announce_figure, require_one_process, show_saved
from smoothmix.config import Precision, require
from smoothmix.errors import UsageError

if TYPE_CHECKING:
    from smoothmix.cli.models import LoadedNetwork
    from smoothmix.data import Dataset
    from smoothmix.studies import NamedClassifier, Study, VoteSettings


@Parameter(name="*", group=USUAL_GROUP)
@dataclass(frozen=True, kw_only=True)
class StudyOptions(DataOptions, BatchOption, NetworkSource):
    """What every study of trained models needs."""

    n: int = 1000
    """Votes at each point that is classified."""

    copies: int = 16
    """Noise samples that smooth the classifier under attack. With few, the attack overfits them."""

    seed: int = 0
    """Decides the noise of votes and attacks."""

    skip: int | None = None
    """Take every skip-th image: 0, skip, 2 skip, ...; by default --max images spread over all."""

    maximum: Annotated[int, Parameter(name="--max")] = 100
    """Stop after this many images."""

    precision: Precision = "fp32"
    """Arithmetic of the network when it votes; attacks are computed in fp32."""

    sigma: float | None = None
    """Standard deviation of the noise for --model; runs have recorded theirs."""

    num_classes: int | None = None
    """Outputs of --model, if the data set has another number of classes."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.skip is None or self.skip >= 1, f"skip must be at least 1, got {self.skip}")
        require(self.maximum >= 1, f"max must be at least 1, got {self.maximum}")
        has_sigma = self.sigma is not None
        require(
            has_sigma == (self.model is not None),
            "--model and --sigma go together: a run has recorded its sigma, your network has not",
        )

    @property
    def votes(self) -> VoteSettings:
        """How votes are counted."""
        from smoothmix.studies import VoteSettings

        return VoteSettings(n=self.n, seed=self.seed)

    def indices(self, dataset: Dataset) -> list[int]:
        """The positions of the images to study."""
        # Spread over the split: data sets may be sorted by class.
        skip = self.skip or max(1, len(dataset) // self.maximum)
        return list(range(0, len(dataset), skip)[: self.maximum])


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class PathOptions:
    """Which images are followed, how far and how finely."""

    images: Numbers = None
    """Positions of images in the data set, such as --images 0,5,7; by default the first that all
    models classify correctly."""

    first: int = 3
    """How many of those, among the images that --skip and --max select."""

    classes: int | None = None
    """Classes in the figure: the true one, and those with most votes on the way; by default at most
    3."""

    points: int = 21
    """Evenly spaced mixing ratios from 0 to 1 at which votes are counted."""

    steps: int = 16
    """Steps of the attack (PGD on the smoothed classifier), which has no largest distance."""

    step_size: float = 0.5
    """L2 length of a step."""


OPTIONS = StudyOptions()
PATH = PathOptions()
FILES = StudyFiles()


def confidence(
    *runs: str,
    eps: Numbers = None,
    steps: int = 20,
    step_size: float | None = None,
    options: StudyOptions = OPTIONS,
    files: StudyFiles = FILES,
) -> None:
    """Measure the confidence in adversarial examples: votes for the true and another class.

    Parameters
    ----------
    runs
        Run folders (or zoo:NAME) of one data set, beside --model or without it; name=path gives
        one a name.
    eps
        Largest L2 distances of the attack, such as --eps 0,1,2; by default the paper's, 0 to 5.
    steps
        Steps of the attack (PGD on the smoothed classifier).
    step_size
        L2 length of a step; by default 2 eps / steps.
    """
    from smoothmix.studies import ConfidenceStudy, SmoothedAttack
    from smoothmix.studies.confidence import EPSILONS

    # The settings are checked before the networks are loaded, which takes seconds.
    epsilons = parse_numbers(eps) or EPSILONS
    attack = SmoothedAttack(
        steps=steps, epsilon=epsilons[0], step_size=step_size, copies=options.copies
    )
    study = ConfidenceStudy(epsilons=epsilons, attack=attack)
    votes = options.votes
    classifiers, dataset = load(runs, options)
    run(study, classifiers, dataset, options.indices(dataset), votes, files)


def path(
    *runs: str,
    line: PathOptions = PATH,
    options: StudyOptions = OPTIONS,
    files: StudyFiles = FILES,
) -> None:
    """Follow the votes from images to their adversarial examples, and show images on the way.

    Parameters
    ----------
    runs
        Run folders (or zoo:NAME) of one data set, beside --model or without it; name=path gives
        one a name.
    """
    from smoothmix.studies import PathStudy, SmoothedAttack
    from smoothmix.studies.path import first_right

    chosen = [_position(number) for number in parse_numbers(line.images)]
    attack = SmoothedAttack(steps=line.steps, step_size=line.step_size, copies=options.copies)
    study = PathStudy(points=line.points, classes=line.classes, attack=attack)
    votes = options.votes
    classifiers, dataset = load(runs, options)
    if not chosen:
        candidates = options.indices(dataset)
        chosen = first_right(classifiers, dataset, candidates, line.first, votes=votes)
        if len(chosen) < line.first:
            echo(f"only {len(chosen)} of these images are classified right by every model")
    run(study, classifiers, dataset, chosen, votes, files)


def mixing(
    *runs: str,
    eps: float = 8.0,
    steps: int = 50,
    step_size: float | None = None,
    options: StudyOptions = OPTIONS,
    files: StudyFiles = FILES,
) -> None:
    """Find how far each image moves towards its adversarial example before its class changes.

    Parameters
    ----------
    runs
        Run folders (or zoo:NAME) of one data set, beside --model or without it; name=path gives
        one a name.
    eps
        Largest L2 distance of the attack.
    steps
        Steps of the attack (PGD on the smoothed classifier).
    step_size
        L2 length of a step; by default 2 eps / steps.
    """
    from smoothmix.studies import MixingStudy, SmoothedAttack

    # With eps 0 every image would be its own adversarial example, and no ratio would mean anything.
    require(eps > 0, f"eps must be positive, got {eps:g}")
    attack = SmoothedAttack(steps=steps, epsilon=eps, step_size=step_size, copies=options.copies)
    study = MixingStudy(attack=attack)
    votes = options.votes
    classifiers, dataset = load(runs, options)
    run(study, classifiers, dataset, options.indices(dataset), votes, files)


def run(
    study: Study,
    classifiers: Sequence[NamedClassifier],
    dataset: Dataset,
    indices: Sequence[int],
    votes: VoteSettings,
    files: StudyFiles,
) -> None:
    """Run a study with a progress bar, save it, and show it."""
    from smoothmix.studies import run_study

    announce_figure()
    with sigterm_raises(), progress("attacking", unit="images") as on_progress:
        saved = run_study(
            study,
            classifiers,
            dataset,
            indices,
            folder=files.out,
            figure_format=files.format,
            votes=votes,
            on_progress=on_progress,
        )
    show_saved(saved)


def _position(number: float) -> int:
    whole = number.is_integer()
    require(whole, f"images are given by their positions, such as 0,5,7, not {number:g}")
    return int(number)


def load(runs: Sequence[str], options: StudyOptions) -> tuple[list[NamedClassifier], Dataset]:
    """The smoothed classifiers of these run folders, and the data set of all of them."""
    from smoothmix.analysis.sources import split_name
    from smoothmix.cli.models import choose_data, load_network

    require_one_process()
    require(bool(runs) or options.model is not None, "name run folders, or a network by --model")
    names = []
    folders = []
    for text in runs:
        name, folder = split_name(text)
        names.append(name or _run_name(folder))
        folders.append(folder)
    # Runs of one name in several folders are common: runs/old/mnist and runs/new/mnist.
    names = _distinct(names, folders)
    targets = [load_network(folder, ModelOptions(device=options.device)) for folder in folders]
    if options.model is not None:
        targets.append(_own_network(options))
        names.append(options.model)
    # Votes of models for different data sets on one of them would compare nothing.
    trained_on = {target.data for target in targets if target.data is not None}
    if len(trained_on) > 1:
        pairs = zip(names, targets, strict=True)
        each = ", ".join(f"{name} {target.data}" for name, target in pairs)
        raise UsageError(f"the models are for different data sets: {each}")
    images = ImageOptions(data=options.data, data_dir=options.data_dir, split=options.split)
    dataset = choose_data(targets[0], images)
    classifiers = []
    for name, target in zip(names, targets, strict=True):
        classifiers.append(_classifier(name, target, options, dataset.num_classes))
    return classifiers, dataset


def _own_network(options: StudyOptions) -> LoadedNetwork:
    """The network that --model names."""
    from smoothmix.cli.models import load_network

    given = {}
    for option in fields(NetworkSource):
        given[option.name] = getattr(options, option.name)
    network = load_network(None, ModelOptions(**given, num_classes=options.num_classes))
    return replace(network, sigma=options.sigma)


def _run_name(folder: Path) -> str:
    from smoothmix.runs.zoo import PREFIX

    return folder.resolve().name.removeprefix(PREFIX)


def _distinct(names: Sequence[str], folders: Sequence[Path]) -> list[str]:
    """The names, with the parent folder after those that occur more than once."""
    distinct = []
    for name, folder in zip(names, folders, strict=True):
        if names.count(name) > 1:
            distinct.append(f"{name} ({folder.parent})")
        else:
            distinct.append(name)
    return distinct


def _classifier(
    name: str, target: LoadedNetwork, options: StudyOptions, num_classes: int
) -> NamedClassifier:
    from smoothmix.certify.smoothed import Smoothed
    from smoothmix.studies import NamedClassifier

    assert target.sigma is not None, "recorded by a run, and required of --model"
    smoothed = Smoothed(
        target.model,
        sigma=target.sigma,
        # A network of the user's own is taken to have the classes of the data set.
        num_classes=target.num_classes or num_classes,
        # The paper's own, so that findings can be compared with it.
        noise="gaussian",
        batch=options.batch,
        precision=options.precision,
    )
    return NamedClassifier(name, smoothed)
