"""Plain logs straight into arrays: the same as row by row, and everything unusual is left alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smoothmix.analysis import Source, from_file
from smoothmix.analysis.plain_logs import HEADER, read_plain
from smoothmix.certificates import Certificates
from smoothmix.certificates.parse import parse
from smoothmix.errors import CertificateError

PATH = Path("logs/noise_0.5_1")
STATED = Source(path=str(PATH))
ROWS = ["0\t7\t7\t1.91\t1\t0:00:01.5", "1\t2\t-1\t0.0\t0\t0:00:01.5", "2\t1\t1\t3.5e-05\t1\t1"]


def log_of(rows: list[str]) -> str:
    return HEADER + "".join(f"{row}\n" for row in rows)


@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.integers(-1, 9), st.floats(0, 3).map(lambda r: f"{r:.3g}")),
        min_size=1,
        max_size=30,
    )
)
def test_the_arrays_are_those_of_the_reader_of_rows(images: list[tuple[int, int, str]]) -> None:
    rows = []
    for idx, (label, predict, radius) in enumerate(images):
        rows.append(f"{idx}\t{label}\t{predict}\t{radius}\t{int(label == predict)}\t0:00:01")
    text = log_of(rows)
    slow = from_file(Certificates(PATH, tuple(parse(text, PATH)[0])), name="log", source=STATED)
    fast = read_plain(text, STATED)
    assert fast is not None
    for name in ("idx", "label", "predict", "radius", "printed", "counted"):
        np.testing.assert_array_equal(getattr(fast, name), getattr(slow, name))
    assert (fast.sigma, fast.draws, fast.printing) == (slow.sigma, slow.draws, slow.printing)


@pytest.mark.parametrize(
    "row",
    [
        "3\t1\t1\tnan\t1\t1",
        "3\t1\t1\t-1\t1\t1",
        "3\t1\t1\t0.5\t0\t1",
        "3\t1\t1_0\t0.5\t0\t1",
        "\u0663\t1\t1\t0.5\t1\t1",
        "2\t1\t1\t0.5\t1\t1",
        "3\t1\t1\t0.5\t1",
        "x3\t1\t1\t0.5\t1\t1",
        "idx\tlabel\tpredict\tradius\tcorrect\ttime",
        "",
    ],
)
def test_an_unusual_line_is_left_to_the_reader_of_rows(row: str) -> None:
    assert read_plain(log_of(ROWS), STATED) is not None
    assert read_plain(log_of([*ROWS, row]), STATED) is None
    # Only blank lines are harmless.
    if row:
        with pytest.raises(CertificateError):
            parse(log_of([*ROWS, row]), PATH)


@pytest.mark.parametrize("text", ["", HEADER, log_of(ROWS)[:-1], log_of(ROWS).replace("\t", ",")])
def test_other_layouts_are_left_to_the_reader_of_rows(text: str) -> None:
    assert read_plain(text, STATED) is None
