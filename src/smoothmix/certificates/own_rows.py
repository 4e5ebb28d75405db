"""Our own certificate files read column by column, several times as fast as row by row. No torch.

This reads only lines exactly as our writer makes them. Where anything else is in the text the
answer is None, and `parse` reads it row by row and says what is wrong with which line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from smoothmix.certificates.row import (
    COLUMNS,
    DIGEST,
    GRID_COLUMNS,
    Certificate,
    votes_from,
)
from smoothmix.certificates.settings import MOST_IMAGES
from smoothmix.certificates.squared import squared_claim

WHOLE = r"[0-9]{1,9}"
CLASS = rf"(?:-1|{WHOLE})"
DECIMAL = r"[0-9]{1,9}\.[0-9]{6}"
VOTES = r"[-0-9:,]"
CELLS = {
    "idx": WHOLE,
    # Images without labels are read row by row.
    "label": WHOLE,
    "predict": CLASS,
    "radius": DECIMAL,
    "correct": "[01]",
    "time": r"(?:nan|[0-9]{1,9}\.[0-9]{3})",
    "p_lower": r"(?:0\.[0-9]{6}|1\.000000)",
    "n": WHOLE,
    "counts": rf"{VOTES}*",
    "selected": WHOLE,
    "selection_counts": rf"{VOTES}+",
    "squared": "[0-9]{0,38}",
    "digest": "[0-9a-f]{64}",
}
"""How the writer makes each cell. Votes are checked when they are read."""


def read_own(text: str, *, levels: int | None, has_digests: bool) -> list[Certificate] | None:
    """The rows of a file of ours with these settings; None where any line is unusual."""
    columns: tuple[str, ...] = COLUMNS
    if levels is not None:
        columns = GRID_COLUMNS
    if has_digests:
        columns = (*columns, DIGEST)
    header = "\t".join(columns) + "\n"
    if not text.startswith(header) or not text.endswith("\n"):
        return None
    pattern = "\t".join(CELLS[name] for name in columns)
    # Possessive (*+): a line that matched is never tried again in another way.
    if re.compile(rf"(?:{pattern}\n)*+").fullmatch(text, len(header)) is None:
        return None
    lines = text[len(header) :].splitlines()
    if not lines or len(lines) > MOST_IMAGES:
        return None
    cells = dict(zip(columns, zip(*(line.split("\t") for line in lines), strict=True), strict=True))
    try:
        rows = list(_rows(cells, levels))
    except ValueError:
        return None
    # The same image twice is an error that names both lines.
    if len({row.idx for row in rows}) < len(rows):
        return None
    return rows


def _rows(cells: dict[str, tuple[str, ...]], levels: int | None) -> Iterator[Certificate]:
    count = len(cells["idx"])
    digests = cells.get(DIGEST, ("",) * count)
    claims = cells.get("squared", ("",) * count)
    # Conversions of whole columns run without any Python code per row.
    columns = (
        map(int, cells["idx"]),
        map(int, cells["label"]),
        map(int, cells["predict"]),
        map(float, cells["radius"]),
        cells["correct"],
        map(float, cells["time"]),
        map(float, cells["p_lower"]),
        map(int, cells["n"]),
        map(votes_from, cells["counts"]),
        map(int, cells["selected"]),
        map(votes_from, cells["selection_counts"]),
        claims,
        digests,
    )
    for values in zip(*columns, strict=True):
        idx, label, predict, radius, correct, time, p_lower, n = values[:8]
        counts, selected, selection_counts, claim, digest = values[8:]
        is_correct = predict == label
        squared = int(claim) if claim else None
        follows = None if levels is None else squared_claim(radius, levels=levels)
        if is_correct != (correct == "1") or squared != follows:
            raise ValueError("a cell that does not follow from the others")
        yield Certificate(
            idx=idx,
            label=label,
            predict=predict,
            radius=radius,
            correct=is_correct,
            seconds=time,
            p_lower=p_lower,
            n=n,
            counts=counts,
            selected=selected,
            selection_counts=selection_counts,
            squared=squared,
            digest=digest,
        )
