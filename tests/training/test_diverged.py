"""Training that diverges ends at once, and leaves nothing behind that is broken."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from smoothmix.config import RunConfig
from smoothmix.errors import SmoothmixError
from smoothmix.runs.folder import RunFolder
from smoothmix.training.checkpoint import load_state
from tests.training.test_run import tiny, train  # noqa: F401 - tiny is a fixture


def test_a_loss_that_is_not_finite_stops_the_run_and_keeps_the_last_checkpoint(
    tiny: RunConfig,  # noqa: F811
    tmp_path: Path,
) -> None:
    # Finite for a few steps, then the weights explode.
    config = replace(tiny, recipe=replace(tiny.recipe, learning_rate=1e4, epochs=50))
    with pytest.raises(SmoothmixError, match=r"not finite in epoch \d+, step \d+ \(loss (nan|inf)"):
        train(config, tmp_path / "run", checkpoint_minutes=1e-9)
    folder = RunFolder(tmp_path / "run")
    assert all(
        bool(torch.isfinite(value).all()) for value in load_state(folder.state).model.values()
    )
    assert not folder.weights.exists()


@pytest.mark.parametrize("epochs", [1, 2])
def test_weights_that_the_last_step_broke_are_not_saved(
    tiny: RunConfig,  # noqa: F811
    tmp_path: Path,
    epochs: int,
) -> None:
    """One step an epoch: the loss before it was finite, so that only the weights tell."""
    recipe = replace(tiny.recipe, learning_rate=1e39, batch=60_000, epochs=epochs)
    for _ in range(2):
        with pytest.raises(
            SmoothmixError,
            match="weights are not finite after epoch 1, step 1; nothing was saved yet",
        ):
            train(replace(tiny, recipe=recipe), tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    assert not folder.weights.exists()
    assert not folder.state.exists()
