"""Classes of a data set matched with those of a network by name, and the shape of its images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from smoothmix import certificates
from smoothmix.config import RunConfig
from smoothmix.data import MemoryDataset, load, match_classes, match_shape, renumbered
from smoothmix.data.classes import LONGEST_RECORD, parse_mapping, recorded_names
from smoothmix.errors import DataError, UsageError
from tests.conftest import Run

GREYS = {"dark": 0, "medium": 128, "white": 255}
QUICK = ("--n0", 20, "--n", 200)
TRAINING = (
    *("--data", "folder:shades", "--sigma", 0.12),
    *("--epochs", 30, "--batch", 24, "--workers", 0),
)


def paint(path: Path, grey: int, *, mode: str = "L", size: tuple[int, int] = (28, 28)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", size, grey).convert(mode).save(path)


def dataset_of(class_names: tuple[str, ...], labels: list[int]) -> MemoryDataset:
    pixels = np.arange(len(labels), dtype=np.uint8).reshape(-1, 1, 1, 1)
    values = np.array(labels, dtype=np.int64)
    return MemoryDataset(
        name="made", split="test", class_names=class_names, labels=values, pixels=pixels
    )


# matching, as a function


@given(data=st.data())
def test_every_image_keeps_the_name_of_its_class(data: st.DataObject) -> None:
    names = data.draw(st.lists(st.text(min_size=1, max_size=3), min_size=2, unique=True))
    own = data.draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
    labels = data.draw(st.lists(st.integers(0, len(own) - 1), min_size=1))
    before = dataset_of(tuple(own), labels)
    if own == [str(number) for number in range(len(own))]:
        assert match_classes(before, names) is before
        return
    after = match_classes(before, names)
    assert after.class_names == tuple(names)
    assert [names[label] for label in after.labels] == [own[label] for label in labels]
    # What a certificate file records of it is enough to do it again.
    if after.class_numbers:
        assert renumbered(before, after.class_numbers).labels.tolist() == after.labels.tolist()
    else:
        assert after.labels.tolist() == before.labels.tolist()


def test_classes_that_the_network_lacks_are_all_named_with_a_way_out() -> None:
    mine = dataset_of(("cats", "dog", "eel"), [0, 1, 2])
    message = (
        "has no class cats, eel; it has cat, dog: rename or remove these classes, or name the "
        "network's by --classes cats=cat"
    )
    with pytest.raises(DataError, match=message):
        match_classes(mine, ("cat", "dog"))
    mapped = match_classes(mine, ("bird", "cat", "dog"), {"cats": "cat", "eel": "dog"})
    assert mapped.labels.tolist() == [1, 2, 2]
    with pytest.raises(UsageError, match="--classes cow=cat: made has no class cow"):
        match_classes(mine, ("cat", "dog"), {"cow": "cat"})
    with pytest.raises(UsageError, match="the network has no class cow"):
        match_classes(mine, ("cat", "dog"), {"cats": "cow"})


def test_numbers_are_numbers_for_any_network_and_names_for_one_of_numbers() -> None:
    numbers = dataset_of(("0", "1", "2"), [2, 0])
    assert match_classes(numbers, ("cat", "dog", "eel", "fox")) is numbers
    # As folders are sorted: the text 10 comes before 2.
    folders = dataset_of(("1", "10", "2"), [0, 1, 2])
    digits = tuple(str(number) for number in range(11))
    assert match_classes(folders, digits).labels.tolist() == [1, 10, 2]


@pytest.mark.parametrize("text", ["cats", "=cat", "cats=", "a=b,", "a=b,a=c"])
def test_mappings_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="classes"):
        parse_mapping([text])


def test_numbers_on_record_must_fit_the_data_set() -> None:
    with pytest.raises(DataError, match="has 2 class folders, and 3 are on record"):
        renumbered(dataset_of(("a", "b"), [0, 1]), (0, 2, 1))
    with pytest.raises(DataError, match="must lie in"):
        renumbered(dataset_of(("a", "b"), [0, 1]), (0, 10**15))


def test_names_too_long_for_a_settings_file_are_not_recorded() -> None:
    assert recorded_names(dataset_of(("a", "b"), [0])) == ("a", "b")
    assert recorded_names(dataset_of(("a" * LONGEST_RECORD, "b"), [0])) == ()


def test_grey_files_are_read_as_colour_for_a_network_of_colour(tmp_path: Path) -> None:
    paint(tmp_path / "a" / "1.png", 128)
    dataset = load(f"folder:{tmp_path}")
    assert dataset.shape == (1, 28, 28)
    colour = match_shape(dataset, (3, 28, 28))
    assert (colour.images([0]).numpy() * 255).round().tolist() == np.full(
        (1, 3, 28, 28), 128
    ).tolist()
    assert match_shape(colour, (3, 28, 28)) is colour
    with pytest.raises(DataError, match=r"has images 3x28x28 .* trained on 3x32x32: resize them"):
        match_shape(dataset, (3, 32, 32))
    with pytest.raises(DataError, match=r"has images 3x28x28 .* trained on 1x28x28: convert them"):
        match_shape(colour, (1, 28, 28))


# with a trained run, as commands


@pytest.fixture
def run(smoothmix: Run, tmp_path: Path) -> str:
    """A network that tells three shades of grey apart, trained in a second."""
    for name, grey in GREYS.items():
        for number in range(8):
            paint(tmp_path / "shades" / "train" / name / f"{number}.png", abs(grey - number))
            paint(tmp_path / "shades" / "test" / name / f"{number}.png", abs(grey - 8 - number))
    done = smoothmix("train", "mnist/0.25/gaussian", *TRAINING, "--out", "run")
    assert done.code == 0, done.err
    return "run"


def test_folders_are_matched_by_name(smoothmix: Run, run: str, tmp_path: Path) -> None:
    config = RunConfig.load(tmp_path / run / "config.toml")
    assert config.class_names == ("dark", "medium", "white")
    assert config.image_shape == (1, 28, 28)

    # Two of the three classes: by their order they would get the numbers 0 and 1.
    paint(tmp_path / "some" / "medium" / "1.png", 128)
    paint(tmp_path / "some" / "white" / "1.png", 250)
    done = smoothmix("certify", run, "--data", "folder:some", *QUICK, "--out", "some.tsv")
    assert done.code == 0, done.err
    file = certificates.read(tmp_path / "some.tsv")
    assert [row.label for row in file.rows] == [1, 2]
    assert [row.predict for row in file.rows] == [1, 2]
    assert file.settings is not None
    assert file.settings.class_numbers == (1, 2)

    # The record is enough to draw the votes again, and to show the images.
    redrawn = smoothmix("certificates", "verify", "some.tsv", "--redraw", 2, run)
    assert redrawn.code == 0, redrawn.err + redrawn.out
    page = smoothmix("report", "some.tsv", "--out", "page.html")
    assert page.code == 0, page.err
    assert "not the one that was certified" not in page.out + page.err

    # Renamed classes.
    paint(tmp_path / "renamed" / "bright" / "1.png", 250)
    refused = smoothmix("certify", run, "--data", "folder:renamed", *QUICK, "--out", "r.tsv")
    assert refused.code != 0
    assert "the network has no class bright; it has dark, medium, white" in refused.err
    assert not (tmp_path / "r.tsv").exists()
    mapped = ("--data", "folder:renamed", "--classes", "bright=white")
    assert smoothmix("certify", run, *mapped, *QUICK, "--out", "r.tsv").code == 0
    assert [row.label for row in certificates.read(tmp_path / "r.tsv").rows] == [2]
    lines = smoothmix("predict", run, *mapped, "--n", 100).out.splitlines()
    assert lines[1].split("\t")[1:3] == ["2", "2"]

    # Images of another shape.
    paint(tmp_path / "large" / "dark" / "1.png", 0, size=(32, 32))
    refused = smoothmix("certify", run, "--data", "folder:large", *QUICK, "--out", "l.tsv")
    assert refused.code != 0
    assert "has images 1x32x32" in refused.err
    paint(tmp_path / "colour" / "dark" / "1.png", 0, mode="RGB")
    refused = smoothmix("predict", run, "--data", "folder:colour")
    assert refused.code != 0
    assert "the network was trained on 1x28x28: convert them" in refused.err


def test_a_run_without_names_is_used_as_before(smoothmix: Run, run: str, tmp_path: Path) -> None:
    path = tmp_path / run / "config.toml"
    lines = path.read_text().split("class_names = [")
    path.write_text(lines[0] + lines[1].partition("]\n")[2])
    assert RunConfig.load(path).class_names == ()
    paint(tmp_path / "some" / "medium" / "1.png", 128)
    paint(tmp_path / "some" / "white" / "1.png", 250)
    done = smoothmix("certify", run, "--data", "folder:some", *QUICK, "--out", "some.tsv")
    assert done.code == 0, done.err
    assert "warning: the network was trained on folder:shades, not on folder:some" in done.err
    assert [row.label for row in certificates.read(tmp_path / "some.tsv").rows] == [0, 1]
    options = ("--data", "folder:some", "--classes", "medium=white")
    refused = smoothmix("predict", run, *options)
    assert "--classes needs a run that has recorded the names" in refused.err
    # The training of an earlier version is still the same run.
    done = smoothmix("train", "mnist/0.25/gaussian", *TRAINING, "--out", "run")
    assert done.code == 0, done.err
