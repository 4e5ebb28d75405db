"""Anyone's network, run by many threads at once: the votes of one thread, and no change to it."""

from __future__ import annotations

import threading
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.utils import weight_norm

import smoothmix as sm
from smoothmix import networks
from smoothmix.certify.smoothed import Smoothed
from smoothmix.inference.copies import OneAtATime, copy_sharing_weights
from smoothmix.inference.fusion import fused
from smoothmix.inference.prepare import engine_on, prepare_network
from smoothmix.inference.threads import one_thread_per_forward
from smoothmix.noise.streams import Domain
from tests.conftest import small_convnet


@pytest.fixture
def four_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


class Keeps(nn.Module):
    """Keeps what it has computed on itself, long enough for another thread to come between."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Linear(784, 200), nn.Linear(200, 10)
        self.register_buffer("seen", torch.zeros(10))

    def forward(self, x: Tensor) -> Tensor:
        self.hidden = self.first(x.flatten(1)).relu()
        for _ in range(20):
            torch.linalg.matrix_norm(self.hidden)
        return self.last(self.hidden)


class KeepsInMemory(Keeps):
    """Keeps it in a buffer, which a copy could share."""

    room: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("room", torch.zeros(64, 10))

    def forward(self, x: Tensor) -> Tensor:
        self.room[: len(x)].copy_(x.mean((1, 2))[:, :10])
        for _ in range(20):
            torch.linalg.matrix_norm(x)
        return super().forward(x) + 10 * self.room[: len(x)]


class Uncopyable(Keeps):
    """Holds what has no copy."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()


class BecomesUncopyable(Keeps):
    """Holds what has no copy once it has run."""

    def forward(self, x: Tensor) -> Tensor:
        self.lock = threading.Lock()
        return super().forward(x)


def counted(model: nn.Module, *, draws: int = 4000) -> NDArray[np.int64]:
    smoothed = Smoothed(model, sigma=0.5, num_classes=10, noise="gaussian", batch=64)
    with smoothed.open((1, 28, 28), seed=1) as sampler:
        return sampler.votes(torch.full((1, 28, 28), 0.5), 0, Domain.ESTIMATION, stop=draws)


@pytest.mark.parametrize("network", [Keeps, KeepsInMemory, Uncopyable, BecomesUncopyable])
def test_threads_do_not_see_what_others_keep(network: type[nn.Module], four_threads: None) -> None:
    votes = counted(network())
    torch.set_num_threads(1)
    assert votes.tolist() == counted(network()).tolist()


class Caches(nn.Module):
    """Sets a tensor in its forward, where tracing would leave a mark."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.offset = small_convnet(), None

    def forward(self, x: Tensor) -> Tensor:
        if self.offset is None:
            self.offset = torch.zeros_like(x[:1])
        return self.body(x + self.offset)


def test_a_network_that_sets_a_tensor_is_certified_and_left_as_it_was() -> None:
    model = Caches()
    assert counted(model).tolist() == counted(model.body).tolist()
    assert model.offset is None
    assert model(torch.rand(2, 1, 28, 28)).shape == (2, 10)


def test_one_classifier_may_be_asked_by_many_threads(four_threads: None) -> None:
    model = nn.Sequential(small_convnet(), nn.Dropout(0.5)).train()
    statistics = model[0][1].running_mean.clone()
    smoothed, images = (
        sm.Smoothed(model, sigma=0.5, num_classes=10, noise="gaussian"),
        torch.rand(8, 1, 28, 28),
    )
    expected = smoothed.votes(images, n=600, seed=3)
    used_torch = threading.Barrier(4)

    def use_torch() -> None:
        torch.get_num_threads()
        used_torch.wait(timeout=60)

    with ThreadPoolExecutor(4) as pool:
        # Threads that use torch for the first time while a limit is set may inherit it.
        for job in [pool.submit(use_torch) for _ in range(4)]:
            job.result()
        found = list(
            pool.map(
                lambda i: smoothed.votes(images[i : i + 1], n=600, seed=3, index=[i]), range(8)
            )
        )
        threads = list(pool.map(lambda _: torch.get_num_threads(), range(8)))
    assert torch.cat(found).tolist() == expected.tolist()
    assert model.training
    assert torch.equal(model[0][1].running_mean, statistics)
    assert set(threads) == {4}


def test_networks_of_other_threads_run_on_while_one_is_traced() -> None:
    """Tracing a network wraps the methods of all others for a moment."""
    original, ours, theirs = (
        nn.Module.__call__,
        networks.build("cifar_resnet20"),
        small_convnet().eval(),
    )
    images, stop = torch.rand(2, 1, 28, 28), threading.Event()
    expected = theirs(images)

    def run() -> int:
        runs = 0
        while not stop.is_set():
            assert torch.equal(theirs(images), expected)
            runs += 1
        return runs

    with ThreadPoolExecutor(4) as pool:
        running = [pool.submit(run) for _ in range(2)]
        looking = [
            pool.submit(lambda: [fused(ours) is not None for _ in range(5)]) for _ in range(2)
        ]
        try:
            assert [job.result() for job in looking] == [[True] * 5] * 2
        finally:
            stop.set()
        assert all(job.result() > 0 for job in running)
    assert nn.Module.__call__ is original


def test_the_number_of_threads_comes_back_whoever_leaves_first() -> None:
    first, second = one_thread_per_forward(), one_thread_per_forward()
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    assert first.__enter__() == second.__enter__() == 3
    first.__exit__(None, None, None)
    second.__exit__(None, None, None)
    assert torch.get_num_threads() == 3
    torch.set_num_threads(before)


@pytest.mark.filterwarnings("ignore:.*weight_norm:FutureWarning")
def test_a_copy_has_the_weights_of_the_network_and_not_its_mode() -> None:
    model = nn.Sequential(weight_norm(nn.Linear(784, 10)), nn.BatchNorm1d(10)).train()
    model(
        torch.rand(4, 784)
    )  # now weight_norm holds a computed weight, which alone would refuse to be copied
    copied = copy_sharing_weights(model)
    assert copied is not None
    assert not copied.training
    assert model.training
    pairs = zip(model.parameters(), copied.parameters(), strict=True)
    assert all(ours.data_ptr() == theirs.data_ptr() for ours, theirs in pairs)
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_weights_that_are_tied_stay_tied() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight = model[0].weight
    copied = copy_sharing_weights(model)
    assert copied is not None
    assert copied[0].weight is copied[1].weight


def test_what_has_no_copy_is_run_by_one_thread_at_a_time() -> None:
    assert copy_sharing_weights(Uncopyable()) is None
    assert isinstance(prepare_network(Uncopyable(), (1, 28, 28), batch=8).network, OneAtATime)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_torchscript_is_certified_frozen_or_not() -> None:
    scripted = torch.jit.script(small_convnet().eval())
    frozen = torch.jit.freeze(torch.jit.script(small_convnet().eval()))
    expected = counted(small_convnet(), draws=200)
    for model in (scripted, frozen):
        assert np.abs(counted(model, draws=200) - expected).sum() <= 2


def test_short_products_of_a_gpu_are_part_of_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = torch.device("cuda")
    for short, name in ((True, "torch-cuda-tf32"), (False, "torch-cuda")):
        monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", short)
        assert engine_on(gpu, "fp32") == name
        assert engine_on(gpu, "bf16") == "torch-cuda"


class Mean(nn.Module):
    """Needs no memory of its own."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([x.mean((1, 2, 3)), x.amax((1, 2, 3)) / 100], 1)


def test_noise_for_large_images_is_made_in_pieces() -> None:
    image = torch.full((3, 256, 256), 0.02)
    smoothed = Smoothed(Mean(), sigma=0.5, num_classes=2, noise="gaussian")
    with smoothed.open(image.shape, seed=0) as sampler:
        few = sampler.votes(image, 0, Domain.ESTIMATION, stop=32)
        tracemalloc.start()
        votes = sampler.votes(image, 0, Domain.ESTIMATION, stop=256)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 2.5 * 32 * image.nbytes, "numpy's share: not all 256 draws"
    assert votes.sum() == 256
    assert all(few <= votes), "the first draws are the same"
