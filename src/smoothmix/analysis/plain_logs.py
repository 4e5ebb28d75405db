"""Cohen-style logs read many times as fast as row by row: plain ones, straight into arrays.

A log of the usual layout has one header, tabs, and nothing unusual in any line. For every other one
`read_plain` returns None, and the reader of rows decides what it is or what is wrong with it.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from smoothmix.analysis.draws import find_draws
from smoothmix.analysis.measured import Measured
from smoothmix.analysis.rounding import lower_end, printing_of
from smoothmix.analysis.sources import Source, sigma_in
from smoothmix.certificates import COHEN_COLUMNS, Certificates

HEADER = "\t".join(COHEN_COLUMNS) + "\n"

WHOLE = "[0-9]{1,9}"
# Few digits, and only plain ones: no number overflows, and none has a second spelling.
RADIUS = r"[0-9]{1,3}(?:\.[0-9]{1,17})?(?:e-[0-9]{1,3})?"
LINES = re.compile(
    # Possessive (*+): a line that matched is never tried again in another way.
    rf"(?:{WHOLE}\t{WHOLE}\t(?:-1|{WHOLE})\t{RADIUS}\t[01]\t[^\t\r\n]*\n)*+"
)
"""Any number of whole lines."""

CELLS = tuple(range(5))
"""Of each line; the last one, the time, is not read."""


def read_plain(text: str, source: Source) -> Measured | None:
    """The log in this text as arrays, without its rows; None where anything in it is unusual."""
    if not text.startswith(HEADER):
        return None
    if LINES.fullmatch(text, len(HEADER)) is None:
        return None
    lines = text.splitlines()[1:]
    if not lines:
        return None
    cells = np.loadtxt(lines, delimiter="\t", usecols=CELLS, comments=None, ndmin=2).T
    idx, label, predict, correct = cells[[0, 1, 2, 4]].astype(np.int64)
    is_sound = np.array_equal(correct == 1, label == predict)
    if not is_sound or len(np.unique(idx)) < len(idx):
        return None
    path = Path(source.path)
    sigma = source.sigma or sigma_in(path)
    printed = cells[3].copy()
    printing = printing_of(printed)
    return Measured(
        name=source.name or path.name,
        source=source,
        idx=idx,
        label=label,
        predict=predict,
        radius=lower_end(printed),
        file=Certificates(path, ()),
        printed=printed,
        probability=np.full(len(idx), np.nan),
        sigma=sigma,
        draws=find_draws(printed, printing, sigma, n=source.n, alpha=source.alpha),
        printing=printing,
    )
