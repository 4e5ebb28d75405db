"""Reading of the preset files: each row merged with what its file says for all rows and for its method."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

Table = dict[str, Any]

FILES = ("mnist", "cifar10", "imagenet", "ablation", "quick", "quick_mnist")


@cache
def rows() -> dict[str, Table]:
    """All rows by name, in the order of the files. Read only: callers build values from it."""
    every: dict[str, Table] = {}
    for file in FILES:
        text = files(__package__).joinpath(f"{file}.toml").read_text(encoding="utf-8")
        for name, row in _read(tomllib.loads(text)):
            if name in every:
                raise ValueError(f"presets/{file}.toml: a second preset {name!r}")
            every[name] = row
    return every


def _read(table: Table) -> list[tuple[str, Table]]:
    merged = []
    for row in table["preset"]:
        of_method = table.get("for", {}).get(row["method"]["name"], {})
        full = merge(merge(table["defaults"], of_method), row)
        merged.append((full.pop("name"), full))
    return merged


def merge(base: Table, over: Table) -> Table:
    """A new table with both tables' keys; where both have one, tables are merged and the second's value wins.

    >>> merge({"a": {"x": 1, "y": 2}, "b": 3}, {"a": {"y": 5}})
    {'a': {'x': 1, 'y': 5}, 'b': 3}
    """
    joined = {
        key: merge(value, {}) if isinstance(value, dict) else value for key, value in base.items()
    }
    for key, value in over.items():
        below = joined.get(key, {})
        joined[key] = (
            merge(below if isinstance(below, dict) else {}, value)
            if isinstance(value, dict)
            else value
        )
    return joined
