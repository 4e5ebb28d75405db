"""Reading of the preset files.

Each row is merged with what its file says for all rows and for its method.
"""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

Table = dict[str, Any]

FILES = ("mnist", "cifar10", "imagenet", "ablation", "quick", "quick_mnist")


@cache
def rows() -> dict[str, Table]:
    """All rows by name, in the order of the files. Do not change them: they are read once."""
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
        # What a row says wins over what its file says for its method, and that over the defaults.
        for_method = table.get("for", {}).get(row["method"]["name"], {})
        full = merge(merge(table["defaults"], for_method), row)
        merged.append((full.pop("name"), full))
    return merged


def merge(base: Table, over: Table) -> Table:
    """A new table with the keys of both; nested tables are merged, otherwise `over` wins.

    >>> merge({"a": {"x": 1, "y": 2}, "b": 3}, {"a": {"y": 5}})
    {'a': {'x': 1, 'y': 5}, 'b': 3}
    """
    merged = {}
    for key, value in base.items():
        # Nested tables are copied: callers change what they get, and `rows` is cached.
        if isinstance(value, dict):
            value = merge(value, {})
        merged[key] = value
    for key, value in over.items():
        if not isinstance(value, dict):
            merged[key] = value
            continue
        below = merged.get(key)
        if not isinstance(below, dict):
            below = {}
        merged[key] = merge(below, value)
    return merged
