"""CIFAR-10: folders and archives, whole and in parts, honest and hostile."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import pickle
import struct
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smoothmix.data import cifar as cifar_module
from smoothmix.data import load
from smoothmix.data.cifar import CIFAR10, FOLDER
from smoothmix.data.cifar_pickles import read_batch
from smoothmix.data.source import DataRequest
from smoothmix.errors import DataError, SmoothmixError

SHARED = Path(__file__).parents[3] / "shared" / "data"


def python2_pickle(images, labels, kind=b"u1"):
    """The bytes that Python 2 wrote for a batch, opcode by opcode as in the real files."""
    raw = images.tobytes()
    byte_type = (
        b"cnumpy\ndtype\nU\x02"
        + kind
        + b"K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    )
    shape = b"".join(b"J" + struct.pack("<i", side) for side in images.shape)
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R(K\x01("
        + shape
        + b"t"
    )
    array += byte_type + b"\x89T" + struct.pack("<i", len(raw)) + raw + b"tb"
    numbers = b"](" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
    return b"\x80\x02}(U\x04data" + array + b"U\x06labels" + numbers + b"u."


def made_batch(seed):
    random = np.random.default_rng(seed)
    return python2_pickle(
        random.integers(0, 256, (4, 3072), dtype=np.uint8), random.integers(0, 10, 4)
    )


def md5(content):
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


NAMES = [f"data_batch_{n}" for n in range(1, 6)]
BATCHES = {name: made_batch(seed) for seed, name in enumerate([*NAMES, "test_batch"])}
TINY = replace(
    CIFAR10,
    train={name: md5(BATCHES[name]) for name in NAMES},
    test={"test_batch": md5(BATCHES["test_batch"])},
)


def tiny(data_dir, split="train", *, allow_partial=False, source=TINY):
    return source.load(
        DataRequest(name="cifar10", split=split, data_dir=data_dir, allow_partial=allow_partial)
    )


def write_folder(folder, names=tuple(BATCHES)):
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).write_bytes(BATCHES[name])


def write_archive(path, members):
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            header = tarfile.TarInfo(name)
            header.size = len(content)
            archive.addfile(header, io.BytesIO(content))


def archived(names=tuple(BATCHES), prefix=f"{FOLDER}/"):
    return {f"{prefix}{name}": BATCHES[name] for name in names}


@pytest.fixture
def whole(tmp_path):
    write_folder(tmp_path / "whole" / FOLDER)
    return tiny(tmp_path / "whole")


def test_pixels_labels_and_order(whole):
    assert (len(whole), whole.shape, whole.augmentation, whole.note) == (
        20,
        (3, 32, 32),
        "flip-shift",
        None,
    )
    for n, name in enumerate(NAMES):
        random = np.random.default_rng(n)
        pixels = random.integers(0, 256, (4, 3, 32, 32), dtype=np.uint8)
        np.testing.assert_array_equal(whole.pixels[4 * n : 4 * n + 4], pixels, err_msg=name)
        np.testing.assert_array_equal(whole.labels[4 * n : 4 * n + 4], random.integers(0, 10, 4))


@pytest.mark.parametrize("place", ["", "cifar10", "CIFAR10"])
@pytest.mark.parametrize(
    "form", ["folder", "cifar-10-python.tar.gz", "anything.tar.gz", "dotted.tar.gz"]
)
def test_every_layout_gives_the_same_data(tmp_path, whole, place, form):
    if form == "folder":
        write_folder(tmp_path / "data" / place / FOLDER)
    else:
        prefix = f"./{FOLDER}/" if form.startswith("dotted") else f"{FOLDER}/"
        write_archive(tmp_path / "data" / place / form, archived(prefix=prefix))
    assert tiny(tmp_path / "data").fingerprint == whole.fingerprint
    assert len(tiny(tmp_path / "data", "test")) == 4


def test_batches_are_put_together_from_several_archives_and_a_folder(tmp_path, whole):
    data_dir = tmp_path / "data"
    write_archive(data_dir / "cifar10" / "cifar-10-part1.tar.gz", archived(NAMES[:2]))
    write_archive(data_dir / "cifar-10-part2.tar.gz", archived(NAMES[2:4]))
    write_folder(data_dir / "CIFAR10" / FOLDER, NAMES[4:])
    assert tiny(data_dir).fingerprint == whole.fingerprint


def test_missing_batches_are_named_and_may_be_left_out(tmp_path):
    write_archive(
        tmp_path / "part.tar.gz", archived(["data_batch_1", "data_batch_3", "test_batch"])
    )
    with pytest.raises(DataError) as error:
        tiny(tmp_path)
    assert str(error.value) == (
        "cifar10: data_batch_2, data_batch_4, data_batch_5 not found "
        f"(looked in {tmp_path}/cifar10, {tmp_path}/CIFAR10, {tmp_path}): "
        "run `smoothmix data fetch cifar10` or point --data-dir at a folder that "
        "has it; --allow-partial trains on the batches that are there"
    )
    partial = tiny(tmp_path, allow_partial=True)
    assert len(partial) == 8
    assert partial.note == "without data_batch_2, data_batch_4, data_batch_5: not found intact"
    assert len(tiny(tmp_path, "test")) == 4


def test_nothing_at_all_is_an_error_also_when_a_part_would_do(tmp_path):
    with pytest.raises(DataError, match="test_batch not found"):
        tiny(tmp_path, "test", allow_partial=True)


def test_altered_batch_is_named_with_its_md5_and_looked_for_elsewhere(tmp_path):
    write_folder(tmp_path / FOLDER)
    path = tmp_path / FOLDER / "test_batch"
    path.write_bytes(BATCHES["test_batch"][:-1])
    with pytest.raises(
        DataError, match=f"not found intact \\({path} is altered or truncated: its md5 is "
    ) as error:
        tiny(tmp_path, "test")
    assert "run `smoothmix data fetch cifar10`" in str(error.value)
    write_archive(tmp_path / "cifar10" / "cifar-10-python.tar.gz", archived())
    assert len(tiny(tmp_path, "test")) == 4


def test_truncated_archive_says_so_and_gives_what_it_has(tmp_path):
    path = tmp_path / "cifar-10-python.tar.gz"
    write_archive(path, archived())
    content = gzip.decompress(path.read_bytes())
    path.write_bytes(gzip.compress(content[: len(content) // 2])[:-8])
    with pytest.raises(DataError, match=f"not found intact \\({path} is truncated or damaged: "):
        tiny(tmp_path)
    assert 0 < len(tiny(tmp_path, allow_partial=True)) < 20


@pytest.mark.parametrize(
    "content",
    [b"", b"no gzip", gzip.compress(b"no tar" * 200), gzip.compress(b"")],
    ids=["empty", "no gzip", "no tar", "empty gzip"],
)
def test_archives_of_something_else_do_no_harm(tmp_path, content):
    (tmp_path / "a.tar.gz").write_bytes(content)
    with pytest.raises(DataError, match="test_batch not found"):
        tiny(tmp_path, "test")
    write_archive(tmp_path / "b.tar.gz", archived())
    assert len(tiny(tmp_path, "test")) == 4


@pytest.mark.parametrize(
    "prefix", [f"/{FOLDER}/", f"../{FOLDER}/", f"a/../{FOLDER}/", "other/", ""]
)
def test_members_with_unsafe_or_other_paths_are_ignored(tmp_path, prefix):
    write_archive(tmp_path / "data" / "hostile.tar.gz", archived(prefix=prefix))
    with pytest.raises(DataError, match="test_batch not found"):
        tiny(tmp_path / "data", "test")
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_links_in_archives_are_ignored(tmp_path):
    with tarfile.open(tmp_path / "links.tar.gz", "w:gz") as archive:
        header = tarfile.TarInfo(f"{FOLDER}/test_batch")
        header.type, header.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(header)
    with pytest.raises(DataError, match="test_batch not found"):
        tiny(tmp_path, "test")


def test_archive_that_unpacks_without_end_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(cifar_module, "ARCHIVE_LIMIT", 100_000)
    write_archive(tmp_path / "bomb.tar.gz", {"zeros": bytes(200_000), **archived()})
    with pytest.raises(DataError, match="far more than CIFAR-10 has"):
        tiny(tmp_path, "test")


class Bomb:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_pickle_that_would_run_something_is_refused(tmp_path, protocol):
    target = tmp_path / "proof"
    content = pickle.dumps({"data": Bomb(target)}, protocol=protocol)
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / "test_batch").write_bytes(content)
    with pytest.raises(DataError, match=r"test_batch: refused, since it asks to run posix\.mkdir"):
        tiny(tmp_path, "test", source=replace(TINY, test={"test_batch": md5(content)}))
    assert not target.exists()
    pickle.loads(content)
    assert target.exists()


ROWS = np.zeros((2, 3072), dtype=np.uint8)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "not a CIFAR-10 batch \\(ValueError: pickle exhausted"),
        (pickle.dumps([1], protocol=2), "a list instead of a dict"),
        (pickle.dumps({}, protocol=2), "no array `data` with 3072 bytes per image"),
        (python2_pickle(ROWS[:, :100], [0, 1]), "no array `data`"),
        (python2_pickle(ROWS[0], [0]), "no array `data`"),
        (python2_pickle(ROWS, [0, 1], kind=b"O8"), "numbers of type b'O8' instead of bytes"),
        (python2_pickle(ROWS, [0]), "no list `labels` with a small number for each image"),
        (python2_pickle(ROWS, [0, 1]).replace(b"K\x01eu.", b"Neu."), "no list `labels`"),
        (b"\x80\x02]r\xff\xff\xff\x7f.", "an object numbered 2147483647"),
        (b"cnumpy\nndarray\n(K\x01tR.", "not a CIFAR-10 batch \\(TypeError"),
    ],
)
def test_pickles_of_something_else_are_refused(content, sentence):
    with pytest.raises(DataError, match=sentence):
        read_batch(content, "made")


def test_labels_beyond_the_ten_classes_are_refused(tmp_path):
    content = python2_pickle(ROWS, [0, 10])
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / "test_batch").write_bytes(content)
    with pytest.raises(DataError, match="label 10 of image 1 is not one of the classes 0 to 9"):
        tiny(tmp_path, "test", source=replace(TINY, test={"test_batch": md5(content)}))


@settings(max_examples=200, deadline=None)
@given(at=st.integers(0, 170) | st.integers(-20, -4), value=st.binary(min_size=1, max_size=3))
def test_damaged_pickles_are_read_or_refused(at, value):
    content = bytearray(python2_pickle(ROWS[:1], [7]))
    content[at : at + len(value)] = value
    try:
        images, labels = read_batch(bytes(content), "made")
    except SmoothmixError:
        return
    assert images.shape[1:] == (3, 32, 32)
    assert len(images) == len(labels)


@pytest.mark.shared
def test_real_cifar10_as_far_as_it_is_there():
    test = load("cifar10", data_dir=SHARED)
    assert (len(test), test.fingerprint) == (10_000, "874375b717e807c4")
    assert [test.class_names[label] for label in test.labels[:3]] == ["cat", "ship", "ship"]
    train = load("cifar10", "train", data_dir=SHARED / "cifar10", allow_partial=True)
    assert (
        np.abs(train.images(range(5000)).mean((0, 2, 3)).numpy() - [0.4914, 0.4822, 0.4465]).max()
        < 0.01
    )
