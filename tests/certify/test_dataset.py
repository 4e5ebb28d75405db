"""Runs over a data set that are interrupted for real, and still end in the same file."""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from smoothmix import certificates
from smoothmix._io.locks import exclusive
from smoothmix.errors import UsageError
from tests.conftest import Run, command
from tests.helpers.guarantees import certification_of

SETTINGS = ("--n0", 20, "--n", 2000, "--skip", 50, "--seed", 3)
IMAGES = 20


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder as `train` leaves it, after one epoch: some images are right, some are not."""
    folder = tmp_path_factory.mktemp("run") / "gaussian"
    argv = command(
        "train", "quick/gaussian", "--epochs", 1, "--learning-rate", 0.05, "--out", folder
    )
    subprocess.run(argv, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def undisturbed(run_folder: Path) -> Path:
    """The file of a run that nobody interrupts."""
    path = run_folder / "undisturbed.tsv"
    subprocess.run(
        command("certify", run_folder, *SETTINGS, "--out", path), check=True, capture_output=True
    )
    return path


def without_time(path: Path) -> list[list[str]]:
    """The cells of a file but for the time column."""
    lines = [line.split("\t") for line in path.read_bytes().decode().splitlines(keepends=True)]
    return [line[:5] + line[6:] for line in lines]


def start(run_folder: Path, path: Path, **options: object) -> subprocess.Popen[bytes]:
    """The command in the background; what it says goes into a file."""
    argv = command("certify", run_folder, *SETTINGS, "--out", path)
    with said(path).open("wb") as messages:
        return subprocess.Popen(  # type: ignore[call-overload]
            argv, stdout=subprocess.DEVNULL, stderr=messages, **options
        )


def said(path: Path) -> Path:
    return path.with_suffix(".messages")


def rows_in(path: Path) -> int:
    return path.read_bytes().count(b"\n") - 1 if path.exists() else 0


def wait_for_rows(process: subprocess.Popen[bytes], path: Path, rows: int) -> None:
    deadline = time.monotonic() + 60
    while rows_in(path) < rows and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)


def kill_after(
    process: subprocess.Popen[bytes], path: Path, rows: int, how: signal.Signals
) -> None:
    """Let it write some rows, then stop it."""
    wait_for_rows(process, path, rows)
    process.send_signal(how)
    process.wait(timeout=30)


def test_the_file_holds_what_was_asked_for(undisturbed: Path) -> None:
    file = certificates.read(undisturbed)
    assert [row.idx for row in file.rows] == list(range(0, 1000, 50))
    assert certificates.verify(file).ok
    assert not file.missing


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT], ids=["kill -9", "Ctrl-C"])
def test_a_run_that_is_stopped_again_and_again_ends_in_the_same_file(
    run_folder: Path, undisturbed: Path, tmp_path: Path, how: signal.Signals
) -> None:
    path = tmp_path / "c.tsv"
    for rows in (1, 8):
        process = start(run_folder, path)
        kill_after(process, path, rows, how)
        if how == signal.SIGINT:
            assert process.returncode == 130
            assert (
                "run the same command again to resume from what was saved" in said(path).read_text()
            )
    assert 1 <= rows_in(path) < IMAGES, "it was really interrupted"
    with path.open("ab") as stream:
        stream.write(b"400\t3\t3\t0.2")  # a row that was being written when the machine went down
    assert start(run_folder, path).wait(timeout=60) == 0
    assert without_time(path) == without_time(undisturbed)
    assert not list(tmp_path.glob("*.lock"))


def test_a_full_disk_is_reported_and_survived(
    run_folder: Path, undisturbed: Path, tmp_path: Path
) -> None:
    """A limit on file size fails a write in the middle of a line, as a full disk does."""
    path = tmp_path / "c.tsv"
    limit = undisturbed.stat().st_size // 2
    process = start(run_folder, path)
    # The settings are longer than that, and are written before the first row.
    wait_for_rows(process, path, 1)
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (limit, limit))
    assert process.wait(timeout=60) == 1
    message = said(path).read_text()
    assert "could not be written" in message
    assert "Traceback" not in message
    assert path.stat().st_size == limit, "the last line is cut"
    assert start(run_folder, path).wait(timeout=60) == 0
    assert without_time(path) == without_time(undisturbed)


def test_a_finished_file_is_left_alone(run_folder: Path, undisturbed: Path, smoothmix: Run) -> None:
    before = undisturbed.read_bytes()
    result = smoothmix("certify", run_folder, *SETTINGS, "--out", undisturbed)
    assert result.code == 0
    assert undisturbed.read_bytes() == before


def test_more_images_may_be_asked_for_later(
    run_folder: Path, undisturbed: Path, tmp_path: Path, smoothmix: Run
) -> None:
    path = tmp_path / "c.tsv"
    for maximum in (3, 7):
        assert (
            smoothmix("certify", run_folder, *SETTINGS, "--max", maximum, "--out", path).code == 0
        )
        assert without_time(path) == without_time(undisturbed)[: maximum + 1]
        settings = certificates.read(path).settings
        assert settings is not None
        assert settings.images == maximum


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (("--n", 3000), "n is 2000 there and 3000 here"),
        (("--alpha", 0.01), "alpha is 0.001 there and 0.01 here"),
        (("--sigma", 0.25), "sigma is 0.5 there and 0.25 here"),
        (("--seed", 4), "seed is 3 there and 4 here"),
        (("--skip", 25), "skip is 50 there and 25 here"),
        (("--batch", 100), "batch is 256 there and 100 here"),
        (("--precision", "bf16"), "precision is fp32 there and bf16 here"),
        (("--skip-wrong",), "skip_wrong is False there and True here"),
        (("--split", "train"), "split is test there and train here"),
    ],
)
def test_other_settings_into_the_same_file_are_refused(
    run_folder: Path, undisturbed: Path, smoothmix: Run, change: tuple[object, ...], sentence: str
) -> None:
    before = undisturbed.read_bytes()
    options = dict(zip(SETTINGS[::2], SETTINGS[1::2], strict=True)) | dict(
        [change] if len(change) == 2 else []
    )
    flags = change if len(change) == 1 else ()
    result = smoothmix(
        "certify",
        run_folder,
        *(x for pair in options.items() for x in pair),
        *flags,
        "--out",
        undisturbed,
    )
    assert result.code == 2
    assert sentence in result.err
    assert undisturbed.read_bytes() == before


def test_skip_wrong_spends_no_draws_on_wrong_images(
    run_folder: Path, undisturbed: Path, tmp_path: Path, smoothmix: Run
) -> None:
    path = tmp_path / "c.tsv"
    assert smoothmix("certify", run_folder, *SETTINGS, "--skip-wrong", "--out", path).code == 0
    file, full = certificates.read(path), certificates.read(undisturbed)
    assert certificates.verify(file).ok
    wrong = [row for row in file.rows if row.selected != row.label]
    assert 0 < len(wrong) < IMAGES
    assert all(
        (row.n, row.radius, row.correct, row.predict) == (0, 0.0, False, row.selected)
        for row in wrong
    )
    for mine, theirs in zip(file.rows, full.rows, strict=True):
        assert mine.correct == theirs.correct
        assert mine.selection_counts == theirs.selection_counts
        assert mine.n == 0 or mine.counts == theirs.counts


def test_a_second_process_on_the_same_file_is_refused(
    run_folder: Path, tmp_path: Path, smoothmix: Run
) -> None:
    path = tmp_path / "c.tsv"
    with exclusive(path):
        result = smoothmix("certify", run_folder, *SETTINGS, "--out", path)
    assert result.code == 2
    assert "another smoothmix process is writing it" in result.err


def test_a_lock_dies_with_its_owner_and_is_not_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "c.lock").touch()  # as a killed process leaves it
    with (
        exclusive(tmp_path / "c.tsv"),
        pytest.raises(UsageError, match="another smoothmix process"),
        exclusive(tmp_path / "c.tsv"),
    ):
        pass
    assert not (tmp_path / "c.lock").exists()


def test_a_file_without_its_settings_is_not_continued(
    run_folder: Path, tmp_path: Path, smoothmix: Run
) -> None:
    path = tmp_path / "c.tsv"
    path.write_text("idx\tlabel\tpredict\tradius\tcorrect\ttime\n0\t1\t1\t0.5\t1\t1.0\n")
    result = smoothmix("certify", run_folder, *SETTINGS, "--out", path)
    assert result.code == 2
    assert "has no c.toml beside it" in result.err


def test_memory_does_not_grow_with_the_number_of_draws() -> None:
    """Counts are kept, not samples: what certification adds at n=100,000 is what a batch needs."""
    script = """
import resource, torch
from smoothmix import networks
from smoothmix.certify.smoothed import Smoothed
model, image = networks.build("lenet").eval(), torch.rand(1, 1, 28, 28)
smoothed = Smoothed(model, sigma=0.5, num_classes=10, noise="gaussian", batch=1000)
smoothed.certify(image, n0=10, n=10)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
smoothed.certify(image, n0=100, n=DRAWS)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""
    used = []
    for draws in (10_000, 40_000):
        command = [sys.executable, "-c", script.replace("DRAWS", str(draws))]
        # On one thread: with more, how much they hold at once is a matter of chance.
        alone = os.environ | {"OMP_NUM_THREADS": "1"}
        used.append(
            float(
                subprocess.run(
                    command, capture_output=True, text=True, check=True, env=alone
                ).stdout
            )
        )
    assert used[1] < 120
    assert used[1] - used[0] < 40, used


def test_settings_of_a_certification_say_what_is_wrong() -> None:
    for wrong in ({"n": 0}, {"n0": 0}, {"alpha": 1.0}, {"batch": 0}, {"seed": -1}, {"sigma": -1.0}):
        with pytest.raises(UsageError):
            certification_of(**{"sigma": 0.5, **wrong})


def test_shards_of_a_run_merge_to_the_whole(
    run_folder: Path, undisturbed: Path, tmp_path: Path, smoothmix: Run
) -> None:
    names = [f"{part}.tsv" for part in (1, 2, 3)]
    for part, name in enumerate(names, start=1):
        assert (
            smoothmix("certify", run_folder, *SETTINGS, "--shard", f"{part}/3", "--out", name).code
            == 0
        )
    assert smoothmix("certificates", "merge", *names, "--out", "all.tsv").code == 0
    assert without_time(tmp_path / "all.tsv") == without_time(undisturbed)
    lacking = smoothmix("certificates", "merge", *names[:2], "--out", "some.tsv")
    assert (lacking.code, "lack 6 images" in lacking.err) == (1, True)


def test_a_first_try_that_fails_is_not_in_the_way(
    run_folder: Path, tmp_path: Path, smoothmix: Run
) -> None:
    np.savez(tmp_path / "wrong.npz", x=np.full((3, 8, 8), 99, dtype=np.uint8), y=[0, 1, 2])
    assert smoothmix("certify", run_folder, "--data", "npz:wrong.npz", "--out", "c.tsv").code == 1
    assert sorted(path.name for path in tmp_path.glob("c.*")) == [], "nothing was written"
    assert smoothmix("certify", run_folder, *SETTINGS, "--max", 1, "--out", "c.tsv").code == 0


def test_other_versions_are_reported_and_recorded(
    run_folder: Path, tmp_path: Path, smoothmix: Run
) -> None:
    assert smoothmix("certify", run_folder, *SETTINGS, "--max", 1, "--out", "c.tsv").code == 0
    text = (tmp_path / "c.toml").read_text()
    (tmp_path / "c.toml").write_text(re.sub('numpy = ".*"', 'numpy = "1.0"', text))
    done = smoothmix("certify", run_folder, *SETTINGS, "--max", 2, "--out", "c.tsv")
    assert done.code == 0
    assert "was started with numpy 1.0 and is resumed with" in done.err
    assert f'numpy = "1.0, {np.__version__}"' in (tmp_path / "c.toml").read_text()
