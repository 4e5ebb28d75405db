"""The settings of a run: a preset, a file or the defaults of a data set, then the overrides."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from smoothmix import presets
from smoothmix.config import (
    FIDELITIES,
    PAPER_RECIPE,
    Fidelity,
    Preparation,
    Recipe,
    RunConfig,
    require,
)
from smoothmix.data.registry import DATASETS
from smoothmix.errors import UsageError
from smoothmix.methods.registry import METHODS
from smoothmix.networks.registry import NETWORKS
from smoothmix.runs.fine_tuning import with_classifier, with_fine_tuning
from smoothmix.runs.options import RunOverrides
from smoothmix.runs.schedule import (
    OTHER_SCHEDULE,
    extend_epochs,
    scale_epochs,
    schedule_differences,
)

OWN_OPTIONS = ("name", "sigma", "fidelity")
"""Settings of a method that have options of their own: more depends on them than the method."""


def make_config(
    overrides: RunOverrides, *, preset: str | None = None, config: Path | None = None
) -> RunConfig:
    """The settings of a run: those of a preset, of a file or of a data set, with the overrides."""
    overrides = with_classifier(overrides)
    run = _with_fidelity(_base(overrides, preset, config), overrides.fidelity)
    method_settings = parse_settings(overrides.set or ())
    method = _override_method(run.method, overrides) | method_settings
    parts = _given(overrides, "data", "augmentation", "network", "normalisation", "train_split")
    if overrides.network is not None and overrides.normalisation is None:
        parts |= _own_normalisation(overrides.network)
    run = with_fine_tuning(replace(run, method=method, **parts), overrides)
    run = replace(run, preparation=_preparation(run.preparation, overrides))
    if overrides.epochs_scale is not None:
        run = scale_epochs(run, overrides.epochs_scale)
        # A number of epochs that the caller gave with --set means what it says: it is not scaled.
        run = replace(run, method={**run.method, **method_settings})
    recipe = _given(overrides, "epochs", "batch", "learning_rate", "seed", "precision")
    run = replace(run, recipe=replace(run.recipe, **recipe))
    if overrides.extend_epochs is not None:
        run = extend_epochs(run, overrides.extend_epochs)
    return _checked_against_preset(run)


def _given(overrides: RunOverrides, *names: str) -> dict[str, Any]:
    """Those of the overrides that are not None."""
    values = {}
    for name in names:
        value = getattr(overrides, name)
        if value is not None:
            values[name] = value
    return values


def _preparation(recorded: Preparation | None, overrides: RunOverrides) -> Preparation | None:
    """How image files are resized and cropped; what is not given stays as recorded."""
    given = _given(overrides, "resize", "crop", "channels")
    if not given:
        return recorded
    if recorded is None:
        return Preparation(**given)
    return replace(recorded, **given)


def _own_normalisation(network: str) -> dict[str, str]:
    """The normalisation of a network from outside, which does not depend on the data set."""
    architecture = NETWORKS[network]
    if architecture.data:
        return {}
    return {"normalisation": architecture.normalisation}


def _base(overrides: RunOverrides, preset: str | None, config: Path | None) -> RunConfig:
    """The settings before the overrides."""
    require(preset is None or config is None, "give a preset or --config, not both")
    if config is not None:
        # The notes describe the run that the file was written for, not this one.
        return replace(RunConfig.load(config), notes=())
    if preset is not None:
        return presets.get(preset).config
    if overrides.data is None or overrides.sigma is None:
        raise UsageError(
            "give a preset (`smoothmix presets` lists them), --config, or --data and --sigma"
        )
    method = {"name": overrides.method or "gaussian", "sigma": overrides.sigma}
    default_preset = DATASETS[overrides.data].preset
    if default_preset is not None:
        default = presets.get(default_preset).config
        return replace(default, data=overrides.data, method=method, preset="")
    if overrides.network is None:
        known = ", ".join(NETWORKS)
        raise UsageError(
            f"--network is needed for {overrides.data}: {known}, or package.module:function"
        )
    return _on_other_data(overrides.data, overrides.network, method, overrides.augmentation)


def _on_other_data(
    data: str, network: str, method: dict[str, Any], augmentation: str | None
) -> RunConfig:
    """A run on a data set without a preset: the recipe is that of the network's own data set."""
    preset = _preset_of_network(network)
    if preset is None:
        return RunConfig(data=data, network=network, method=method)
    note = f"{data} has no recipe of its own: this is that of {preset}"
    if augmentation is None and DATASETS[data].augmentation == "none":
        note += ", and images are not augmented"
    return replace(
        presets.get(preset).config,
        data=data,
        network=network,
        method=method,
        preset="",
        notes=(note,),
    )


def _preset_of_network(network: str) -> str | None:
    """The preset that trains the network on the data set that it is made for, if there is one."""
    made_for = NETWORKS[network].data
    if not made_for:
        return None
    return DATASETS[made_for].preset


def _override_method(method: Mapping[str, Any], overrides: RunOverrides) -> dict[str, Any]:
    """The method's settings; of another method's settings only those that all methods have."""
    settings = dict(method)
    if overrides.method is not None and overrides.method != method["name"]:
        # The other settings belong to the method of the preset.
        settings = {}
        for name in OWN_OPTIONS:
            if name in method:
                settings[name] = method[name]
        settings["name"] = overrides.method
    return settings | _given(overrides, "sigma")


def parse_settings(pairs: Sequence[str]) -> dict[str, Any]:
    """Settings of a method from name=value, where the value is TOML or a single word.

    >>> parse_settings(["eta=5.0", "one_step=true", "attack=ddn"])
    {'eta': 5.0, 'one_step': True, 'attack': 'ddn'}
    """
    settings: dict[str, Any] = {}
    for pair in pairs:
        name, _, text = pair.partition("=")
        name = name.strip()
        require(
            name not in OWN_OPTIONS,
            f"--set cannot set {name}: it has an option of its own",
        )
        settings[name] = _parse_value(text.strip(), pair)
    return settings


def _parse_value(text: str, pair: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        # Quotes round a word would have to be quoted again for most shells.
        if text.isidentifier():
            return text
        raise UsageError(f"--set takes name=value, such as --set eta=5.0, got {pair!r}") from None


def _with_fidelity(config: RunConfig, fidelity: Fidelity | None) -> RunConfig:
    """The run at another fidelity: as its preset defines it, or else as all runs have it."""
    if fidelity is None:
        return config
    if config.preset:
        preset = replace(presets.get(config.preset), config=config)
        return presets.with_fidelity(preset, fidelity).config
    require(
        fidelity in FIDELITIES, f"fidelity must be one of {', '.join(FIDELITIES)}, got {fidelity!r}"
    )
    recipe: dict[str, Any] = dict(PAPER_RECIPE)
    if fidelity == "official":
        recipe = {name: getattr(Recipe(), name) for name in PAPER_RECIPE}
    method = {**config.method, "fidelity": fidelity}
    return replace(config, method=method, recipe=replace(config.recipe, **recipe))


def _checked_against_preset(config: RunConfig) -> RunConfig:
    """The run without the name of a preset that it no longer is, or with a note on its schedule."""
    if not config.preset:
        return config
    fidelity = config.method.get("fidelity", "official")
    preset = presets.get(config.preset, fidelity=fidelity).config
    # What training fills in, and what the schedule note describes, may differ from the preset.
    same_schedule = replace(
        config,
        method=_without_epochs(config.method, preset),
        recipe=preset.recipe,
        extended_epochs=None,
        notes=(),
        data_hash="",
        image_shape=(),
        class_names=(),
        weights_sha256="",
    )
    if same_schedule != replace(preset, method=_without_epochs(preset.method, preset)):
        return replace(config, preset="", notes=())
    differences = schedule_differences(config, preset)
    if not differences:
        return replace(config, notes=())
    listed = ", ".join(differences.values())
    return replace(config, notes=(f"{OTHER_SCHEDULE} {config.preset}: {listed}",))


def _without_epochs(method: Mapping[str, Any], preset: RunConfig) -> dict[str, Any]:
    counted = METHODS[preset.method["name"]].epoch_settings
    return {name: value for name, value in method.items() if name not in counted}


def run_name(config: RunConfig) -> str:
    """A folder name that distinguishes the run from others.

    >>> run_name(RunConfig(data="mnist", network="lenet", method={"name": "macer", "sigma": 0.25}))
    'mnist-0.25-macer'
    """
    name = config.preset
    if not name:
        name = f"{config.data}-{config.sigma:.2f}-{config.method['name']}"
    # Names of presets and addresses have characters that are no part of a folder name.
    name = name.replace("/", "-").replace(":", "-")
    if config.recipe.seed:
        name += f"-seed{config.recipe.seed}"
    return name
