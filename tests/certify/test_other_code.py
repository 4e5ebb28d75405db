"""Votes of two networks with the same weights are never mixed in one file."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from importlib import import_module, invalidate_caches
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from smoothmix.certificates import Certification, Selection, merge, read
from smoothmix.certificates.probes import short_probe_text
from smoothmix.certify.dataset import certify_dataset
from smoothmix.data import MemoryDataset
from smoothmix.errors import CertificateError, UsageError
from smoothmix.inference import prepare
from smoothmix.inference.prepare import probe_images
from smoothmix.stats.guarantees import FixedDraws

SHAPE = (1, 4, 4)
HOW = Certification(sigma=0.25, guarantee=FixedDraws(n=512, n0=20), batch=64)


class Network(nn.Module):
    """The code that a file was started with."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.head = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(x.flatten(1))
        return logits


class Permuted(Network):
    """Other classes change places than those that earlier versions looked at."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x)[:, [0, 2, 1, 3, 5, 4, 6, 8, 7, 9]]


class Branches(Network):
    """Does something else for inputs that are darker or brighter than the first two probes."""

    def forward(self, x: Tensor) -> Tensor:
        low, high = probe_images(SHAPE)[:2].mean((1, 2, 3)).aminmax()
        brightness = x.mean((1, 2, 3))
        # Another order of the sum may move the last digit.
        others = (brightness < low - 1e-3) | (brightness > high + 1e-3)
        logits = super().forward(x)
        return torch.where(others[:, None], -logits, logits)


class Hidden(Network):
    """Does something else for every input that is no probe image: no probe can show it."""

    def forward(self, x: Tensor) -> Tensor:
        probes = probe_images(SHAPE).flatten(1)
        is_probe = (x.flatten(1)[:, None] == probes).all(2).any(1)
        logits = super().forward(x)
        return torch.where(is_probe[:, None], logits, -logits)


class Drops(Network):
    """Draws random numbers."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(F.dropout(x, 0.5, training=True))


def images() -> MemoryDataset:
    pixels = np.random.default_rng(0).integers(0, 256, (4, *SHAPE)).astype(np.uint8)
    return MemoryDataset(
        name="noise",
        split="test",
        labels=np.arange(4, dtype=np.int64),
        class_names=tuple("0123456789"),
        pixels=pixels,
    )


def certify(network: nn.Module, path: Path, **selection: int | str) -> None:
    certify_dataset(
        network,
        images(),
        HOW,
        path=path,
        model_name="net",
        selection=Selection(**selection),  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("network", [Permuted, Branches])
def test_other_code_with_the_same_weights_is_neither_continued_nor_merged(
    network: type[nn.Module], tmp_path: Path
) -> None:
    two = probe_images(SHAPE)[:2]
    before = short_probe_text(Network()(two).detach().numpy())
    assert short_probe_text(network()(two).detach().numpy()) == before, "looks the same by these"

    certify(Network(), tmp_path / "c.tsv", maximum=2)
    with pytest.raises(UsageError, match="its code or its settings have changed"):
        certify(network(), tmp_path / "c.tsv", maximum=4)
    certify(Network(), tmp_path / "c.tsv", maximum=4)

    certify(Network(), tmp_path / "1.tsv", shard="1/2")
    certify(network(), tmp_path / "2.tsv", shard="2/2")
    with pytest.raises(CertificateError, match="its code or its settings have changed"):
        merge([read(tmp_path / "1.tsv"), read(tmp_path / "2.tsv")])


def test_votes_are_drawn_again_before_a_file_is_resumed_on_another_processor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as another_machine:
        another_machine.setattr(prepare, "processor_of", lambda device: "another processor")
        # One bit of rounding, as another processor may give.
        scale = 1 + 2**-23
        another_machine.setattr(Network, "forward", lambda self, x: self.head(x.flatten(1)) * scale)
        certify(Network(), tmp_path / "c.tsv", maximum=2)
        rows = (tmp_path / "c.tsv").read_bytes()

    with pytest.raises(UsageError, match=r"image 0 says selection votes .* but the network gives"):
        certify(Hidden(), tmp_path / "c.tsv", maximum=4)
    assert (tmp_path / "c.tsv").read_bytes() == rows
    certify(Network(), tmp_path / "c.tsv", maximum=4)
    assert len(read(tmp_path / "c.tsv").rows) == 4


@pytest.mark.filterwarnings("ignore:the network gives other logits each time")
def test_a_network_that_draws_random_numbers_is_finished_in_one_go(tmp_path: Path) -> None:
    certify(Drops(), tmp_path / "c.tsv", maximum=2)
    assert 'trial = "random"' in (tmp_path / "c.toml").read_text()
    for network in (Drops(), Network()):
        with pytest.raises(UsageError, match="draws random numbers"):
            certify(network, tmp_path / "c.tsv", maximum=4)
    certify(Drops(), tmp_path / "1.tsv", shard="1/2")
    certify(Drops(), tmp_path / "2.tsv", shard="2/2")
    with pytest.raises(CertificateError, match="draws random numbers"):
        merge([read(tmp_path / "1.tsv"), read(tmp_path / "2.tsv")])


@pytest.fixture
def own_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The source file of the module own_network, which is to be edited."""
    source = tmp_path / "own_network.py"
    source.write_text(
        "from tests.certify.test_other_code import Hidden, Network\n\n\n"
        "class Own(Network):\n    pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    yield source
    del sys.modules["own_network"]


def own_network(source: Path) -> nn.Module:
    """The network as the source has it now."""
    sys.modules.pop("own_network", None)
    # The time of a file need not change between two edits of a test.
    shutil.rmtree(source.parent / "__pycache__", ignore_errors=True)
    invalidate_caches()
    network: nn.Module = import_module("own_network").Own()
    return network


def test_a_source_file_that_was_edited_is_named(tmp_path: Path, own_source: Path) -> None:
    certify(own_network(own_source), tmp_path / "c.tsv", maximum=2)
    certify(own_network(own_source), tmp_path / "c.tsv", maximum=3)
    own_source.write_text(own_source.read_text() + "# Edited.\n")
    with pytest.warns(UserWarning, match="the source file of own_network has changed"):
        certify(own_network(own_source), tmp_path / "c.tsv", maximum=4)
    assert len(read(tmp_path / "c.tsv").rows) == 4


@pytest.mark.filterwarnings("ignore:.*the source file of own_network has changed")
def test_edited_code_that_no_probe_shows_is_not_continued(tmp_path: Path, own_source: Path) -> None:
    certify(own_network(own_source), tmp_path / "c.tsv", maximum=2)
    rows = (tmp_path / "c.tsv").read_bytes()
    before = own_source.read_text()
    own_source.write_text(before.replace("class Own(Network)", "class Own(Hidden)"))
    with pytest.raises(UsageError, match=r"image 0 says selection votes .* but the network gives"):
        certify(own_network(own_source), tmp_path / "c.tsv", maximum=4)
    assert (tmp_path / "c.tsv").read_bytes() == rows
    own_source.write_text(before)
    certify(own_network(own_source), tmp_path / "c.tsv", maximum=4)
    assert len(read(tmp_path / "c.tsv").rows) == 4
