"""What to type to get a run again."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

from smoothmix import presets
from smoothmix.analysis import Measured
from smoothmix.certificates import FileSettings, settings_path
from smoothmix.config import FUSED, RunConfig
from smoothmix.errors import UsageError
from smoothmix.runs.options import RunOverrides
from smoothmix.runs.plan import make_config
from smoothmix.runs.zoo import is_zoo


def commands(measured: Measured) -> list[str]:
    """The commands that train the network behind a file and certify it again; none for a log that records nothing."""
    said = []
    folder, settings, config = measured.path.parent, measured.settings, measured.config
    out = measured.path.with_name(f"{settings_path(measured.path).stem}-again.tsv")
    source = [str(folder)]
    if config and not any(note.startswith("imported from") for note in config.notes):
        said.append(train_command(config, folder))
        source, out = [f"{folder}-again"], Path(f"{folder}-again") / "certificates.tsv"
    elif settings and not config:
        named = [settings.model] if is_zoo(Path(settings.model)) else ["--model", settings.model]
        source = [*named, *(["--weights", settings.weights] if settings.weights else [])]
    if settings:
        said.append(certify_command(settings, source, out))
    return said


def train_command(config: RunConfig, folder: Path) -> str:
    """`smoothmix train` with the preset where that gives the same settings, otherwise with the run's own file."""
    for options in _preset_options(config):
        if _same(config, options):
            words = ["smoothmix", "train", config.preset, *_flags(options)]
            return shlex.join([*words, "--out", f"{folder}-again"])
    return shlex.join(
        ["smoothmix", "train", "--config", str(folder / "config.toml"), "--out", f"{folder}-again"]
    )


def _preset_options(config: RunConfig) -> list[dict[str, object]]:
    if config.preset not in presets.names():
        return []
    full = presets.get(config.preset).config.recipe
    seed = {"seed": config.recipe.seed} if config.recipe.seed else {}
    precision = (
        {"precision": config.recipe.precision} if config.recipe.precision != full.precision else {}
    )
    fidelity = (
        {"fidelity": config.method["fidelity"]} if config.method.get("fidelity") == "paper" else {}
    )
    common = {**fidelity, **seed, **precision}
    epochs = config.recipe.epochs
    return [
        common,
        {"epochs": epochs, **common},
        {"epochs_scale": round(epochs / full.epochs, 2), **common},
    ]


def _same(config: RunConfig, options: dict[str, object]) -> bool:
    """Whether the preset with these options gives this run; what training fills in is left out of the comparison."""
    try:
        made = make_config(RunOverrides(**options), preset=config.preset)  # type: ignore[arg-type]
    except UsageError:
        return False
    method = {name: config.method.get(name) for name in made.method}
    places = ("data", "network", "train_split", "normalisation", "num_classes")
    alike = all(getattr(made, place) == getattr(config, place) for place in places)
    return alike and made.recipe == replace(config.recipe) and method == dict(made.method)


def _flags(options: dict[str, object]) -> list[str]:
    return [
        word
        for name, value in options.items()
        for word in (f"--{name.replace('_', '-')}", str(value))
    ]


def certify_command(settings: FileSettings, source: list[str], path: Path) -> str:
    """`smoothmix certify` with everything that is not as it is by default."""
    how = settings.certification
    given: dict[str, object] = {
        "data": settings.data,
        "split": settings.split if settings.split != "test" else None,
        "sigma": how.sigma,
        "n0": how.n0,
        "n": how.n,
        "alpha": how.alpha,
        "seed": how.seed,
        "batch": how.batch,
        "precision": how.precision if how.precision != "fp32" else None,
        "engine": None if settings.engine == FUSED else "eager",
        "skip": settings.skip if settings.skip > 1 else None,
        "max": settings.images,
        "shard": settings.shard or None,
        "out": path,
    }
    if settings.stopping:
        rules = settings.stopping
        given |= {
            "n": None,
            "mode": "anytime",
            "radii": ",".join(f"{r:g}" for r in rules.radii) or None,
            "tolerance": rules.tolerance,
            "max_draws": rules.max_draws,
        }
    flags = _flags({name: value for name, value in given.items() if value is not None})
    switches = [
        f"--{name.replace('_', '-')}"
        for name in ("skip_wrong", "stop_abstaining")
        if getattr(how, name)
    ]
    return shlex.join(["smoothmix", "certify", *source, *flags, *switches])
