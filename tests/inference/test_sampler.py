"""Votes: the same however the work is cut, and what the network really says of the noise."""

from __future__ import annotations

import ctypes
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from smoothmix.certify.smoothed import Smoothed
from smoothmix.config import EngineName, Precision
from smoothmix.errors import SmoothmixError, UsageError
from smoothmix.inference import sampler as sampling
from smoothmix.inference.guards import check_images, doubts
from smoothmix.inference.sampler import ImageDraws, Sampler
from smoothmix.networks.modes import eval_mode
from smoothmix.networks.noisy import noisy_logits
from smoothmix.noise import streams as randomness
from smoothmix.noise.streams import Domain
from tests.conftest import Linear, small_convnet

IMAGES = torch.rand(3, 1, 28, 28, generator=torch.Generator().manual_seed(5))


def sampler(
    model: nn.Module | None = None,
    *,
    batch: int = 64,
    seed: int = 0,
    precision: Precision = "fp32",
    engine: EngineName = "auto",
) -> AbstractContextManager[Sampler]:
    network = small_convnet() if model is None else model
    smoothed = Smoothed(
        network,
        sigma=0.5,
        num_classes=10,
        noise="gaussian",
        batch=batch,
        precision=precision,
        engine=engine,
    )
    return smoothed.open(IMAGES.shape[1:], seed=seed)


def all_votes(order: list[int], **settings: int) -> dict[int, list[int]]:
    with sampler(**settings) as counting:
        return {
            i: counting.votes(IMAGES[i], i, Domain.ESTIMATION, stop=500).tolist() for i in order
        }


def slow_votes(model: nn.Module, image: torch.Tensor, index: int, draws: int) -> np.ndarray:
    """Obvious: one noise at a time. No draw votes for nobody, the last element."""
    counts = np.zeros(11, dtype=np.int64)
    model.eval()
    for j in range(draws):
        draw = randomness.DrawRange(0, Domain.ESTIMATION, index, j, 1)
        noise = torch.from_numpy(randomness.standard_normal(draw, tuple(image.shape)))
        counts[int(model(image + 0.5 * noise).argmax())] += 1
    return counts


def test_votes_are_those_of_a_slow_loop_over_draws() -> None:
    with sampler() as counting:
        votes = counting.votes(IMAGES[1], 1, Domain.ESTIMATION, stop=500)
    assert votes.sum() == 500
    assert np.count_nonzero(votes) > 1, "the test would prove nothing if all votes agreed"
    assert np.abs(votes - slow_votes(small_convnet(), IMAGES[1], 1, 500)).sum() <= 2, (
        "but for ties in the rounding"
    )


def test_votes_do_not_depend_on_the_order_or_company_of_images() -> None:
    together = all_votes([0, 1, 2])
    assert all_votes([2, 0, 1]) == together
    assert {i: all_votes([i])[i] for i in range(3)} == together


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_votes_do_not_depend_on_the_number_of_threads(threads: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        votes = all_votes([0])
        assert torch.get_num_threads() == threads, "the setting is put back"
    finally:
        torch.set_num_threads(before)
    assert votes == all_votes([0])


@pytest.mark.parametrize("batch", [1, 7, 100, 500, 4096])
def test_another_batch_size_sees_the_same_noise(batch: int) -> None:
    """Votes may differ in ties of the rounding at most: none is expected in 1,500 draws."""
    for votes, reference in zip(
        all_votes([0, 1, 2], batch=batch).values(), all_votes([0, 1, 2]).values(), strict=True
    ):
        assert np.abs(np.subtract(votes, reference)).sum() <= 2


class RecordsSizes(nn.Module):
    """Records how many images each forward pass has."""

    def __init__(self) -> None:
        super().__init__()
        self.network = small_convnet()
        self.sizes: list[int] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.sizes.append(len(x))
        logits: torch.Tensor = self.network(x)
        return logits

    def __deepcopy__(self, memo: object) -> RecordsSizes:
        # All threads record in one place.
        return self


def test_noise_of_several_batches_at_once_changes_no_vote_and_no_forward_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = {}
    for at_once in (sampling.NUMBERS_AT_ONCE, 0):
        monkeypatch.setattr(sampling, "NUMBERS_AT_ONCE", at_once)
        model = RecordsSizes()
        seen: list[int] = []

        def on_batch(counts: np.ndarray, seen: list[int] = seen) -> bool:
            seen.append(int(counts.sum()))
            return False

        with sampler(model, batch=16) as counting:
            tasks = _tasks(counting, 1000)
            model.sizes.clear()
            votes = counting.votes(IMAGES[1], 1, Domain.ESTIMATION, stop=1000, on_batch=on_batch)
        found[at_once] = votes.tolist(), seen, sorted(model.sizes)
        # 63 batches, of which the last one is not full.
        assert (tasks < 63) == (at_once > 0)
        assert tasks >= min(63, sampling.TASKS_PER_THREAD * counting.threads)
        assert seen == [*range(16, 1000, 16), 1000]
        assert sorted(model.sizes) == [8] + 62 * [16]
    first, second = found.values()
    assert first == second


def test_large_images_and_forward_passes_that_cut_batches_are_drawn_batch_by_batch() -> None:
    with sampler(batch=16) as counting:
        large = replace(counting, batch=2**12)
        assert _tasks(large, 2**16) == 16
        cut = replace(counting, network=replace(counting.network, microbatch=12))
        assert _tasks(cut, 1000) == 63


def _tasks(counting: Sampler, stop: int) -> int:
    draws = ImageDraws(image=IMAGES[1], index=1, domain=Domain.ESTIMATION, start=0, stop=stop)
    return len(list(counting._groups([draws])))


def test_more_draws_begin_with_the_same_draws() -> None:
    with sampler() as counting:
        few = counting.votes(IMAGES[0], 0, Domain.ESTIMATION, stop=128)
        many = counting.votes(IMAGES[0], 0, Domain.ESTIMATION, stop=500)
    assert (many >= few).all()


def test_selection_and_estimation_see_other_noise() -> None:
    with sampler() as counting:
        one = counting.votes(IMAGES[0], 0, Domain.SELECTION, stop=500)
        two = counting.votes(IMAGES[0], 0, Domain.ESTIMATION, stop=500)
    assert one.tolist() != two.tolist()


def test_the_share_of_votes_is_the_known_probability_of_a_linear_classifier() -> None:
    """Two classes, a linear rule: P(class 1) = Phi(margin / (sigma |w|)) in closed form."""
    model = Linear(pixels=16)
    image = torch.full((1, 4, 4), 0.5)
    direction = (model.weight[1] - model.weight[0]).detach().double()
    margin = float(direction.sum() * 0.5 / (0.5 * direction.norm()))
    expected = 0.5 * (1 + torch.erf(torch.tensor(margin / 2**0.5)).item())
    smoothed = Smoothed(model, sigma=0.5, num_classes=2, noise="gaussian")
    with smoothed.open(image.shape, seed=3) as counting:
        votes = counting.votes(image, 0, Domain.ESTIMATION, stop=40_000)
    assert votes[1] / 40_000 == pytest.approx(expected, abs=5 * (0.25 / 40_000) ** 0.5)


def test_batchnorm_in_train_mode_runs_in_eval_mode_and_is_not_touched() -> None:
    model = small_convnet()
    model.train()
    model[0].eval()
    running = model[1].running_mean.clone()
    with sampler(model) as counting:
        assert model[1].training, "the caller's own may be in use by another thread"
        votes = counting.votes(IMAGES[0], 0, Domain.ESTIMATION, stop=200)
    assert model.training
    assert model[1].training
    assert not model[0].training, "each part has its own mode"
    assert torch.equal(model[1].running_mean, running), "the noise left no trace in the statistics"
    with sampler(small_convnet().eval()) as counting:
        assert votes.tolist() == counting.votes(IMAGES[0], 0, Domain.ESTIMATION, stop=200).tolist()


def test_modes_are_put_back_after_an_error() -> None:
    model = small_convnet().train()
    with pytest.raises(RuntimeError, match="stop"), eval_mode(model):
        raise RuntimeError("stop")
    assert all(module.training for module in model.modules())


def test_bf16_runs_another_arithmetic_with_nearly_the_same_votes() -> None:
    with sampler(precision="bf16") as half, sampler() as full:
        votes = (
            half.votes(IMAGES[0], 0, Domain.ESTIMATION, stop=500),
            full.votes(IMAGES[0], 0, Domain.ESTIMATION, stop=500),
        )
    assert 0 < np.abs(votes[0] - votes[1]).sum() < 60


class Says(nn.Module):
    """Gives the same logits for every image."""

    def __init__(self, logits: list[float]) -> None:
        super().__init__()
        self.logits = torch.tensor(logits)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.logits.expand(len(x), -1)


def test_a_network_with_another_number_of_classes_is_refused() -> None:
    with (
        pytest.raises(
            UsageError, match=r"shape \[32, 3\] for 32 images, where 10 classes need \[32, 10\]"
        ),
        sampler(Says([1.0, 2.0, 3.0])) as counting,
    ):
        counting.votes(IMAGES[0], 0, Domain.ESTIMATION, stop=32)


def test_logits_that_are_not_finite_are_refused() -> None:
    with (
        pytest.raises(SmoothmixError, match="not finite"),
        sampler(Says([float("nan")] * 10)) as counting,
    ):
        counting.votes(IMAGES[0], 0, Domain.ESTIMATION, stop=32)


@pytest.mark.parametrize(
    ("images", "sentence"),
    [
        (torch.tensor([[0.0, 1.5]]), "divide by 255"),
        (torch.randn(2, 3, 4, 4), "look normalised already"),
        (torch.tensor([[0.0, float("nan")]]), "not finite"),
        (torch.tensor([[0.0, float("inf")]]), "not finite"),
        (torch.zeros(2, 3, dtype=torch.uint8), "divide 8-bit pixels by 255"),
        (torch.zeros(0, 3), "batch"),
        (torch.tensor(0.5), "batch"),
    ],
)
def test_images_that_must_be_a_mistake_are_refused(images: torch.Tensor, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        check_images(images)


def test_images_in_the_range_pass_and_any_range_can_be_asked_for() -> None:
    check_images(torch.rand(2, 3))
    check_images(torch.randn(2, 3), any_range=True)


def test_doubtful_settings_are_reported() -> None:
    usual = torch.rand(2, 1, 8, 8)
    assert not list(doubts(0.5, usual))
    assert "0 to 255" in next(iter(doubts(64.0, usual)))
    assert "twice" in next(iter(doubts(0.5, usual / 255)))
    assert "normalised" in next(iter(doubts(0.5, torch.randn(2, 3, 8, 8))))


def test_noisy_logits_are_those_of_each_copy() -> None:
    model, x = small_convnet().eval(), IMAGES
    noise = torch.randn(4, *x.shape)
    logits = noisy_logits(model, x, noise)
    for copy in range(4):
        torch.testing.assert_close(logits[copy], model(x + noise[copy]), rtol=1e-5, atol=1e-6)


class CountsThreads(nn.Module):
    """Notes how many OpenMP threads its forward may use; asking torch would change the number."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1, 10))
        self.seen: set[int] = set()
        library = next(Path(torch.__file__).parent.glob("lib/libgomp*"), None)
        self.openmp = ctypes.CDLL(str(library) if library else "libgomp.so.1")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.add(self.openmp.omp_get_max_threads())
        return x.flatten(1)[:, :1] * self.weight


@pytest.mark.parametrize("batch", [1, 20, 256])
def test_every_forward_runs_on_one_thread_from_the_first_on(batch: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        model = CountsThreads()
        with sampler(model, batch=batch) as prepared:
            # Without the copy per thread of a prepared network, so that all threads are seen.
            network = replace(prepared.network, network=model, channels_last=False)
            model.seen.clear()
            counting = replace(prepared, network=network)
            counting.votes(IMAGES[0], 0, Domain.ESTIMATION, stop=60)
    finally:
        torch.set_num_threads(before)
    assert model.seen == {1}


class Views(nn.Module):
    """Flattens by `view`, as much code does, which channels last forbids."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.linear = nn.Conv2d(1, 4, 5), nn.Linear(4 * 24 * 24, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.conv(x)
        return self.linear(x.view(x.size(0), -1))


def test_a_network_that_flattens_by_view_is_run_with_channels_first() -> None:
    model = Views()
    with sampler(model) as counting:
        votes = counting.votes(IMAGES[0], 0, Domain.ESTIMATION, stop=200)
        assert not counting.network.channels_last
    assert np.abs(votes - slow_votes(model, IMAGES[0], 0, 200)).sum() <= 2


def test_channels_last_are_those_of_a_copy() -> None:
    model = small_convnet()
    kept, strides = model[0].weight.data_ptr(), model[0].weight.stride()
    with sampler(model, engine="eager") as counting:
        counting.votes(IMAGES[0], 0, Domain.ESTIMATION, stop=10)
        assert counting.network.channels_last
        assert (model[0].weight.data_ptr(), model[0].weight.stride()) == (kept, strides)


def test_a_batchnorm_that_looks_at_its_batch_is_refused() -> None:
    model = nn.Sequential(
        nn.Flatten(), nn.BatchNorm1d(784, track_running_stats=False), nn.Linear(784, 10)
    )
    with pytest.raises(UsageError, match="the BatchNorm '1' keeps no running statistics"):
        sampler(model)


class Returns(nn.Module):
    """Returns what it was given to return, or raises it."""

    def __init__(self, what: object) -> None:
        super().__init__()
        self.what = what

    def forward(self, x: torch.Tensor) -> object:
        if isinstance(self.what, Exception):
            raise self.what
        return self.what


@pytest.mark.parametrize(
    ("what", "sentence"),
    [
        ((torch.zeros(32, 10),), "must return a tensor of logits"),
        (torch.zeros(32, 10, dtype=torch.bool), "must return a tensor of logits"),
        (
            KeyError("a key"),
            r"the network fails on 32 images of shape \[1, 28, 28\] \(KeyError: 'a key'\)",
        ),
    ],
)
def test_a_network_that_returns_something_else_or_raises_is_named(
    what: object, sentence: str
) -> None:
    with pytest.raises(SmoothmixError, match=sentence), sampler(Returns(what)) as counting:
        counting.votes(IMAGES[0], 0, Domain.ESTIMATION, stop=32)


def test_a_network_with_weights_of_two_types_gets_advice() -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(784, 20), nn.Linear(20, 10).double())
    advice = r"weights in float32 and float64, and images come in float32: call its float\(\) first"
    with pytest.raises(SmoothmixError, match=advice), sampler(network) as counting:
        counting.votes(IMAGES[0], 0, Domain.ESTIMATION, stop=32)


def test_a_single_image_gets_advice() -> None:
    smoothed = Smoothed(nn.Conv2d(1, 10, 28), sigma=0.5, num_classes=10, noise="gaussian")
    with pytest.raises(SmoothmixError, match=r"give a single image as image\[None\]"):
        smoothed.votes(IMAGES[0], n=10)
