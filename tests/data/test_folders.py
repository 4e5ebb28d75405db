"""Trees of folders: ImageNet's classes and order, the user's own images, damaged files."""

from __future__ import annotations

import csv
import hashlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from smoothmix.data import AUGMENTATION_NUMBERS, FolderDataset, check, image_files, load
from smoothmix.data.augment import crop_box
from smoothmix.data.folders import wnids
from smoothmix.data.image_files import decode
from smoothmix.data.resizing import centre_crop
from smoothmix.errors import DataError, SmoothmixError, UsageError

SHARED = Path(__file__).parents[3] / "shared" / "data"


def pixels(seed, height=6, width=8, channels=3):
    shape = (height, width, channels) if channels > 1 else (height, width)
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def paint(path, array):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(array).save(path)


def tree(root, files):
    for seed, file in enumerate(files):
        paint(root / file, pixels(seed))


FILES = ["cat/a.png", "cat/b.png", "dog/a.png"]


# the user's own images


@pytest.mark.parametrize("split_folder", ["train", "test", "val", None])
def test_every_layout_gives_the_same_data(tmp_path, split_folder):
    tree(tmp_path / (split_folder or ""), FILES)
    split = "train" if split_folder == "train" else "test"
    dataset = load(f"folder:{tmp_path}", split)
    assert isinstance(dataset, FolderDataset)
    assert (dataset.shape, dataset.class_names, dataset.split) == ((3, 6, 8), ("cat", "dog"), split)
    assert dataset.labels.tolist() == [0, 0, 1]
    expected = np.stack([pixels(seed) for seed in range(3)]).transpose(0, 3, 1, 2) / np.float32(255)
    np.testing.assert_array_equal(dataset.images([0, 1, 2]).numpy(), expected)
    np.testing.assert_array_equal(dataset.images([2, 0]).numpy(), expected[[2, 0]])
    numbers = np.zeros((1, AUGMENTATION_NUMBERS))
    np.testing.assert_array_equal(dataset.training_images([1], numbers).numpy(), expected[[1]])
    assert dataset.images([]).shape == (0, 3, 6, 8)
    rows = "".join(
        f"{f}\0{(dataset.root / f).stat().st_size}\0{y}\n"
        for f, y in zip(FILES, [0, 0, 1], strict=True)
    )
    contents = [hashlib.sha256((dataset.root / file).read_bytes()).digest() for file in FILES]
    assert (
        dataset.fingerprint == hashlib.sha256(rows.encode() + b"".join(contents)).hexdigest()[:16]
    )


@pytest.mark.parametrize("all_are_read", [True, False])
def test_other_images_of_the_same_names_and_sizes_have_another_fingerprint(
    tmp_path, monkeypatch, all_are_read
):

    monkeypatch.setattr(image_files, "HASH_ALL_BYTES", 2**28 if all_are_read else 0)
    found = []
    for seed in (0, 1):
        Image.fromarray(np.full((6, 8, 3), seed, dtype=np.uint8)).save(tmp_path / "x.bmp")
        tree(tmp_path / "set", ["cat/a.png"])
        (tmp_path / "set" / "cat" / "b.bmp").write_bytes((tmp_path / "x.bmp").read_bytes())
        found.append(load(f"folder:{tmp_path / 'set'}", "test").fingerprint)
    assert found[0] != found[1]


def test_flat_tree_serves_either_split_even_with_a_class_of_trains(tmp_path):
    tree(tmp_path, ["train/a.png", "car/a.png"])
    for split in ("train", "test", "val"):
        assert load(f"folder:{tmp_path}", split).class_names == ("car", "train")


def test_test_and_val_beside_each_other(tmp_path):
    tree(tmp_path, ["test/a/1.png", "val/a/1.png", "val/a/2.png"])
    assert [len(load(f"folder:{tmp_path}", split)) for split in ("test", "val")] == [1, 2]


def test_hidden_files_and_other_files_are_no_images(tmp_path):
    tree(tmp_path, FILES)
    for other in (".hidden/a.png", "cat/._a.png", "cat/notes.txt", "readme.md"):
        (tmp_path / other).parent.mkdir(exist_ok=True)
        (tmp_path / other).write_text("not a image")
    with pytest.warns(UserWarning, match="1 file left out, .*: cat/notes.txt$"):
        dataset = load(f"folder:{tmp_path}")
    assert dataset.files == tuple(FILES)
    assert dataset.left_out == ("cat/._a.png", "cat/notes.txt")
    with pytest.warns(UserWarning, match="1 file left out"):
        results = check(f"folder:{tmp_path}")
    assert all(found.message.endswith("left out: cat/._a.png, cat/notes.txt") for found in results)


@pytest.mark.parametrize(
    ("last", "channels"), [("L", 1), ("1", 1), ("LA", 1), ("RGB", 3), ("RGBA", 3), ("P", 3)]
)
def test_one_image_in_colour_makes_all_of_them_colour(tmp_path, last, channels):
    (tmp_path / "a").mkdir()
    Image.fromarray(pixels(0, channels=1)).save(tmp_path / "a" / "0.png")
    Image.fromarray(pixels(1)).convert(last).save(tmp_path / "a" / "1.png")
    dataset = load(f"folder:{tmp_path}")
    assert dataset.shape == (channels, 6, 8)
    images = dataset.images([0, 1]).numpy() * 255
    np.testing.assert_allclose(
        images[0], np.broadcast_to(pixels(0, channels=1), (channels, 6, 8)), atol=1e-4
    )
    expected = Image.open(tmp_path / "a" / "1.png").convert("L" if channels == 1 else "RGB")
    np.testing.assert_allclose(
        images[1], np.asarray(expected).reshape(6, 8, channels).transpose(2, 0, 1), atol=1e-4
    )


def test_transparent_palette_is_read_without_a_warning(tmp_path):
    (tmp_path / "a").mkdir()
    Image.fromarray(pixels(0)).quantize(8).save(
        tmp_path / "a" / "0.png", transparency=bytes([0, 128])
    )
    assert load(f"folder:{tmp_path}").images([0]).shape == (1, 3, 6, 8)


def refuse(tmp_path, sentence, split="test", kind=DataError):
    with pytest.raises(kind, match=sentence) as error:
        load(f"folder:{tmp_path}", split)
    assert "\n" not in str(error.value)


def test_sizes_that_differ_are_refused_with_two_files(tmp_path):
    tree(tmp_path, FILES)
    paint(tmp_path / "dog" / "b.png", pixels(9, height=5))
    refuse(tmp_path, "must have one size, but cat/a.png has 8x6 and dog/b.png has 8x5: resize them")


def test_classes_that_differ_are_refused_with_the_class(tmp_path):
    tree(tmp_path, ["train/cat/a.png", "train/dog/a.png", "test/cat/a.png"])
    for split in ("train", "test"):
        refuse(tmp_path, "but train has a folder dog and test has none", split)
    tree(tmp_path, ["test/dog/a.png", "test/ant/a.png"])
    refuse(tmp_path, "but test has a folder ant and train has none")


def test_missing_folders_are_refused(tmp_path):
    refuse(tmp_path / "none", "none: there is no such folder")
    refuse(tmp_path, r"no image files \(.bmp, .* in folders of classes")
    refuse(tmp_path, "has the splits train and test \\(or val\\), not 'dev'", "dev", UsageError)
    tree(tmp_path, ["train/cat/a.png"])
    refuse(tmp_path, "there is no folder test or val with folders of classes")


def test_damaged_images_are_refused_with_the_file(tmp_path):
    tree(tmp_path, FILES)
    path = tmp_path / "dog" / "a.png"
    content = path.read_bytes()
    dataset = load(f"folder:{tmp_path}")
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match=f"{path}: damaged .*: replace or remove it"):
        dataset.images([0, 2])
    paint(path, pixels(0, height=9))
    with pytest.raises(DataError, match="has changed since the data set was loaded"):
        dataset.images([2])
    for broken in (b"", b"no image", content[:20]):
        path.write_bytes(broken)
        refuse(tmp_path, "dog/a.png: not a readable image .*: replace or remove it")
    Image.fromarray(np.zeros((6, 8), np.uint16)).save(path)
    refuse(tmp_path, "cat/a.png has 8 bits and dog/a.png has 16 bits: convert them")
    assert [result.ok for result in check(f"folder:{tmp_path}")] == [False, False]


def test_image_that_would_unpack_without_end_is_refused(tmp_path, monkeypatch):
    tree(tmp_path, FILES)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    refuse(tmp_path, "cat/a.png: not a readable image \\(Image size \\(48 pixels\\) exceeds")


@settings(max_examples=100, deadline=None)
@given(data=st.data(), form=st.sampled_from(["png", "jpeg", "bmp", "webp", "ppm"]))
def test_damaged_files_of_any_format_are_read_or_refused(tmp_path_factory, data, form):
    path = tmp_path_factory.getbasetemp() / f"damaged.{form}"
    paint(path, pixels(0))
    content = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] = data.draw(st.integers(0, 255))
    path.write_bytes(content[: data.draw(st.integers(1, 4 * len(content)))])
    try:
        decode(path, 3)
    except SmoothmixError:
        return


# ImageNet


def imagenet_tree(root, split="val"):
    tree(
        root / split,
        ["n01443537/ILSVRC2012_val_00000002.JPEG", "n01440764/ILSVRC2012_val_00000003.JPEG"],
    )
    paint(root / split / "n15075141" / "ILSVRC2012_val_00000001.JPEG", pixels(5, 300, 400))


@pytest.mark.parametrize("place", ["", "imagenet", "imagenet-sample"])
@pytest.mark.parametrize("split", ["val", "test"])
def test_imagenet_classes_and_order(tmp_path, place, split):
    imagenet_tree(tmp_path / place)
    dataset = load("imagenet", split, data_dir=tmp_path)
    assert [Path(file).stem[-1] for file in dataset.files] == ["3", "2", "1"]
    assert dataset.labels.tolist() == [0, 1, 999], "class by class, as the field's logs number them"
    assert (dataset.num_classes, dataset.shape, dataset.split) == (1000, (3, 224, 224), "test")
    assert dataset.class_names[1] == "n01443537"
    assert (dataset.augmentation, dataset.note) == (
        "resized-crop",
        "3 of 50,000 images, 3 of 1000 classes",
    )
    assert dataset.images([0, 1]).shape == (2, 3, 224, 224)


def test_imagenet_has_no_train_until_it_is_there(tmp_path):
    imagenet_tree(tmp_path)
    results = check("imagenet", data_dir=tmp_path)
    assert [(result.split, result.ok) for result in results] == [("train", False), ("test", True)]
    assert "no folder train (looked in " in results[0].message
    assert "image-net.org" in results[0].message
    imagenet_tree(tmp_path, "train")
    assert (
        load("imagenet", "train", data_dir=tmp_path).note
        == "3 of 1,281,167 images, 3 of 1000 classes"
    )


def test_unknown_classes_and_unsorted_images_are_refused(tmp_path):
    (tmp_path / "val").mkdir()
    with pytest.raises(
        DataError,
        match=r"there are no class folders: images belong in folders such as .*n01440764",
    ):
        load("imagenet", data_dir=tmp_path)
    tree(tmp_path / "val", ["n01440764/a.png", "tench/a.png"])
    with pytest.raises(DataError, match="val: tench is none of ImageNet's 1000 classes"):
        load("imagenet", data_dir=tmp_path)


@pytest.mark.parametrize(
    ("width", "height"), [(400, 300), (300, 400), (256, 256), (100, 77), (1000, 257)]
)
def test_centre_is_the_middle_after_scaling_the_short_side(width, height):
    image = Image.fromarray(pixels(0, height, width))
    short = min(width, height)
    scaled = image.resize(
        (int(256 * width / short), int(256 * height / short)), Image.Resampling.BILINEAR
    )
    left, top = round((scaled.width - 224) / 2), round((scaled.height - 224) / 2)
    expected = np.asarray(scaled)[top : top + 224, left : left + 224]
    np.testing.assert_array_equal(np.asarray(centre_crop(image, 256, (224, 224))), expected)


def test_training_images_are_the_crops_that_their_numbers_say(tmp_path):
    imagenet_tree(tmp_path)
    dataset = load("imagenet", data_dir=tmp_path)
    numbers = np.random.default_rng(0).random((2, AUGMENTATION_NUMBERS))
    numbers[:, 0] = (0.2, 0.7)
    batch = dataset.training_images([2, 2], numbers)
    for row, result in zip(numbers, batch, strict=True):
        image = decode(dataset.root / dataset.files[2], 3).crop(crop_box(400, 300, row))
        expected = np.asarray(image.resize((224, 224), Image.Resampling.BILINEAR))
        expected = expected[:, ::-1] if row[0] < 0.5 else expected
        np.testing.assert_array_equal(
            result.numpy() * 255, expected.transpose(2, 0, 1).astype(np.float32)
        )
    assert (dataset.training_images([2], numbers[1:])[0] == batch[1]).all()


def test_the_list_of_classes_is_complete_and_in_order():
    assert len(set(wnids())) == 1000
    assert list(wnids()) == sorted(wnids())
    assert [wnids().index(wnid) for wnid in ("n02123045", "n03417042", "n07753592")] == [
        281,
        569,
        954,
    ]


@pytest.mark.shared
def test_real_images_have_their_true_classes():
    dataset = load("imagenet", "val", data_dir=SHARED)
    with (SHARED / "imagenet-sample" / "files.csv").open(newline="") as file:
        truth = {Path(row["file"]).name: int(row["imagenet_index"]) for row in csv.DictReader(file)}
    assert {
        Path(f).name: y for f, y in zip(dataset.files, dataset.labels.tolist(), strict=True)
    } == truth
    assert 0.3 < dataset.images(range(0, 90, 10)).mean().item() < 0.6


def test_val_is_a_part_of_its_own_beside_test(tmp_path):
    tree(
        tmp_path,
        [f"{split}/{c}/a.png" for split in ("train", "val", "test") for c in ("cat", "dog")],
    )
    found = {split: load(f"folder:{tmp_path}", split) for split in ("train", "val", "test")}
    assert {split: (dataset.split, dataset.root.name) for split, dataset in found.items()} == {
        split: (split, split) for split in found
    }
    (tmp_path / "val" / "dog" / "a.png").write_bytes(b"no image")
    assert [(result.split, result.ok) for result in check(f"folder:{tmp_path}")] == [
        ("train", True),
        ("test", True),
        ("val", False),
    ]


def test_check_lists_labels_and_finds_images_that_are_cut(tmp_path):
    tree(tmp_path, ["10/a.png", "2/a.png", "2/b.png"])
    (tmp_path / "3").mkdir()
    results = check(f"folder:{tmp_path}")
    assert all(
        result.ok and result.message.endswith("; labels: 0 10 (1), 1 2 (2), 2 3 (0)")
        for result in results
    )
    path = tmp_path / "2" / "b.png"
    path.write_bytes(path.read_bytes()[:-30])
    for result in check(f"folder:{tmp_path}"):
        assert not result.ok
        assert "2/b.png: damaged" in result.message


def test_a_path_has_one_name_however_it_is_written(tmp_path, monkeypatch):
    tree(tmp_path / "mine", FILES)
    monkeypatch.chdir(tmp_path)
    assert {
        load(name).name for name in ("folder:mine", "folder:./mine/", "folder:mine/../mine")
    } == {"folder:mine"}
