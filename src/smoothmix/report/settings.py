"""Every setting that determined a run and its certificates, as text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

from smoothmix.analysis import Measured
from smoothmix.certificates import FileSettings
from smoothmix.certificates.seeds import seed_words
from smoothmix.certificates.settings import to_tables
from smoothmix.config import RunConfig


def settings_by_group(measured: Measured) -> dict[str, dict[str, str]]:
    """The recorded settings in groups: "training", "certification", and "" for the rest."""
    groups = {"": {"file": str(measured.path)}}
    if measured.config:
        groups["training"] = _training_settings(measured.config)
    if measured.settings:
        groups["certification"] = _certification_settings(measured.settings)
    elif measured.sigma is not None:
        source = "(stated)" if measured.source.sigma else "(from the name of the file or folder)"
        groups["certification"] = {"sigma": f"{measured.sigma:g} {source}"}
    return groups


def _training_settings(config: RunConfig) -> dict[str, str]:
    settings = asdict(config)
    # Notes have their own place on the page.
    for nested in ("method", "recipe", "fine_tuning", "notes"):
        del settings[nested]
    for name, value in config.method.items():
        settings[f"method {name}"] = value
    if config.fine_tuning is not None:
        tuning = asdict(config.fine_tuning)
        # The run has a hash of this name too.
        tuning["first_weights"] = tuning.pop("weights")
        tuning["first_weights_sha256"] = tuning.pop("weights_sha256")
        settings.update(tuning)
    if not config.imported:
        settings.update(asdict(config.recipe))
    return _as_text(settings)


def _certification_settings(file_settings: FileSettings) -> dict[str, str]:
    tables = to_tables(file_settings)
    versions = tables.pop("versions", {})
    settings = tables.pop("certification")
    # The file says `block` where everything else says batch.
    settings["batch"] = settings.pop("block")
    settings["seed"] = seed_words(file_settings.certification.seed)
    for name, value in tables.items():
        if isinstance(value, dict):
            settings.update({f"{name} {inner}": each for inner, each in value.items()})
        else:
            settings[name] = value
    for name, version in versions.items():
        settings[f"{name} version"] = version
    return _as_text(settings)


def _as_text(settings: Mapping[str, object]) -> dict[str, str]:
    """The settings that have a value, as people read them."""
    texts = {}
    for name, value in settings.items():
        if value is None or value in ("", ()):
            continue
        texts[name.replace("_", " ")] = _text(value)
    return texts


def _text(value: object) -> str:
    if isinstance(value, (tuple, list)):
        return ", ".join(map(str, value))
    return str(value)
