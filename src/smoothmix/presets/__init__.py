"""The paper's rows as presets: the settings of each, and the published numbers it must reach, without torch."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any

from smoothmix._io.toml import from_table
from smoothmix.config import FIDELITIES, PAPER_RECIPE, Fidelity, RunConfig
from smoothmix.errors import UsageError, unknown_name
from smoothmix.presets._rows import rows


@dataclass(frozen=True, kw_only=True)
class Published:
    """What the paper prints for a row; accuracies are percentages by radius, and what it leaves out is absent."""

    acr: float
    """Average certified radius of the run in the main table."""

    accuracy: Mapping[float, float]
    """Certified accuracy of that run."""

    acr_mean: float | None = None
    """Average certified radius, mean over five seeds."""

    acr_deviation: float | None = None
    """Its standard deviation over the seeds."""

    accuracy_mean: Mapping[float, float] = field(default_factory=dict)
    """Certified accuracy, mean over five seeds."""

    accuracy_deviation: Mapping[float, float] = field(default_factory=dict)
    """Its standard deviation over the seeds."""

    source: str = ""
    """Where in the paper the numbers stand."""


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A named run: what it is, what trains it, what was published for it."""

    name: str
    """What `smoothmix train` is given."""

    about: str
    """One sentence for a list."""

    config: RunConfig
    """The settings."""

    published: Published | None = None
    """The paper's numbers; None where the paper has no such run."""

    note: str = ""
    """What a reader of the published numbers must know, if anything."""


def names(
    pattern: str = "*",
    *,
    data: str | None = None,
    sigma: float | None = None,
    method: str | None = None,
) -> list[str]:
    """The names that fit the pattern (`mnist` means `mnist/*` too) and all filters given, in the paper's order.

    Its sigma may be written with one digit: `mnist/0.5` finds `mnist/0.50/...`.

    >>> names("imagenet", sigma=0.5)
    ['imagenet/0.50/gaussian', 'imagenet/0.50/consistency', 'imagenet/0.50/smoothadv', 'imagenet/0.50/smoothmix']
    """
    _known("data set", data, (row["data"] for row in rows().values()))
    _known("method", method, (row["method"]["name"] for row in rows().values()))
    pattern = spelled(pattern)
    return [
        name
        for name, row in rows().items()
        if (fnmatchcase(name, pattern) or fnmatchcase(name, pattern.rstrip("/") + "/*"))
        and data in (None, row["data"])
        and method in (None, row["method"]["name"])
        and (sigma is None or math.isclose(row["method"]["sigma"], sigma))
    ]


def get(name: str, *, fidelity: Fidelity = "official") -> Preset:
    """The preset of that name, or an error with the nearest ones.

    >>> get("mnist/0.50/smoothmix-eta5").published.acr
    1.694
    """
    row, name = _row(name), spelled(name)
    first = {key: row["method"][key] for key in ("name", "sigma")}
    method = {**first, **row["method"], "fidelity": "official"}
    settings = {
        key: value
        for key, value in row.items()
        if key not in ("about", "note", "paper", "published")
    }
    config = from_table(
        RunConfig, {**settings, "method": method, "preset": name}, where=f"preset {name}"
    )
    preset = Preset(
        name=name,
        about=row["about"],
        config=config,
        published=_published(row["published"]) if "published" in row else None,
        note=row.get("note", ""),
    )
    return preset if fidelity == "official" else with_fidelity(preset, fidelity)


def with_fidelity(preset: Preset, fidelity: Fidelity) -> Preset:
    """The preset as the paper's text has it (`paper`) or as its tables were made (`official`).

    Only the settings in which the two differ are touched, so that a preset may have been altered otherwise.
    """
    _known("fidelity", fidelity, FIDELITIES)
    told = _row(preset.name).get("paper", {})
    recipe: dict[str, Any] = dict(PAPER_RECIPE)
    if fidelity == "official":
        official = get(preset.name).config
        told = {key: official.method[key] for key in told}
        recipe = {key: getattr(official.recipe, key) for key in PAPER_RECIPE}
    config = preset.config
    method = {**config.method, **told, "fidelity": fidelity}
    return replace(
        preset, config=replace(config, method=method, recipe=replace(config.recipe, **recipe))
    )


def to_toml(preset: Preset) -> str:
    """The settings as `smoothmix train --config` reads them, the published numbers above them as comments."""
    from smoothmix.presets._text import render

    return render(preset)


def spelled(name: str) -> str:
    """The name with two digits after the point of its sigma, as presets have it.

    >>> spelled("mnist/0.5/gaussian"), spelled("mnist/1.0"), spelled("mnist/0.255")
    ('mnist/0.50/gaussian', 'mnist/1.00', 'mnist/0.255')
    """
    return re.sub(r"(?<![^/])\d*\.\d\d?(?![^/])", lambda sigma: f"{float(sigma[0]):.2f}", name)


def _row(name: str) -> dict[str, Any]:
    """The row of the preset files, or an error with the nearest names (all of them would fill the screen)."""
    every, meant = rows(), spelled(name)
    if meant in every:
        return every[meant]
    near = (
        get_close_matches(meant, every, n=3)
        or [known for known in every if name and name in known][:3]
    )
    hint = f"did you mean {' or '.join(map(repr, near))}? (`smoothmix presets` lists all)"
    raise UsageError(
        f"unknown preset {name!r}: {hint if near else '`smoothmix presets` lists all'}"
    )


def _published(table: Mapping[str, Any]) -> Published:
    """The numbers of a row, its columns joined with the radii they stand under."""
    numbers = dict(table)
    radii = {"accuracy": numbers.pop("radii")}
    radii["accuracy_mean"] = radii["accuracy_deviation"] = numbers.pop("seed_radii", [])
    columns: dict[str, Any] = {
        key: dict(zip(at, numbers.pop(key, []), strict=True)) for key, at in radii.items()
    }
    return Published(**columns, **numbers)


def _known(kind: str, value: str | None, choices: Any) -> None:
    """Refuse a filter that can fit nothing because its value is no name at all."""
    every = list(dict.fromkeys(choices))
    if value is not None and value not in every:
        raise unknown_name(kind, value, every)
