"""TOML from outside: hostile files cost no time and no memory, and ordinary ones are read."""

from __future__ import annotations

import contextlib
import time
import tomllib
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from hypothesis import given, settings
from hypothesis import strategies as st

from smoothmix._io.toml import LARGEST_FILE, MAX_DEPTH, parse_toml, read_toml
from smoothmix.config import RunConfig
from smoothmix.errors import SmoothmixError

# Each of these has 64 KB. The first took a minute and 4 GB, the second 8 seconds.
HOSTILE = {
    "one dotted key": "a" + ".a" * 32_000 + " = 1",
    "one dotted header": "[a" + ".a" * 32_000 + "]",
    "dots with blanks": "a" + " . a" * 16_000 + " = 1",
    "quoted parts": '"a"' + '."a"' * 16_000 + " = 1",
    "quoted parts in both ways": "'a'" + """."a".'a'""" * 8_000 + " = 1",
    "after a string": 'x = """ \\""" """\n' + "a" + ".a" * 32_000 + " = 1",
    "after a comment": '# """ \' "\n' + "a" + ".a" * 32_000 + " = 1",
    "inline": "x = { a" + ".a" * 32_000 + " = 1 }",
    "inline tables": "a = " + "{a = " * 10_000,
    "lists": "a = " + "[" * 60_000,
    "many keys": "".join(f"a{i}=1\n" for i in range(7000)),
    "many tables": "[[a]]\n" * 10_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused_at_once(tmp_path: Path, name: str) -> None:
    path = tmp_path / "config.toml"
    path.write_text(HOSTILE[name])
    assert path.stat().st_size <= LARGEST_FILE
    tracemalloc.start()
    started = time.process_time()
    try:
        with pytest.raises(SmoothmixError, match="cannot be read as TOML"):
            RunConfig.load(path)
        seconds = time.process_time() - started
        memory = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert seconds < 1
    assert memory < 30_000_000


PADDING = "a b.c=[{'\"#\\\n"
"""Characters that mean something to a parser."""


@settings(max_examples=25)
@given(st.text(alphabet=PADDING, max_size=400))
def test_any_text_takes_little_time(text: str) -> None:
    started = time.process_time()
    with contextlib.suppress(ValueError):
        parse_toml((text + "\n") * (LARGEST_FILE // (len(text) + 1)))
    assert time.process_time() - started < 2


VALUES = st.recursive(
    st.text(alphabet=PADDING + "]}=,") | st.integers(-(2**63), 2**63 - 1) | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=20,
)


def depth(value: Any) -> int:
    """How deep a value is nested."""
    if isinstance(value, dict):
        value = list(value.values())
    if not isinstance(value, list):
        return 0
    return 1 + max(map(depth, value), default=0)


@settings(max_examples=40)
@given(st.dictionaries(st.text(), VALUES, max_size=4), st.booleans())
def test_ordinary_files_are_read_whatever_their_strings_hold(
    tables: dict[str, Any], multiline: bool
) -> None:
    text = tomli_w.dumps(tables, multiline_strings=multiline)
    # tomli_w nests inline tables in lists, so that the text is as deep as the value.
    if depth(tables) <= MAX_DEPTH:
        assert parse_toml(text) == tomllib.loads(text)


def test_the_deepest_key_that_is_allowed_is_read(tmp_path: Path) -> None:
    path = tmp_path / "deep.toml"
    path.write_text(".".join("a" * MAX_DEPTH) + " = 1")
    assert depth(read_toml(path)) == MAX_DEPTH
