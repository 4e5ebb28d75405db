"""Images that are unfinished when the time runs out, or when a run is killed, keep their votes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from smoothmix._process.progress import OnProgress, Progress, ignore_progress
from smoothmix.certificates import Certificates, Certification, read, settings_path
from smoothmix.certificates.partial import Journal, PartialVotes
from smoothmix.certificates.settings import load_settings
from smoothmix.certify import loop
from smoothmix.certify.dataset import certify_dataset, open_classifier
from smoothmix.certify.extend import extend_dataset
from smoothmix.certify.loop import ImageToCertify, TimeLimit, certified_rows
from smoothmix.data import MemoryDataset
from smoothmix.errors import SmoothmixError
from smoothmix.stats.anytime import Stopping
from smoothmix.stats.guarantees import FixedDraws
from tests.conftest import ROOT, command
from tests.helpers.certification import journals, saved_votes, without_time
from tests.helpers.guarantees import with_stopping
from tests.helpers.processes import Jobs, until

HOW = Certification(sigma=0.5)
RULES = Stopping(radii=(0.5,), max_draws=51_200)


class IsBright(nn.Module):
    """Whether the mean of 16 pixels is above 1/2: the distance of grey v to that is 4 |v - 1/2|."""

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean((1, 2, 3))
        return torch.stack([torch.full_like(mean, 0.5), mean], 1)


def images() -> MemoryDataset:
    """The first image is the hardest: its radius is the requested one. All others wait for it."""
    greys = 0.5 + np.array([0.5] + [1.5] * 19, dtype=np.float32) / 4
    pixels = np.broadcast_to(greys[:, None, None, None], (20, 1, 4, 4)).copy()
    return MemoryDataset(
        name="greys",
        split="test",
        labels=np.ones(20, dtype=np.int64),
        class_names=("dark", "bright"),
        pixels=pixels,
    )


def certify(path: Path, *, rules: Stopping = RULES, seconds: float = float("inf")) -> Certificates:
    return certify_dataset(
        IsBright(),
        images(),
        with_stopping(HOW, rules),
        path=path,
        model_name="bright",
        time_limit=TimeLimit(seconds=seconds),
    )


def in_short_runs(run: Callable[[], Certificates], path: Path) -> int:
    """Call again and again until nothing is missing; how often."""
    for number in range(1, 2000):
        try:
            if not run().missing and not journals(path):
                return number
        except SmoothmixError as error:
            if "the first image could not be finished in the time given" not in str(error):
                raise
    raise AssertionError("it never ends")


def test_runs_that_are_too_short_for_an_image_get_there_and_draw_nothing_twice(
    tmp_path: Path, drawn: list[int]
) -> None:
    whole = certify(tmp_path / "whole.tsv")
    expected = sum(drawn)
    drawn.clear()
    runs = in_short_runs(lambda: certify(tmp_path / "a.tsv", seconds=0.01), tmp_path / "a.tsv")
    assert runs > 2
    assert sum(drawn) == expected
    assert without_time(tmp_path / "a.tsv") == without_time(whole.path)
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "a.toml",
        "a.tsv",
        "whole.toml",
        "whole.tsv",
    ]


class Slowly(IsBright):
    """The same network on a machine that takes ten milliseconds for a block."""

    def forward(self, x: Tensor) -> Tensor:
        time.sleep(0.01)
        return super().forward(x)


def test_the_time_may_run_out_in_the_middle_of_a_round(tmp_path: Path, drawn: list[int]) -> None:
    path, rules = tmp_path / "a.tsv", Stopping(radii=(0.5,), max_draws=2560)

    def run(path: Path, seconds: float) -> Certificates:
        time_limit = TimeLimit(seconds=seconds)
        return certify_dataset(
            Slowly(),
            images(),
            with_stopping(HOW, rules),
            path=path,
            model_name="b",
            time_limit=time_limit,
        )

    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(
            2
        )  # which get through 20 blocks in the time, of the 40 that one round has
        runs = in_short_runs(lambda: run(path, 0.1), path)
    finally:
        torch.set_num_threads(threads)
    spent = sum(drawn)
    assert runs >= 3
    drawn.clear()
    whole = run(tmp_path / "whole.tsv", float("inf"))
    assert spent == sum(drawn)
    assert without_time(path) == without_time(whole.path)


def test_an_extension_in_short_runs_reports_that_it_is_not_finished(
    tmp_path: Path, drawn: list[int]
) -> None:
    path = tmp_path / "a.tsv"
    certify(path, rules=Stopping(radii=(0.5,), max_draws=5120))
    before = path.read_bytes()
    more = Stopping(max_draws=10_240)
    with pytest.raises(
        SmoothmixError,
        match=r"a-extending.tsv: the first image could not be finished in the time given",
    ):
        extend_dataset(
            IsBright(),
            images(),
            with_stopping(HOW, more),
            path=path,
            time_limit=TimeLimit(seconds=1e-6),
        )
    assert path.read_bytes() == before
    drawn.clear()
    in_short_runs(
        lambda: extend_dataset(
            IsBright(),
            images(),
            with_stopping(HOW, more),
            path=path,
            time_limit=TimeLimit(seconds=0.01),
        ),
        path,
    )
    assert {row.n for row in read(path).rows} == {10_240}
    assert sum(drawn) == 20 * 10_240 - sum(
        int(line.split(b"\t")[7]) for line in before.splitlines()[1:]
    )


def test_time_spent_before_an_extension_does_not_count_against_an_image(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    first = certify(path)
    time_limit = TimeLimit(seconds_per_image=first.rows[0].seconds)
    more = Stopping(radii=(0.5,), tolerance=0.01, max_draws=204_800)
    extended = extend_dataset(
        IsBright(), images(), with_stopping(HOW, more), path=path, time_limit=time_limit
    )
    assert extended.rows[0].n > first.rows[0].n


EXACT = Certification(sigma=0.5, guarantee=FixedDraws(n=20_000, stop_abstaining=True))


def certify_exactly(path: Path, on_progress: OnProgress = ignore_progress) -> Certificates:
    return certify_dataset(
        IsBright(), images(), EXACT, path=path, model_name="bright", on_progress=on_progress
    )


def certify_with_foresight(path: Path) -> Certificates:
    return certify(path, rules=replace(RULES, foresight=0.1))


RUNS: dict[str, Callable[[Path], Certificates]] = {
    "exact": certify_exactly,
    "anytime": certify,
    "foresight": certify_with_foresight,
}


def die(path: str, mode: str) -> None:
    """Certify, save votes as often as possible, and be killed after the fifth time."""
    loop.SECONDS_BETWEEN_SAVES = -1.0
    append = Journal.append
    times = []

    def append_and_die(self: Journal, votes: Mapping[int, PartialVotes]) -> None:
        append(self, votes)
        times.append(len(votes))
        if len(times) == 5:
            os.kill(os.getpid(), signal.SIGKILL)

    Journal.append = append_and_die  # type: ignore[method-assign]
    RUNS[mode](Path(path))


@pytest.mark.parametrize("mode", sorted(RUNS))
def test_a_killed_run_resumes_the_votes_that_were_saved(
    mode: str, tmp_path: Path, drawn: list[int]
) -> None:
    path, run = tmp_path / "a.tsv", RUNS[mode]
    script = f"import tests.certify.test_partial_votes as here; here.die({str(path)!r}, {mode!r})"
    killed = subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=False)
    assert killed.returncode == -signal.SIGKILL
    settings = load_settings(path)
    assert settings is not None
    saved = saved_votes(path, settings)
    kept = sum(votes.drawn for votes in saved.values())
    assert kept > 256
    run(path)
    rest = sum(drawn)
    drawn.clear()
    run(tmp_path / "whole.tsv")
    # Resumed images need no new selection either.
    assert rest == sum(drawn) - kept - len(saved) * HOW.guarantee.n0
    assert without_time(path) == without_time(tmp_path / "whole.tsv")
    assert not journals(path)


def test_votes_are_saved_after_whole_batches_and_all_draws(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("SECONDS_BETWEEN_REPORTS", "SECONDS_BETWEEN_SAVES"):
        monkeypatch.setattr(loop, name, -1.0)  # every batch
    saved: list[PartialVotes] = []
    image = ImageToCertify(index=1, label=1, pixels=images().images([1])[0])
    with open_classifier(IsBright(), images(), EXACT) as sampler:
        (whole,) = certified_rows(
            sampler, [image], EXACT, save=lambda votes: saved.append(votes[1])
        )
    assert {votes.drawn for votes in saved} == {
        *range(0, EXACT.guarantee.max_draws, 256),
        EXACT.guarantee.max_draws,
    }
    assert all(sum(votes.selection_counts.values()) == EXACT.guarantee.n0 for votes in saved)
    assert [votes for votes in saved if votes.drawn == EXACT.guarantee.max_draws][
        -1
    ].counts == whole.counts
    assert whole.radius > 0


def test_progress_is_reported_while_an_image_is_active(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "SECONDS_BETWEEN_REPORTS", -1.0)
    reported: list[Progress] = []
    certify_exactly(tmp_path / "a.tsv", reported.append)
    done = [progress.done for progress in reported]
    assert done == sorted(done)
    assert (done[0], done[-1]) == (0, 20)
    assert len(set(done)) > 20 * 50


@pytest.mark.parametrize("mode", ["exact", "anytime"])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 75), (signal.SIGINT, 130)])
def test_a_run_that_is_asked_to_stop_saves_every_vote(
    mode: str, number: signal.Signals, code: int, tmp_path: Path, jobs: Jobs
) -> None:
    """Less than a minute has passed: votes were saved because of the signal."""
    (tmp_path / "slow.py").write_text(
        "import time, torch\n"
        "class Slow(torch.nn.Linear):\n"
        "    def forward(self, x):\n"
        "        time.sleep(0.02)\n"
        "        return super().forward(x.flatten(1))\n"
        "def make():\n"
        "    torch.manual_seed(0)\n"
        "    return Slow(784, 10)\n"
    )
    how = ["--n", "200000"] + (["--mode", "anytime"] if mode == "anytime" else [])
    words = [
        "certify",
        "--model",
        "slow:make",
        "--num-classes",
        "10",
        "--sigma",
        "1",
        "--data",
        "sample",
        "--max",
        "2",
    ]
    job = jobs.start(list(command(*words, *how, "--out", "a.tsv")), PYTHONPATH=str(tmp_path))
    until(settings_path(tmp_path / "a.tsv").exists, "the beginning")
    time.sleep(3)
    job.process.send_signal(number)
    assert job.wait() == code, job.output
    assert "the same command" in job.output
    settings = load_settings(tmp_path / "a.tsv")
    assert settings is not None
    saved = saved_votes(tmp_path / "a.tsv", settings)
    assert sum(votes.drawn for votes in saved.values()) > 256
