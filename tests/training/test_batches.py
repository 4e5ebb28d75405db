"""An epoch as addressed steps: chunks, order, noise and mixing ratios by position."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from smoothmix import data, methods
from smoothmix.noise.streams import Domain, DrawRange, standard_normal
from smoothmix.training.batches import Epoch, cut, prepare_shares


def test_chunks_are_those_of_the_published_code() -> None:
    assert cut(600, batch=256, chunks=1) == [range(256), range(256, 512), range(512, 600)]
    assert [len(r) for r in cut(256, batch=256, chunks=3)] == [85, 85, 85], "a remainder is dropped"
    assert cut(3, batch=256, chunks=4) == [], "too few images for one in each chunk"


def test_a_step_is_a_function_of_its_address() -> None:
    sample = data.load("sample", "train")
    method = methods.make("smoothmix", sigma=0.5, copies=4)
    one, two = (Epoch(sample, method, seed=3, number=2, batch=256) for _ in range(2))
    share, after_others = one[5], [two[i] for i in range(6)][5]
    direct = share.batch
    assert direct.x.shape == (64, 1, 28, 28)
    assert direct.noise.shape == (4, 64, 1, 28, 28)
    assert (share.seed, share.counted, share.total) == (
        after_others.seed,
        after_others.counted,
        after_others.total,
    )
    for a, b in zip(vars(direct).values(), vars(after_others.batch).values(), strict=True):
        assert torch.equal(torch.as_tensor(a), torch.as_tensor(b))
    position = 5 * 64 + 10
    draws = DrawRange(3, Domain.TRAINING, 2, position, 1)
    expected = 0.5 * standard_normal(draws, (4, 1, 28, 28))[0]
    np.testing.assert_array_equal(direct.noise[:, 10].numpy(), expected.astype(np.float32))
    assert float(direct.mix.min()) >= 0
    assert float(direct.mix.max()) <= 0.5
    assert direct.y[10] == sample.labels[one.order[position]]
    other = Epoch(sample, method, seed=3, number=3, batch=256)[5].batch
    assert not torch.equal(direct.noise, other.noise)
    assert sorted(one.order) == list(range(4000)), "every image once"


@pytest.mark.parametrize("workers", [0, 2])
def test_steps_come_in_order_from_threads_and_processes(workers: int) -> None:
    epoch = Epoch(data.load("sample", "train"), methods.make("gaussian", sigma=0.5), 0, 0, 1000)
    shares = list(prepare_shares(epoch, first=1, workers=workers))
    assert len(shares) == 3
    for number, share in enumerate(shares, start=1):
        assert torch.equal(share.batch.x, epoch[number].batch.x)
