"""Where a training run stands, on disk: whole or not at all, and the one before beside it."""

from __future__ import annotations

import io
import os
import pickle
import shutil
import warnings
import zipfile
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from smoothmix._io.files import replace_file
from smoothmix._io.untrusted import load_plain
from smoothmix.errors import CheckpointError
from smoothmix.runs.folder import RunFolder


@dataclass(kw_only=True)
class State:
    """Everything that the next step depends on, apart from the settings."""

    epoch: int = 0
    step: int = 0
    """Steps of this epoch that are done."""
    model: dict[str, Any]
    optimiser: dict[str, Any]
    sums: dict[str, float] = field(default_factory=dict)
    """Loss parts summed over the samples of this epoch so far, in all processes."""
    seconds: float = 0.0
    """Time this epoch took so far."""
    processes: int = 1
    """How many processes have trained together when this was saved."""


def save_state(folder: RunFolder, state: State) -> None:
    """Write the state and keep the one before; a crash in the middle leaves the old one."""
    path = folder.state
    try:
        with replace_file(path) as temporary:
            torch.save(vars(state), temporary)
            if path.exists():
                _link(path, folder.previous_state)
    except (OSError, RuntimeError) as error:  # torch reports a full disk as a RuntimeError
        reason = str(error).splitlines()[0]
        raise CheckpointError(
            f"{path}: the checkpoint could not be written ({reason}); the one before is untouched"
        ) from error


def load_latest(folder: RunFolder) -> State | None:
    """The state in a run folder, or the one before with a warning if it is damaged; None if there is none."""
    if not folder.state.exists():
        # Whoever deletes the state wants to begin anew.
        folder.previous_state.unlink(missing_ok=True)
        return None
    try:
        return load_state(folder.state)
    except CheckpointError as error:
        if not folder.previous_state.exists():
            raise
        before = _load_or_none(folder.previous_state)
        if before is None:
            raise
        _link(folder.state, folder.damaged_state)
        _link(folder.previous_state, folder.state)
        warnings.warn(
            f"{str(error).partition(';')[0]}; it is set aside as {folder.damaged_state.name}, "
            "and training goes on from the checkpoint before it",
            stacklevel=2,
        )
        return before


def load_state(path: Path) -> State:
    """Read a state without running anything that the file may hold."""
    try:
        content = load_plain(path)
        _require_checksums(path)
        return _state(content)
    except (*DAMAGE, OSError, CheckpointError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CheckpointError(
            f"{path}: cannot be read as a checkpoint ({reason}); delete it to begin anew"
        ) from error


DAMAGE = (
    RuntimeError, EOFError, TypeError, ValueError, KeyError, pickle.UnpicklingError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip
"""What reading a damaged archive may end in."""


def pack(state: State) -> bytes:
    """A state as bytes, for another process."""
    buffer = io.BytesIO()
    torch.save(vars(state), buffer)
    return buffer.getvalue()


def unpack(content: bytes) -> State:
    """A state from bytes, without running anything that they may hold."""
    return _state(torch.load(io.BytesIO(content), map_location="cpu", weights_only=True))


def _state(content: Any) -> State:
    """The state that was saved as these values, if they are such."""
    state = State(**content)
    counts = (state.epoch, state.step, state.processes)
    tables = (state.model, state.optimiser, state.sums)
    if not all(type(count) is int and count >= 0 for count in counts) or not all(
        isinstance(t, dict) for t in tables
    ):
        raise ValueError("it holds other values than a training state has")
    return state


def _load_or_none(path: Path) -> State | None:
    try:
        return load_state(path)
    except CheckpointError:
        return None


def _require_checksums(path: Path) -> None:
    """Refuse an archive of which a part has changed: torch writes checksums, but does not look at them."""
    with zipfile.ZipFile(path) as archive:
        damaged = archive.testzip()
    if damaged is not None:
        raise ValueError(
            f"its part {damaged.partition('/')[2]} does not have the checksum it was written with"
        )


def _link(source: Path, target: Path) -> None:
    """Give a file a second name, which costs nothing; a copy where the file system has no such thing."""
    temporary = target.with_name(f".{target.name}.tmp")
    temporary.unlink(missing_ok=True)
    try:
        os.link(os.path.realpath(source), temporary)
    except OSError:
        shutil.copyfile(source, temporary)
    temporary.replace(target)
    temporary.unlink(missing_ok=True)  # between two names of one file, a rename does nothing
