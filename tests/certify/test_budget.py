"""Runs with a budget: the same votes whatever happens, a row for every image, files that verify."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from smoothmix._process.progress import Progress
from smoothmix._process.signals import Stopped
from smoothmix.certificates import Certificates, Certification, Selection, merge, read, verify
from smoothmix.certificates.partial import Journal, PartialVotes
from smoothmix.certify import loop
from smoothmix.certify.dataset import certify_dataset
from smoothmix.certify.extend import extend_dataset
from smoothmix.certify.loop import TimeLimit
from smoothmix.certify.smoothed import Smoothed
from smoothmix.data import MemoryDataset
from smoothmix.errors import UsageError
from smoothmix.inference.threads import set_threads_of_this_thread
from smoothmix.stats.allocation import Budget
from smoothmix.stats.anytime import Stopping
from smoothmix.stats.guarantees import Anytime
from tests.certify.test_partial_votes import IsBright
from tests.conftest import ROOT
from tests.helpers.certification import journals, without_time

IMAGES = 12
BUDGET = Budget(draws=12_000)
HOW = Certification(
    sigma=0.5,
    guarantee=Anytime(Stopping(radii=(0.5, 1.0), max_draws=20_480, foresight=0.02)),
    budget=BUDGET,
)


def images() -> MemoryDataset:
    """Greys with radii just around the first one asked for; the first two are mislabelled."""
    near = np.linspace(0.44, 0.52, IMAGES - 3)
    radii = np.concatenate([[1.5], near, [0.2, 1.5]]).astype(np.float32)
    pixels = np.broadcast_to((0.5 + radii / 4)[:, None, None, None], (IMAGES, 1, 4, 4)).copy()
    labels = np.ones(IMAGES, dtype=np.int64)
    labels[:2] = 0
    return MemoryDataset(
        name="greys", split="test", labels=labels, class_names=("dark", "bright"), pixels=pixels
    )


def certify(path: Path, certification: Certification = HOW, **options: object) -> Certificates:
    return certify_dataset(
        IsBright(),
        images(),
        certification,
        path=path,
        model_name="bright",
        **options,  # type: ignore[arg-type]
    )


def spent(file: Certificates) -> int:
    return sum(100 + (row.n or 0) for row in file.rows)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """An undisturbed run."""
    return certify(tmp_path_factory.mktemp("whole") / "whole.tsv")


def test_every_image_gets_a_row_and_the_budget_is_spent_where_it_decides(
    whole: Certificates,
) -> None:
    assert [row.idx for row in whole.rows] == list(range(IMAGES))
    # The last block is cut to whole batches.
    assert BUDGET.draws is not None
    assert BUDGET.draws - 256 < spent(whole) <= BUDGET.draws
    assert verify(whole).ok
    draws = np.array([row.n for row in whole.rows])
    # Images next to the radius take most draws, those far from it the least.
    assert draws[1:-2].mean() > 2 * draws[-2:].mean()
    assert not journals(whole.path)


def test_the_file_records_the_budget_and_is_not_continued_with_another(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    file = certify(path)
    assert file.settings is not None
    assert file.settings.certification.budget == BUDGET
    text = path.with_suffix(".toml").read_text()
    assert '[budget]\ndraws = 12000\ngoal = "accuracy"\n' in text
    other = replace(HOW, budget=Budget(draws=13_000))
    with pytest.raises(UsageError, match=r"budget is budget 12,000 draws .* --extend"):
        certify(path, other)
    with pytest.raises(UsageError, match=r"budget is budget 12,000 draws .* there and none here"):
        certify(path, replace(HOW, budget=None))
    with pytest.raises(UsageError, match="images is 12 there and 6 here"):
        certify(path, selection=Selection(maximum=6))


@pytest.mark.parametrize("threads", [1, 3])
def test_votes_do_not_depend_on_threads(threads: int, whole: Certificates, tmp_path: Path) -> None:
    before = torch.get_num_threads()
    set_threads_of_this_thread(threads)
    try:
        again = certify(tmp_path / "a.tsv")
    finally:
        set_threads_of_this_thread(before)
    assert without_time(again.path) == without_time(whole.path)


def die(path: str, appends: int) -> None:
    """Certify, save votes as often as possible, and be killed after so many times."""
    loop.SECONDS_BETWEEN_SAVES = -1.0
    loop.SECONDS_BETWEEN_REPORTS = -1.0
    append = Journal.append
    done = 0

    def append_and_die(self: Journal, votes: Mapping[int, PartialVotes]) -> None:
        nonlocal done
        append(self, votes)
        done += 1
        if done == appends:
            os.kill(os.getpid(), signal.SIGKILL)

    Journal.append = append_and_die  # type: ignore[method-assign]
    certify(Path(path))


def test_a_killed_run_takes_the_same_decisions_again(
    whole: Certificates, tmp_path: Path, drawn: list[int]
) -> None:
    path = tmp_path / "a.tsv"
    script = f"import tests.certify.test_budget as here; here.die({str(path)!r}, 40)"
    killed = subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert not path.exists(), "rows are written at the end"
    again = certify(path)
    assert without_time(again.path) == without_time(whole.path)
    assert not journals(path)
    # What was saved is not drawn again.
    assert sum(drawn) < spent(whole)


def test_a_run_that_was_stopped_while_it_wrote_rows_writes_the_same_rest(
    whole: Certificates, tmp_path: Path
) -> None:
    path = tmp_path / "a.tsv"
    certify(path)
    lines = path.read_bytes().splitlines(keepends=True)
    # Without a journal all votes are drawn again, in the same turns.
    path.write_bytes(b"".join(lines[:5]))
    text = path.with_suffix(".toml").read_text()
    path.with_suffix(".toml").write_text(text[: text.index("rows = ")])
    again = certify(path)
    assert without_time(again.path) == without_time(whole.path)


def test_little_time_saves_votes_and_the_next_run_resumes_them(
    whole: Certificates, tmp_path: Path
) -> None:
    path = tmp_path / "a.tsv"
    with pytest.raises(Stopped, match="budget could not be spent"):
        certify(path, time_limit=TimeLimit(seconds=0.02))
    for _ in range(500):
        try:
            certify(path, time_limit=TimeLimit(seconds=0.5))
        except Stopped:
            continue
        break
    assert without_time(path) == without_time(whole.path)


def test_hours_end_a_run_and_every_image_has_its_row(tmp_path: Path) -> None:
    # Less than the selection takes: it is made all the same.
    little = certify(tmp_path / "a.tsv", replace(HOW, budget=Budget(hours=1e-9)))
    assert [row.n for row in little.rows] == [0] * IMAGES
    assert [(row.predict, row.radius) for row in little.rows] == [(-1, 0.0)] * IMAGES
    assert verify(little).ok
    some = certify(tmp_path / "b.tsv", replace(HOW, budget=Budget(hours=0.05 / 3600)))
    assert len(some.rows) == IMAGES
    assert verify(some).ok
    # Enough time: the run ends once nothing is left to gain.
    much = certify(tmp_path / "c.tsv", replace(HOW, budget=Budget(hours=1.0)))
    assert verify(much).ok
    assert not journals(much.path)


def test_no_draws_go_to_wrong_images_where_that_is_recorded(
    whole: Certificates, tmp_path: Path
) -> None:
    file = certify(tmp_path / "a.tsv", replace(HOW, skip_wrong=True))
    assert [row.n for row in file.rows[:2]] == [0, 0]
    # As in any file that skips them, the class that selection chose is shown.
    assert [row.predict for row in file.rows[:2]] == [1, 1]
    assert verify(file).ok
    assert all(row.n for row in whole.rows[:2])


def test_a_file_with_more_draws_than_its_budget_does_not_verify(whole: Certificates) -> None:
    assert whole.settings is not None
    less = replace(whole.settings.certification, budget=Budget(draws=10_000))
    settings = replace(whole.settings, certification=less, has_digests=False)
    edited = replace(whole, settings=settings, digests=None)
    problem = f"has {spent(whole):,} draws in all, more than its budget of 10,000"
    assert problem in verify(edited).problems


def test_each_shard_has_its_share_and_they_merge(tmp_path: Path) -> None:
    shards = []
    for number in (1, 2):
        path = tmp_path / f"{number}.tsv"
        shards.append(certify(path, selection=Selection(shard=f"{number}/2")))
        assert 6_000 - 256 < spent(shards[-1]) <= 6_000
    merged = merge(shards)
    assert verify(merged).ok
    assert len(merged.rows) == IMAGES


def test_a_larger_budget_extends_a_file_and_none_draws_for_each_image(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    before = certify(path, replace(HOW, budget=Budget(draws=6_000)))
    with pytest.raises(UsageError, match="a budget counts all draws of a file"):
        extend_dataset(IsBright(), images(), replace(HOW, budget=Budget(draws=5_000)), path=path)
    longer = extend_dataset(IsBright(), images(), HOW, path=path)
    assert verify(longer).ok
    assert 6_000 < spent(longer) <= 12_000
    for old, new in zip(before.rows, longer.rows, strict=True):
        assert (old.n or 0) <= (new.n or 0)
    without = extend_dataset(IsBright(), images(), replace(HOW, budget=None), path=path)
    assert verify(without).ok
    assert without.settings is not None
    assert without.settings.certification.budget is None
    assert all(row.n for row in without.rows)


def test_progress_says_what_is_spent_decided_and_left(tmp_path: Path) -> None:
    notes: list[Progress] = []
    certify(tmp_path / "a.tsv", on_progress=notes.append)
    assert any(
        "spent " in each.note and " of 12 images decided, left " in each.note for each in notes
    )
    done = [each.done for each in notes]
    assert done == sorted(done)
    assert done[-1] == notes[-1].total == IMAGES


def test_it_is_refused_where_it_cannot_hold_or_cannot_do(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="must not depend on the votes"):
        Certification(sigma=0.5, budget=BUDGET)
    with pytest.raises(UsageError, match="needs the radii at which to certify"):
        Certification(sigma=0.5, guarantee=Anytime(Stopping()), budget=BUDGET)
    with pytest.raises(UsageError, match="takes no radii"):
        replace(HOW, budget=Budget(draws=12_000, goal="acr"))
    with pytest.raises(UsageError, match="1,200 selection draws of 12 images"):
        certify(tmp_path / "a.tsv", replace(HOW, budget=Budget(draws=1_199)))
    with pytest.raises(UsageError, match="leave out seconds-per-image"):
        certify(tmp_path / "a.tsv", time_limit=TimeLimit(seconds_per_image=1))
    with pytest.raises(UsageError, match="draws or hours"):
        Budget()


def test_a_batch_of_images_shares_a_budget(whole: Certificates) -> None:
    smoothed = Smoothed(IsBright(), sigma=0.5, num_classes=2, noise="gaussian")
    pixels = images().images(range(IMAGES))
    certified = smoothed.certify(
        pixels, stopping=Stopping(radii=(0.5, 1.0), max_draws=20_480, foresight=0.02),
        seed=0, budget=BUDGET,
    )  # fmt: skip
    assert certified.draws.tolist() == [row.n for row in whole.rows]
    assert certified.radius.tolist() == [row.radius for row in whole.rows]


def test_the_file_is_read_as_it_was_written(whole: Certificates) -> None:
    assert read(whole.path).settings == whole.settings
