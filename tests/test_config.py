"""Settings are checked where they are born, and come back from TOML as they were."""

from __future__ import annotations

import math
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smoothmix._io.toml import from_table, read_toml, to_table, to_toml
from smoothmix.config import Recipe, RunConfig
from smoothmix.errors import SmoothmixError, UsageError
from smoothmix.runs.schedule import scale_epochs

METHOD = {"name": "smoothmix", "sigma": 0.5, "eta": 5.0, "one_step": True}
CONFIG = RunConfig(data="mnist", network="lenet", method=METHOD)

TOML = """
data = "mnist"
network = "lenet"
[method]
name = "gaussian"
sigma = 0.25
[recipe]
epochs = 3
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "config.toml"


# Round trips

finite = st.floats(min_value=1e-6, max_value=1e6)
recipes = st.builds(
    Recipe,
    epochs=st.integers(0, 10_000),
    batch=st.integers(1, 10_000),
    learning_rate=finite,
    drops=st.lists(st.integers(1, 1000), unique=True, max_size=4).map(
        lambda drops: tuple(sorted(drops))
    ),
    drop_factor=st.floats(0.01, 1),
    late_drops=st.booleans(),
    momentum=st.floats(1e-3, 0.999),
    nesterov=st.booleans(),
    weight_decay=st.floats(0, 1),
    seed=st.integers(0, 2**63 - 1),
    precision=st.sampled_from(["fp32", "bf16"]),
)
method_settings = st.dictionaries(
    st.text(min_size=1),
    st.integers(-(2**63), 2**63 - 1) | finite | st.booleans() | st.text(),
    max_size=4,
)
configs = st.builds(
    RunConfig,
    data=st.text(min_size=1),
    network=st.text(min_size=1),
    method=st.builds(
        lambda extra, sigma: {**extra, "name": "any", "sigma": sigma}, method_settings, finite
    ),
    recipe=recipes,
    normalisation=st.sampled_from(["none", "cifar10", "imagenet"]),
    num_classes=st.integers(2, 1000),
    preset=st.text(),
    notes=st.lists(st.text()).map(tuple),
)


@given(configs | recipes)
def test_settings_come_back_from_toml_as_they_were(
    tmp_path_factory: pytest.TempPathFactory, settings: Any
) -> None:
    path = tmp_path_factory.getbasetemp() / "round-trip.toml"
    path.write_bytes(to_toml(settings).encode())
    assert from_table(type(settings), read_toml(path), where="file") == settings


def test_a_run_is_saved_and_loaded(file: Path) -> None:
    config = replace(CONFIG, recipe=Recipe(drops=(), precision="bf16"), notes=("cut epochs",))
    config.save(file)
    assert RunConfig.load(file) == config
    assert config.sigma == 0.5


def test_what_is_empty_is_not_written_but_no_drops_are() -> None:
    table = to_table(replace(CONFIG, recipe=Recipe(drops=()), method={**METHOD, "limit": None}))
    assert not {"preset", "notes"} & table.keys()
    assert "limit" not in table["method"]
    assert table["recipe"]["drops"] == []


def test_whole_numbers_are_read_as_decimals_where_decimals_are_wanted(file: Path) -> None:
    file.write_text(TOML + "learning_rate = 1")
    rate = RunConfig.load(file).recipe.learning_rate
    assert (rate, type(rate)) == (1.0, float)


# Files that cannot be used


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("netwrk = 'lenet'", "unknown setting 'netwrk': did you mean 'network'"),
        ("[recipe]\nepoch = 3", "recipe: unknown setting 'epoch': did you mean 'epochs'"),
        ("[recipe]\nepochs = 3.5", "recipe: epochs: must be a whole number, got 3.5"),
        ("[recipe]\nepochs = true", "recipe: epochs: must be a whole number, got True"),
        ("[recipe]\nlearning_rate = 'fast'", "recipe: learning_rate: must be a number, got 'fast'"),
        ("[recipe]\nlearning_rate = false", "recipe: learning_rate: must be a number, got False"),
        ("[recipe]\nnesterov = true\nmomentum = 0.0", "recipe: nesterov takes a momentum above 0"),
        ("[recipe]\nnesterov = 1", "recipe: nesterov: must be true or false, got 1"),
        ("[recipe]\ndrops = 30", "recipe: drops: must be a list, got 30"),
        ("[recipe]\ndrops = [30, '60']", "recipe: drops: must be a whole number, got '60'"),
        ("[recipe]\nprecision = 'fp16'", "recipe: precision must be one of fp32, bf16, got 'fp16'"),
        ("[recipe]\nprecision = 16", "recipe: precision: must be text in quotes, got 16"),
        ("[recipe]\nepochs = -1", "recipe: epochs must be zero or more, got -1"),
        ("recipe = 3", "recipe: must be a table, got 3"),
        ("method = 'gaussian'", "method: must be a table, got 'gaussian'"),
        ("data = 3", "data: must be text in quotes, got 3"),
        ("notes = [1]", "notes: must be text in quotes, got 1"),
        ("data = 'mnist'", "lacks network"),
        ("num_classes = 10", "lacks data, network"),
        ("data = 'mnist'\nnetwork = 'lenet'", "method needs a name"),
        ("data = 'mnist'\nnetwork = 'lenet'\nmethod.name = 'gaussian'", "method needs a sigma"),
        (
            "data = 'mnist'\nnetwork = 'lenet'\nmethod = {name = 'gaussian', sigma = '0.5'}",
            "sigma must be a number",
        ),
        (
            "data = 'mnist'\nnetwork = 'lenet'\nmethod = {name = 'gaussian', sigma = true}",
            "sigma must be a number",
        ),
        (
            "data = 'mnist'\nnetwork = 'lenet'\nmethod = {name = 'gaussian', sigma = nan}",
            "sigma must be a positive",
        ),
        (
            "data = 'mnist'\nnetwork = 'lenet'\nmethod = {name = 3, sigma = 0.5}",
            "the method's name must be text, got 3",
        ),
    ],
)
def test_a_bad_file_is_refused_by_file_and_key(file: Path, text: str, message: str) -> None:
    file.write_text(text)
    with pytest.raises(UsageError) as error:
        RunConfig.load(file)
    assert str(error.value).startswith(f"{file}: {message}")


def test_a_file_that_is_not_there_is_misuse(file: Path) -> None:
    with pytest.raises(UsageError, match="there is no such file") as error:
        RunConfig.load(file)
    assert str(file) in str(error.value)


@pytest.mark.parametrize(
    "content", [b"data = ", b"\xff\xfe", None], ids=["cut", "not text", "a folder"]
)
def test_a_file_that_is_no_toml_is_named(file: Path, content: bytes | None) -> None:
    if content is None:
        file.mkdir()
    else:
        file.write_bytes(content)
    with pytest.raises(SmoothmixError, match="cannot be read as TOML") as error:
        RunConfig.load(file)
    assert str(file) in str(error.value)


# Values that cannot be


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epochs": -1}, "epochs must be zero or more, got -1"),
        ({"batch": 0}, "batch must be at least 1, got 0"),
        ({"learning_rate": 0.0}, "learning_rate must be positive, got 0.0"),
        ({"learning_rate": math.nan}, "learning_rate must be positive, got nan"),
        ({"learning_rate": math.inf}, "learning_rate must be positive, got inf"),
        ({"drops": (60, 30)}, "drops must increase, got [60, 30]"),
        ({"drops": (30, 30)}, "drops must increase, got [30, 30]"),
        ({"drops": (0, 30)}, "drops must be epochs from 1 on, got [0, 30]"),
        ({"drop_factor": 0.0}, "drop_factor must lie in (0, 1], got 0.0"),
        ({"drop_factor": math.nan}, "drop_factor must lie in (0, 1], got nan"),
        ({"momentum": 1.0}, "momentum must lie in [0, 1), got 1.0"),
        ({"weight_decay": -0.1}, "weight_decay must be zero or more, got -0.1"),
        ({"weight_decay": math.inf}, "weight_decay must be zero or more, got inf"),
        ({"seed": -1}, "seed must lie in [0, 2**63), got -1"),
        ({"seed": 2**63}, f"seed must lie in [0, 2**63), got {2**63}"),
        ({"precision": "fp16"}, "precision must be one of fp32, bf16, got 'fp16'"),
    ],
)
def test_a_recipe_that_cannot_be_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as error:
        Recipe(**settings)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": {"sigma": 0.5}}, "method needs a name"),
        ({"method": {"name": "gaussian"}}, "method needs a sigma"),
        (
            {"method": {"name": "gaussian", "sigma": -0.5}},
            "sigma must be a positive number, got -0.5",
        ),
        ({"num_classes": 1}, "num_classes must be at least 2, got 1"),
    ],
)
def test_a_run_that_cannot_be_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as error:
        replace(CONFIG, **settings)
    assert str(error.value) == message


# The schedule


@pytest.mark.parametrize(
    ("recipe", "epochs_at_each_rate"),
    [
        (Recipe(), [31, 30, 29]),
        (Recipe(epochs=150, learning_rate=0.1, drops=(50, 100)), [51, 50, 49]),
        (Recipe(epochs=90, learning_rate=0.1, drops=(30, 60)), [31, 30, 29]),
        (Recipe(late_drops=False), [30, 30, 30]),
        (Recipe(epochs=150, learning_rate=0.1, drops=(50, 100), late_drops=False), [50, 50, 50]),
        (Recipe(epochs=440, drops=(200, 400), late_drops=False), [200, 200, 40]),
        (Recipe(drops=()), [90]),
    ],
)
def test_epochs_at_each_rate_are_those_of_the_published_runs(
    recipe: Recipe, epochs_at_each_rate: list[int]
) -> None:
    rates = Counter(recipe.rate(epoch) for epoch in range(recipe.epochs))
    assert list(rates.values()) == epochs_at_each_rate
    assert list(rates) == pytest.approx(
        [recipe.learning_rate / 10**drop for drop in range(len(rates))]
    )


def test_scaling_rounds_and_keeps_at_least_one_epoch() -> None:
    macer = replace(
        CONFIG, method={"name": "macer", "sigma": 0.5, "defer_epochs": 31, "weight": 16.0}
    )
    scaled = scale_epochs(macer, 0.09)
    assert (scaled.recipe.epochs, scaled.recipe.drops, scaled.method["defer_epochs"]) == (
        8,
        (3, 5),
        4,
    ), "after the first drop"
    assert scaled.method["weight"] == 16.0
    least = scale_epochs(macer, 0.001)
    assert (least.recipe.epochs, least.recipe.drops, least.method["defer_epochs"]) == (1, (1,), 0)
    assert scale_epochs(macer, 1.0) == macer


@pytest.mark.parametrize("scale", [0.0, -1.0, math.nan, math.inf])
def test_a_scale_that_cannot_be_is_refused(scale: float) -> None:
    with pytest.raises(UsageError, match="epochs-scale must be positive"):
        scale_epochs(CONFIG, scale)


def test_settings_need_no_torch() -> None:
    code = "import sys, smoothmix.config; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
