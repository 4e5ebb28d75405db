"""Certification that is asked to stop, or cannot write: the reason is reported, and votes stay."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from smoothmix._process.progress import Progress
from smoothmix._process.signals import REQUEUE_EXIT_CODE, STOP_EXCEPTIONS, Stopped, sigterm_raises
from smoothmix.certificates import Certificate, Selection, Writer, read
from smoothmix.certificates.shard import Shard
from smoothmix.certify.dataset import certify_dataset
from smoothmix.certify.extend import extend_dataset
from smoothmix.certify.loop import TimeLimit
from smoothmix.inference.prepare import engine_name
from smoothmix.stats.anytime import Stopping
from tests.certify.test_partial_votes import (
    EXACT,
    HOW,
    RULES,
    IsBright,
    certify,
    certify_exactly,
    images,
)
from tests.conftest import ROOT, Run
from tests.helpers.certification import (
    certify_settings,
    certify_shards,
    journals,
    save_votes,
    saved_votes,
    settings_for,
    without_time,
)
from tests.helpers.guarantees import with_stopping
from tests.helpers.studies import run_folder, trained


def sigterm() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def test_sigterm_is_no_error_that_others_may_catch() -> None:
    def work() -> None:
        try:
            sigterm()
        except Exception as error:
            raise AssertionError("taken for an error") from error

    with pytest.raises(Stopped, match="stopped by SIGTERM") as stopped, sigterm_raises():
        work()
    assert stopped.value.exit_code == REQUEUE_EXIT_CODE
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_sigterm_while_a_network_is_made_ready_does_not_choose_another_engine() -> None:
    class Signalling(IsBright):
        def forward(self, x):  # type: ignore[no-untyped-def]
            sigterm()
            return super().forward(x)

    with pytest.raises(Stopped), sigterm_raises():
        engine_name(Signalling().eval(), (1, 4, 4), precision="fp32")


def test_a_second_sigterm_does_not_break_off_the_saving() -> None:
    saved = []

    def work() -> None:
        try:
            sigterm()
        except STOP_EXCEPTIONS:
            sigterm()
            saved.append("all of it")
            raise

    with pytest.raises(Stopped), sigterm_raises():
        work()
    assert saved == ["all of it"]


def test_an_image_is_not_lost_between_its_last_draw_and_its_row(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    drawn: list[int],
) -> None:
    whole = certify_exactly(tmp_path / "whole.tsv")
    expected, path = sum(drawn), tmp_path / "a.tsv"
    drawn.clear()

    def interrupted(writer: Writer, row: Certificate) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Writer, "append", interrupted)
        with pytest.raises(KeyboardInterrupt):
            certify_exactly(path)
    certify_exactly(path)
    assert sum(drawn) == expected
    assert without_time(path) == without_time(whole.path)


ROOM = 600
"""Bytes: enough for half of the rows, and not for the other half."""


def fill_the_disk(path: str) -> None:
    """Certify with room for a few rows, once the settings are on disk."""

    def fill(state: Progress) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM, ROOM))

    certify_dataset(
        IsBright(),
        images(),
        with_stopping(HOW, RULES),
        path=Path(path),
        model_name="bright",
        on_progress=fill,
    )


def test_a_full_disk_is_reported_with_the_row_that_has_no_room(tmp_path: Path) -> None:
    """In mode anytime partial votes find no room either, which must not be the only message."""
    path = tmp_path / "a.tsv"
    script = f"import tests.certify.test_stopped as here; here.fill_the_disk({str(path)!r})"
    argv = [sys.executable, "-c", script]
    failed = subprocess.run(argv, cwd=ROOT, check=False, capture_output=True, text=True)
    assert failed.returncode == 1
    last = failed.stderr.splitlines()[-1]
    assert "a.tsv: image" in last
    assert "could not be written" in last
    assert ".partial-votes: the partial votes could not be saved" in failed.stderr


def test_a_run_of_fewer_images_leaves_the_votes_of_others(tmp_path: Path) -> None:
    def run(maximum: int) -> None:
        certify_dataset(
            IsBright(),
            images(),
            EXACT,
            path=path,
            model_name="bright",
            selection=Selection(maximum=maximum),
        )

    path = tmp_path / "a.tsv"
    run(4)
    announced = settings_for(IsBright(), images(), EXACT, selection=Selection(maximum=12))
    announced.save(path.with_suffix(".toml"))
    save_votes(path, announced, [replace(read(path).rows[3], idx=4)])
    run(3)
    assert set(saved_votes(path, announced)) == {4}
    run(12)
    assert not journals(path)


def test_an_extension_does_not_go_back_to_what_a_finished_image_once_had(
    tmp_path: Path,
    drawn: list[int],
) -> None:
    path, more = tmp_path / "a.tsv", Stopping(max_draws=2560)
    certify(path, rules=Stopping(radii=(0.5,), max_draws=256))
    old = read(path)
    certify(tmp_path / "more.tsv", rules=Stopping(max_draws=1024))
    assert old.settings is not None
    extend_dataset(
        IsBright(),
        images(),
        with_stopping(old.settings.certification, Stopping(max_draws=1024)),
        path=path,
    )
    now = read(path)
    assert now.settings is not None
    # Left by a process that was killed when it had written them.
    save_votes(path, now.settings, old.rows)
    drawn.clear()
    extend_dataset(IsBright(), images(), with_stopping(now.settings.certification, more), path=path)
    assert sum(drawn) == 20 * (2560 - 1024)


def test_merged_shards_leave_no_partial_votes(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    settings = settings_for(IsBright(), images(), EXACT)
    certify_shards(IsBright(), images(), settings, path=path, shards="1/2")
    save_votes(path, settings, read(Shard(path, 1, 2).path).rows[-1:])
    certify_shards(IsBright(), images(), settings, path=path, shards="2/2")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.toml", "a.tsv"]


def test_a_time_that_is_too_short_for_any_image_asks_to_be_started_again(
    smoothmix: Run, tmp_path: Path
) -> None:
    run_folder(tmp_path / "run", trained())
    how = ("--max", 2, "--mode", "anytime", "--radii", "0.5", "--seconds", "0.000001")
    stopped = smoothmix("certify", "run", *how)
    assert stopped.code == REQUEUE_EXIT_CODE
    assert "the first image could not be finished in the time given" in stopped.err


def test_a_library_call_hears_of_it_too(tmp_path: Path) -> None:
    settings = settings_for(IsBright(), images(), EXACT, stopping=Stopping(max_draws=2560))
    with pytest.raises(Stopped):
        certify_settings(
            IsBright(),
            images(),
            settings,
            path=tmp_path / "a.tsv",
            time_limit=TimeLimit(seconds=1e-6),
        )


def test_images_beyond_the_maximum_are_not_waited_for_by_the_same_command(
    smoothmix: Run, tmp_path: Path
) -> None:
    run_folder(tmp_path / "run", trained())
    certify_three = ("certify", "run", "--n", 300, "--max", 3, "--out", "a.tsv")
    assert smoothmix(*certify_three).code == 0
    settings = tmp_path / "a.toml"
    settings.write_text(
        settings.read_text().replace("images = 3", "images = 6")
    )  # started for six, and interrupted
    assert (
        "left: the file was started for more than --max 3: leave that out"
        in smoothmix(*certify_three).err
    )
