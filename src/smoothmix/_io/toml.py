"""Frozen settings as TOML tables and back: unknown keys and wrong types are refused by file and key."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import tomli_w

from smoothmix._io.files import read_limited
from smoothmix.errors import SmoothmixError, UsageError, shown, unknown_name

T = TypeVar("T")

LARGEST_FILE = 2**16
"""Bytes of a file of settings, of which ours have a thousand. Reading a key of many parts takes quadratic time."""

DEEPEST = 16
"""How many tables or lists may lie in one another."""


def to_table(settings: Any) -> dict[str, Any]:
    """A settings value as nested tables of what TOML can hold, without what is empty by default."""
    table: dict[str, Any] = {}
    for each in fields(settings):
        value = _plain(getattr(settings, each.name))
        empty_by_default = not each.default and value in ("", [], {})
        if value is not None and not empty_by_default:
            table[key_of(each)] = value
    return table


def key_of(settings_field: Field[Any]) -> str:
    """The key of a field in files: its name, unless files of earlier versions have another word."""
    return str(settings_field.metadata.get("key", settings_field.name))


def _plain(value: Any) -> Any:
    """The value with lists for tuples, and without what is None: TOML has no word for it."""
    if is_dataclass(value):
        value = {key_of(f): getattr(value, f.name) for f in fields(value)}
    if isinstance(value, Mapping):
        return {k: _plain(v) for k, v in value.items() if v is not None}
    return [_plain(v) for v in value] if isinstance(value, (list, tuple)) else value


def to_toml(settings: Any) -> str:
    """A settings value as TOML text."""
    return tomli_w.dumps(to_table(settings))


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a TOML file."""
    try:
        content = read_limited(path, LARGEST_FILE)
        if len(content) > LARGEST_FILE:
            raise ValueError(f"more than {LARGEST_FILE:,} bytes")
        tables = tomllib.loads(content.decode())
        _refuse_monsters(tables)
    except FileNotFoundError:
        raise UsageError(f"{path}: there is no such file") from None
    except RecursionError:
        raise SmoothmixError(
            f"{path}: cannot be read as TOML (lists within lists without end)"
        ) from None
    except (
        OSError,
        ValueError,
    ) as error:  # TOML's own errors are ValueErrors, and so are numbers of 5000 digits
        raise SmoothmixError(f"{path}: cannot be read as TOML ({shown(error, 300)})") from error
    return tables


def _refuse_monsters(tables: dict[str, Any]) -> None:
    """Refuse what no settings need and what would stop code further on: numbers beyond 64 bits, endless nesting."""
    level: list[Any] = [tables]
    for _ in range(DEEPEST):
        insides = [value.values() if isinstance(value, dict) else value for value in level]
        level = [
            value for inside in insides for value in inside if isinstance(value, (dict, list, int))
        ]
        huge = next(
            (value for value in level if isinstance(value, int) and not -(2**63) <= value < 2**63),
            None,
        )
        if huge is not None:
            raise ValueError("a whole number beyond 64 bits")
        level = [value for value in level if not isinstance(value, int)]
    if level:
        raise ValueError(f"tables or lists more than {DEEPEST} deep")


def from_table(cls: type[T], table: Mapping[str, Any], *, where: str) -> T:
    """A settings value from a table; unknown keys and wrong types are refused by file and key."""
    hints = get_type_hints(cls)
    every = [f for f in fields(cls) if f.init]  # type: ignore[arg-type]
    names = {key_of(f): f.name for f in every}
    values = {}
    for key, value in table.items():
        if key not in names:
            raise UsageError(f"{where}: {unknown_name('setting', key, names)}")
        values[names[key]] = _fit(value, hints[names[key]], where=f"{where}: {key}")
    needed = [f.name for f in every if f.default is MISSING and f.default_factory is MISSING]
    missing = [name for name in needed if name not in values]
    if missing:
        raise UsageError(f"{where}: lacks {', '.join(missing)}")
    try:
        return cls(**values)
    except UsageError as error:
        raise UsageError(f"{where}: {shown(error, 500)}") from None


def _fit(value: Any, hint: Any, *, where: str) -> Any:
    """The value as the type its field wants, or an error."""
    if isinstance(hint, UnionType):  # something or None, which TOML says by leaving it out
        (hint,) = (kind for kind in get_args(hint) if kind is not NoneType)
    if isinstance(hint, type) and is_dataclass(hint):
        return from_table(hint, _want(value, dict, where), where=where)
    if get_origin(hint) is Mapping:
        kind, table = get_args(hint)[1], _want(value, dict, where)
        return {
            k: v if kind is Any else _fit(v, kind, where=f"{where}.{shown(k)}")
            for k, v in table.items()
        }
    if hint is float and type(value) in (int, float):
        return float(value)
    if hint in (int, bool, str):
        return _want(value, hint, where)
    if get_origin(hint) is tuple:
        return tuple(_fit(v, get_args(hint)[0], where=where) for v in _want(value, list, where))
    if get_origin(hint) is Literal:
        return _want(value, str, where)
    raise UsageError(f"{where}: must be a number, got {shown(repr(value))}")


KINDS = {
    int: "a whole number",
    str: "text in quotes",
    bool: "true or false",
    list: "a list",
    dict: "a table",
}


def _want(value: Any, kind: type, where: str) -> Any:
    if (
        type(value) is not kind
    ):  # bool is an int to isinstance, but never what a file should say for one
        raise UsageError(f"{where}: must be {KINDS[kind]}, got {shown(repr(value))}")
    return value
