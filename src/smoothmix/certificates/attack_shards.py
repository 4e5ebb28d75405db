"""Files of attacks written by several processes: a file per shard, merged in the end. No torch.

A row depends on settings and image alone, so that rows of all these files are rows of the one run,
whoever wrote them and however the images were split: what is missing is what no file has.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from smoothmix._io.files import atomic_write
from smoothmix._io.locks import InUseError, allow_open_files, exclusive
from smoothmix._io.toml import to_toml
from smoothmix.certificates.attack_file import (
    Attack,
    AttackSettings,
    file_of,
    rows_of,
)
from smoothmix.certificates.output import require_output
from smoothmix.certificates.settings import settings_path
from smoothmix.certificates.shard import Shard, shards_beside
from smoothmix.certificates.shards import remove_leftovers
from smoothmix.errors import CertificateError, SmoothmixError


def rows_of_all(path: Path, settings: AttackSettings) -> dict[int, Attack]:
    """The rows of a whole file and its shards, by image; files of other settings are refused."""
    # Shards before the whole file: while they are merged, a row is in one of the two at least.
    parts = [_rows_of_shard(shard, settings) for shard in shards_beside(path)]
    whole = rows_of(require_output(path), settings)
    rows: dict[int, Attack] = {}
    for part in (whole, *parts):
        for row in part:
            known = rows.setdefault(row.idx, row)
            if replace(row, seconds=known.seconds) != known:
                raise CertificateError(
                    f"{path}: image {row.idx} has two different rows in this file and its shards: "
                    "delete the shards, and run the same command again"
                )
    return rows


def _rows_of_shard(shard: Shard, settings: AttackSettings) -> list[Attack]:
    try:
        return rows_of(shard.path, settings)
    except SmoothmixError:
        # Merged and removed since it was listed: its rows are in the whole file.
        if not shard.path.exists():
            return []
        raise


def merge_attacks(path: Path, settings: AttackSettings) -> bool:
    """Write the rows of all shards to the whole file, and remove the shards.

    False if another process is writing one of these files, or merges them.
    """
    try:
        with ExitStack() as held:
            # All locks at once: nobody may add a row while the shards are read and removed.
            held.enter_context(exclusive(path))
            shards = shards_beside(path)
            allow_open_files(len(shards))
            for shard in shards:
                held.enter_context(exclusive(shard.path))
            if shards:
                # The rows of the whole file stay where they are; the others follow by image.
                kept = rows_of(path, settings)
                earlier = {row.idx for row in kept}
                rows = rows_of_all(path, settings)
                added = [rows[idx] for idx in sorted(rows) if idx not in earlier]
                atomic_write(settings_path(path), to_toml(settings).encode())
                atomic_write(path, file_of([*kept, *added]).encode())
            for shard in shards:
                # The settings last: rows without them could not be resumed.
                shard.path.unlink(missing_ok=True)
                settings_path(shard.path).unlink(missing_ok=True)
        # Without their locks held: these files go as well.
        remove_leftovers(path)
    except InUseError:
        return False
    return True
