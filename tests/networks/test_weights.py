"""Weights in files: they come back as they were, land where they belong, and nothing in a file is run."""

from __future__ import annotations

import io
import os
import pickle
import struct
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from smoothmix.errors import CheckpointError
from smoothmix.networks import (
    Network,
    build,
    import_checkpoint,
    load_weights,
    save_weights,
    state_hash,
)
from smoothmix.networks.resnet import cifar_resnet

LAYOUTS = [pytest.param(True, id="zip"), pytest.param(False, id="legacy")]
IMAGES = torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))


def small() -> Network:
    """A ResNet-8 with BatchNorm statistics that are not those of a fresh network."""
    network = Network(build("cifar_resnet20").normalise, cifar_resnet(1, 3, 10)).eval()
    for name, value in network.body.named_buffers():
        if name.endswith(("running_mean", "running_var")):
            value.uniform_(0.5, 1.5)
    return network


def prefixed(state: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return OrderedDict((prefix + name, value) for name, value in state.items())


def save(content: object, path: Path, zipped: bool) -> Path:
    torch.save(content, path, _use_new_zipfile_serialization=zipped)
    return path


def refusal(function: Callable[..., object], *args: object) -> str:
    with pytest.raises(CheckpointError) as caught:
        function(*args)
    sentence = str(caught.value)
    assert "\n" not in sentence
    return sentence


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


# Published checkpoints


@pytest.mark.parametrize("zipped", LAYOUTS)
@pytest.mark.parametrize("prefix", ["", "1.", "1.module.", "module.", "body."])
@pytest.mark.parametrize("container", ["state_dict", "net", "model_state_dict", "model", None])
def test_published_checkpoints_land(
    tmp_path: Path, prefix: str, container: str | None, zipped: bool
) -> None:
    source, target = small(), small()
    state = prefixed(source.body.state_dict(), prefix)
    optimiser = torch.optim.SGD(source.parameters(), lr=0.1, momentum=0.9)
    whole = {
        "epoch": 90,
        "arch": "cifar_resnet8",
        container: state,
        "optimizer": optimiser.state_dict(),
    }
    path = save(whole if container else state, tmp_path / "checkpoint.pth.tar", zipped)
    assert not torch.equal(source(IMAGES), target(IMAGES))
    imported = import_checkpoint(path, target)
    assert torch.equal(source(IMAGES), target(IMAGES))
    assert (imported.epoch, imported.arch) == ((90, "cifar_resnet8") if container else (None, None))
    assert (imported.placed, imported.unplaced, imported.missing) == (len(state), (), ())
    assert not imported.by_order


def test_names_without_a_place_are_reported_and_lacking_counters_tolerated(tmp_path: Path) -> None:
    source, target = small(), small()
    state = {
        name: value for name, value in source.body.state_dict().items() if "num_batches" not in name
    }
    path = save({"0.mean": torch.zeros(3), **prefixed(state, "1.")}, tmp_path / "c", True)
    imported = import_checkpoint(path, target)
    assert imported.unplaced == ("0.mean",)
    assert imported.missing
    assert all(name.endswith("num_batches_tracked") for name in imported.missing)
    assert imported.placed == len(state)
    assert torch.equal(source(IMAGES), target(IMAGES))


@pytest.mark.parametrize("left_out", ["fc.bias", "layer2.0.bn1.running_var"])
def test_lacking_weights_and_statistics_are_refused(tmp_path: Path, left_out: str) -> None:
    target, state = small(), small().body.state_dict()
    del state[left_out]
    before = state_hash(target)
    assert f"lacks 1 ({left_out})" in refusal(
        import_checkpoint, save(state, tmp_path / "c", True), target
    )
    assert state_hash(target) == before


def test_other_number_of_classes_is_refused_with_shapes(tmp_path: Path) -> None:
    path = save(prefixed(small().body.state_dict(), "1."), tmp_path / "c", True)
    target = Network(nn.Identity(), cifar_resnet(1, 3, 100))
    assert "fc.weight [10, 64] for [100, 64]" in refusal(import_checkpoint, path, target)


def test_other_names_in_the_same_order_are_placed_by_order(tmp_path: Path) -> None:
    source, target = build("lenet"), build("lenet")
    plain = zip(("1.0", "1.3", "1.7", "1.9"), ("conv1", "conv2", "fc1", "fc2"), strict=True)
    state = {
        f"{a}.{k}": source.body.get_parameter(f"{b}.{k}")
        for a, b in plain
        for k in ("weight", "bias")
    }
    imported = import_checkpoint(
        save({"state_dict": state, "epoch": 3}, tmp_path / "c", False), target
    )
    assert (imported.by_order, imported.placed) == (True, 8)
    assert state_hash(source) == state_hash(target)


def test_order_is_followed_only_where_it_cannot_mislead(tmp_path: Path) -> None:
    state = small().body.state_dict()
    blocks = {
        name: ".".join(name.split(".")[:2]) if name.startswith("layer") else name for name in state
    }
    order = list(dict.fromkeys(blocks.values()))
    shortcut_first = sorted(
        state, key=lambda name: (order.index(blocks[name]), "downsample" not in name)
    )
    conv, scale, shift, *rest = state
    for names in (list(state), shortcut_first, sorted(state), [conv, shift, scale, *rest]):
        path = save({f"x.{name}": state[name] for name in names}, tmp_path / "c", True)
        if names == list(state):
            assert import_checkpoint(path, small()).by_order
        else:
            assert "has 56 unknown (x." in refusal(import_checkpoint, path, small())


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
    told = refusal(import_checkpoint, sparse, small())
    assert "more than plain tensors (torch._utils._rebuild_sparse_tensor)" in told
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
