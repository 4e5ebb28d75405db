"""Every engine gives the logits of the network as written, and a missing one says what to do."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from smoothmix import networks
from smoothmix.certify.smoothed import Smoothed
from smoothmix.config import ENGINE_NAMES, RECORDED_ENGINES, EngineName, recorded_engine
from smoothmix.errors import UsageError
from smoothmix.inference import choice
from smoothmix.inference.choice import choose_engine
from smoothmix.inference.engines import ENGINES
from smoothmix.inference.positions import position_dependence
from smoothmix.inference.prepare import prepare_network
from smoothmix.noise.streams import Domain
from tests.conftest import ROOT, small_convnet

SHAPE = (1, 28, 28)

# Compiling takes a minute where others work too: it has one test of its own.
QUICK = [name for name in ENGINES if name != "compiled"]

IN_BF16 = [name for name in QUICK if "bf16" in ENGINES[name].precisions]


def test_every_engine_has_a_name_and_a_record() -> None:
    assert ("auto", *ENGINES) == ENGINE_NAMES
    for name, engine in ENGINES.items():
        assert recorded_engine(engine.recorded) == name
    assert len(set(RECORDED_ENGINES.values())) == len(ENGINES)


@pytest.mark.parametrize("name", QUICK)
def test_its_logits_are_those_of_the_network(name: EngineName) -> None:
    model = small_convnet()
    images = torch.rand(20, *SHAPE)
    prepared = prepare_network(model, SHAPE, batch=16, engine=name)
    assert prepared.engine == RECORDED_ENGINES[name]
    with torch.inference_mode():
        expected = model.eval()(images)
    torch.testing.assert_close(prepared(images), expected, rtol=1e-4, atol=1e-5)
    assert position_dependence(prepared, SHAPE, [16, 4]) in ("", "rounding")


@pytest.mark.parametrize("name", IN_BF16)
def test_in_bf16_it_rounds_as_much_as_the_network_does(name: EngineName) -> None:
    torch.manual_seed(0)
    model = networks.build("cifar_resnet20").eval()
    images = torch.rand(8, 3, 32, 32)
    with torch.inference_mode():
        expected = model(images)
    deviations = []
    for engine in ("eager", name):
        prepared = prepare_network(model, (3, 32, 32), batch=8, precision="bf16", engine=engine)
        found = prepared(images).float()
        deviations.append(float((found - expected).abs().max() / expected.abs().max()))
    assert 0 < deviations[1] < max(0.03, 2 * deviations[0])


@pytest.mark.parametrize("name", QUICK)
def test_votes_depend_neither_on_threads_nor_on_the_cut(name: EngineName) -> None:
    smoothed = Smoothed(small_convnet(), sigma=0.5, num_classes=10, batch=32, engine=name)
    image = torch.rand(SHAPE).mul(255).round().div(255)
    votes = []
    for threads, cuts in ((1, [0, 200]), (2, [0, 64, 200])):
        torch.set_num_threads(threads)
        with smoothed.open(SHAPE, seed=0) as sampler:
            parts = [
                sampler.votes(image, 0, Domain.ESTIMATION, start=start, stop=stop)
                for start, stop in pairwise(cuts)
            ]
        votes.append(np.sum(parts, axis=0))
    torch.set_num_threads(1)
    assert votes[0].tolist() == votes[1].tolist()


SIGNALLED = """
import os, signal
from smoothmix.inference.prepare import prepare_network
from tests.inference.test_engines import SHAPE, small_convnet

first = prepare_network(small_convnet(), SHAPE, batch=16, engine="openvino")
second = prepare_network(small_convnet(), SHAPE, batch=16, engine="openvino")
del first
del second
signal.signal(signal.SIGTERM, lambda number, frame: print("handled"))
os.kill(os.getpid(), signal.SIGTERM)
"""


@pytest.mark.skipif(not ENGINES["openvino"].installed, reason="openvino is not installed")
def test_a_signal_that_comes_after_two_networks_is_handled() -> None:
    """Two runtimes of OpenVINO, one started before the other ended, leave no stack for signals."""
    done = subprocess.run(
        [sys.executable, "-c", SIGNALLED], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "handled\n"), done.stderr[-500:]


COMPILED = """
from concurrent.futures import ThreadPoolExecutor
import torch
from torch import nn
from smoothmix.certify.smoothed import Smoothed
from smoothmix.inference.positions import position_dependence
from smoothmix.noise.streams import Domain

torch.set_num_threads(1)
torch.manual_seed(0)
shape = (1, 6, 6)
model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(),
                      nn.Linear(64, 3)).eval()
images = torch.rand(20, *shape).mul(255).round().div(255)
with torch.no_grad():
    expected = model(images)
votes = []
for engine in ("compiled", "eager"):
    smoothed = Smoothed(model, sigma=0.5, num_classes=3, batch=16, engine=engine)
    with smoothed.open(shape, seed=0) as sampler:
        prepared = sampler.network
        votes.append(sampler.votes(images[0], 0, Domain.ESTIMATION, stop=200).tolist())
        if engine == "eager":
            continue
        print(prepared.engine)
        # 20 images are a full batch and one that is filled up.
        torch.testing.assert_close(prepared(images), expected, rtol=1e-4, atol=1e-5)
        assert position_dependence(prepared, shape, [16, 4]) in ("", "rounding")
        with ThreadPoolExecutor(4) as pool:
            for found in pool.map(prepared, [images] * 8):
                assert torch.equal(found, prepared(images))
assert votes[0] == votes[1], votes
"""


@pytest.mark.skipif(
    not ENGINES["compiled"].installed, reason="torch.compile needs a C++ compiler: g++ or clang++"
)
def test_a_compiled_network_gives_the_logits_and_votes_of_the_network(
    tmp_path: Path,
) -> None:
    # A process and a cache of its own: the compiler keeps state, and must really compile.
    environment = {
        **os.environ,
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", COMPILED],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "torch-cpu-compiled\n"), done.stderr[-2000:]
    assert list(tmp_path.rglob("*.so")), "a compiler ran"


def test_threads_that_call_an_engine_at_once_get_the_same_logits() -> None:
    prepared = prepare_network(small_convnet(), SHAPE, batch=16, engine="openvino")
    batches = [torch.rand(16, *SHAPE) for _ in range(8)]
    one_by_one = [prepared(batch) for batch in batches]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(prepared, batches))
    for alone, beside in zip(one_by_one, together, strict=True):
        assert torch.equal(alone, beside)


class Decides(nn.Module):
    """What it computes depends on what it sees, which no graph holds."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 5, stride=3)
        self.head = nn.Linear(256, 10)

    def forward(self, images: Tensor) -> Tensor:
        hidden = self.conv(images).relu()
        if hidden.mean() > -1e6:
            hidden = hidden * 2
        return self.head(hidden.flatten(1))


@pytest.mark.parametrize("name", ["fused", "openvino", "onnxruntime"])
def test_a_network_that_decides_by_its_input_is_refused(name: EngineName) -> None:
    with pytest.raises(UsageError, match=f"the engine {name} cannot run this network"):
        prepare_network(Decides(), SHAPE, batch=8, engine=name)


def test_a_precision_that_an_engine_lacks_is_named() -> None:
    with pytest.raises(UsageError, match="computes in fp32 only"):
        prepare_network(small_convnet(), SHAPE, batch=8, precision="bf16", engine="onnxruntime")


def test_a_network_outside_of_torch_or_in_another_type_has_no_other_engine() -> None:
    with pytest.raises(UsageError, match="networks of torch in float32"):
        prepare_network(small_convnet().double(), SHAPE, batch=8, engine="openvino")


@pytest.mark.parametrize("name", ["openvino", "onnxruntime"])
def test_a_missing_extra_is_named(name: EngineName, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(ENGINES[name]), "needs", ("no_such_module",))
    extra = ENGINES[name].extra
    with pytest.raises(UsageError, match=rf"needs no_such_module.*'smoothmix\[{extra}\]'"):
        prepare_network(small_convnet(), SHAPE, batch=8, engine=name)


# Which engine is chosen


def chosen(model: nn.Module, folder: Path, *, draws: int) -> choice.Choice:
    return choose_engine(model, SHAPE, batch=32, precision="fp32", draws=draws, cache=folder)


@pytest.fixture
def measurements(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[EngineName]]:
    """The engines of every measurement, which takes no longer than it must."""
    monkeypatch.setattr(choice, "TURNS", 1)
    monkeypatch.setattr(choice, "TURN_SECONDS", 0.0)
    found: list[Sequence[EngineName]] = []
    fastest = choice._fastest

    def counted(*args: object, **options: object) -> choice.Choice:
        found.append(args[3])  # type: ignore[arg-type]
        return fastest(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(choice, "_fastest", counted)
    return found


def test_a_short_job_is_not_measured(
    tmp_path: Path, measurements: list[Sequence[EngineName]]
) -> None:
    for draws in (1000, 30_000):
        assert chosen(small_convnet(), tmp_path, draws=draws).engine == "auto"
    assert not measurements


def test_nothing_is_measured_without_extras(
    tmp_path: Path,
    measurements: list[Sequence[EngineName]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("openvino", "onnxruntime"):
        monkeypatch.setattr(type(ENGINES[name]), "needs", ("no_such_module",))
    monkeypatch.setattr(type(ENGINES["compiled"]), "installed", False)
    assert chosen(small_convnet(), tmp_path, draws=10**12).engine == "auto"
    assert not measurements


def test_a_choice_is_measured_once_and_harmless_if_damaged(
    tmp_path: Path,
    measurements: list[Sequence[EngineName]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(type(ENGINES["compiled"]), "installed", False)
    first = chosen(small_convnet(), tmp_path, draws=10**10)
    assert first.engine in ("auto", "openvino", "onnxruntime")
    assert chosen(small_convnet(seed=1), tmp_path, draws=10**10) == first, "weights do not matter"
    assert measurements == [["openvino", "onnxruntime"]]
    (file,) = tmp_path.iterdir()
    for damage in (b"", b"\xff\xfe", b"rm -rf\n", b"openvino" * 100):
        file.write_bytes(damage)
        chosen(small_convnet(), tmp_path, draws=10**10)
    assert len(measurements) == 5
    blocked = tmp_path / "file"
    blocked.write_text("no folder")
    chosen(small_convnet(), blocked, draws=10**10)
    assert blocked.read_text() == "no folder"


def test_the_cache_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "MOST_REMEMBERED", 3)
    memory = choice._Memory(tmp_path)
    for key in "abcdef":
        memory.write(key, choice.Choice(engine="openvino"))
    assert len(list(tmp_path.iterdir())) == 3
    assert memory.read("f") == choice.Choice(engine="openvino")
