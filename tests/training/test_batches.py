"""An epoch as addressed steps: chunks, order, noise and mixing ratios by position."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, strategies

from smoothmix import data, methods
from smoothmix.noise.addresses import Domain, DrawRange, standard_normal
from smoothmix.training.batches import Ahead, Epoch, cut, prepared


def test_chunks_are_those_of_the_published_code() -> None:
    assert cut(600, batch=256, chunks=1) == [range(256), range(256, 512), range(512, 600)]
    assert [len(r) for r in cut(256, batch=256, chunks=3)] == [85, 85, 85], "a remainder is dropped"
    assert cut(3, batch=256, chunks=4) == [], "too few images for one in each chunk"


def test_a_step_is_a_function_of_its_address() -> None:
    sample = data.load("sample", "train")
    method = methods.make("smoothmix", sigma=0.5, copies=4)
    one, two = (Epoch(sample, method, seed=3, number=2, batch=256) for _ in range(2))
    direct, after_others = one[5], [two[i] for i in range(6)][5]
    assert direct.x.shape == (64, 1, 28, 28)
    assert direct.noise.shape == (4, 64, 1, 28, 28)
    for a, b in zip(vars(direct).values(), vars(after_others).values(), strict=True):
        assert torch.equal(torch.as_tensor(a), torch.as_tensor(b))
    position = 5 * 64 + 10
    draws = DrawRange(3, Domain.TRAINING, 2, position, 1)
    expected = 0.5 * standard_normal(draws, (4, 1, 28, 28))[0]
    np.testing.assert_array_equal(direct.noise[:, 10].numpy(), expected.astype(np.float32))
    assert float(direct.mix.min()) >= 0
    assert float(direct.mix.max()) <= 0.5
    assert direct.y[10] == sample.labels[one.order[position]]
    other = Epoch(sample, method, seed=3, number=3, batch=256)[5]
    assert not torch.equal(direct.noise, other.noise)
    assert sorted(one.order) == list(range(4000)), "every image once"


@pytest.mark.parametrize("workers", [0, 2])
def test_steps_come_in_order_from_threads_and_processes(workers: int) -> None:
    epoch = Epoch(data.load("sample", "train"), methods.make("gaussian", sigma=0.5), 0, 0, 1000)
    steps = list(prepared(epoch, first=1, workers=workers))
    assert len(steps) == 3
    assert all(torch.equal(step.x, epoch[i].x) for i, step in enumerate(steps, start=1))


@given(
    first=strategies.integers(0, 9),
    waits=strategies.lists(strategies.integers(0, 5), min_size=9, max_size=9),
)
def test_steps_made_ahead_are_the_same_however_long_a_process_waits(
    first: int, waits: list[int]
) -> None:
    epoch = Epoch(data.load("sample", "train"), methods.make("gaussian", sigma=0.5), 0, 0, 500)
    ahead, seeds = Ahead(epoch, first), []
    for step, looks in zip(ahead.steps(), waits, strict=False):
        seeds.append(step.seed)
        answers = iter([True] * looks)
        ahead.work(lambda answers=answers: next(answers, False))
        left = len(epoch) - first - len(seeds)
        assert min(left, 1) <= len(ahead.ready) <= min(left, Ahead.MOST), (
            "the next is ready, and not too many are"
        )
        assert len(ahead.ready) >= min(left, Ahead.MOST, looks), "waiting is used"
    assert seeds == [epoch[number].seed for number in range(first, len(epoch))]
