"""From what a person asked for to the settings of a run: a preset, a file or defaults, then what was said on top."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from smoothmix import presets
from smoothmix.config import Precision, Recipe, RunConfig, require, scale_epochs
from smoothmix.errors import UsageError

USUAL: dict[str, tuple[str, str, Recipe]] = {
    "sample": ("lenet", "none", Recipe()),
    "mnist": ("lenet", "none", Recipe()),
    "fashion-mnist": ("lenet", "none", Recipe()),
    "cifar10": ("cifar_resnet110", "cifar10", Recipe(epochs=150, learning_rate=0.1, drops=(50, 100))),
    "imagenet": ("resnet50", "imagenet", Recipe(learning_rate=0.1)),
}
"""Network, normalisation and recipe that the paper uses on each data set."""


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """What a person said; None where nothing was."""

    preset: str | None = None
    config: Path | None = None
    data: str | None = None
    train_split: str | None = None
    network: str | None = None
    method: str | None = None
    sigma: float | None = None
    settings: Sequence[str] = ()
    """Settings of the method, each as name=value."""
    fidelity: str | None = None
    epochs: int | None = None
    epochs_scale: float | None = None
    batch: int | None = None
    learning_rate: float | None = None
    seed: int | None = None
    precision: Precision | None = None


def make_config(wishes: Wishes) -> RunConfig:
    """The settings of the run that a person asked for."""
    config = _base(wishes)
    method = dict(config.method)
    if wishes.method is not None and wishes.method != method["name"]:
        method = {"name": wishes.method, "sigma": method["sigma"]}
    method |= _given(sigma=wishes.sigma, fidelity=wishes.fidelity) | _method_settings(wishes.settings)
    places = _given(data=wishes.data, network=wishes.network, train_split=wishes.train_split)
    # What is another network, data set, noise or method is no longer the row that the published numbers stand for.
    other = places or wishes.settings or wishes.method is not None or wishes.sigma is not None
    config = replace(config, method=method, preset="" if other else config.preset, **places)
    if wishes.fidelity is not None:
        paper = wishes.fidelity == "paper"
        config = replace(config, recipe=replace(config.recipe, nesterov=paper, late_drops=not paper))
    if wishes.epochs_scale is not None:
        require(wishes.epochs is None, "give --epochs or --epochs-scale, not both")
        config = scale_epochs(config, wishes.epochs_scale)
    recipe = _given(
        epochs=wishes.epochs,
        batch=wishes.batch,
        learning_rate=wishes.learning_rate,
        seed=wishes.seed,
        precision=wishes.precision,
    )
    return replace(config, recipe=replace(config.recipe, **recipe))


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
        return RunConfig.load(wishes.config)
    if wishes.preset is not None:
        return presets.get(wishes.preset, fidelity="paper" if wishes.fidelity == "paper" else "official").config
    if wishes.data is None or wishes.sigma is None:
        raise UsageError("give a preset (`smoothmix presets` lists them), --config, or --data and --sigma")
    network, normalisation, recipe = USUAL.get(wishes.data, (wishes.network, None, Recipe()))
    if network is None:
        raise UsageError(f"--network is needed for {wishes.data}: lenet, cifar_resnet20, cifar_resnet110 or resnet50")
    method = {"name": wishes.method or "gaussian", "sigma": wishes.sigma}
    config = RunConfig(data=wishes.data, network=network, method=method, recipe=recipe)
    return config if normalisation is None else replace(config, normalisation=normalisation)


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _method_settings(pairs: Sequence[str]) -> dict[str, Any]:
    """Settings from name=value, where the value is written as in TOML.

    >>> _method_settings(["eta=5.0", "one_step=true"])
    {'eta': 5.0, 'one_step': True}
    """
    settings: dict[str, Any] = {}
    for pair in pairs:
        name, _, value = pair.partition("=")
        try:
            settings[name.strip()] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            raise UsageError(f"--set wants name=value, such as --set eta=5.0, got {pair!r}") from None
    return settings
