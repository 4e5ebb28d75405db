"""Notes in a run folder on an unusual training, and data that cannot be trained on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from smoothmix import presets
from smoothmix.analysis import measure
from smoothmix.certificates import save
from smoothmix.certificates.file import read
from smoothmix.config import RunConfig
from smoothmix.errors import UsageError
from smoothmix.report.published import cuts
from smoothmix.runs.folder import RunFolder
from smoothmix.training.run import add_notes, claim, open_run
from tests.helpers.certificates import our_file
from tests.helpers.processes import Jobs, tiny_run


def colourful(folder: Path, **arrays: tuple[int, ...]) -> RunConfig:
    """A ResNet on random pictures, with `x` and `y` or what else is given by name and shape."""
    rng = np.random.default_rng(0)
    shapes = arrays or {"x": (12, 3, 32, 32)}
    made = {name: rng.integers(0, 256, shape, dtype=np.uint8) for name, shape in shapes.items()}
    labels = {name.replace("x", "y"): np.arange(len(x)) % 2 for name, x in made.items()}
    np.savez(folder / "colour.npz", **made, **labels)
    config = tiny_run(folder, epochs=1, batch=6)
    config = replace(config, data=f"npz:{folder / 'colour.npz'}", network="cifar_resnet20")
    config.save(folder / "config.toml")
    return config


def test_batchnorm_in_shares_is_told_for_good(tmp_path: Path, jobs: Jobs) -> None:
    colourful(tmp_path)
    settings = ("--config", "config.toml", "--out", "run", "--device", "cpu")
    job = jobs.torchrun("--standalone --nproc-per-node 2", "train", *settings)
    assert job.wait() == 0, job.output
    note = "BatchNorm saw each batch in 2 shares, one per process"
    assert f"note: {note}" in job.output
    assert note in RunConfig.load(tmp_path / "run" / "config.toml").notes


def test_a_run_that_is_gone_on_with_otherwise_gathers_the_notes(tmp_path: Path) -> None:
    config, folder = tiny_run(tmp_path), RunFolder(tmp_path / "run")
    folder.path.mkdir()
    for notes in (("first",), ("second",), ()):
        claim(folder, replace(config, notes=notes))
        add_notes(folder, notes)
    assert RunConfig.load(folder.config).notes == ("first", "second")


def test_a_finished_run_is_told_nothing_of_how_it_was_started_again(tmp_path: Path) -> None:
    config = tiny_run(tmp_path, epochs=1)
    with open_run(config, tmp_path / "run") as trainer:
        trainer.run()
    told = ("trained on the images that it is tested on: its accuracy says nothing of others",)
    with open_run(replace(config, notes=("in shares",)), tmp_path / "run") as trainer:
        assert trainer.finished
        assert trainer.config.notes == told
    assert RunConfig.load(tmp_path / "run" / "config.toml").notes == told


def test_images_for_testing_must_have_the_shape_of_those_for_training(tmp_path: Path) -> None:
    config = colourful(tmp_path, x_train=(12, 3, 32, 32), x_test=(6, 1, 32, 32))
    words = (
        r"its training images have shape \[3, 32, 32\] and 2 classes, "
        r"its test images \[1, 32, 32\] and 2"
    )
    with pytest.raises(UsageError, match=words), open_run(config, tmp_path / "run"):
        pass
    assert not (tmp_path / "run").exists()


def test_a_data_set_that_is_partly_there_counts_as_fewer_images(tmp_path: Path) -> None:
    preset = presets.get("mnist/0.50/gaussian")
    file = read(our_file(tmp_path / "a.tsv", [900, 950]))
    assert file.settings is not None
    save(
        replace(file, settings=replace(file.settings, data_note="90 of 50,000 images")),
        tmp_path / "a.tsv",
    )
    found = cuts(measure(tmp_path / "a.tsv"), preset)
    assert found.images == ("2 of 10,000 images", "of a data set of 90 of 50,000 images")


def test_a_sigma_of_another_scale_is_doubted_before_anything_is_trained(tmp_path: Path) -> None:
    config = tiny_run(tmp_path)
    config = replace(config, method={**config.method, "sigma": 50.0})
    doubt = pytest.warns(UserWarning, match="sigma 50 is very large for pixels")
    with doubt, open_run(config, tmp_path / "run"):
        pass
