"""Where a training run stands, on disk: whole or not at all."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from smoothmix.errors import CheckpointError
from smoothmix.files import replace_file


@dataclass(kw_only=True)
class State:
    """Everything that the next step depends on, apart from the settings."""

    epoch: int = 0
    step: int = 0
    """Steps of this epoch that are done."""
    model: dict[str, Any]
    optimiser: dict[str, Any]
    sums: dict[str, float] = field(default_factory=dict)
    """Loss parts summed over the samples of this epoch so far."""
    seconds: float = 0.0
    """Time this epoch took so far."""


def save_state(path: Path, state: State) -> None:
    """Write the state; a crash in the middle leaves the one before."""
    try:
        with replace_file(path) as temporary:
            torch.save(vars(state), temporary)
    except (OSError, RuntimeError) as error:  # torch reports a full disk as a RuntimeError
        raise CheckpointError(
            f"{path}: the checkpoint could not be written ({error}); the one before is untouched"
        ) from error


def load_state(path: Path) -> State:
    """Read a state without running anything that the file may hold."""
    try:
        return State(**torch.load(path, map_location="cpu", weights_only=True))
    except (OSError, RuntimeError, EOFError, TypeError, ValueError, KeyError, pickle.UnpicklingError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CheckpointError(f"{path}: cannot be read as a checkpoint ({reason}); delete it to begin anew") from error
