"""Certification with many processes, some of which are killed, frozen or find damaged files."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from smoothmix._io.locks import exclusive
from smoothmix._process.progress import Progress
from smoothmix._process.world import World
from smoothmix.certificates import read, shards
from smoothmix.certificates.shard import Shard
from smoothmix.certificates.shards import ShardedRun, rows_in, split_run
from smoothmix.certificates.tools import save
from smoothmix.errors import CertificateError
from tests.conftest import Run
from tests.helpers.certification import (
    OPTIONS,
    assert_same,
    certify_as,
    leftovers,
    put_network,
    run_settings,
)
from tests.helpers.processes import jobs_in, until

ALONE = World()


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a single process that nobody disturbs: 40 images."""
    path = tmp_path_factory.mktemp("one") / "c.tsv"
    certify_as(ALONE, run_settings(), path)
    return path


def rows_of_parts(folder: Path) -> int:
    return sum(rows_in(path) for path in folder.glob("certificates-*-of-*.tsv"))


def test_a_killed_rank_is_made_up_for_by_the_next_start(tmp_path: Path) -> None:
    """A launcher ends its other ranks as well; the next one may have another number of them."""
    put_network(tmp_path)
    options = (*OPTIONS[:-3], 2000, *OPTIONS[-2:], "--skip", 20)
    path = tmp_path / "certificates.tsv"
    with jobs_in(tmp_path) as jobs:
        first = jobs.torchrun("--nproc-per-node 3", "--", "certify", *options)
        until(lambda: rows_of_parts(tmp_path) >= 2, "some rows")
        os.kill(jobs.rank(1), signal.SIGKILL)
        assert first.wait() != 0
        before = rows_of_parts(tmp_path)
        assert 2 <= before < 50, "it was really interrupted"
        assert not path.exists()
        with next(tmp_path.glob("certificates-*-of-*.tsv")).open("ab") as stream:
            stream.write(
                b"400\t3\t3\t0.2"
            )  # a row that was being written when the machine went down
        again = jobs.torchrun("--nproc-per-node 2", "--", "certify", *options)
        assert again.wait() == 0, again.output
    assert again.output.count("certificates: certificates.tsv") == 1
    certify_as(ALONE, run_settings(skip=20, n=2000), tmp_path / "one.tsv")
    assert_same(path, tmp_path / "one.tsv")


def test_a_frozen_process_keeps_its_shard_and_a_killed_one_does_not(
    smoothmix: Run, tmp_path: Path
) -> None:
    put_network(tmp_path)
    path, first, second = (
        tmp_path / f"certificates{name}.tsv" for name in ("", "-1-of-2", "-2-of-2")
    )
    command = ("certify", *OPTIONS, "--skip", 10, "--shard", "1/2")
    settings = run_settings(skip=10)
    notes: list[str] = []

    def on_progress(state: Progress) -> None:
        notes.append(state.note)

    with jobs_in(tmp_path) as jobs:
        frozen = jobs.smoothmix(*command)
        until(lambda: rows_in(first), "a row of the first part")
        os.kill(frozen.process.pid, signal.SIGSTOP)
        assert 0 < rows_in(first) < 50
        refused = smoothmix(*command)
        assert refused.code == 2
        assert "certificates-1-of-2.tsv: another smoothmix process is writing it" in refused.err
        # A process that comes later does what is free, and waits for the rest.
        later = threading.Thread(
            target=certify_as, args=(ALONE, settings, path), kwargs={"on_progress": on_progress}
        )
        later.start()
        until(
            lambda: rows_in(second) == 50 and notes[-1].endswith("with shard 1"), "the other part"
        )
        assert not path.exists()
        os.kill(frozen.process.pid, signal.SIGKILL)
        later.join(timeout=60)
        assert not later.is_alive()
    certify_as(ALONE, settings, tmp_path / "one.tsv")
    assert_same(path, tmp_path / "one.tsv")


def cut_in_the_middle(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2] + data[len(data) // 2 + 9 :])


def overwritten(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:400] + bytes(64) + data[464:])


def with_other_votes(path: Path) -> None:
    """Every cell reads well, but the radius does not follow from the votes."""
    lines = path.read_text().splitlines(keepends=True)
    cells = lines[3].split("\t")
    cells[3] = f"{float(cells[3]) + 0.01:.6f}"
    path.write_text("".join([*lines[:3], "\t".join(cells), *lines[4:]]))


def with_a_row_twice(path: Path) -> None:
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:4], lines[3], *lines[5:]]))


@pytest.mark.parametrize(
    "damage", [cut_in_the_middle, overwritten, with_other_votes, with_a_row_twice]
)
def test_a_damaged_shard_is_refused_by_name_and_certified_again(
    tmp_path: Path, expected: Path, damage: Callable[[Path], None]
) -> None:
    path, part = tmp_path / "c.tsv", tmp_path / "c-1-of-2.tsv"
    certify_as(ALONE, run_settings(), path, shards="1/2")
    damage(part)
    with pytest.raises(CertificateError, match=r"c-1-of-2.tsv.*; repair that file, or delete it"):
        certify_as(ALONE, run_settings(), path, shards="2/2")
    assert not path.exists()
    part.unlink()
    certify_as(ALONE, run_settings(), path)
    assert_same(path, expected)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_damaged_shard_ends_every_rank_with_a_sentence(
    smoothmix: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rank: int
) -> None:
    put_network(tmp_path)
    certify_as(ALONE, run_settings(), tmp_path / "certificates.tsv", shards="1/2")
    overwritten(tmp_path / "certificates-1-of-2.tsv")
    for name, value in {"RANK": rank, "WORLD_SIZE": 2, "LOCAL_RANK": rank}.items():
        monkeypatch.setenv(name, str(value))
    result = smoothmix("certify", *OPTIONS, "--skip", 25)
    assert result.code == 1
    assert "certificates-1-of-2.tsv, line " in result.err
    assert not (tmp_path / "certificates.tsv").exists()


@pytest.mark.parametrize("removed", [0, 1, 2])
def test_a_process_that_dies_while_it_merges_shards_is_no_harm(
    tmp_path: Path, expected: Path, monkeypatch: pytest.MonkeyPatch, removed: int
) -> None:
    path = tmp_path / "c.tsv"
    certify_as(ALONE, run_settings(), path, shards="1,2/3")
    remove = shards._remove

    def die(some: list[Shard], whole: object) -> None:
        remove(some[:removed], whole)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    monkeypatch.setattr(shards, "_remove", die)
    with pytest.raises(KeyboardInterrupt):
        certify_as(ALONE, run_settings(), path, shards="3/3")
    monkeypatch.undo()
    assert leftovers(path)
    before = path.read_bytes()
    assert certify_as(World(0, 2), run_settings(), path).file == read(path)
    assert path.read_bytes() == before
    assert_same(path, expected)


def test_a_start_while_another_process_merges_the_shards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expected: Path
) -> None:
    """It finds the file held, and then no shards any more."""

    def die(run: ShardedRun) -> bool:
        raise KeyboardInterrupt

    path, settings = tmp_path / "c.tsv", run_settings()
    with monkeypatch.context() as patched:
        patched.setattr(ShardedRun, "merge", die)
        with pytest.raises(KeyboardInterrupt):
            certify_as(ALONE, settings, path, shards="1,2,3/3")
    run = split_run(path, settings, requested=None, default=3)
    assert not run.unfinished
    assert not run.complete

    def meanwhile(shard: Shard, settings: object) -> None:
        if not run.complete:
            save(run._merged(), path)
            shards._remove(run.shards, read(path))

    monkeypatch.setattr(shards, "_refuse_more_images", meanwhile)
    with exclusive(path):
        assert split_run(path, settings, requested=None, default=3).complete
    assert_same(path, expected)


def test_a_whole_file_that_another_process_writes_is_not_split(
    smoothmix: Run, tmp_path: Path
) -> None:
    put_network(tmp_path)
    path = tmp_path / "certificates.tsv"
    with jobs_in(tmp_path) as jobs:
        frozen = jobs.smoothmix("certify", *OPTIONS, "--skip", 10)
        until(lambda: rows_in(path), "a row")
        os.kill(frozen.process.pid, signal.SIGSTOP)
        refused = smoothmix("certify", *OPTIONS, "--skip", 10, "--shard", "1/2")
        os.kill(frozen.process.pid, signal.SIGKILL)
    assert refused.code == 2
    assert "another smoothmix process is writing it as one file" in refused.err
