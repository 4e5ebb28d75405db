"""Weights in files: what is saved is loaded, what does not fit is refused, no code is run."""

from __future__ import annotations

import io
import os
import pickle
import struct
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from smoothmix.errors import CheckpointError
from smoothmix.networks import (
    build,
    import_checkpoint,
    load_weights,
    save_weights,
    state_hash,
)
from tests.helpers.weights import IMAGES, LAYOUTS, refusal, save, small

# Our own files


@pytest.mark.parametrize("name", ["weights.safetensors", "weights.pt"])
def test_weights_come_back(tmp_path: Path, name: str) -> None:
    source, target, path = small(), small(), tmp_path / name
    target.normalise = build("cifar_resnet20", normalisation=((0, 0, 0), (1, 1, 1))).normalise
    if path.suffix == ".pt":
        torch.save(source.state_dict(), path)
    else:
        save_weights(source.to(memory_format=torch.channels_last), path)
    assert not torch.equal(source(IMAGES), target(IMAGES))
    load_weights(target, path)
    assert state_hash(source) == state_hash(target)
    torch.testing.assert_close(source(IMAGES), target(IMAGES), rtol=0, atol=1e-5)


def test_weights_that_two_layers_share_are_saved(tmp_path: Path) -> None:
    first, second = nn.Linear(3, 3), nn.Linear(3, 3)
    second.weight = first.weight
    model = nn.Sequential(first, second)
    save_weights(model, tmp_path / "new folder" / "w.safetensors")
    fresh = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    load_weights(fresh, tmp_path / "new folder" / "w.safetensors")
    assert state_hash(fresh) == state_hash(model)
    assert torch.equal(fresh[0].weight, fresh[1].weight)


def test_weights_that_do_not_fit_are_named_and_change_nothing(tmp_path: Path) -> None:
    path, target = tmp_path / "w.safetensors", nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 2))
    save_weights(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), path)
    before = state_hash(target)
    sentence = refusal(load_weights, target, path)
    assert "lacks 2 (1.weight, 1.bias)" in sentence
    assert "has 2 unknown (2.bias, 2.weight)" in sentence
    assert "has 2 of another shape (0.weight [4, 3] for [5, 3]" in sentence
    assert state_hash(target) == before
    assert "network: it has 2 unknown (2.bias" in refusal(
        load_weights, nn.Sequential(nn.Linear(3, 4)), path
    )
    save_weights(nn.Linear(1, 1), path)
    assert "lacks 49 (normalise.mean, normalise.std, body.conv1.weight, ...)" in refusal(
        load_weights, small(), path
    )


def test_weights_of_a_network_that_ran_in_parallel_fit(tmp_path: Path) -> None:
    torch.manual_seed(0)
    trained, fresh = nn.Sequential(nn.Linear(3, 2)), nn.Sequential(nn.Linear(3, 2))
    torch.save(
        {f"module.{name}": value for name, value in trained.state_dict().items()}, tmp_path / "w.pt"
    )
    load_weights(fresh, tmp_path / "w.pt")
    assert state_hash(fresh) == state_hash(trained)


def test_weights_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    broken = nn.Linear(3, 2)
    nn.init.constant_(broken.bias, float("nan"))
    torch.save(broken.state_dict(), tmp_path / "w.pt")
    with pytest.raises(CheckpointError, match=r"w\.pt holds weights that are not finite \(bias"):
        load_weights(nn.Linear(3, 2), tmp_path / "w.pt")


def test_hash_changes_with_every_tensor_and_not_with_memory_format() -> None:
    network = small()
    value = state_hash(network)
    for name, tensor in [*network.named_parameters(), *network.named_buffers()]:
        old = tensor.detach().clone()
        with torch.no_grad():
            tensor.view(-1)[-1] += 1
            assert (state_hash(network) == value) == name.endswith("num_batches_tracked")
            tensor.copy_(old)
    assert state_hash(network.to(memory_format=torch.channels_last)) == value
    assert state_hash(network.double()) != value
    wide, high = (nn.ParameterList([torch.zeros(shape)]) for shape in ((2, 3), (3, 2)))
    assert state_hash(wide) != state_hash(high)
    assert (
        len(
            {
                state_hash(network.to(dtype))
                for dtype in (torch.bfloat16, torch.float16, torch.float32)
            }
        )
        == 3
    )


# Files that are not what they should be


class Bomb:
    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.canary),)


@pytest.mark.parametrize("zipped", LAYOUTS)
def test_code_in_a_file_is_refused_and_not_run(tmp_path: Path, zipped: bool) -> None:
    canary = tmp_path / "canary"
    content = {"state_dict": small().body.state_dict(), "extra": Bomb(canary)}
    path = save(content, tmp_path / "bomb.pt", zipped)
    for sentence in refusal(import_checkpoint, path, small()), refusal(load_weights, small(), path):
        assert (
            "holds code, not only tensors (posix.mkdir); smoothmix never runs code from a file"
            in sentence
        )
    assert not canary.exists()
    pickle.loads(pickle.dumps(Bomb(canary)))
    assert canary.exists(), "the bomb was a dud"


def hostile_pickle(
    elements: int, shape: tuple[int, ...], stride: tuple[int, ...], *last: object
) -> bytes:
    """A state dict with one tensor of which the file says what it likes."""

    class Storage:
        pass

    class Weight:
        def __reduce__(self) -> tuple[Any, ...]:
            return torch._utils._rebuild_tensor_v2, (
                Storage(),
                0,
                shape,
                stride,
                False,
                OrderedDict(),
            )

    class Pickler(pickle.Pickler):
        def persistent_id(self, obj: object) -> object:
            return (
                ("storage", torch.FloatStorage, "0", "cpu", elements, *last)
                if isinstance(obj, Storage)
                else None
            )

    file = io.BytesIO()
    Pickler(file, protocol=2).dump({"weight": Weight()})
    return file.getvalue()


def hostile_zip(path: Path, content: bytes, compression: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in {
            "data.pkl": content,
            "byteorder": b"little",
            "data/0": bytes(64),
            "version": b"3\n",
        }.items():
            archive.writestr(f"c/{name}", data)
    return path


def test_declared_sizes_beyond_the_file_are_refused(tmp_path: Path) -> None:
    model = nn.Linear(4, 4, bias=False)
    load_weights(model, hostile_zip(tmp_path / "honest.pt", hostile_pickle(16, (4, 4), (4, 1))))
    assert torch.all(model.weight == 0)
    huge = 10**6, 10**6
    for elements, shape, stride in (
        (10**12, huge, (10**6, 1)),
        (16, huge, (10**6, 1)),
        (16, huge, (0, 0)),
    ):
        path = hostile_zip(tmp_path / "huge.pt", hostile_pickle(elements, shape, stride))
        assert (
            "damaged" in (sentence := refusal(load_weights, model, path))
            or "another shape" in sentence
        )
    packed = hostile_zip(
        tmp_path / "packed.pt", hostile_pickle(16, (4, 4), (4, 1)), zipfile.ZIP_DEFLATED
    )
    assert "not written by torch.save" in refusal(load_weights, model, packed)
    header = b"".join(
        pickle.dumps(part, 2) for part in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True})
    )
    legacy = (
        header
        + hostile_pickle(10**13, (10**13,), (1,), None)
        + pickle.dumps(["0"], 2)
        + struct.pack("<q", 16)
    )
    (tmp_path / "legacy.pt").write_bytes(legacy)
    assert "damaged" in refusal(load_weights, model, tmp_path / "legacy.pt")


@pytest.mark.parametrize("zipped", LAYOUTS)
def test_files_cut_anywhere_are_refused(tmp_path: Path, zipped: bool) -> None:
    model = nn.Linear(4, 4)
    data = save(model.state_dict(), tmp_path / "c.pt", zipped).read_bytes()
    for length in range(0, len(data) - 8, 41):
        (tmp_path / "cut.pt").write_bytes(data[:length])
        refusal(load_weights, model, tmp_path / "cut.pt")


def test_damaged_safetensors_are_refused(tmp_path: Path) -> None:
    model, path = nn.Linear(4, 4), tmp_path / "w.safetensors"
    save_weights(model, path)
    data = path.read_bytes()
    larger = data.replace(b"[4,4]", b"[4,9]")
    for damaged in data[:-1], data[:20], b"", b"garbage" * 9, data + b"more", larger:
        path.write_bytes(damaged)
        assert "is damaged, cut short or no safetensors file" in refusal(load_weights, model, path)


@pytest.mark.parametrize("name", ["w.safetensors", "w.pt"])
def test_what_is_no_file_of_weights_is_said_in_a_sentence(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    assert "cannot read" in refusal(load_weights, small(), path)
    path.mkdir()
    assert "cannot read" in refusal(load_weights, small(), path)
    (tmp_path / "text").write_text("hello " * 20)
    assert "not written by torch.save" in refusal(import_checkpoint, tmp_path / "text", small())
    sparse = save({"w": torch.zeros(3).to_sparse()}, tmp_path / "c", True)
    sentence = refusal(import_checkpoint, sparse, small())
    assert "more than plain tensors (torch._utils._rebuild_sparse_tensor)" in sentence
    for content in ([1, 2], {"epoch": 3}, torch.zeros(3)):
        assert "holds no weights" in refusal(
            import_checkpoint, save(content, tmp_path / "c", True), small()
        )


def test_checkpoints_as_torchs_own_pages_write_them_are_read(tmp_path: Path) -> None:
    source, target, path = nn.Linear(3, 2), nn.Linear(3, 2), tmp_path / "w.pt"
    torch.save({"epoch": 3, "model_state_dict": source.state_dict()}, path)
    load_weights(target, path)
    assert state_hash(source) == state_hash(target)
    torch.save({"epoch": 3, "loss": 0.5}, path)
    assert "holds no weights (it holds epoch, loss)" in refusal(load_weights, target, path)
