"""The command `plan`: its tables, what it measures, and the command that it advises."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

import smoothmix as sm
from smoothmix.cli import app
from tests.conftest import ROOT, Run

ZOO = "zoo:mnist-0.50-gaussian"
FILE = ROOT / "results" / "mnist-0.50-gaussian" / "certificates.tsv.xz"


def advised(err: str) -> list[str]:
    (line,) = [line for line in err.splitlines() if line.startswith("to certify with it: ")]
    return shlex.split(line.removeprefix("to certify with it: smoothmix "))


def test_the_table_of_radii_is_that_of_the_guarantee(smoothmix: Run) -> None:
    done = smoothmix("plan", "--sigmas", "0.25,0.5", "--draws", "1000,100000", "--format", "json")
    assert done.code == 0, done.err
    rows = json.loads(done.out)["rows"]
    assert len(rows) == 2 * 3
    for row in rows:
        for n in (1_000, 100_000):
            certification = sm.Certification(
                sigma=row["sigma"], guarantee=sm.FixedDraws(n, alpha=row["alpha"])
            )
            assert row[f"radius_{n}"] == pytest.approx(certification.largest_radius, abs=5e-4)


@pytest.mark.parametrize("mode", ["exact", "anytime"])
def test_a_radius_alone_gives_a_command_that_is_understood(smoothmix: Run, mode: str) -> None:
    done = smoothmix("plan", "0.75", "--mode", mode, "--noise", "laplace", "--format", "md")
    assert done.code == 0, done.err
    assert done.out.count("| chosen |") == 1
    assert "L1 radii" in done.out
    words = advised(done.err)
    app.parse_args(words, exit_on_error=False, print_error=False)
    assert words[:2] == ["certify", "RUN"]
    assert ("--radii" in words) == (mode == "anytime")


def test_a_network_is_measured_and_what_is_advised_certifies(
    smoothmix: Run, tmp_path: Path
) -> None:
    options = ("--data", "sample", "--sigmas", "0.25,0.5", "--draws", "500,2000")
    sample = ("--sample", "12", "--seconds", "1")
    done = smoothmix("plan", "0.5", ZOO, *options, *sample, "--format", "json")
    assert done.code == 0, done.err
    table = json.loads(done.out)
    assert all(row["seconds_per_image"] > 0 for row in table["rows"])
    (chosen,) = [row for row in table["rows"] if row["chosen"]]
    assert chosen["reached_percent"] > 70
    assert "draws for each of 12 images of sample" in table["notes"][0]
    command = [*advised(done.err), "--max", "1", "--out", str(tmp_path / "c.tsv")]
    done = smoothmix(*command)
    assert done.code == 0, done.err


def test_a_certificate_file_is_enough(smoothmix: Run) -> None:
    done = smoothmix("plan", "0.75", "--certificates", str(FILE), "--format", "json")
    assert done.code == 0, done.err
    rows = json.loads(done.out)["rows"]
    measured = [row for row in rows if row["reached_percent"] is not None]
    assert {row["sigma"] for row in measured} == {0.5}
    assert advised(done.err)[:4] == ["certify", "RUN", "--sigma", "0.5"]
    refused = smoothmix("plan", "0.75", "--certificates", str(FILE), "--noise", "laplace")
    assert refused.code == 2
    assert "leave --noise out" in refused.err


def test_what_cannot_be_planned_is_refused(smoothmix: Run) -> None:
    for words, message in (
        (["9"], "no setting reaches radius 9"),
        (["--model", "package.module:make"], "name the wanted radius first"),
        (["0.5", "--draws", "10.5"], "draws are whole numbers"),
        (["0.5", "--sample", "-1"], "sample must be 0 or more"),
        (["0.5", "--mode", "sometimes"], "sometimes"),
    ):
        done = smoothmix("plan", *words)
        assert done.code == 2, done.err
        assert message in done.err
