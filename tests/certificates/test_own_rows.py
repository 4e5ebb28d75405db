"""Our files read by columns: the same rows as row by row, or none where anything is unusual."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smoothmix.certificates import Certification
from smoothmix.certificates.own_rows import read_own
from smoothmix.certificates.parse import parse
from smoothmix.certificates.row import (
    COLUMNS,
    DIGEST,
    GRID_COLUMNS,
    from_votes,
    round_down,
    rounded_down,
    to_line,
)
from smoothmix.noise import GridNoise
from smoothmix.stats.guarantees import FixedDraws

PATH = Path("certificates.tsv")


def a_file(*, levels: int | None) -> str:
    certification = Certification(sigma=0.5, guarantee=FixedDraws(1000))
    columns: tuple[str, ...] = COLUMNS
    if levels is not None:
        noise = GridNoise(levels=levels)
        certification = Certification(sigma=0.5, guarantee=FixedDraws(1000), noise=noise)
        columns = GRID_COLUMNS
    lines = ["\t".join(columns) + "\n"]
    for idx, votes in enumerate((1000, 990, 400, 0)):
        counts = {3: votes, 5: 1000 - votes}
        row = from_votes(idx, 3, {3: 90, 4: 10}, counts, certification=certification, seconds=0.5)
        lines.append(to_line(row, columns))
    return "".join(lines)


@pytest.mark.parametrize("levels", [None, 255])
def test_both_readers_give_the_same_rows(levels: int | None) -> None:
    text = a_file(levels=levels)
    rows = read_own(text, levels=levels, has_digests=False)
    assert rows is not None
    assert rows == parse(text, PATH)[0]
    assert len(rows) == 4


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("\t3\t", "\t 3\t"),
        ("0\t3\t", "1\t3\t"),
        ("3:90", "3:90,3:90"),
        ("3:90,4:10", "3-90"),
        ("\t1\t0.500\t", "\t0\t0.500\t"),
        ("\t0.500\t", "\t0.5\t"),
        ("\n", "\r\n"),
        ("selected", DIGEST),
    ],
)
def test_unusual_files_are_left_to_the_other_reader(old: str, new: str) -> None:
    text = a_file(levels=None)
    assert old in text
    assert read_own(text.replace(old, new, 1), levels=None, has_digests=False) is None


def test_lines_that_were_cut_off_and_wrong_claims_are_left_to_the_other_reader() -> None:
    text = a_file(levels=255)
    assert read_own(text[:-1], levels=255, has_digests=False) is None
    assert read_own(text, levels=65535, has_digests=False) is None
    assert read_own(text, levels=None, has_digests=False) is None
    assert read_own(text, levels=255, has_digests=True) is None


millionths = st.integers(0, 10**10).map(lambda count: count / 10**6)


@given(st.lists(st.one_of(st.floats(), millionths), min_size=1, max_size=20))
def test_many_numbers_are_cut_like_one(values: list[float]) -> None:
    one_by_one = [round_down(value) for value in values]
    np.testing.assert_array_equal(rounded_down(values), one_by_one)
    # The neighbours of whole millionths are where arithmetic on floats would fail.
    with np.errstate(over="ignore"):
        below = np.nextafter(values, -np.inf).tolist()
    np.testing.assert_array_equal(rounded_down(below), [round_down(value) for value in below])
