"""Methods and networks from outside the package: trained, resumed, loaded and certified."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from smoothmix import trust
from smoothmix.config import RunConfig
from smoothmix.errors import UsageError
from smoothmix.methods import METHODS, make, settings_of
from smoothmix.networks.weights import state_hash
from smoothmix.runs.load import load_run
from smoothmix.runs.options import RunOverrides
from smoothmix.runs.plan import make_config
from smoothmix.runs.schedule import scale_epochs
from tests.conftest import Run
from tests.helpers.processes import tiny_run, train_here

MODULE = '''
from dataclasses import dataclass
from typing import ClassVar

from torch import nn
from torch.nn import functional as F

from smoothmix.methods import Method


@dataclass(frozen=True, kw_only=True)
class Delayed(Method):
    """Cross-entropy that is halved at first."""

    epoch_settings: ClassVar[tuple[str, ...]] = ("delay",)

    delay: int = 20
    ramp_epochs: int = 10
    factor: float = 0.5

    def terms(self, model, batch):
        weight = self.factor if batch.epoch < self.delay else 1.0
        loss = F.cross_entropy(model(batch.x + batch.noise[0]), batch.y)
        return {"classification": weight * loss}


@dataclass(frozen=True, kw_only=True)
class Undeclared(Method):
    epoch_settings: ClassVar[tuple[str, ...]] = ("patience",)

    def terms(self, model, batch):
        raise NotImplementedError


def network(num_classes):
    return nn.Sequential(
        nn.Conv2d(1, 4, 5, stride=3), nn.ReLU(), nn.Flatten(), nn.Linear(256, num_classes)
    )
'''
METHOD = "outside_training:Delayed"
NETWORK = "outside_training:network"


@pytest.fixture(autouse=True)
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A module of a user, in a folder that can be imported from."""
    (tmp_path / "outside_training.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    trust("outside_training", "no_such_module")
    yield
    sys.modules.pop("outside_training", None)


def test_a_method_from_outside_has_an_entry_and_settings() -> None:
    entry = METHODS[METHOD]
    assert entry.title == "Cross-entropy that is halved at first."
    assert entry.epoch_settings == {"delay": 20, "ramp_epochs": 10}
    assert entry.log_folders is None
    assert settings_of(METHOD) == ["sigma", "fidelity", "delay", "ramp_epochs", "factor"]
    with pytest.raises(UsageError, match="unknown setting of outside_training:Delayed 'delai'"):
        make(METHOD, sigma=0.5, delai=3)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("outside_training:network", "outside_training:network is not a training method"),
        ("outside_training:Missing", "the module outside_training has no 'Missing'"),
        ("outside_training:Undeclared", "epoch_settings names no setting: patience"),
        ("no_such_module:Method", "cannot import no_such_module"),
        ("gausian", "unknown method 'gausian': did you mean 'gaussian'"),
    ],
)
def test_what_is_no_method_is_refused(name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make(name, sigma=0.5)


def test_its_epochs_are_scaled_with_the_schedule() -> None:
    overrides = RunOverrides(data="sample", sigma=0.5, method=METHOD, epochs_scale=0.1)
    config = make_config(overrides)
    assert (config.recipe.epochs, config.method["delay"], config.method["ramp_epochs"]) == (9, 2, 1)
    unknown = replace(config, method={"name": "unheard-of", "sigma": 0.5})
    with pytest.raises(UsageError, match="unknown method 'unheard-of'"):
        scale_epochs(unknown, 0.5)


def test_a_network_from_outside_is_not_normalised_by_the_data(tmp_path: Path) -> None:
    overrides = RunOverrides(data="cifar10", sigma=0.5, network=NETWORK)
    assert make_config(overrides).normalisation == "none"
    assert make_config(replace(overrides, normalisation="cifar10")).normalisation == "cifar10"
    assert make_config(RunOverrides(data="cifar10", sigma=0.5)).normalisation == "cifar10"


def test_both_are_trained_resumed_loaded_and_certified(smoothmix: Run, tmp_path: Path) -> None:
    tiny_run(tmp_path)
    options = ("--config", "config.toml", "--method", METHOD, "--network", NETWORK)
    options = (*options, "--set", "delay=1", "--set", "factor=0.25", "--out", "run")
    done = smoothmix("train", *options)
    assert done.code == 0, done.err
    config, network = load_run(tmp_path / "run")
    assert (config.network, config.method["name"]) == (NETWORK, METHOD)
    assert (config.method["delay"], config.method["ramp_epochs"]) == (1, 10)
    assert len(network) == 4, "as its function made it"
    again = smoothmix("train", *options)
    assert "is trained already" in again.err
    done = smoothmix("certify", "run", "--n0", 5, "--n", 20, "--max", 2)
    assert done.code == 0, done.err


def test_settings_come_from_a_table_in_a_file_too(smoothmix: Run, tmp_path: Path) -> None:
    config = tiny_run(tmp_path)
    method = {"name": METHOD, "sigma": 0.5, "delay": 1}
    replace(config, method=method, network=NETWORK).save(tmp_path / "mine.toml")
    assert smoothmix("train", "--config", "mine.toml", "--out", "run").code == 0
    recorded = RunConfig.load(tmp_path / "run" / "config.toml")
    assert recorded.method == {**method, "fidelity": "official", "ramp_epochs": 10, "factor": 0.5}
    here = train_here(RunConfig.load(tmp_path / "mine.toml"), tmp_path / "here")
    assert state_hash(load_run(tmp_path / "run")[1]) == here
