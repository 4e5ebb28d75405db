"""Hostile checkpoints: each is refused in one sentence, without much memory or time."""

from __future__ import annotations

import io
import pickle
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from smoothmix._io.untrusted import load_plain
from smoothmix.errors import CheckpointError
from smoothmix.networks import import_checkpoint, load_weights

MODEL = nn.Linear(4, 4, bias=False)
LEGACY = b"".join(
    pickle.dumps(part, 2) for part in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True})
)


def text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value.encode())) + value.encode()


def number(value: int) -> bytes:
    return b"\x8a\x08" + struct.pack("<q", value)


def storage(numel: int, key: str = "0", last: bytes = b"") -> bytes:
    return (
        b"("
        + text("storage")
        + b"ctorch\nFloatStorage\n"
        + text(key)
        + text("cpu")
        + number(numel)
        + last
        + b"tQ"
    )


def tensor(numel: int, shape: bytes, stride: bytes, **options: str) -> bytes:
    hooks = b"\x89ccollections\nOrderedDict\n)R"
    return (
        b"ctorch._utils\n_rebuild_tensor_v2\n("
        + storage(numel, **options)
        + b"K\x00"
        + shape
        + stride
        + hooks
        + b"tR"
    )


def named(value: bytes, name: str = "weight") -> bytes:
    return text(name) + value + b"s"


SQUARE = b"K\x04K\x04\x86", b"K\x04K\x01\x86"


def write(path: Path, body: bytes, members: dict[str, bytes] | None = None) -> Path:
    """A checkpoint of a dict that the body fills, as torch.save lays it out."""
    content = {
        "c/data.pkl": b"\x80\x02}" + body + b".",
        "c/byteorder": b"little",
        "c/data/0": bytes(64),
        "c/version": b"3\n",
    }
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in {**content, **(members or {})}.items():
            archive.writestr(name, data)
    return path


def refused(
    path: Path, read: Callable[[Path], object] = lambda path: load_weights(MODEL, path)
) -> str:
    with pytest.raises(CheckpointError) as caught:
        read(path)
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert len(sentence) < 1000
    return sentence.removeprefix(str(path))


def test_the_honest_one_is_read(tmp_path: Path) -> None:
    load_weights(MODEL, write(tmp_path / "w.pt", named(tensor(16, *SQUARE))))
    assert torch.all(MODEL.weight == 0)


@pytest.mark.parametrize("zipped", [True, False])
def test_what_training_scripts_save_is_read(tmp_path: Path, zipped: bool) -> None:
    first, second = nn.Linear(3, 3), nn.Linear(3, 3)
    second.weight = first.weight
    model = nn.Sequential(first, second, nn.BatchNorm1d(3)).half()
    optimiser = torch.optim.Adam(
        model.parameters(), eps=1e-3
    )  # the usual one is 0 in half precision
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimiser, [30, 60])
    model(torch.rand(4, 3).half()).sum().backward()
    optimiser.step()
    best = {
        "epoch": 3,
        "best": torch.tensor(0.5),
        "shape": torch.Size([1, 2]),
        "type": torch.float32,
        "size": 2**40,
    }
    states = {
        "model": model.state_dict(),
        "optimizer": optimiser.state_dict(),
        "schedule": schedule.state_dict(),
    }
    torch.save({**best, **states}, tmp_path / "c.pt", _use_new_zipfile_serialization=zipped)
    content = load_plain(tmp_path / "c.pt")
    assert {name: content[name] for name in best} == best
    assert content["schedule"]["milestones"] == {30: 1, 60: 1}
    fresh = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), nn.BatchNorm1d(3))
    assert import_checkpoint(tmp_path / "c.pt", fresh).epoch == 3


def doubling() -> bytes:
    """Twice as long with each call: forty calls would fill any memory."""
    body = named(b"c_codecs\nencode\n" + text("a" * 16) + text("latin1") + b"\x86Rq\x00")
    return body + 40 * named(b"c_codecs\nencode\nh\x00" + text("hex_codec") + b"\x86Rq\x00")


def slow_key() -> bytes:
    """A key of pairs of pairs: two to the sixtieth steps to hash it."""
    return named(b")q\x00") + 60 * named(b"h\x00h\x00\x86q\x00") + b"h\x00Ns"


def copies() -> bytes:
    """One list of pairs, copied into a dict again and again."""
    pairs = b"".join(b"K" + bytes([n]) + b"K\x00\x86" for n in range(200))
    return named(b"](" + pairs + b"eq\x00") + 200 * named(b"ccollections\nOrderedDict\nh\x00\x85R")


SHARED_DICT = named(b"}" + b"".join(named(b"K\x01", str(n)) for n in range(99)) + b"q\x01")

HOSTILE = {
    "gigabytes": (
        named(b"cbuiltins\nbytearray\nJ\xff\xff\xff\x7f\x85R"),
        "not only tensors (builtins.bytearray)",
    ),
    "doubling": (doubling(), "holds code, not only tensors (_codecs.encode)"),
    "empty storage": (
        named(b"ctorch.storage\nUntypedStorage\n" + number(2**40) + b"\x85R"),
        "(torch.storage.Untyped",
    ),
    "empty tensor": (
        named(b"ctorch\nTensor\n" + number(2**40) + b"\x85R"),
        "plain tensors (torch.Tensor)",
    ),
    "code by another name": (
        named(b"ctorch._utils\nos.system\n" + text("true") + b"\x85R"),
        "torch._utils.os.system",
    ),
    "a name of many lines": (
        named(b"ca\x1b[2Jb" + b"x" * 900 + b"\nc\n"),
        "holds code, not only tensors (a\\x1b[2Jb",
    ),
    "slow key": (slow_key(), "is damaged, or holds more than plain values"),
    "one hash": (
        named(b"}" + b"".join(number(n * (2**61 - 1)) + b"Ns" for n in range(3))),
        "is damaged",
    ),
    "copies": (copies(), "is damaged"),
    "attributes": (SHARED_DICT + 900 * named(b"ccollections\nOrderedDict\n)Rh\x01b"), "is damaged"),
    "counters": (SHARED_DICT + 900 * named(b"ccollections\nCounter\nh\x01\x85R"), "is damaged"),
    "stretched": (named(tensor(16, number(2**40) + b"\x85", b"K\x00\x85")), "is damaged"),
    "overflow": (
        named(tensor(16, number(2**61) + number(8) + b"\x86", b"K\x00K\x00\x86")),
        "is damaged",
    ),
    "many axes": (
        named(tensor(16, b"(" + b"K\x01" * 99 + b"t", b"(" + b"K\x01" * 99 + b"t")),
        "is damaged",
    ),
    "beyond the file": (named(tensor(2**40, *SQUARE)), "is damaged"),
    "many storages": (
        b"".join(named(tensor(400, *SQUARE, key=str(n))) for n in range(60)),
        "is damaged",
    ),
    "other id": (named(b"(" + text("module") + b"tQ"), "is damaged"),
    "unbalanced": (b"sssss", "is damaged"),
    "no such reference": (named(b"h\x07"), "is damaged"),
    "list of a dict": (named(b"}K\x01a"), "is damaged"),
    "newer instruction": (named(b"\x8c\x01a"), "is damaged"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_pickles_are_refused_before_torch_obeys_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    body, sentence = HOSTILE[name]
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("torch was asked"))
    assert sentence in refused(write(tmp_path / "w.pt", body))
    legacy = tmp_path / "legacy.pt"
    legacy.write_bytes(
        LEGACY
        + b"\x80\x02}"
        + body
        + b"."
        + pickle.dumps(["0"], 2)
        + struct.pack("<q", 16)
        + bytes(64)
    )
    refused(legacy)


def test_tensors_that_use_the_same_numbers_without_end_are_refused(tmp_path: Path) -> None:
    shared = named(b"]" + storage(25_000) + b"q\x02a")
    hooks = b"\x89ccollections\nOrderedDict\n)R"
    one = b"ctorch._utils\n_rebuild_tensor_v2\n(h\x02K\x00M\xa8\x61\x85K\x01\x85" + hooks + b"tR"
    path = write(tmp_path / "w.pt", shared + 40 * named(one), {"c/data/0": bytes(100_000)})
    assert "is damaged" in refused(path, load_plain)


@pytest.mark.parametrize(
    "name", ["../outside", "c/../../outside", "/outside", "c\\..\\outside", "C/DATA.PKL"]
)
def test_archives_with_names_that_lead_elsewhere_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "inside").mkdir()
    path = write(tmp_path / "inside" / "w.pt", named(tensor(16, *SQUARE)), {name: b"x"})
    assert "not written by torch.save" in refused(path)
    assert [child.name for child in tmp_path.iterdir()] == ["inside"]


def test_archives_that_readers_could_read_differently_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "w.pt", named(tensor(16, *SQUARE)))
    whole = path.read_bytes()
    for changed in (
        b"PK" + bytes(30) + whole,
        whole.replace(b"c/data.pkl", b"c/date.pkl"),
        whole.replace(struct.pack("<II", 64, 64), struct.pack("<II", 64, 2**31)),
        whole.replace(b"c/data/0", b"c/a.zip\0"),
    ):
        path.write_bytes(changed)
        refused(path)


def test_the_tar_archives_of_old_are_refused(tmp_path: Path) -> None:
    path, canary = tmp_path / "w.pt", tmp_path / "canary"
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        header = tarfile.TarInfo(str(canary))
        archive.addfile(header)
    path.write_bytes(buffer.getvalue())
    assert "not written by torch.save" in refused(path)
    assert not canary.exists()


def test_what_a_checkpoint_says_of_itself_fits_on_a_line(tmp_path: Path) -> None:
    weights = named(tensor(16, *SQUARE))
    path = write(
        tmp_path / "w.pt",
        weights + named(b"\x8a\xff" + b"\x7f" * 255, "epoch") + named(b"]", "arch"),
    )
    imported = import_checkpoint(path, MODEL)
    assert (imported.epoch, imported.arch) == (None, None)
    hostile = write(tmp_path / "names.pt", named(tensor(16, *SQUARE), "a\n\x1b[2J" + "b" * 5000))
    assert "has 1 unknown (a\\n\\x1b[2Jbbbb" in refused(hostile)


def header(**tensors: object) -> bytes:
    content = repr(tensors).replace("'", '"').encode()
    return struct.pack("<Q", len(content)) + content + bytes(64)


def one(**changes: object) -> bytes:
    return header(weight={"dtype": "F32", "shape": [4, 4], "data_offsets": [0, 64], **changes})


def test_hostile_safetensors_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    path.write_bytes(one())
    load_weights(MODEL, path)
    for content in (
        *(struct.pack("<Q", length) + one()[8:] for length in (0, 1, 2**31, 2**63, 2**64 - 1)),
        one(shape=[2**62, 2**62]),
        one(shape=[0, 2**63]),
        one(shape=[-4, -4]),
        one(dtype="F4"),
        one(dtype="C64", shape=[8]),
        one(data_offsets=[0, 2**63]),
        one(data_offsets=[64, 0]),
        header(weight=[[[[]]]]),
        struct.pack("<Q", 10**5) + b"[" * 10**5,
    ):
        path.write_bytes(content)
        refused(path)
