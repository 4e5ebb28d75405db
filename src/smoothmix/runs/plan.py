"""From what a person asked for to the settings of a run: a preset, a file or defaults, then what was said on top."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from smoothmix import presets
from smoothmix.config import (
    FIDELITIES,
    METHOD_EPOCHS,
    PAPER_RECIPE,
    Fidelity,
    Precision,
    Recipe,
    RunConfig,
    require,
    scale_epochs,
)
from smoothmix.errors import UsageError

USUAL = {
    "sample": "mnist/0.50/gaussian",
    "mnist": "mnist/0.50/gaussian",
    "fashion-mnist": "mnist/0.50/gaussian",
    "cifar10": "cifar10/0.50/gaussian",
    "imagenet": "imagenet/0.50/gaussian",
}
"""The preset whose network and recipe are the usual ones for each data set."""

USUAL_OF_NETWORK = {
    "lenet": "mnist/0.50/gaussian",
    "cifar_resnet20": "cifar10/0.50/gaussian",
    "cifar_resnet110": "cifar10/0.50/gaussian",
    "resnet50": "imagenet/0.50/gaussian",
}
"""The preset whose recipe a network gets on a data set that has none."""

OWN_OPTIONS = ("name", "sigma", "fidelity")
"""Settings of a method that have options of their own, since more than the method depends on them."""


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """What a person said; None where nothing was."""

    preset: str | None = None
    config: Path | None = None
    data: str | None = None
    train_split: str | None = None
    network: str | None = None
    normalisation: str | None = None
    method: str | None = None
    sigma: float | None = None
    settings: Sequence[str] = ()
    """Settings of the method, each as name=value."""
    fidelity: Fidelity | None = None
    epochs: int | None = None
    epochs_scale: float | None = None
    batch: int | None = None
    learning_rate: float | None = None
    seed: int | None = None
    precision: Precision | None = None


def make_config(wishes: Wishes) -> RunConfig:
    """The settings of the run that a person asked for."""
    config = _with_fidelity(_base(wishes), wishes.fidelity)
    config = replace(config, method=_method(config, wishes), **_places(wishes))
    require(
        wishes.epochs is None or wishes.epochs >= 1,
        f"--epochs must be at least 1, got {wishes.epochs}",
    )
    if wishes.epochs_scale is not None:
        require(wishes.epochs is None, "give --epochs or --epochs-scale, not both")
        config = scale_epochs(config, wishes.epochs_scale)
        # What a person counted in epochs is meant as it is said.
        config = replace(config, method={**config.method, **_method_settings(wishes.settings)})
    recipe = _given(
        epochs=wishes.epochs,
        batch=wishes.batch,
        learning_rate=wishes.learning_rate,
        seed=wishes.seed,
        precision=wishes.precision,
    )
    return _honest(replace(config, recipe=replace(config.recipe, **recipe)))


def _method(config: RunConfig, wishes: Wishes) -> dict[str, Any]:
    method = dict(config.method)
    if wishes.method is not None and wishes.method != method["name"]:
        kept = {name: method[name] for name in OWN_OPTIONS if name in method}
        method = {**kept, "name": wishes.method}
    return method | _given(sigma=wishes.sigma) | _method_settings(wishes.settings)


def _places(wishes: Wishes) -> dict[str, Any]:
    return _given(
        data=wishes.data,
        network=wishes.network,
        normalisation=wishes.normalisation,
        train_split=wishes.train_split,
    )


def _with_fidelity(config: RunConfig, fidelity: Fidelity | None) -> RunConfig:
    """The run at another fidelity: what a preset says of it, or what holds for all runs."""
    if fidelity is None:
        return config
    if config.preset:
        preset = replace(presets.get(config.preset), config=config)
        return presets.with_fidelity(preset, fidelity).config
    require(
        fidelity in FIDELITIES, f"fidelity must be one of {', '.join(FIDELITIES)}, got {fidelity!r}"
    )
    recipe = (
        PAPER_RECIPE
        if fidelity == "paper"
        else {name: getattr(Recipe(), name) for name in PAPER_RECIPE}
    )
    method = {**config.method, "fidelity": fidelity}
    return replace(config, method=method, recipe=replace(config.recipe, **dict[str, Any](recipe)))


def _honest(config: RunConfig) -> RunConfig:
    """The run without the name of a preset that it no longer is, or with a note of how its schedule differs from it."""
    if not config.preset:
        return config
    fidelity = config.method.get("fidelity", "official")
    preset = presets.get(config.preset, fidelity=fidelity).config
    counted = METHOD_EPOCHS.get(preset.method["name"], {})
    kept, there = (
        {name: value for name, value in method.items() if name not in counted}
        for method in (config.method, preset.method)
    )
    as_there = replace(
        config, method=kept, recipe=preset.recipe, notes=(), data_hash="", image_shape=()
    )
    if as_there != replace(preset, method=there):
        return replace(config, preset="", notes=())
    differ = ", ".join(schedule_differences(config, preset).values())
    return replace(config, notes=(f"{OTHER_SCHEDULE} {config.preset}: {differ}",) if differ else ())


OTHER_SCHEDULE = "not the schedule of"
"""How the note on a run of a preset begins that was trained by another recipe."""


def schedule_differences(config: RunConfig, preset: RunConfig) -> dict[str, str]:
    """In what the recipe of a run, and what its method counts in epochs, differ from a preset's: in words, by name."""
    pairs = {
        f.name: (getattr(config.recipe, f.name), getattr(preset.recipe, f.name))
        for f in fields(Recipe)
        if f.name != "seed"
    }
    for name, usual in METHOD_EPOCHS.get(preset.method["name"], {}).items():
        pairs[name] = config.method.get(name, usual), preset.method.get(name, usual)
    return {
        name: f"{name} {ours} instead of {theirs}"
        for name, (ours, theirs) in pairs.items()
        if ours != theirs
    }


def run_name(config: RunConfig) -> str:
    """A name for the run's folder that tells it from its like.

    >>> run_name(RunConfig(data="mnist", network="lenet", method={"name": "gaussian", "sigma": 0.25}))
    'mnist-0.25-gaussian'
    """
    plain = f"{config.data}-{config.sigma:.2f}-{config.method['name']}"
    name = (config.preset or plain).replace("/", "-").replace(":", "-")
    return name + (f"-seed{config.recipe.seed}" if config.recipe.seed else "")


def _base(wishes: Wishes) -> RunConfig:
    require(wishes.preset is None or wishes.config is None, "give a preset or --config, not both")
    if wishes.config is not None:
        return replace(
            RunConfig.load(wishes.config), notes=()
        )  # what they said need not be true of this run
    if wishes.preset is not None:
        return presets.get(wishes.preset).config
    if wishes.data is None or wishes.sigma is None:
        raise UsageError(
            "give a preset (`smoothmix presets` lists them), --config, or --data and --sigma"
        )
    method = {"name": wishes.method or "gaussian", "sigma": wishes.sigma}
    if wishes.data in USUAL:
        return replace(
            presets.get(USUAL[wishes.data]).config, data=wishes.data, method=method, preset=""
        )
    if wishes.network is None:
        raise UsageError(
            f"--network is needed for {wishes.data}: lenet, cifar_resnet20, cifar_resnet110 or resnet50"
        )
    return _on_other_data(wishes.data, wishes.network, method)


def _on_other_data(data: str, network: str, method: dict[str, Any]) -> RunConfig:
    """A run on a data set of a person's own: a network is trained as on the data that it was made for."""
    if network not in USUAL_OF_NETWORK:
        return RunConfig(data=data, network=network, method=method)
    usual = USUAL_OF_NETWORK[network]
    note = f"{data} has no recipe of its own: this is that of {usual}, and images are not augmented"
    return replace(
        presets.get(usual).config,
        data=data,
        network=network,
        method=method,
        preset="",
        notes=(note,),
    )


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _method_settings(pairs: Sequence[str]) -> dict[str, Any]:
    """Settings from name=value, where the value is written as in TOML, or is a word.

    >>> _method_settings(["eta=5.0", "one_step=true", "attack=ddn"])
    {'eta': 5.0, 'one_step': True, 'attack': 'ddn'}
    """
    settings: dict[str, Any] = {}
    for pair in pairs:
        name, _, value = pair.partition("=")
        require(
            name.strip() not in OWN_OPTIONS,
            f"--set cannot set {name.strip()}: there is an option of its own for it",
        )
        text = value.strip()
        try:
            settings[name.strip()] = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            if text.isidentifier():
                settings[name.strip()] = text
                continue
            raise UsageError(
                f"--set wants name=value, such as --set eta=5.0, got {pair!r}"
            ) from None
    return settings
