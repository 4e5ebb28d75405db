"""Frozen settings as TOML tables and back; a wrong key or type is refused by file and key."""

from __future__ import annotations

import re
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
"""Bytes of a settings file; ours have about a thousand."""

MAX_DEPTH = 16
"""How deep tables and lists may be nested, and how many parts a dotted key may have."""

MAX_KEYS = 5000
"""How many keys and tables a file may have; ours have about fifty."""

STRING_OR_COMMENT = re.compile(
    r"""
    "{3} (?: \\. | [^\\] )*? (?: "{3,5} | \Z )   # a string over several lines
    | '{3} .*? (?: '{3,5} | \Z )               # the same without escapes
    | " (?: \\[^\n] | [^"\\\n] )* "?            # a string in one line
    | ' [^'\n]* '?
    | \# [^\n]*
    """,
    re.DOTALL | re.VERBOSE,
)
"""What lacks its last quote is no TOML: the parser stops there, so the rest does not matter."""

# From the beginning of a word on: a search that starts at every letter takes quadratic time.
LONG_KEY = re.compile(rf"(?<![\w-])(?:[\w-]+[ \t]*\.[ \t]*){{{MAX_DEPTH}}}")

TYPE_NAMES = {
    int: "a whole number",
    str: "text in quotes",
    bool: "true or false",
    list: "a list",
    dict: "a table",
}


def to_table(settings: Any) -> dict[str, Any]:
    """A settings value as nested tables, without fields that are empty as by default."""
    table: dict[str, Any] = to_toml_value(settings)
    for field in fields(settings):
        key = key_of(field)
        if not field.default and table.get(key) in ("", [], {}):
            table.pop(key, None)
    return table


def key_of(field: Field[Any]) -> str:
    """The key of a field in files: its name, unless earlier versions wrote another word."""
    return str(field.metadata.get("key", field.name))


def to_toml_value(value: Any) -> Any:
    """The value with lists for tuples and without None, for which TOML has no notation."""
    if is_dataclass(value):
        value = {key_of(field): getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Mapping):
        return {key: to_toml_value(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, (list, tuple)):
        return [to_toml_value(item) for item in value]
    return value


def to_toml(settings: Any) -> str:
    """A settings value as TOML text."""
    return tomli_w.dumps(to_table(settings))


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a TOML file."""
    try:
        content = read_limited(path, LARGEST_FILE)
        tables = parse_toml(content.decode())
    except FileNotFoundError:
        raise UsageError(f"{path}: there is no such file") from None
    # TOML's own errors are ValueErrors, and so are integers of 5000 digits.
    except (OSError, ValueError) as error:
        raise SmoothmixError(f"{path}: cannot be read as TOML ({shown(error, 300)})") from error
    return tables


def parse_toml(text: str) -> dict[str, Any]:
    """The tables in a text from outside; ValueError where it is no TOML, or beyond all limits."""
    _require_simple(text)
    tables = tomllib.loads(text)
    _check_depth_and_integers(tables)
    return tables


def _require_simple(text: str) -> None:
    """Refuse what the parser would take long for: one key of 30,000 parts takes it a minute."""
    # One letter for each string, which may be a part of a key.
    code = STRING_OR_COMMENT.sub("s", text)
    if LONG_KEY.search(code):
        raise ValueError(f"a dotted key that nests tables more than {MAX_DEPTH} deep")
    depth = 0
    for bracket in re.findall(r"[\[\]{}]", code):
        if bracket in "]}":
            depth -= 1
            continue
        depth += 1
        if depth > MAX_DEPTH:
            raise ValueError(f"tables or lists nested more than {MAX_DEPTH} deep")
    if code.count("=") + code.count("[") > MAX_KEYS:
        raise ValueError(f"more than {MAX_KEYS:,} keys, tables and lists")


def _check_depth_and_integers(tables: dict[str, Any]) -> None:
    """Refuse deep nesting and integers beyond 64 bits, which code further on cannot handle."""
    level: list[dict[str, Any] | list[Any]] = [tables]
    for _ in range(MAX_DEPTH):
        next_level = []
        for container in level:
            for value in _values(container):
                if isinstance(value, int) and not -(2**63) <= value < 2**63:
                    raise ValueError("a whole number beyond 64 bits")
                if isinstance(value, (dict, list)):
                    next_level.append(value)
        level = next_level
    if level:
        raise ValueError(f"tables or lists nested more than {MAX_DEPTH} deep")


def _values(container: dict[str, Any] | list[Any]) -> list[Any]:
    if isinstance(container, dict):
        return list(container.values())
    return container


def from_table(
    cls: type[T],
    table: Mapping[str, Any],
    *,
    where: str,
    known: Mapping[str, Any] | None = None,
) -> T:
    """A settings value from a table; `where` names the file in messages.

    `known` holds fields that the caller has made of something else.
    """
    hints = get_type_hints(cls)
    settings = _fields_by_key(cls)
    values = dict(known or {})
    for key, value in table.items():
        if key not in settings:
            raise UsageError(f"{where}: {unknown_name('setting', key, settings)}")
        name = settings[key].name
        values[name] = _convert(value, hints[name], where=f"{where}: {key}")
    missing = []
    for key, field in settings.items():
        if _is_required(field) and field.name not in values:
            missing.append(key)
    if missing:
        raise UsageError(f"{where}: lacks {', '.join(missing)}")
    try:
        return cls(**values)
    except UsageError as error:
        raise UsageError(f"{where}: {shown(error, 500)}") from None


def _fields_by_key(cls: type[Any]) -> dict[str, Field[Any]]:
    return {key_of(field): field for field in fields(cls) if field.init}


def _is_required(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _convert(value: Any, hint: Any, *, where: str) -> Any:
    """The value as the type of its field."""
    # A field that may be None is simply absent from the file, so only the other type is left.
    if isinstance(hint, UnionType):
        (hint,) = (kind for kind in get_args(hint) if kind is not NoneType)
    if isinstance(hint, type) and is_dataclass(hint):
        return from_table(hint, _require_type(value, dict, where), where=where)
    if get_origin(hint) in (Mapping, tuple):
        return _convert_container(value, hint, where=where)
    if get_origin(hint) is Literal:
        return _require_type(value, str, where)
    if hint in (int, bool, str):
        return _require_type(value, hint, where)
    if type(value) in (int, float):
        return float(value)
    raise UsageError(f"{where}: must be a number, got {shown(repr(value))}")


def _convert_container(value: Any, hint: Any, *, where: str) -> Any:
    if get_origin(hint) is Mapping:
        return _convert_table(value, get_args(hint)[1], where=where)
    items = _require_type(value, list, where)
    return tuple(_convert(item, get_args(hint)[0], where=where) for item in items)


def _convert_table(value: Any, hint: Any, *, where: str) -> dict[str, Any]:
    table: dict[str, Any] = _require_type(value, dict, where)
    if hint is Any:
        return dict(table)
    converted = {}
    for key, inner in table.items():
        converted[key] = _convert(inner, hint, where=f"{where}.{shown(key)}")
    return converted


def _require_type(value: Any, kind: type, where: str) -> Any:
    # Not isinstance, for which true and false are whole numbers.
    if type(value) is not kind:
        raise UsageError(f"{where}: must be {TYPE_NAMES[kind]}, got {shown(repr(value))}")
    return value
