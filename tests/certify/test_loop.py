"""The loop that certifies: how many images are active at once, and that this changes no vote."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from smoothmix.certify.dataset import certify_dataset
from smoothmix.certify.schedule import MOST_TOGETHER, Exact
from smoothmix.config import Certification
from tests.certify.test_partial_votes import IsBright, images
from tests.helpers.certification import without_time


@pytest.fixture
def threads() -> Iterator[None]:
    """Torch's number of threads, as it was before."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_as_many_images_are_active_as_keep_the_threads_busy() -> None:
    paper = Exact(Certification(sigma=0.5))
    assert [paper.together(count) for count in (1, 2, 16, 64)] == [1, 1, 1, 3]
    assert [Exact(Certification(sigma=0.5, n=1000)).together(count) for count in (1, 2, 16)] == [
        4,
        8,
        64,
    ]
    stopping = Exact(Certification(sigma=0.5, stop_abstaining=True))
    assert [stopping.together(count) for count in (1, 2, 16, 64, 1000)] == [
        1,
        2,
        13,
        52,
        MOST_TOGETHER,
    ]


def test_images_are_checked_after_whole_batches_and_after_all_draws() -> None:
    whole = Exact(Certification(sigma=0.5, n=1000))
    assert [whole.next_check(past) for past in (0, 256, 999)] == [1000] * 3
    often = Exact(Certification(sigma=0.5, n=10_000, stop_abstaining=True))
    looks = [0]
    while looks[-1] < 10_000:
        looks.append(often.next_check(looks[-1]))
    assert looks == [*range(0, 10_000, 512), 10_000]
    assert often.next_check(300) == 512, "one that was stopped in between"


@pytest.mark.parametrize("stop_abstaining", [True, False])
@pytest.mark.usefixtures("threads")
def test_many_threads_have_many_active_images_and_give_the_same_file(
    tmp_path: Path,
    drawn: list[int],
    stop_abstaining: bool,
) -> None:
    """At a check every thread waits for the last: images that are checked together cost one wait."""
    how, files, looks = Certification(sigma=0.5, n=2560, stop_abstaining=stop_abstaining), [], []
    for count in (1, 8):
        torch.set_num_threads(count)
        path = tmp_path / f"{count}.tsv"
        certify_dataset(IsBright(), images(), how, path=path, model_name="bright")
        files.append(without_time(path))
        looks.append(len(drawn))
        drawn.clear()
    assert files[0] == files[1]
    assert looks[1] <= looks[0] / 2
