"""The engine of a certificate file: decided once, before its first row, and kept from then on."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from torch import nn

from smoothmix._io.files import atomic_write
from smoothmix._io.locks import InUseError, exclusive
from smoothmix.certificates import Certification, Selection
from smoothmix.certificates.existing import existing_settings
from smoothmix.config import ENGINE_NAMES, EngineName, recorded_engine
from smoothmix.data import Dataset
from smoothmix.errors import UsageError
from smoothmix.inference.choice import choose_engine, network_key
from smoothmix.inference.engines import ENGINES

Choose = Callable[[], EngineName]
"""Measures which engine is the fastest."""

OnNote = Callable[[str], object]
"""Gets a sentence for the person."""

ANYTIME_SHARE = 0.1
"""The share of its largest number of draws that an image gets where it may stop before."""

PAUSE = 0.1
"""Seconds between two attempts to get a lock that another process holds for a measurement."""


def engine_of_record(path: Path, record: str) -> EngineName:
    """The engine that draws as the one on record in a file does."""
    name = recorded_engine(record)
    try:
        ENGINES[name].require_installed()
    except UsageError as error:
        raise UsageError(f"{path}: its votes are drawn by {record}: {error}") from error
    # That is the default where layers can be fused. Where they cannot, the network is another one,
    # and the settings in which it differs say more than that.
    if name == "fused":
        return "auto"
    return name


def ignore_note(note: str) -> None:
    """The `on_note` of callers that nobody reads."""


def resolve_engine(
    model: nn.Module,
    dataset: Dataset,
    certification: Certification,
    *,
    path: Path,
    requested: EngineName,
    selection: Selection,
    is_part: bool = False,
    processes: int = 1,
    on_note: OnNote = ignore_note,
) -> EngineName:
    """The engine that is to draw for a certificate file (see `engine_for_file`).

    `is_part` says that the file is one part of a run, whose other parts nobody here can see. Parts
    are merged only if the same engine drew them, so nothing is measured for them.
    """
    guarantee = certification.guarantee
    draws = float(guarantee.n0 + guarantee.max_draws)
    if guarantee.holds_at_any_time:
        draws *= ANYTIME_SHARE
    draws *= selection.images(len(dataset)) / processes

    def choose() -> EngineName:
        if is_part:
            return "auto"
        choice = choose_engine(
            model,
            dataset.shape,
            batch=certification.batch,
            precision=certification.precision,
            draws=int(draws),
        )
        if choice.note:
            on_note(choice.note)
        return choice.engine

    together = ""
    if not is_part and (processes > 1 or selection.shard):
        together = network_key(
            model, dataset.shape, batch=certification.batch, precision=certification.precision
        )
    return engine_for_file(path, requested, choose, together=together)


def engine_for_file(
    path: Path, requested: EngineName, choose: Choose, *, together: str = ""
) -> EngineName:
    """The engine that is to draw for a file: the requested one, or that of its first rows.

    Where there are none, `choose` decides. Processes that certify `together` all get what the first
    of them decides; this is a text that tells their job apart from another one for the same file.
    """
    if requested != "auto":
        return requested
    recorded = _of_rows(path)
    if recorded is not None:
        return recorded
    if not together:
        return choose()
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        try:
            with exclusive(_agreement(path)):
                # Another process may have been faster, and have written rows since.
                return _of_rows(path) or _agreed(path, choose, together)
        except InUseError:
            time.sleep(PAUSE)


def forget_agreement(path: Path) -> None:
    """Remove what processes agreed on before the first row: the rows say it from then on."""
    if not _agreement(path).exists() or existing_settings(path) is None:
        return
    with suppress(UsageError, OSError), exclusive(_agreement(path)):
        _agreement(path).unlink(missing_ok=True)


def _of_rows(path: Path) -> EngineName | None:
    settings = existing_settings(path)
    if settings is None:
        return None
    return engine_of_record(path, settings.engine)


def _agreement(path: Path) -> Path:
    return path.with_name(f"{path.stem}-engine.txt")


def _agreed(path: Path, choose: Choose, together: str) -> EngineName:
    """What another process has decided, or else what this one decides."""
    with suppress(OSError, UnicodeError):
        name, _, job = _agreement(path).read_text(encoding="utf-8").partition("\n")
        for known in ENGINE_NAMES:
            if name == known and job.strip() == together:
                return known
    chosen = choose()
    atomic_write(_agreement(path), f"{chosen}\n{together}\n".encode())
    return chosen
