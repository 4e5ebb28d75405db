"""The loop that certifies: how many images are active at once, and that this changes no vote."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from smoothmix import Anytime, Certification, Stopping
from smoothmix.certify import TimeLimit
from smoothmix.certify.dataset import certify_dataset
from smoothmix.certify.schedule import MOST_ACTIVE, active_images, next_check
from tests.certify.test_partial_votes import IsBright, images
from tests.helpers.certification import without_time
from tests.helpers.guarantees import certification_of


@pytest.fixture
def threads() -> Iterator[None]:
    """Torch's number of threads, as it was before."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def together(threads: list[int], **draws: Any) -> list[int]:
    certification = certification_of(0.5, **draws)
    return [active_images(certification, count) for count in threads]


def test_as_many_images_are_active_as_keep_the_threads_busy() -> None:
    assert together([1, 2, 16, 64]) == [1, 1, 1, 3]
    assert together([1, 2, 16], n=1000) == [4, 8, 64]
    assert together([1, 2, 16, 64, 1000], stop_abstaining=True) == [1, 2, 13, 52, MOST_ACTIVE]


def test_images_are_checked_after_whole_batches_and_after_all_draws() -> None:
    whole = certification_of(0.5, n=1000)
    assert [next_check(past, whole) for past in (0, 256, 999)] == [1000] * 3
    often = certification_of(0.5, n=10_000, stop_abstaining=True)
    looks = [0]
    while looks[-1] < 10_000:
        looks.append(next_check(looks[-1], often))
    assert looks == [*range(0, 10_000, 512), 10_000]
    assert next_check(300, often) == 512, "one that was stopped in between"


@pytest.mark.parametrize("stop_abstaining", [True, False])
@pytest.mark.usefixtures("threads")
def test_many_threads_have_many_active_images_and_give_the_same_file(
    tmp_path: Path,
    drawn: list[int],
    stop_abstaining: bool,
) -> None:
    """At a check all threads wait for the last: images that are checked together cost one wait."""
    how = certification_of(0.5, n=2560, stop_abstaining=stop_abstaining)
    files = []
    looks = []
    for count in (1, 8):
        torch.set_num_threads(count)
        path = tmp_path / f"{count}.tsv"
        certify_dataset(IsBright(), images(), how, path=path, model_name="bright")
        files.append(without_time(path))
        looks.append(len(drawn))
        drawn.clear()
    assert files[0] == files[1]
    assert looks[1] <= looks[0] / 2


@pytest.mark.usefixtures("threads")
def test_a_run_with_little_time_finishes_the_first_images(tmp_path: Path) -> None:
    """Drawing for 64 images at once would use up the time before the first of them is finished."""
    torch.set_num_threads(2)
    how = Certification(sigma=0.5, guarantee=Anytime(Stopping(max_draws=2_560)))
    assert active_images(how, 2) == MOST_ACTIVE
    assert active_images(how, 2, limited=True) == 8
    notes: list[str] = []
    files = []
    for name, limit in (("timed", TimeLimit(seconds=600)), ("whole", None)):
        path = tmp_path / f"{name}.tsv"
        certify_dataset(
            IsBright(),
            images(),
            how,
            path=path,
            model_name="bright",
            time_limit=limit,
            on_progress=lambda state: notes.append(state.note),
        )
        files.append(without_time(path))
        if limit is not None:
            # Rows come from the beginning on, not all of them at the end.
            first_row = next(i for i, note in enumerate(notes) if note.startswith("image 0:"))
            active = [int(note.split()[0]) for note in notes if " active, " in note]
            assert first_row < 0.7 * len(notes)
            assert max(active) <= 8
    assert files[0] == files[1]
