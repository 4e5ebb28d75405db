"""Presets by name: what fidelity changes, shorter schedules, filters, text."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from dataclasses import asdict, replace
from typing import Any

import pytest

from smoothmix import methods, presets
from smoothmix._io.toml import from_table
from smoothmix.config import RunConfig
from smoothmix.errors import UsageError
from smoothmix.presets import Preset
from smoothmix.runs.schedule import scale_epochs
from tests.helpers.methods import CLASSIFYING

ALL = presets.names()


@pytest.mark.parametrize("fidelity", ["official", "paper"])
@pytest.mark.parametrize("name", ALL)
def test_every_presets_method_can_be_built(name: str, fidelity: methods.Fidelity) -> None:
    settings = dict(presets.get(name, fidelity=fidelity).config.method)
    method = methods.make(settings.pop("name"), **settings)
    assert {key: getattr(method, key) for key in settings} == settings


def test_there_is_a_quick_preset_for_every_method() -> None:
    assert presets.names("quick/*", data="sample") == [f"quick/{name}" for name in CLASSIFYING]


# Fidelity


def differences(left: RunConfig, right: RunConfig) -> dict[str, tuple[Any, Any]]:
    """The settings in which two runs differ, by dotted name."""
    flat = [
        {
            f"{part}.{key}": value
            for part in ("method", "recipe")
            for key, value in asdict(config)[part].items()
        }
        for config in (left, right)
    ]
    assert replace(left, method=right.method, recipe=right.recipe) == right
    return {
        key: (flat[0].get(key), flat[1].get(key))
        for key in flat[0] | flat[1]
        if flat[0].get(key) != flat[1].get(key)
    }


@pytest.mark.parametrize("name", ALL)
def test_fidelity_changes_exactly_what_the_text_says_otherwise(name: str) -> None:
    official, text = presets.get(name), presets.get(name, fidelity="paper")
    expected: dict[str, tuple[Any, Any]] = {
        "method.fidelity": ("official", "paper"),
        "recipe.nesterov": (False, True),
    }
    if not (
        name.startswith("cifar10") and name.endswith("macer")
    ):  # that recipe's drops come on time anyway
        expected["recipe.late_drops"] = (True, False)
    if name.startswith("mnist/0.25/smoothmix-eta1"):
        expected["method.steps"] = (3, 2)
    if name.endswith("smoothadv"):
        expected["method.epsilon"] = (official.config.method["epsilon"], 1.0)
    assert differences(official.config, text.config) == expected
    assert replace(text, config=official.config) == official


@pytest.mark.parametrize(
    "name", ["mnist/0.25/smoothmix-eta1", "imagenet/1.00/smoothadv", "cifar10/0.50/macer"]
)
def test_fidelity_can_be_taken_back_and_leaves_other_changes_alone(name: str) -> None:
    official = presets.get(name)
    assert presets.with_fidelity(presets.with_fidelity(official, "paper"), "official") == official
    altered = replace(
        official, config=replace(official.config, recipe=replace(official.config.recipe, epochs=3))
    )
    text = presets.with_fidelity(altered, "paper")
    assert text.config.recipe.epochs == 3
    assert presets.with_fidelity(text, "official") == altered


def test_an_unknown_fidelity_is_refused_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="unknown fidelity 'papr': did you mean 'paper'"):
        presets.get("mnist/0.25/gaussian", fidelity="papr")  # type: ignore[arg-type]


# Shorter schedules


@pytest.mark.parametrize(
    ("name", "scale", "epochs", "drops", "method"),
    [
        ("mnist/1.00/smoothmix-eta5-onestep", 0.09, 8, (3, 5), {"warmup_epochs": 1}),
        ("mnist/0.50/macer", 1 / 3, 30, (10, 20), {"defer_epochs": 11}),
        ("cifar10/1.00/macer", 0.1, 44, (20, 40), {"defer_epochs": 20}),
        ("cifar10/0.25/smoothadv", 0.5, 75, (25, 50), {"warmup_epochs": 5}),
        ("imagenet/0.50/consistency", 0.01, 1, (1,), {"warmup_epochs": 0}),
    ],
)
def test_scaling_moves_drops_warm_up_and_deferral_with_the_epochs(
    name: str, scale: float, epochs: int, drops: tuple[int, ...], method: dict[str, int]
) -> None:
    config = presets.get(name).config
    scaled = scale_epochs(config, scale)
    assert (scaled.recipe.epochs, scaled.recipe.drops) == (epochs, drops)
    assert scaled.method == {**config.method, **method}
    assert replace(scaled, method=config.method, recipe=config.recipe) == config


@pytest.mark.parametrize("sigma", ["0.25", "0.50", "1.00"])
def test_quick_mnist_presets_are_rows_of_the_paper_on_a_third_of_the_schedule(sigma: str) -> None:
    for quick, full in (("gaussian", "gaussian"), ("smoothmix", "smoothmix-eta5")):
        name = f"quick/mnist/{sigma}/{quick}"
        scaled = scale_epochs(presets.get(f"mnist/{sigma}/{full}").config, 1 / 3)
        assert presets.get(name).config == replace(scaled, preset=name)


@pytest.mark.parametrize("sigma", ["0.25", "0.50", "1.00"])
def test_the_cheap_form_takes_one_step_as_long_as_all(sigma: str) -> None:
    cheap = presets.get(f"quick/mnist/{sigma}/smoothmix-cheap").config.method
    full = presets.get(f"quick/mnist/{sigma}/smoothmix").config.method
    assert cheap == {**full, "steps": 1, "step_size": full["steps"] * full["step_size"]}


def test_quick_presets_on_the_sample_differ_in_the_method_alone_and_run_all_of_it() -> None:
    configs = [presets.get(name).config for name in presets.names("quick", data="sample")]
    assert len({(c.network, c.sigma, c.recipe) for c in configs}) == 1
    last = configs[0].recipe.epochs - 1
    assert all(
        c.method.get(key, 0) < last for c in configs for key in ("warmup_epochs", "defer_epochs")
    )


# Names


def test_names_by_pattern_and_filters() -> None:
    assert presets.names("mnist/1.00/smoothmix*") == [
        f"mnist/1.00/smoothmix-{row}" for row in ("eta1", "eta1-onestep", "eta5", "eta5-onestep")
    ]
    assert presets.names("ablation/copies") == [f"ablation/copies/{m}" for m in (1, 2, 4, 8)]
    assert presets.names("ablation/copies/") == presets.names("ablation/copies")
    assert presets.names("quick/macer") == ["quick/macer"]
    assert presets.names(data="imagenet", sigma=1, method="smoothadv") == [
        "imagenet/1.00/smoothadv"
    ]
    assert presets.names("mnist", sigma=0.5) == [
        name for name in ALL if name.startswith("mnist/0.50/")
    ]
    assert presets.names(sigma=0.3) == presets.names("no/such/*") == []
    assert {presets.get(name).config.method["name"] for name in presets.names(method="macer")} == {
        "macer"
    }


@pytest.mark.parametrize("sigma", ["0.5", ".5", ".50", "0.50"])
def test_sigma_may_be_written_shorter(sigma: str) -> None:
    assert presets.names(f"mnist/{sigma}") == presets.names("mnist/0.50/*")
    assert presets.names(f"*/{sigma}/gaussian") == presets.names("*/0.50/gaussian")
    assert presets.get(f"mnist/{sigma}/gaussian") == presets.get("mnist/0.50/gaussian")


def test_another_sigma_is_not_taken_for_a_shorter_one() -> None:
    assert presets.names("mnist/0.251") == []
    assert presets.names("ablation/eta/1") == ["ablation/eta/1"]


@pytest.mark.parametrize(
    ("filters", "message"),
    [
        ({"method": "smoothmx"}, "did you mean 'smoothmix'"),
        ({"data": "minst"}, "did you mean 'mnist'"),
    ],
)
def test_a_filter_that_names_nothing_is_refused(filters: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        presets.names(**filters)


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("mnist/0.5/gausian", "'mnist/0.50/gaussian'"),
        ("mnist/0.50/smothmix-eta5", "'mnist/0.50/smoothmix-eta5'"),
        ("cifar10/0.50/smoothmix-eta5-onestep", "'cifar10/0.50/smoothmix-onestep'"),
        ("eta", "'mnist/0.25/smoothmix-eta1'"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest_few(name: str, near: str) -> None:
    with pytest.raises(UsageError, match=f"unknown preset '{name}': did you mean {near}") as error:
        presets.get(name)
    assert str(error.value).count("/") <= 8
    assert "`smoothmix presets` lists all" in str(error.value)


@pytest.mark.parametrize("name", ["", "qwertyuiop"])
def test_a_name_like_none_is_answered_with_where_to_look(name: str) -> None:
    with pytest.raises(UsageError, match=f"unknown preset '{name}': `smoothmix presets` lists all"):
        presets.get(name)


def test_presets_do_not_share_what_can_be_changed() -> None:
    first, second = (
        presets.get("mnist/0.50/smoothmix-eta5"),
        presets.get("mnist/0.50/smoothmix-eta5"),
    )
    assert isinstance(first.config.method, dict)
    first.config.method["eta"] = 99.0
    assert second == presets.get("mnist/0.50/smoothmix-eta5") != first


def test_presets_need_no_torch() -> None:
    code = (
        "import sys, smoothmix.presets as p; p.to_toml(p.get(p.names()[0])); "
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# Text


@pytest.mark.parametrize("fidelity", ["official", "paper"])
@pytest.mark.parametrize("name", ALL)
def test_the_text_of_a_preset_is_a_config_that_trains_it(
    name: str, fidelity: methods.Fidelity
) -> None:
    preset = presets.get(name, fidelity=fidelity)
    text = presets.to_toml(preset)
    assert from_table(RunConfig, tomllib.loads(text), where="text") == preset.config
    assert preset.about in text.replace("\n# ", " ")
    assert max(map(len, text.splitlines())) <= 115


def test_the_text_shows_what_was_published() -> None:
    text = presets.to_toml(presets.get("mnist/1.00/consistency"))
    assert text.splitlines()[:11] == [
        "# mnist/1.00/consistency",
        "# Consistency regularisation",
        "#",
        (
            "# Published: ACR 1.740. Table 2 (tab:mnist); "
            "seeds: Tables 4 and 5 (tab:mnist_errorbar, tab:mnist_var)"
        ),
        "#   radius        0.00  0.25  0.50  0.75  1.00  1.25  1.50  1.75  2.00  2.25  2.50  2.75",
        "#   certified %   95.0  93.0  89.7  85.4  79.7  72.7  63.6  53.0  41.7  30.8  20.3  10.7",
        "# Over five seeds: ACR 1.7376 ± 0.0017",
        "#   radius        0.00  0.50  1.00  1.50  2.00  2.50",
        "#   certified %  94.96 89.75 79.70 63.54 41.74 20.22",
        "#   std           0.02  0.07  0.09  0.12  0.13  0.25",
        "#",
    ]
    assert "1.7376 ± 0.0019" in text
    assert "#   certified %     57    46    37" in presets.to_toml(
        presets.get("imagenet/0.50/gaussian")
    )


def test_disagreements_inside_the_publication_are_noted() -> None:
    noted: dict[str, str] = {
        "mnist/0.25/consistency": "0.9282 ± 0.0002",
        "mnist/0.50/consistency": "1.6549 ± 0.0012",
        "mnist/1.00/consistency": "six logs",
        "mnist/0.25/smoothmix-eta1": "3 steps; the text says 2",
        "mnist/0.25/smoothmix-eta1-onestep": "3 steps; the text says 2",
        "mnist/0.50/macer": "No released log",
        "cifar10/0.50/smoothmix": "0.7124",
        "cifar10/0.50/smoothmix-onestep": "0.7356",
        "cifar10/1.00/smoothadv": "0.790",
        "cifar10/1.00/smoothmix-onestep": "0.790",
        "imagenet/0.50/smoothmix": "does not state eta",
        "imagenet/1.00/smoothadv": "2.0 at sigma 1.0",
        "ablation/gaussian": "no released log",
    }
    for name, words in noted.items():
        assert words in presets.get(name).note


def test_types_are_frozen() -> None:
    preset: Preset = presets.get("mnist/0.25/gaussian")
    with pytest.raises(AttributeError):
        preset.name = "mine"  # type: ignore[misc]
