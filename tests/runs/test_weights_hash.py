"""A run records the hash of its weights, and a changed bit is found on every load."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import torch

from smoothmix.errors import CheckpointError
from smoothmix.networks import load_weights, save_weights, state_hash
from smoothmix.runs.folder import RunFolder
from smoothmix.runs.load import load_run
from tests.conftest import Run
from tests.helpers.processes import tiny_run, train_here
from tests.helpers.studies import run_folder, trained

FEW = ("--n0", 5, "--n", 20, "--max", 1)


def flip_a_weight(path: Path) -> None:
    """Change one bit in the middle of the numbers: all tensors stay finite and of their shape."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_a_trained_run_records_the_hash_of_its_weights(tmp_path: Path, smoothmix: Run) -> None:
    folder = RunFolder(tmp_path / "run")
    config = tiny_run(tmp_path, epochs=1)
    before = train_here(config, folder.path)
    recorded = load_run(folder.path)[0].weights_sha256
    assert recorded == hashlib.sha256(folder.weights.read_bytes()).hexdigest()
    # Training again does nothing, and keeps it.
    assert train_here(config, folder.path) == before
    assert load_run(folder.path)[0].weights_sha256 == recorded
    flip_a_weight(folder.weights)
    with pytest.raises(CheckpointError, match=r"is damaged or was replaced: its SHA-256 is not"):
        load_run(folder.path)
    refused = smoothmix("certify", "run", *FEW)
    assert refused.code == 1
    assert "weights.safetensors: is damaged or was replaced" in refused.err


def test_a_run_of_an_earlier_version_is_loaded_as_before(tmp_path: Path) -> None:
    folder = RunFolder(run_folder(tmp_path / "run", trained()))
    assert "weights_sha256" not in folder.config.read_text()
    assert state_hash(load_run(folder.path)[1]) == state_hash(trained())


def test_an_imported_run_records_it_too(tmp_path: Path, smoothmix: Run) -> None:
    torch.save(trained().state_dict(), tmp_path / "theirs.pth")
    how = ("--network", "lenet", "--sigma", 0.5, "--data", "sample", "--out", "run")
    assert smoothmix("import", "theirs.pth", *how).code == 0
    folder = RunFolder(tmp_path / "run")
    # The recipe of the weights is not known: none is shown.
    assert "[recipe]" not in folder.config.read_text()
    assert load_run(folder.path)[0].imported
    flip_a_weight(folder.weights)
    with pytest.raises(CheckpointError, match="is damaged or was replaced"):
        load_run(folder.path)


def test_a_published_checkpoint_with_a_wrong_checksum_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "theirs.pth"
    torch.save(trained().state_dict(), path)
    load_weights(trained(), path)
    flip_a_weight(path)
    with pytest.raises(CheckpointError, match=r"its part data/\d+ does not have the checksum"):
        load_weights(trained(), path)


def test_saving_returns_the_hash_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    assert save_weights(trained(), path) == hashlib.sha256(path.read_bytes()).hexdigest()
