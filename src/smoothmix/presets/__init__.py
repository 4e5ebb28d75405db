"""Presets: the rows of the paper, each with its settings and the published numbers. No torch."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any

from smoothmix._io.toml import from_table
from smoothmix.config import FIDELITIES, PAPER_RECIPE, Fidelity, RunConfig
from smoothmix.errors import UsageError, unknown_name
from smoothmix.presets._rows import rows

__all__ = [
    "Preset",
    "Published",
    "get",
    "names",
    "spelled",
    "to_toml",
    "with_fidelity",
]


@dataclass(frozen=True, kw_only=True)
class Published:
    """What the paper prints for a row; accuracies are percentages by radius."""

    acr: float
    """Average certified radius of the run in the main table."""

    accuracy: Mapping[float, float]
    """Certified accuracy of that run."""

    acr_mean: float | None = None
    """Average certified radius, mean over five seeds."""

    acr_std: float | None = None
    """Its standard deviation over the seeds."""

    accuracy_mean: Mapping[float, float] = field(default_factory=dict)
    """Certified accuracy, mean over five seeds."""

    accuracy_std: Mapping[float, float] = field(default_factory=dict)
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
    """The names that match a pattern and all given filters, in the paper's order.

    `mnist` stands for `mnist/*` too; sigma may have one digit, as in `mnist/0.5`.

    >>> names("imagenet", sigma=0.5)[:2]
    ['imagenet/0.50/gaussian', 'imagenet/0.50/consistency']
    """
    every = rows()
    # A misspelt filter must not look like a filter that nothing matches.
    _require_known("data set", data, [row["data"] for row in every.values()])
    _require_known("method", method, [row["method"]["name"] for row in every.values()])
    pattern = spelled(pattern)
    found = []
    for name, row in every.items():
        row_method = row["method"]
        same_data = data in (None, row["data"])
        same_method = method in (None, row_method["name"])
        # A sigma from the command line may differ from the file's in its last bit.
        same_sigma = sigma is None or math.isclose(row_method["sigma"], sigma)
        if _matches(name, pattern) and same_data and same_method and same_sigma:
            found.append(name)
    return found


def _matches(name: str, pattern: str) -> bool:
    folder = pattern.rstrip("/") + "/*"
    return fnmatchcase(name, pattern) or fnmatchcase(name, folder)


def get(name: str, *, fidelity: Fidelity = "official") -> Preset:
    """The preset of that name, or an error with the nearest ones.

    >>> get("mnist/0.50/smoothmix-eta5").published.acr
    1.694
    """
    row = _row(name)
    name = spelled(name)
    # The name and sigma first: config.toml shows the settings in this order.
    identity = {"name": row["method"]["name"], "sigma": row["method"]["sigma"]}
    settings = dict(row)
    for key in ABOUT_THE_ROW:
        settings.pop(key, None)
    settings["method"] = {**identity, **row["method"], "fidelity": "official"}
    settings["preset"] = name
    published = None
    if "published" in row:
        published = _published(row["published"])
    preset = Preset(
        name=name,
        about=row["about"],
        config=from_table(RunConfig, settings, where=f"preset {name}"),
        published=published,
        note=row.get("note", ""),
    )
    if fidelity == "official":
        return preset
    return with_fidelity(preset, fidelity)


ABOUT_THE_ROW = ("about", "note", "paper", "published")
"""Keys of a row that are not settings of the run."""


def with_fidelity(preset: Preset, fidelity: Fidelity) -> Preset:
    """The preset as the paper describes it (`paper`) or as its tables were made (`official`).

    Only the settings in which the two differ change, so the preset may have been altered otherwise.
    """
    _require_known("fidelity", fidelity, FIDELITIES)
    config = preset.config
    method_changes = _row(preset.name).get("paper", {})
    recipe_changes: dict[str, Any] = dict(PAPER_RECIPE)
    if fidelity == "official":
        # The other direction: back to what the preset has for the same settings.
        official = get(preset.name).config
        method_changes = {key: official.method[key] for key in method_changes}
        recipe_changes = {key: getattr(official.recipe, key) for key in PAPER_RECIPE}
    method = {**config.method, **method_changes, "fidelity": fidelity}
    recipe = replace(config.recipe, **recipe_changes)
    return replace(preset, config=replace(config, method=method, recipe=recipe))


def to_toml(preset: Preset) -> str:
    """The settings for `smoothmix train --config`, with the published numbers as comments."""
    # That module needs the classes of this one.
    from smoothmix.presets._text import render

    return render(preset)


def spelled(name: str) -> str:
    """The name with two digits after the point of its sigma, as presets have it.

    >>> spelled("mnist/0.5/gaussian"), spelled("mnist/1.0"), spelled("mnist/0.255")
    ('mnist/0.50/gaussian', 'mnist/1.00', 'mnist/0.255')
    """
    # Only a whole part between slashes is a sigma; more than two digits are no sigma of a preset.
    return re.sub(r"(?<![^/])\d*\.\d\d?(?![^/])", lambda sigma: f"{float(sigma[0]):.2f}", name)


def _row(name: str) -> dict[str, Any]:
    """The row of the preset files, or an error with the nearest names."""
    every = rows()
    full_name = spelled(name)
    if full_name in every:
        return every[full_name]
    near = get_close_matches(full_name, every, n=3)
    if not near and name:
        # A part of a name, such as `eta5`, is not close to any whole name.
        near = list(filter(lambda known: name in known, every))[:3]
    # All names would fill the screen.
    hint = "`smoothmix presets` lists all"
    if near:
        hint = f"did you mean {' or '.join(map(repr, near))}? ({hint})"
    raise UsageError(f"unknown preset {name!r}: {hint}")


def _published(table: Mapping[str, Any]) -> Published:
    """The numbers of a row, its columns joined with their radii."""
    # A copy: the preset files are read once and cached.
    numbers = dict(table)
    radii = numbers.pop("radii")
    seed_radii = numbers.pop("seed_radii", [])
    radii_of = {
        "accuracy": radii,
        "accuracy_mean": seed_radii,
        "accuracy_std": seed_radii,
    }
    for column, at in radii_of.items():
        numbers[column] = dict(zip(at, numbers.get(column, []), strict=True))
    return Published(**numbers)


def _require_known(kind: str, value: str | None, choices: Iterable[str]) -> None:
    """Refuse a filter that can match nothing because its value is no name at all."""
    every = list(dict.fromkeys(choices))
    if value is not None and value not in every:
        raise unknown_name(kind, value, every)
