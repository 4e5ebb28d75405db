"""Many processes certify one data set: the file is the one that a single process writes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from smoothmix import certificates, trust
from smoothmix._process.progress import Progress
from smoothmix._process.world import World
from smoothmix.certificates import read
from smoothmix.certificates.selection import parse_shards
from smoothmix.certify.loop import TimeLimit
from smoothmix.errors import CertificateError, SmoothmixError, UsageError
from tests.conftest import Run
from tests.helpers.certification import (
    OPTIONS,
    assert_same,
    certify_as,
    certify_with,
    leftovers,
    put_network,
    run_settings,
    without_time,
)
from tests.helpers.processes import free_port, jobs_in

ALONE = World()


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a single process: 40 images."""
    path = tmp_path_factory.mktemp("one") / "c.tsv"
    file = certify_as(ALONE, run_settings(), path).file
    assert file is not None
    assert 5 < file.correct.sum() < 40, "the network is right for some images and wrong for others"
    return path


class TestFile:
    @pytest.mark.parametrize("processes", [1, 2, 3])
    def test_it_is_the_same_for_any_number_of_processes(
        self, tmp_path: Path, expected: Path, processes: int
    ) -> None:
        path = tmp_path / "c.tsv"
        outcomes = certify_with(processes, run_settings(), path)
        assert_same(path, expected)
        assert all(outcome.file is not None and not outcome.file.missing for outcome in outcomes)
        assert certificates.verify(read(path)).ok

    def test_it_is_the_same_in_mode_anytime(self, tmp_path: Path) -> None:
        settings = run_settings(anytime=True)
        certify_as(ALONE, settings, tmp_path / "one.tsv")
        certify_with(2, settings, tmp_path / "two.tsv")
        assert_same(tmp_path / "two.tsv", tmp_path / "one.tsv")

    def test_a_finished_one_is_left_alone(self, tmp_path: Path, expected: Path) -> None:
        before = expected.read_bytes()
        assert all(outcome.file for outcome in certify_with(3, run_settings(), expected))
        assert certify_as(ALONE, run_settings(), expected, shards="2/5").file is not None
        assert expected.read_bytes() == before
        assert not leftovers(expected)

    def test_more_shards_than_images_are_no_harm(self, tmp_path: Path, expected: Path) -> None:
        path = tmp_path / "c.tsv"
        for shard in range(1, 6):
            certify_as(ALONE, run_settings(maximum=3), path, shards=f"{shard}/5")
        assert without_time(path) == without_time(expected)[:4]
        assert not leftovers(path)


class TestResuming:
    def test_what_one_process_left_is_given_to_shards_and_not_drawn_again(
        self, tmp_path: Path, expected: Path
    ) -> None:
        path = tmp_path / "c.tsv"
        certify_as(ALONE, run_settings(maximum=15), path)
        before = path.read_bytes()
        certify_with(2, run_settings(), path)
        assert_same(path, expected)
        assert path.read_bytes().startswith(before), "even the times are those of the first run"

    def test_what_many_left_is_finished_by_one(self, tmp_path: Path, expected: Path) -> None:
        path = tmp_path / "c.tsv"
        certify_as(ALONE, run_settings(), path, shards="2,3/4")
        rows = {
            row.idx: row for part in (2, 3) for row in read(tmp_path / f"c-{part}-of-4.tsv").rows
        }
        assert certify_as(ALONE, run_settings(), path).file is not None
        assert_same(path, expected)
        assert rows.items() <= {row.idx: row for row in read(path).rows}.items()

    @pytest.mark.parametrize("processes", [1, 3, 5])
    def test_another_number_of_processes_resumes(
        self, tmp_path: Path, expected: Path, processes: int
    ) -> None:
        path = tmp_path / "c.tsv"
        certify_as(ALONE, run_settings(), path, shards="1/4")
        certify_with(processes, run_settings(), path)
        assert_same(path, expected)

    def test_a_process_does_the_work_of_those_that_never_come(
        self, tmp_path: Path, expected: Path
    ) -> None:
        path = tmp_path / "c.tsv"
        assert certify_as(World(1, 3), run_settings(), path).file is not None
        assert_same(path, expected)

    def test_more_images_may_be_asked_for_later_but_not_fewer(
        self, tmp_path: Path, expected: Path
    ) -> None:
        path = tmp_path / "c.tsv"
        certify_with(2, run_settings(maximum=9), path)
        assert without_time(path) == without_time(expected)[:10]
        certify_as(ALONE, run_settings(maximum=20), path, shards="1/2")
        with pytest.raises(UsageError, match="shard of a run of 20 images, not 12"):
            certify_as(ALONE, run_settings(maximum=12), path)
        certify_with(2, run_settings(), path)
        assert_same(path, expected)

    def test_the_versions_that_wrote_any_shard_are_recorded(self, tmp_path: Path) -> None:
        path, settings = tmp_path / "c.tsv", run_settings(maximum=4)
        older = replace(settings, versions={**settings.versions, "scipy": "1.0"})
        certify_as(ALONE, older, path, shards="1/2")
        certify_as(ALONE, settings, path, shards="2/2")
        merged = read(path).settings
        assert merged is not None
        assert merged.versions["scipy"] == f"1.0, {settings.versions['scipy']}"

    def test_time_that_is_up_leaves_the_rest_for_the_same_command(self, tmp_path: Path) -> None:
        path, settings, no_time = (
            tmp_path / "c.tsv",
            run_settings(anytime=True),
            TimeLimit(seconds=1e-6),
        )
        with pytest.raises(
            SmoothmixError, match="the first image could not be finished in the time given"
        ):
            certify_as(World(0, 2), settings, path, time_limit=no_time)
        certify_as(ALONE, settings, path, shards="2/4")
        outcome = certify_as(World(0, 2), settings, path, time_limit=no_time)
        assert outcome.file is None
        assert [part.number for part in outcome.unfinished] == [1, 3, 4]
        assert certify_as(ALONE, settings, path).file is not None


class TestRefusals:
    def test_shards_and_whole_files_of_other_settings(self, tmp_path: Path) -> None:
        path = tmp_path / "c.tsv"
        certify_as(ALONE, run_settings(maximum=4), path, shards="1/2")
        for shards in ("", "2/2"):
            with pytest.raises(
                UsageError,
                match=r"c-1-of-2.tsv: was started with other settings: n is 300 there and 900",
            ):
                certify_as(ALONE, run_settings(maximum=4, n=900), path, shards=shards)
        certify_as(ALONE, run_settings(maximum=4), path, shards="2/2")
        with pytest.raises(
            UsageError, match=r"c.tsv: was started with other settings: n is 300 there and 900 here"
        ):
            certify_as(World(0, 2), run_settings(maximum=4, n=900), path)

    def test_a_first_try_that_made_no_row_is_not_in_the_way(self, tmp_path: Path) -> None:
        path = tmp_path / "c.tsv"
        replace(run_settings(n=900), shard="2/3").save(tmp_path / "c-2-of-3.toml")
        certify_with(2, run_settings(maximum=4), path)
        assert read(path).missing == []

    def test_shards_of_another_split(self, tmp_path: Path) -> None:
        path = tmp_path / "c.tsv"
        certify_as(ALONE, run_settings(), path, shards="1/2")
        with pytest.raises(
            UsageError, match=r"is split into 2 shards already: give --shard number/2"
        ):
            certify_as(ALONE, run_settings(), path, shards="1/3")
        (tmp_path / "c-1-of-3.toml").write_bytes(
            (tmp_path / "c-1-of-2.toml").read_bytes().replace(b"1/2", b"1/3")
        )
        with pytest.raises(
            UsageError, match="is split into 2 and into 3 shards; delete the files of one kind"
        ):
            certify_as(World(0, 2), run_settings(), path)

    def test_a_file_without_its_settings(self, tmp_path: Path) -> None:
        path = tmp_path / "c.tsv"
        certify_as(ALONE, run_settings(maximum=2), path)
        (tmp_path / "c.toml").unlink()
        with pytest.raises(UsageError, match=r"has no c.toml beside it"):
            certify_as(World(0, 2), run_settings(), path)
        path.rename(tmp_path / "c-1-of-2.tsv")
        with pytest.raises(UsageError, match=r"has no c-1-of-2.toml beside it"):
            certify_as(World(0, 2), run_settings(), path)

    def test_a_whole_file_with_more_than_its_shards_is_not_replaced(self, tmp_path: Path) -> None:
        path = tmp_path / "c.tsv"
        certify_as(ALONE, run_settings(maximum=4), path, shards="1/2")
        certify_as(ALONE, run_settings(maximum=8), tmp_path / "other.tsv")

        def meanwhile(progress: Progress) -> None:
            for name in ("tsv", "toml"):
                (tmp_path / f"c.{name}").write_bytes((tmp_path / f"other.{name}").read_bytes())
            lines = path.read_text().splitlines(keepends=True)
            path.write_text("".join([lines[0], *lines[-2:]]))

        with pytest.raises(CertificateError, match=r"has image 150, which none of its shards has"):
            certify_as(ALONE, run_settings(maximum=4), path, shards="2/2", on_progress=meanwhile)

    @pytest.mark.parametrize(
        "shards", ["0/2", "3/2", "1,3/2", "a/b", "1", "1/0", "-1/2", "/", "1,/2", ",1/2", "1/2/3"]
    )
    def test_shards_that_cannot_be(self, shards: str) -> None:
        with pytest.raises(UsageError, match="a shard is written number/count"):
            parse_shards(shards)


class TestCommand:
    def test_a_job_array_makes_the_whole_file(
        self, smoothmix: Run, tmp_path: Path, expected: Path
    ) -> None:
        put_network(tmp_path)
        first = smoothmix("certify", *OPTIONS, "--skip", 25, "--shard", "2/4")
        assert first.code == 0, first.err
        assert "10 images" in first.out
        assert "certificates: certificates-2-of-4.tsv" in first.err
        assert "unfinished shards of 4: 1, 3, 4" in first.err
        several = smoothmix("certify", *OPTIONS, "--skip", 25, "--shard", "1,3/4")
        assert (several.code, several.out) == (0, "")
        assert "unfinished shards of 4: 4" in several.err
        last = smoothmix("certify", *OPTIONS, "--skip", 25, "--shard", "4/4")
        assert "40 images" in last.out
        assert "certificates: certificates.tsv" in last.err
        assert_same(tmp_path / "certificates.tsv", expected)
        assert smoothmix("certify", *OPTIONS, "--skip", 25, "--shard", "2/4").out == last.out

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (
                ("--shard", "1,2/3", "--out", "c.tsv"),
                "--out with --shard takes one shard and one process",
            ),
            (
                ("--shard", "1,2/3", "--mode", "anytime", "--extend"),
                "--extend with --shard takes one shard",
            ),
        ],
    )
    def test_misuse(
        self, smoothmix: Run, tmp_path: Path, options: tuple[str, ...], message: str
    ) -> None:
        put_network(tmp_path)
        result = smoothmix("certify", *OPTIONS, *options)
        assert result.code == 2
        assert message in result.err

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (
                ("certify", *OPTIONS, "--mode", "anytime", "--extend"),
                "--extend draws further in one file: start it",
            ),
            (
                ("predict", "--model", "digits:make"),
                "predict writes its lines with one process: start it",
            ),
        ],
    )
    def test_some_things_are_for_one_process(
        self,
        smoothmix: Run,
        monkeypatch: pytest.MonkeyPatch,
        arguments: tuple[object, ...],
        message: str,
    ) -> None:
        for name, value in {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}.items():
            monkeypatch.setenv(name, value)
        result = smoothmix(*arguments)
        assert result.code == 2
        assert f"{message} without torchrun" in result.err

    def test_every_process_takes_a_gpu_of_its_own(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from smoothmix.cli.models import load_network
        from smoothmix.cli.options import ModelOptions

        put_network(tmp_path)
        monkeypatch.syspath_prepend(tmp_path)
        trust("digits")
        chosen: list[torch.device] = []
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
        monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
        monkeypatch.setattr(torch.nn.Module, "to", lambda self, device: chosen.append(device))
        for environment in ({}, {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1"}):
            for name, value in environment.items():
                monkeypatch.setenv(name, value)
            load_network(None, ModelOptions(model="digits:make"))
        assert chosen == [torch.device("cuda"), torch.device("cuda:1")]


class TestLaunchers:
    def test_two_launchers_certify_together(self, tmp_path: Path, expected: Path) -> None:
        put_network(tmp_path)
        launch = (
            f"--nnodes 2 --nproc-per-node 1 --master-addr 127.0.0.1 --master-port {free_port()}"
        )
        with jobs_in(tmp_path) as jobs:
            nodes = [
                jobs.torchrun(
                    f"{launch} --node-rank {node}", "--", "certify", *OPTIONS, "--skip", 25
                )
                for node in (0, 1)
            ]
            assert [node.wait() for node in nodes] == [0, 0], [node.output for node in nodes]
        assert_same(tmp_path / "certificates.tsv", expected)
        assert nodes[0].output.count("average certified radius") == 1
        assert "average certified radius" not in nodes[1].output

    def test_reproduce_trains_and_certifies_with_all_ranks(self, tmp_path: Path) -> None:
        rows = (
            "--rows",
            "gaussian",
            "--epochs",
            1,
            "--n",
            200,
            "--max",
            6,
            "--skip",
            100,
            "--device",
            "cpu",
        )
        with jobs_in(tmp_path) as jobs:
            job = jobs.torchrun(
                "--nproc-per-node 2",
                "--",
                "reproduce",
                "quick",
                *rows,
                "--out",
                "out",
                "--format",
                "csv",
            )
            assert job.wait() == 0, job.output
        assert job.output.count("wrote out/table.md") == 1, "one process makes the tables"
        names = {path.name for path in (tmp_path / "out").iterdir()}
        assert names == {
            "table.md",
            "table.toml",
            "table.tex",
            "table.csv",
            "table.json",
            "report.html",
            "quick-gaussian",
        }
        file = tmp_path / "out" / "quick-gaussian" / "certificates.tsv"
        assert len(read(file).rows) == 6
        assert not leftovers(file)
