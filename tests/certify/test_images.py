"""Images without labels: found, prepared, certified, resumed, and shown without any accuracy."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import pytest
from PIL import Image

from smoothmix import certificates
from smoothmix.analysis import measure
from smoothmix.data.photos import find_images, load_images
from smoothmix.errors import DataError, UsageError
from tests.conftest import Run

if TYPE_CHECKING:
    from playwright.sync_api import Browser

QUICK = ("--n0", 20, "--n", 200)


def paint(path: Path, seed: int, size: tuple[int, int] = (28, 28)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    paint(folder / "b.png", 1, (60, 40))
    paint(folder / "a & <b>.png", 0)
    paint(folder / "deep" / "c.png", 2, (30, 90))
    (folder / "notes.txt").write_text("b.png\n\ndeep/c.png\n")
    (folder / ".hidden.png").write_bytes(b"")
    return folder


LEFT_OUT = "1 file left out, of other formats"


@pytest.mark.filterwarnings(f"ignore:.*{LEFT_OUT}")
def test_files_patterns_folders_and_lists_name_images(photos: Path) -> None:
    def names(*places: str) -> list[str]:
        return [path.relative_to(photos).as_posix() for path in find_images(places)]

    assert names(str(photos)) == ["a & <b>.png", "b.png", "deep/c.png"]
    assert names(f"{photos}/*.png") == ["a & <b>.png", "b.png"]
    assert names(f"{photos}/notes.txt") == ["b.png", "deep/c.png"]
    assert names(f"{photos}/b.png", str(photos)) == ["b.png", "a & <b>.png", "deep/c.png"]
    with pytest.warns(UserWarning, match=LEFT_OUT + r" \(notes\.txt\)"):
        find_images([str(photos)])
    with pytest.raises(UsageError, match=r"--images .*: there is no such file or folder"):
        find_images([f"{photos}/none.png"])
    (photos / "empty").mkdir()
    with pytest.raises(DataError, match="no image files"):
        find_images([f"{photos}/empty"])


@pytest.mark.filterwarnings(f"ignore:.*{LEFT_OUT}")
def test_images_are_scaled_and_cropped_in_8_bits(photos: Path) -> None:
    dataset = load_images([str(photos)], shape=(1, 28, 28), class_names=("x", "y"))
    assert not dataset.labelled
    assert dataset.images([0, 1, 2]).shape == (3, 1, 28, 28)
    with Image.open(photos / "b.png") as image:
        small = image.convert("L").resize((42, 28), Image.Resampling.BILINEAR)
    expected = np.asarray(small.crop((7, 0, 35, 28)))
    np.testing.assert_array_equal((dataset.images([1])[0, 0] * 255).round().numpy(), expected)
    assert dataset.note is not None
    assert "about the images so prepared" in dataset.note
    # As training on ImageNet did.
    large = load_images(
        [str(photos)], shape=(3, 224, 224), class_names=("x", "y"), trained_on="imagenet"
    )
    assert (large.short_side, large.size) == (256, (224, 224))
    with pytest.raises(DataError, match="resize them"):
        load_images([str(photos)], shape=(1, 28, 20), class_names=("x", "y"))
    same = load_images([str(photos / "a & <b>.png")], shape=(3, 28, 28), class_names=("x", "y"))
    assert same.note == "certified as they are"


def test_images_are_certified_without_labels(
    smoothmix: Run, untrained_run: str, photos: Path, tmp_path: Path
) -> None:
    done = smoothmix("certify", untrained_run, "--images", photos, *QUICK, "--max", 1)
    assert done.code == 0, done.err
    path = tmp_path / untrained_run / "images.tsv"
    first = path.read_text()
    # The same command without --max resumes: the row that is there stays.
    done = smoothmix("certify", untrained_run, "--images", photos, *QUICK)
    assert done.code == 0, done.err
    assert path.read_text().startswith(first)
    assert "ACR" not in done.out + done.err
    assert "right" not in done.out + done.err
    assert "about the images so prepared" in done.out

    file = certificates.read(path)
    assert [(row.idx, row.label, row.correct) for row in file.rows] == [
        (0, -1, False),
        (1, -1, False),
        (2, -1, False),
    ]
    assert file.settings is not None
    assert not file.settings.labelled
    assert "about the images so prepared" in file.settings.data_note
    assert smoothmix("certificates", "verify", path).code == 0
    with pytest.raises(UsageError, match="its images have no labels"):
        measure(path)

    with path.with_suffix(".table.tsv").open(newline="") as stream:
        table = list(csv.DictReader(stream, delimiter="\t"))
    found = json.loads(path.with_suffix(".table.json").read_text())
    assert [line["file"] for line in table] == ["a & <b>.png", "b.png", "deep/c.png"]
    assert [image["file"] for image in found["images"]] == [line["file"] for line in table]
    for line, row, image in zip(table, file.rows, found["images"], strict=True):
        assert int(line["class"]) == row.predict == image["class_number"]
        assert float(line["radius"]) == row.radius == image["radius"]
        assert line["abstained"] == str(int(row.predict < 0))
    settings = path.with_suffix(".toml").read_text()
    assert 'labels = "none"' in settings
    page = path.with_suffix(".contact.html").read_text()
    assert page.count("data:image/png;base64,") == 3
    assert "a &amp; &lt;b&gt;.png" in page


def test_a_label_in_a_file_of_unlabelled_images_is_found(
    smoothmix: Run, untrained_run: str, photos: Path, tmp_path: Path
) -> None:
    options = ("--images", photos / "b.png", *QUICK, "--out", "x.tsv")
    assert smoothmix("certify", untrained_run, *options).code == 0
    path = tmp_path / "x.tsv"
    path.write_text(path.read_text().replace("\n0\t-1\t", "\n0\t3\t"))
    assert (
        "the images of this file have no labels" in smoothmix("certificates", "verify", "x.tsv").err
    )


def test_images_are_classified_by_name(smoothmix: Run, untrained_run: str, photos: Path) -> None:
    done = smoothmix("predict", untrained_run, "--images", photos / "*.png", "--n", 100)
    assert done.code == 0, done.err
    header, *lines = [line.split("\t") for line in done.out.splitlines()]
    assert header == ["file", "class_name", "predict", "p_value", "counts"]
    assert [line[0] for line in lines] == ["a & <b>.png", "b.png"]
    for line in lines:
        assert line[1] == (line[2] if line[2] != "-1" else "")
    assert "right" not in done.err


@pytest.mark.parametrize("option", [("--skip-wrong",), ("--data", "sample"), ("--shard", "1/2")])
def test_what_needs_labels_or_a_data_set_is_refused(
    smoothmix: Run, untrained_run: str, photos: Path, option: tuple[str, ...]
) -> None:
    done = smoothmix("certify", untrained_run, "--images", photos, *option)
    assert done.code == 2
    assert "--images" in done.err


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
def test_the_contact_sheet_needs_nothing_but_itself(
    smoothmix: Run,
    untrained_run: str,
    photos: Path,
    tmp_path: Path,
    browser: Browser,
    scheme: Literal["light", "dark"],
    width: int,
) -> None:
    done = smoothmix("certify", untrained_run, "--images", photos, *QUICK, "--out", "x.tsv")
    assert done.code == 0, done.err
    page = tmp_path / "x.contact.html"
    context = browser.new_context(
        color_scheme=scheme, viewport={"width": width, "height": 800}, offline=True
    )
    tab = context.new_page()
    complaints: list[str] = []
    tab.on("console", lambda message: complaints.append(message.text))
    tab.goto(page.as_uri())
    # Every image is drawn, in the size that was certified, and nothing sticks out on a phone.
    sizes = tab.evaluate("[...document.images].map(i => [i.naturalWidth, i.naturalHeight])")
    assert sizes == [[28, 28]] * 3
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    paper = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    assert paper == {"light": "rgb(255, 255, 255)", "dark": "rgb(22, 22, 26)"}[scheme]
    assert "a & <b>.png" in tab.inner_text("body")
    context.close()
    assert complaints == []
