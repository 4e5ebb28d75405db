"""Published checkpoints: every known layout lands in the network, and nothing is placed wrongly."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from smoothmix.networks import Network, build, import_checkpoint, state_hash
from smoothmix.networks.resnet import cifar_resnet
from tests.helpers.weights import IMAGES, LAYOUTS, prefixed, refusal, save, small


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
