"""The state of a training run on disk: written whole or not at all, the previous one beside it."""

from __future__ import annotations

import io
import os
import pickle
import shutil
import warnings
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
    """Finished steps of this epoch."""
    model: dict[str, Any]
    optimiser: dict[str, Any]
    sums: dict[str, float] = field(default_factory=dict)
    """The loss and its parts, summed over the images of this epoch so far, in all processes."""
    seconds: float = 0.0
    """Time this epoch took so far."""
    processes: int = 1
    """How many processes trained together when this was saved."""


def save_state(folder: RunFolder, state: State) -> None:
    """Write the state and keep the previous one; a crash in between leaves the old one."""
    path = folder.state
    try:
        with replace_file(path) as temporary:
            torch.save(vars(state), temporary)
            if path.exists():
                _link(path, folder.previous_state)
    except (OSError, RuntimeError) as error:
        # torch reports a full disk as a RuntimeError.
        reason = str(error).splitlines()[0]
        raise CheckpointError(
            f"{path}: the checkpoint could not be written ({reason}); the one before is untouched"
        ) from error


def load_latest(folder: RunFolder) -> State | None:
    """The state in a run folder, or None; if it is damaged, the previous one with a warning."""
    if not folder.state.exists():
        # A user who deletes the state wants to start again, not from the state before it.
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
            "and training resumes from the checkpoint before it",
            stacklevel=2,
        )
        return before


def load_state(path: Path) -> State:
    """Read a state without running any code that the file may hold."""
    try:
        content = load_plain(path)
        return _state(content)
    except (*DAMAGE, OSError, CheckpointError) as error:
        reason = type(error).__name__
        if str(error):
            reason = str(error).splitlines()[0].removeprefix(f"{path}: ")
        raise CheckpointError(
            f"{path}: cannot be read as a checkpoint ({reason}); delete it to start again"
        ) from error


DAMAGE = (
    RuntimeError,
    EOFError,
    TypeError,
    ValueError,
    KeyError,
    pickle.UnpicklingError,
)
"""What reading a damaged archive may raise."""


def pack(state: State) -> bytes:
    """A state as bytes, for another process."""
    buffer = io.BytesIO()
    torch.save(vars(state), buffer)
    return buffer.getvalue()


def unpack(content: bytes) -> State:
    """A state from bytes, without running any code that they may hold."""
    return _state(torch.load(io.BytesIO(content), map_location="cpu", weights_only=True))


def _state(content: Any) -> State:
    """The state that these values describe, or an error if they describe none."""
    state = State(**content)
    for count in (state.epoch, state.step, state.processes):
        if type(count) is not int or count < 0:
            raise ValueError("a count in it is not a whole number")
    for table in (state.model, state.optimiser, state.sums):
        if not isinstance(table, dict):
            raise ValueError("a table in it is not one")
    return state


def _load_or_none(path: Path) -> State | None:
    try:
        return load_state(path)
    except CheckpointError:
        return None


def _link(source: Path, target: Path) -> None:
    """Give a file a second name; where the file system has no links, copy it."""
    temporary = target.with_name(f".{target.name}.tmp")
    temporary.unlink(missing_ok=True)
    try:
        os.link(os.path.realpath(source), temporary)
    except OSError:
        shutil.copyfile(source, temporary)
    temporary.replace(target)
    # Renaming one name of a file to another name of the same file does nothing.
    temporary.unlink(missing_ok=True)
