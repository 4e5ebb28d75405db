"""From options to the settings of a run: presets, files, fidelity, schedules and names."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import pytest

from smoothmix import methods, presets
from smoothmix.config import RunConfig
from smoothmix.data import DATASETS
from smoothmix.errors import UsageError
from smoothmix.methods.registry import METHODS, declared_epoch_settings
from smoothmix.report.published import _training_cuts as cuts_of
from smoothmix.runs.load import save_trained
from smoothmix.runs.options import RunOverrides
from smoothmix.runs.plan import make_config, run_name
from smoothmix.training import open_run

ALL = presets.names()


def made(
    *, preset: str | None = None, config: Path | None = None, **overrides: object
) -> RunConfig:
    given = RunOverrides(**overrides)  # type: ignore[arg-type]
    return make_config(given, preset=preset, config=config)


@pytest.mark.parametrize("name", ALL)
def test_a_preset_is_what_it_says_and_official_is_the_default(name: str) -> None:
    assert made(preset=name) == made(preset=name, fidelity="official") == presets.get(name).config


@pytest.mark.parametrize("name", ALL)
def test_fidelity_is_one_switch_for_presets_and_files(name: str, tmp_path: Path) -> None:
    paper = presets.get(name, fidelity="paper").config
    assert made(preset=name, fidelity="paper") == paper
    presets.get(name).config.save(tmp_path / "official.toml")
    assert made(config=tmp_path / "official.toml", fidelity="paper") == paper
    paper.save(tmp_path / "paper.toml")
    assert made(config=tmp_path / "paper.toml") == paper
    assert made(config=tmp_path / "paper.toml", fidelity="official") == presets.get(name).config


def test_another_method_keeps_the_fidelity() -> None:
    config = made(preset="mnist/0.50/gaussian", fidelity="paper", method="smoothmix")
    assert config.method == {"name": "smoothmix", "sigma": 0.5, "fidelity": "paper"}
    assert (config.recipe.nesterov, config.recipe.late_drops) == (True, False)
    plain = made(data="mnist", sigma=0.5, fidelity="paper")
    assert (plain.recipe.nesterov, plain.recipe.late_drops, plain.method["fidelity"]) == (
        True,
        False,
        "paper",
    )


def test_the_table_of_counted_epochs_is_that_of_the_classes() -> None:
    counted = {name: declared_epoch_settings(METHODS[name].load()) for name in METHODS}
    assert {name: METHODS[name].epoch_settings for name in METHODS} == counted
    assert any(counted.values())


@pytest.mark.parametrize(
    "overrides",
    [
        {"data": "mnist", "sigma": 0.5, "method": "smoothmix"},
        {"preset": "mnist/0.50/gaussian", "method": "smoothmix"},
        {"preset": "mnist/0.50/smoothmix-eta5"},
    ],
    ids=str,
)
def test_scaling_reaches_what_nobody_spelled_out(overrides: dict[str, object]) -> None:
    config = made(**overrides, epochs_scale=0.09)
    assert (config.recipe.epochs, config.recipe.drops, config.method["warmup_epochs"]) == (
        8,
        (3, 5),
        1,
    )


def test_what_a_person_counts_in_epochs_is_not_scaled() -> None:
    config = made(preset="mnist/0.50/smoothmix-eta5", set=["warmup_epochs=5"], epochs_scale=0.1)
    assert (config.recipe.epochs, config.method["warmup_epochs"]) == (9, 5)


def test_epochs_alone_leave_the_rest_where_it_is() -> None:
    config = made(preset="mnist/0.50/macer", epochs=3)
    assert (config.recipe.epochs, config.recipe.drops, config.method["defer_epochs"]) == (
        3,
        (30, 60),
        31,
    )
    with pytest.raises(UsageError, match="not both"):
        made(preset="mnist/0.50/macer", epochs=3, epochs_scale=0.5)


def test_a_run_that_is_no_longer_the_preset_does_not_bear_its_name() -> None:
    assert (
        made(preset="mnist/0.50/gaussian", sigma=0.5, method="gaussian").preset
        == "mnist/0.50/gaussian"
    )
    for change in (
        {"sigma": 0.3},
        {"method": "macer"},
        {"data": "fashion-mnist"},
        {"train_split": "test"},
    ):
        assert made(preset="mnist/0.50/gaussian", **change).preset == ""
    assert made(preset="mnist/0.50/smoothmix-eta5", set=["eta=2.0"]).preset == ""


def test_another_schedule_is_noted() -> None:
    config = made(preset="mnist/0.50/smoothmix-eta5", epochs_scale=0.09, batch=7)
    assert config.preset == "mnist/0.50/smoothmix-eta5"
    (note,) = config.notes
    assert "epochs 8 instead of 90" in note
    assert "batch 7 instead of 256" in note
    assert "warmup_epochs 1 instead of 10" in note
    assert made(preset="mnist/0.50/gaussian", seed=5).notes == (), (
        "another seed is the same schedule"
    )


def test_another_warm_up_alone_is_another_schedule() -> None:
    for preset, setting, note in (
        ("mnist/1.00/smoothmix-eta5", "warmup_epochs=0", "warmup_epochs 0 instead of 10"),
        ("mnist/0.50/macer", "defer_epochs=30", "defer_epochs 30 instead of 31"),
    ):
        config = made(preset=preset, set=[setting])
        assert config.notes == (f"not the schedule of {preset}: {note}",)
        assert cuts_of(config, presets.get(preset)) == config.notes, (
            "such a run is not held against the paper's"
        )


def test_defaults_of_a_data_set_are_the_papers() -> None:
    with_preset = {name: DATASETS[name].preset for name in DATASETS if DATASETS[name].preset}
    assert with_preset.keys() == {"sample", "mnist", "fashion-mnist", "cifar10", "imagenet"}
    for data, preset in with_preset.items():
        assert preset is not None
        config, paper = made(data=data, sigma=0.25), presets.get(preset).config
        assert (config.network, config.recipe, config.normalisation) == (
            paper.network,
            paper.recipe,
            paper.normalisation,
        )
        assert (config.data, config.sigma, config.preset, config.method["name"]) == (
            data,
            0.25,
            "",
            "gaussian",
        )


@pytest.mark.parametrize("setting", ["sigma=1.0", 'name="macer"', 'fidelity="paper"'])
def test_what_has_an_option_of_its_own_is_not_set_otherwise(setting: str) -> None:
    with pytest.raises(UsageError, match="it has an option of its own"):
        made(preset="mnist/0.50/gaussian", set=[setting])


def test_a_network_is_trained_on_other_data_as_on_its_own() -> None:
    pictures = made(data="folder:mine", sigma=0.5, network="cifar_resnet20", learning_rate=0.05)
    usual = presets.get("cifar10/0.50/gaussian").config
    assert pictures.normalisation == "cifar10"
    assert pictures.recipe == replace(usual.recipe, learning_rate=0.05)
    (note,) = pictures.notes
    assert note == (
        "folder:mine has no recipe of its own: this is that of cifar10/0.50/gaussian, "
        "and images are not augmented"
    )
    assert (
        made(
            data="folder:mine", sigma=0.5, network="cifar_resnet20", normalisation="none"
        ).normalisation
        == "none"
    )


def test_notes_of_a_run_do_not_travel_with_its_settings(tmp_path: Path) -> None:
    replace(made(data="mnist", sigma=0.5), notes=("without data_batch_5",)).save(
        tmp_path / "config.toml"
    )
    assert made(config=tmp_path / "config.toml").notes == ()


@pytest.mark.parametrize("name", ["quick/gaussian", "quick/smoothmix"])
def test_the_settings_of_a_trained_run_are_still_those_of_its_preset(
    name: str, tmp_path: Path
) -> None:
    with open_run(made(preset=name), tmp_path) as trainer:
        save_trained(trainer.model, trainer.folder)
    recorded = RunConfig.load(tmp_path / "config.toml")
    assert recorded.weights_sha256
    assert recorded.class_names
    assert made(config=tmp_path / "config.toml").preset == name
    assert made(config=tmp_path / "config.toml", sigma=0.3).preset == ""


def test_run_names_tell_runs_apart() -> None:
    config = made(preset="mnist/0.50/gaussian")
    assert run_name(config) == "mnist-0.50-gaussian"
    assert (
        run_name(replace(config, recipe=replace(config.recipe, seed=3)))
        == "mnist-0.50-gaussian-seed3"
    )
    assert (
        run_name(made(data="npz:my/x.npz", sigma=0.5, network="lenet"))
        == "npz-my-x.npz-0.50-gaussian"
    )


@pytest.mark.parametrize("name", ALL)
def test_presets_spell_out_every_setting_of_their_method(name: str) -> None:
    """So that what a run keeps, all its settings, can be told from a preset's."""
    settings = dict(presets.get(name).config.method)
    method = methods.make(settings.pop("name"), **settings)
    assert {
        f.name for f in fields(method) if f.init and getattr(method, f.name) is not None
    } == set(settings)
