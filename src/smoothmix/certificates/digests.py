"""Digests that bind the rows of a file to each other and to the settings. No torch.

Each row ends with a SHA-256 of the settings and of all its cells but `time`. It does not depend on
other rows, so that shards and any number of processes give the same file. Once all rows are there,
the settings get a SHA-256 over these digests, without which a file whose last rows were cut off
would look like one that is still being written.

Whoever can compute digests can compute them again: they find accidents and careless edits. Only a
signature, or drawing votes again, stops a forger.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, final

from smoothmix._io.text import counted
from smoothmix.certificates.row import Certificate, cells_of
from smoothmix.config import require

SECTION = "digests"
"""The table of the settings that holds the digests; files of earlier versions have none."""

LEFT_OUT = frozenset(
    {
        SECTION,
        "data",
        "data_content_hash",
        "data_note",
        "images",
        "positions",
        "shard",
        "sources",
        "trial",
        "versions",
        "weights",
    }
)
"""Settings that may differ between parts of one file, by their keys: rows do not depend on them.

The data set is bound by `data_hash`, and the network by `model_hash`.
"""

NOT_BOUND = ("time", "digest")
"""Columns that the digest of a row leaves out."""

SHA256 = re.compile(r"[0-9a-f]{64}")


@final
@dataclass(frozen=True)
class DigestRecord:
    """The digests that the settings of a file record."""

    settings: str
    """SHA-256 of the settings that decide the rows."""
    rows: int = 0
    """The number of rows when the file was finished; 0 until then."""
    sha256: str = ""
    """SHA-256 over the digests of all rows, one per line; empty until the file is finished."""

    def __post_init__(self) -> None:
        for digest in (self.settings, self.sha256 or self.settings):
            require(
                SHA256.fullmatch(digest) is not None,
                f"a digest has 64 hexadecimal digits, got {digest[:80]!r}",
            )
        require(
            (self.rows > 0) == bool(self.sha256), "rows and sha256 must both be there, or neither"
        )

    @property
    def finished(self) -> bool:
        """Whether the file was finished."""
        return bool(self.sha256)

    def over(self, rows: Sequence[Certificate]) -> Self:
        """The record of a file that is finished with these rows."""
        if not rows:
            return replace(self, rows=0, sha256="")
        return replace(self, rows=len(rows), sha256=digest_of_rows(rows))

    def to_table(self) -> dict[str, Any]:
        """The record as a table of the settings."""
        if not self.finished:
            return {"settings": self.settings}
        return {"settings": self.settings, "rows": self.rows, "sha256": self.sha256}


@final
@dataclass(frozen=True)
class RowDigests:
    """Computes the digests of the rows of one file."""

    settings: str
    """SHA-256 of its settings."""
    columns: tuple[str, ...]
    """The columns of its rows."""

    def digest(self, row: Certificate) -> str:
        """SHA-256 of the settings' digest and the cells of a row, with tabs between them."""
        cells = cells_of(row)
        bound = [cells[name] for name in self.columns if name not in NOT_BOUND]
        return hashlib.sha256("\t".join([self.settings, *bound]).encode()).hexdigest()

    def fits(self, row: Certificate) -> bool:
        """Whether a row has its own digest."""
        return row.digest == self.digest(row)

    def bound(self, row: Certificate) -> Certificate:
        """The row with its digest."""
        return replace(row, digest=self.digest(row))


def digest_of_rows(rows: Sequence[Certificate]) -> str:
    """SHA-256 over the digests of rows, in the order of their images, each with a newline."""
    in_order = sorted(rows, key=lambda row: row.idx)
    lines = "".join(f"{row.digest}\n" for row in in_order)
    return hashlib.sha256(lines.encode()).hexdigest()


def digest_of_settings(tables: Mapping[str, Any]) -> str:
    """SHA-256 of the settings that decide rows, given as the tables of a TOML file.

    They are written as JSON without spaces, sorted by key. Settings that are empty are left out:
    what a later version adds must not change the digest of files that do not have it.
    """
    bound = {key: value for key, value in tables.items() if key not in LEFT_OUT}
    text = json.dumps(_plain(bound), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items() if inner not in ("", [], {})}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    # TOML tells 1 from 1.0, and callers of the library do not.
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def removed_rows(record: DigestRecord, present: int) -> str:
    """The sentence on a finished file that has fewer rows than it was finished with."""
    return f"was finished with {counted(record.rows, 'row')} and has {present:,}"
