"""Certification that is told to stop, or cannot write: nothing takes the signal for something else, and votes stay."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from smoothmix._process.signals import REQUEUE_EXIT_CODE, STOP_EXCEPTIONS, Stopped, sigterm_raises
from smoothmix._process.world import World
from smoothmix.certificates import Certificate, Writer, read
from smoothmix.certificates.partial import begun_path, keep_begun, load_begun
from smoothmix.certificates.shards import Part
from smoothmix.certify.dataset import Progress, certify_dataset, certify_file, file_settings
from smoothmix.certify.extend import extend_dataset
from smoothmix.certify.loop import Budget
from smoothmix.certify.workers import certify_together
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
from tests.helpers.certification import without_time
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
        HOW,
        path=Path(path),
        model_name="bright",
        stopping=RULES,
        on_progress=fill,
    )


def test_a_full_disk_is_said_of_the_row_that_has_no_room(tmp_path: Path) -> None:
    """In mode anytime the images in work find no room either, which must not be all that is heard."""
    path = tmp_path / "a.tsv"
    script = f"import tests.certify.test_stopped as here; here.fill_the_disk({str(path)!r})"
    argv = [sys.executable, "-c", script]
    failed = subprocess.run(argv, cwd=ROOT, check=False, capture_output=True, text=True)
    assert failed.returncode == 1
    last = failed.stderr.splitlines()[-1]
    assert "a.tsv: image" in last
    assert "could not be written" in last
    assert "a-begun.tsv: the images in work could not be kept" in failed.stderr


def test_a_look_at_fewer_images_leaves_those_in_work(tmp_path: Path) -> None:
    def run(maximum: int) -> None:
        certify_dataset(
            IsBright(), images(), EXACT, path=path, model_name="bright", maximum=maximum
        )

    path = tmp_path / "a.tsv"
    run(4)
    announced = file_settings(IsBright(), images(), EXACT, model_name="bright", maximum=12)
    announced.save(path.with_suffix(".toml"))
    keep_begun(path, announced, [replace(read(path).rows[3], idx=4)])
    run(3)
    assert set(load_begun(path, announced)) == {4}
    run(12)
    assert not begun_path(path).exists()


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
        old.settings.certification,
        path=path,
        stopping=Stopping(max_draws=1024),
    )
    now = read(path)
    assert now.settings is not None
    keep_begun(
        path, now.settings, old.rows
    )  # left by a process that was killed when it had written them
    drawn.clear()
    extend_dataset(IsBright(), images(), now.settings.certification, path=path, stopping=more)
    assert sum(drawn) == 20 * (2560 - 1024)


def test_parts_leave_nothing_of_images_in_work(tmp_path: Path) -> None:
    path, settings = (
        tmp_path / "a.tsv",
        file_settings(IsBright(), images(), EXACT, model_name="bright"),
    )
    certify_together(IsBright(), images(), settings, path=path, world=World(), shards="1/2")
    first = Part(path, 1, 2)
    keep_begun(first.path, first.settings(settings), read(first.path).rows[-1:])
    certify_together(IsBright(), images(), settings, path=path, world=World(), shards="2/2")
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
    settings = file_settings(
        IsBright(), images(), EXACT, model_name="bright", stopping=Stopping(max_draws=2560)
    )
    with pytest.raises(Stopped):
        certify_file(
            IsBright(), images(), settings, path=tmp_path / "a.tsv", budget=Budget(seconds=1e-6)
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
    )  # begun for six, and interrupted
    assert (
        "left: the file was begun for more than --max 3: leave that out"
        in smoothmix(*certify_three).err
    )
