"""The command `plan`: which sigma, number of draws and alpha a wanted radius takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from smoothmix._io.text import counted
from smoothmix._process.world import current_world
from smoothmix.cli.options import ImageOptions, ModelOptions, Numbers, parse_numbers
from smoothmix.cli.output import NothingSavedError, echo, progress
from smoothmix.cli.report import TableFormat, show_grid
from smoothmix.config import require
from smoothmix.errors import UsageError

if TYPE_CHECKING:
    from smoothmix.analysis import Choice, ObservedVotes
    from smoothmix.certify.smoothed import Smoothed
    from smoothmix.cli.models import LoadedNetwork
    from smoothmix.data import Dataset

NETWORK = ModelOptions()

FEWEST_DRAWS = 100
"""Draws of an image in the sample, however slow the network is."""

MOST_DRAWS = 1_000
"""More would tell nothing that so few images can show."""

SAMPLE_SEED = 0
"""The sample is no certificate: its seed may be known."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class CandidateOptions:
    """The settings to choose from."""

    sigmas: Numbers = None
    """Noise levels, such as --sigmas 0.25,0.5; by default those of the literature, and that of the
    network's training."""

    draws: Numbers = None
    """Draws per image, such as --draws 1000,10000; the most in mode anytime. By default 1,000 to
    1,000,000."""

    alphas: Numbers = None
    """Chances that one certificate is wrong; by default 0.001."""

    mode: str = "exact"
    """exact or anytime, or your own guarantee by package.module:Class."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class SampleOptions:
    """The images that show which radii a network reaches."""

    certificates: Path | None = None
    """Read the votes from this certificate file instead of drawing for a sample."""

    data: str | None = None
    """Data set of the sample; by default that of the training."""

    split: str = "test"
    """Split of the data set."""

    data_dir: Path | None = None
    """Folder that holds it; by default $SMOOTHMIX_DATA or this user's cache."""

    sample: Annotated[int, Parameter(name="--sample")] = 50
    """Images of the sample, spread over the split; 0 measures the speed only."""

    seconds: float = 30.0
    """Time that drawing for the sample may take, about; slow networks get fewer draws."""

    def __post_init__(self) -> None:
        require(self.sample >= 0, f"sample must be 0 or more, got {self.sample}")
        require(self.seconds > 0, f"seconds must be positive, got {self.seconds:g}")


CANDIDATES = CandidateOptions()
SAMPLE = SampleOptions()


def plan(
    radius: float | None = None,
    run: Path | None = None,
    /,
    *,
    candidates: CandidateOptions = CANDIDATES,
    network: ModelOptions = NETWORK,
    sample: SampleOptions = SAMPLE,
    format: TableFormat = "terminal",  # noqa: A002 - the option's name
) -> None:
    """Choose sigma, the number of draws and alpha for a radius that you want to certify.

    Without a network nothing is measured. With one, its speed here gives the seconds per image, and
    votes for a sample of images give the share that reaches the radius with each setting. Nothing
    is certified and nothing is written.

    Parameters
    ----------
    radius
        The wanted radius, in the scale of pixels in [0, 1]; without it, the largest radii of all
        settings are listed.
    run
        A run folder, or zoo:NAME: the network to measure.
    format
        Table on the terminal, or as md, latex, csv or json on standard output.
    """
    from smoothmix.noise import GRID

    require(current_world().alone, "plan measures one process: start it without torchrun")
    settings = _settings(candidates, network)
    observed = _in_file(sample.certificates, settings)
    measures = run is not None or network.model is not None
    if radius is None:
        for_radius = "name the wanted radius first, such as `smoothmix plan 0.5 RUN`"
        require(not measures and sample.certificates is None, for_radius)
        _show_radii(settings, format)
        return
    if measures:
        _plan_for_network(radius, run, network, settings, sample, format, observed)
        return
    settings.setdefault("noise", GRID)
    choice = _choose(radius, settings, observed)
    _show(choice, format, notes=_source_notes(observed, sample.certificates))


Settings = dict[str, object]


def _settings(candidates: CandidateOptions, network: ModelOptions) -> Settings:
    """The options as arguments of `choose`, without those that were not given."""
    from smoothmix.noise import GridNoise, make_noise

    settings: Settings = {"mode": candidates.mode}
    if network.noise is not None:
        settings["noise"] = make_noise(network.noise)
    if network.levels is not None:
        settings["noise"] = GridNoise(network.levels)
    for name in ("sigmas", "alphas"):
        given = parse_numbers(getattr(candidates, name))
        if given:
            settings[name] = given
    draws = parse_numbers(candidates.draws)
    whole = all(number.is_integer() for number in draws)
    require(whole, f"draws are whole numbers, got {' '.join(candidates.draws or ())}")
    if draws:
        settings["draws"] = tuple(int(number) for number in draws)
    return settings


def _show_radii(settings: Settings, format: TableFormat) -> None:  # noqa: A002
    from smoothmix.analysis import candidates, radius_grid

    if "alphas" not in settings:
        settings = {**settings, "alphas": (0.01, 0.001, 0.0001)}
    show_grid(radius_grid(candidates(**settings)), format)  # type: ignore[arg-type]


def _choose(radius: float, settings: Settings, observed: Sequence[ObservedVotes]) -> Choice:
    from smoothmix.analysis import choose
    from smoothmix.analysis.choice import SIGMAS

    # What was observed at a sigma says nothing about others, so it is always among the candidates.
    levels = settings.get("sigmas")
    if levels is None:
        levels = (*SIGMAS, *(votes.sigma for votes in observed))
    arguments = {**settings, "sigmas": levels, "observed": observed}
    return choose(radius, **arguments)  # type: ignore[arg-type]


def _in_file(path: Path | None, settings: Settings) -> list[ObservedVotes]:
    """The votes of a certificate file, if one was named; its noise becomes that of the settings."""
    from smoothmix.analysis import ObservedVotes
    from smoothmix.certificates import read

    if path is None:
        return []
    file = read(path)
    observed = ObservedVotes.in_file(file)
    assert file.settings is not None
    noise = file.settings.certification.noise
    requested = settings.setdefault("noise", noise)
    require(requested == noise, f"{path}: was made with {noise.description}: leave --noise out")
    return [observed]


def _source_notes(observed: Sequence[ObservedVotes], path: Path | None) -> list[str]:
    return [
        f"images that reach it: from {counted(len(votes.votes), 'image')} of {path}, at sigma "
        f"{votes.sigma:g} only"
        for votes in observed
    ]


def _plan_for_network(
    radius: float,
    run: Path | None,
    network: ModelOptions,
    settings: Settings,
    sample: SampleOptions,
    format: TableFormat,  # noqa: A002
    observed: Sequence[ObservedVotes],
) -> None:
    """Measure the network on this machine, and choose among the settings with what it shows."""
    from smoothmix.analysis.choice import SIGMAS
    from smoothmix.cli.models import choose_data, choose_noise, load_network

    loaded = load_network(run, network)
    if "sigmas" not in settings:
        levels = set(SIGMAS)
        if loaded.sigma is not None:
            levels.add(loaded.sigma)
        settings = {**settings, "sigmas": tuple(sorted(levels))}
    images = ImageOptions(data=sample.data, split=sample.split, data_dir=sample.data_dir)
    dataset = choose_data(loaded, images)
    settings.setdefault("noise", choose_noise(network, dataset))
    # Refused before anything is measured, which takes a while.
    first = _choose(radius, settings, ())
    able = {each.sigma for each in first.candidates if each.largest_radius >= radius}
    classifiers = {}
    for sigma in sorted(able):
        classifiers[sigma] = loaded.smoothed(
            sigma=sigma,
            noise=first.chosen.noise,
            num_classes=loaded.num_classes or dataset.num_classes,
            batch=network.batch,
        )
    try:
        rate = _draws_per_second(classifiers[first.sigma], dataset.shape)
        notes = _source_notes(observed, sample.certificates)
        if not observed and sample.sample:
            observed = _drawn(classifiers, dataset, sample, rate)
            notes = [_sample_words(observed[0], dataset)]
    except KeyboardInterrupt as error:
        raise NothingSavedError from error
    notes.append(f"seconds per image: {rate:,.0f} draws per second here, with all threads")
    choice = _choose(radius, settings, observed)
    words = _network_words(loaded, run, sample.data)
    _show(choice, format, rate=rate, notes=notes, network=words)


def _draws_per_second(smoothed: Smoothed, shape: tuple[int, ...]) -> float:
    """As `smoothmix bench` measures it, for the setup that `certify` uses."""
    from smoothmix.inference.speed import SETUPS, measure

    with progress("measuring the speed", unit="turns") as on_progress:
        (speed,) = measure(
            lambda setup: smoothed.open(shape, seed=SAMPLE_SEED),
            shape,
            setups=SETUPS[:1],
            turns=3,
            on_progress=on_progress,
        )
    return speed.rate


def _drawn(
    classifiers: dict[float, Smoothed], dataset: Dataset, sample: SampleOptions, rate: float
) -> list[ObservedVotes]:
    """Votes for the true classes of a sample of images at each sigma."""
    from smoothmix._process.progress import Progress
    from smoothmix.analysis import ObservedVotes

    count = min(sample.sample, len(dataset))
    # Spread over the split: data sets may be sorted by class.
    step = len(dataset) // count
    indices = [position * step for position in range(count)]
    affordable = int(rate * sample.seconds / (count * len(classifiers)))
    draws = max(FEWEST_DRAWS, min(MOST_DRAWS, affordable))
    labels = dataset.labels[indices]
    found = []
    with progress("drawing", unit="noise levels") as on_progress:
        for done, (sigma, smoothed) in enumerate(classifiers.items()):
            on_progress(Progress(done, len(classifiers), f"sigma {sigma:g}"))
            counts = smoothed.votes(
                dataset.images(indices), n=draws, seed=SAMPLE_SEED, index=indices
            ).numpy()
            right = counts[range(count), labels]
            found.append(ObservedVotes(sigma, right, right * 0 + draws))
        on_progress(Progress(len(classifiers), len(classifiers)))
    return found


def _sample_words(votes: ObservedVotes, dataset: Dataset) -> str:
    return (
        f"images that reach it: expected from {int(votes.draws[0]):,} draws for each of "
        f"{counted(len(votes.votes), 'image')} of {dataset.name} ({dataset.split} split)"
    )


def _network_words(loaded: LoadedNetwork, run: Path | None, data: str | None) -> list[str]:
    """The words of a command that name the network and its data set."""
    words = [str(run)]
    if run is None:
        words = ["--model", loaded.name]
    if loaded.weights:
        words += ["--weights", loaded.weights]
    if data is not None:
        words += ["--data", data]
    return words


def _show(
    choice: Choice,
    format: TableFormat,  # noqa: A002
    *,
    rate: float | None = None,
    notes: Sequence[str] = (),
    network: Sequence[str] = ("RUN",),
) -> None:
    """Print the table, and the command that certifies with the chosen settings."""
    from smoothmix.analysis import choice_grid

    seconds = None if rate is None else 1 / rate
    show_grid(choice_grid(choice, seconds_per_draw=seconds, notes=notes), format)
    if choice.share_that_reaches(choice.chosen) == 0:
        raise UsageError(
            f"no image of the sample reaches radius {choice.radius:g}: train with noise first "
            f"(`smoothmix train --sigma {choice.sigma:g}`), or ask for a smaller radius"
        )
    echo(f"to certify with it: {_command(choice, network)}")


def _command(choice: Choice, network: Sequence[str]) -> str:
    import shlex

    words = ["smoothmix", "certify", *network, "--sigma", f"{choice.sigma:g}"]
    if choice.chosen.noise.name != "grid":
        words += ["--noise", choice.chosen.noise.name]
    for name, value in choice.guarantee.options().items():
        words += [f"--{name.replace('_', '-')}", str(value)]
    return shlex.join(words)
