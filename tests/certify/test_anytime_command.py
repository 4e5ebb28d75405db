"""Certification in mode anytime as a person runs it."""

from __future__ import annotations

import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from smoothmix.certificates import read
from smoothmix.config import FUSED
from tests.conftest import Run, command

NETWORK = """
import torch

def make():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 10))
"""

FUSABLE = """import torch
def make():
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(),
        torch.nn.AvgPool2d(26), torch.nn.Flatten(),
        torch.nn.Linear(4, 10),
    )
"""


class TestCommand:
    def test_a_run_and_its_extension(self, smoothmix: Run, tmp_path: Path) -> None:
        (tmp_path / "mine.py").write_text(NETWORK)
        base = (
            "certify",
            "--model",
            "mine:make",
            "--sigma",
            "0.5",
            "--data",
            "sample",
            "--skip",
            "250",
        )
        first = smoothmix(*base, "--mode", "anytime", "--radii", "0.1,0.25", "--max-draws", "1024")
        assert first.code == 0, first.err
        assert "anytime, radii 0.1, 0.25 decided and at most 1,024 draws" in first.out
        assert "draws per image on average" in first.out
        other = smoothmix(*base, "--mode", "anytime", "--radii", "0.1,0.25", "--max-draws", "4096")
        assert other.code == 2
        assert "use them, or another --out, or --extend to draw further for its images" in other.err
        fewer = smoothmix(*base, "--max", "1", "--mode", "anytime", "--radii", "0.1", "--extend")
        assert "and --extend draws further for the images that it has: leave --max out" in fewer.err
        outputs = smoothmix(
            *base, "--mode", "anytime", "--radii", "0.1", "--extend", "--num-classes", "12"
        )
        assert (
            outputs.code,
            "--num-classes 12: certificates.tsv was made with 10" in outputs.err,
        ) == (2, True)
        more = smoothmix(
            *base, "--mode", "anytime", "--radii", "0.1,0.25", "--max-draws", "4096", "--extend"
        )
        assert more.code == 0, more.err
        settings = read(tmp_path / "certificates.tsv").settings
        assert settings is not None
        assert settings.guarantee.max_draws == 4096
        assert "anytime, radii 0.1, 0.25 decided" in smoothmix("report", "certificates.tsv").out

    def test_a_file_made_with_fused_layers_is_extended_with_them(
        self, smoothmix: Run, tmp_path: Path
    ) -> None:
        (tmp_path / "fusable.py").write_text(FUSABLE)
        base = (
            "certify",
            "--model",
            "fusable:make",
            "--sigma",
            "0.5",
            "--data",
            "sample",
            "--skip",
            "500",
        )
        rules = ("--mode", "anytime", "--radii", "0.1", "--max-draws")
        assert smoothmix(*base, *rules, "512").code == 0
        settings = read(tmp_path / "certificates.tsv").settings
        assert settings
        assert settings.engine == FUSED
        other = smoothmix(*base, *rules, "1024", "--extend", "--engine", "eager")
        assert (
            other.code,
            "--engine eager: certificates.tsv was made with --engine fused" in other.err,
        ) == (2, True)
        assert smoothmix(*base, *rules, "1024", "--extend").code == 0

    def test_no_rule_for_stopping_is_warned_of(self, smoothmix: Run, tmp_path: Path) -> None:
        (tmp_path / "mine.py").write_text(NETWORK)
        base = (
            "certify",
            "--model",
            "mine:make",
            "--sigma",
            "0.5",
            "--data",
            "sample",
            "--max",
            "2",
        )
        done = smoothmix(*base, "--mode", "anytime", "--n", 512)
        assert done.code == 0, done.err
        assert "note: without --radii or --tolerance there is nothing to stop for" in done.err
        assert (
            "nothing to stop for"
            not in smoothmix(*base, "--mode", "anytime", "--radii", 0.1, "--out", "b.tsv").err
        )

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (("--radii", "0.5"), "--radii goes with --mode anytime"),
            (("--tolerance", "0.5", "--extend"), "--tolerance and --extend go with --mode anytime"),
            (("--mode", "anytime", "--radii", "x"), "numbers are written like 0.25,0.5, got 'x'"),
            (("--mode", "anytime", "--radii", "-1"), "radii must be zero or more"),
            (("--mode", "anytime", "--seconds", "0"), "seconds must be positive"),
            (
                ("--mode", "anytime", "--stop-abstaining"),
                "--stop-abstaining goes with --mode exact",
            ),
        ],
    )
    def test_misuse_is_a_sentence(
        self, smoothmix: Run, tmp_path: Path, options: tuple[str, ...], message: str
    ) -> None:
        (tmp_path / "mine.py").write_text(NETWORK)
        result = smoothmix(
            "certify", "--model", "mine:make", "--sigma", "0.5", "--data", "sample", *options
        )
        assert result.code == 2
        assert message in result.err

    def test_a_killed_run_goes_on_and_ends_the_same(self, tmp_path: Path) -> None:
        (tmp_path / "mine.py").write_text(NETWORK)
        options = (
            "certify",
            "--model",
            "mine:make",
            "--sigma",
            "0.5",
            "--data",
            "sample",
            "--mode",
            "anytime",
        )
        options = (*options, "--tolerance", "0.1", "--max-draws", "2000", "--max", "130")
        path = tmp_path / "killed.tsv"
        process = subprocess.Popen(
            command(*options, "--out", path), cwd=tmp_path, stderr=subprocess.DEVNULL
        )
        while not path.exists() and process.poll() is None:
            time.sleep(0.01)
        process.kill()
        process.wait()
        assert len(read(path).rows) < 130
        for out in (path, tmp_path / "whole.tsv"):
            done = subprocess.run(
                command(*options, "--out", out), cwd=tmp_path, capture_output=True, check=True
            )
            assert done.returncode == 0
        killed, whole = (
            [replace(row, seconds=0.0) for row in read(out).rows]
            for out in (path, tmp_path / "whole.tsv")
        )
        assert killed == whole
