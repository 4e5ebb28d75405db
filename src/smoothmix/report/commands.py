"""The commands that train and certify a run again."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from smoothmix import presets
from smoothmix.analysis import Measured
from smoothmix.certificates import FileSettings, settings_path
from smoothmix.certificates.secret_seeds import seed_path
from smoothmix.certificates.seeds import SecretSeed, seed_options
from smoothmix.config import RunConfig, recorded_engine
from smoothmix.errors import UsageError
from smoothmix.noise import GRID, GridNoise
from smoothmix.runs.options import RunOverrides
from smoothmix.runs.plan import make_config
from smoothmix.runs.zoo import is_zoo

Options = dict[str, object]

NAME = "certificates.tsv"


def commands(measured: Measured) -> list[str]:
    """The commands that make a certificate file again; none for a log that records no settings.

    They write beside the run, never into its folder.
    """
    folder = measured.path.parent
    config = measured.config
    settings = measured.settings
    again = Path(f"{folder}-again")
    if config and not _was_imported(config):
        found = [train_command(config, folder)]
        if settings:
            found.append(certify_command(measured, settings, [str(again)], again / NAME))
        return found
    if settings is None:
        return []
    out = measured.path.with_name(f"{settings_path(measured.path).stem}-again.tsv")
    # An imported run cannot be trained again: its own weights are certified.
    if config:
        return [certify_command(measured, settings, [str(folder)], out)]
    return [certify_command(measured, settings, _own_network(settings), out)]


def _was_imported(config: RunConfig) -> bool:
    return any(note.startswith("imported from") for note in config.notes)


def _own_network(settings: FileSettings) -> list[str]:
    """The arguments that name a network which is no run."""
    if is_zoo(Path(settings.model)):
        arguments = [settings.model]
    else:
        arguments = ["--model", settings.model]
    if settings.weights:
        arguments += ["--weights", settings.weights]
    return arguments


def train_command(config: RunConfig, folder: Path) -> str:
    """`smoothmix train` with the run's preset if that gives its settings, or with its config."""
    out = ["--out", f"{folder}-again"]
    # A preset is shorter to type and says more than a file of settings.
    for options in _preset_options(config):
        if _gives_same_run(config, options):
            return shlex.join(["smoothmix", "train", config.preset, *_flags(options), *out])
    return shlex.join(["smoothmix", "train", "--config", str(folder / "config.toml"), *out])


def _preset_options(config: RunConfig) -> list[Options]:
    """Options for the run's preset that may give its settings, the simplest first."""
    if config.preset not in presets.names():
        return []
    recipe = config.recipe
    full = presets.get(config.preset).config.recipe
    common: Options = {}
    if config.method.get("fidelity") == "paper":
        common["fidelity"] = "paper"
    if recipe.seed:
        common["seed"] = recipe.seed
    if recipe.precision != full.precision:
        common["precision"] = recipe.precision
    return [
        common,
        {"epochs": recipe.epochs, **common},
        {"epochs_scale": round(recipe.epochs / full.epochs, 2), **common},
    ]


COMPARED = ("data", "network", "train_split", "normalisation", "num_classes", "recipe")


def _gives_same_run(config: RunConfig, options: Options) -> bool:
    """Whether the preset with these options gives this run, apart from what training fills in."""
    # Some combinations of options are refused, and so are not what made the run.
    try:
        made = make_config(RunOverrides(**options), preset=config.preset)  # type: ignore[arg-type]
    except UsageError:
        return False
    same = all(getattr(made, name) == getattr(config, name) for name in COMPARED)
    method = {name: config.method.get(name) for name in made.method}
    return same and method == dict(made.method)


def _flags(options: Mapping[str, object]) -> list[str]:
    words = []
    for name, value in options.items():
        words += [f"--{name.replace('_', '-')}", str(value)]
    return words


def certify_command(
    measured: Measured, settings: FileSettings, source: Sequence[str], path: Path
) -> str:
    """`smoothmix certify` with every option that is not at its default."""
    certification = settings.certification
    options: Options = {"data": settings.data}
    if settings.split != "test":
        options["split"] = settings.split
    options["sigma"] = certification.sigma
    # Always, since the default depends on what is there already.
    options["noise"] = certification.noise.name
    if isinstance(certification.noise, GridNoise) and certification.noise != GRID:
        options["levels"] = certification.noise.levels
    options |= certification.guarantee.options()
    if certification.budget is not None:
        options |= certification.budget.options()
    stop_abstaining = options.pop("stop_abstaining", False)
    options |= seed_options(certification.seed)
    if isinstance(certification.seed, SecretSeed):
        options["seed_file"] = seed_path(measured.path)
    # Rounding depends on the batch, so that other votes may result from another one.
    options["batch"] = certification.batch
    if certification.precision != "fp32":
        options["precision"] = certification.precision
    # Always, since the default depends on what is installed.
    options["engine"] = recorded_engine(settings.engine)
    if settings.skip > 1:
        options["skip"] = settings.skip
    # Always, since the file may hold fewer images than the data set.
    options["max"] = settings.images
    if settings.shard:
        options["shard"] = settings.shard
    options["out"] = path

    switches = []
    if certification.skip_wrong:
        switches.append("--skip-wrong")
    if stop_abstaining:
        switches.append("--stop-abstaining")
    return shlex.join(["smoothmix", "certify", *source, *_flags(options), *switches])
