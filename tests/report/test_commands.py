"""The commands that a report shows for getting a run again."""

from __future__ import annotations

import lzma
from dataclasses import replace
from pathlib import Path

import pytest

from smoothmix.analysis import measure
from smoothmix.config import FUSED, RunConfig
from smoothmix.report.commands import commands, train_command
from smoothmix.runs.options import RunOverrides
from smoothmix.runs.plan import make_config
from tests.helpers.certificates import our_file, run_folder


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (
            make_config(RunOverrides(), preset="mnist/0.50/gaussian"),
            "train mnist/0.50/gaussian --out",
        ),
        (
            make_config(RunOverrides(epochs=3, seed=4), preset="mnist/0.50/gaussian"),
            "train mnist/0.50/gaussian --epochs 3 --seed 4 --out",
        ),
        (
            make_config(RunOverrides(epochs_scale=0.33), preset="mnist/1.00/macer"),
            "train mnist/1.00/macer --epochs-scale 0.33 --out",
        ),
        (
            make_config(RunOverrides(fidelity="paper"), preset="mnist/0.50/gaussian"),
            "mnist/0.50/gaussian --fidelity paper --out",
        ),
        (
            make_config(RunOverrides(batch=7), preset="mnist/0.50/gaussian"),
            "train --config runs/x/config.toml --out",
        ),
        (
            make_config(RunOverrides(data="mnist", sigma=0.3)),
            "train --config runs/x/config.toml --out",
        ),
    ],
)
def test_the_command_that_is_shown_makes_the_same_run(config: RunConfig, words: str) -> None:
    assert f"{words} runs/x-again" in train_command(config, Path("runs/x"))


def test_commands_that_are_shown_touch_nothing_that_is_there(tmp_path: Path) -> None:
    run = run_folder(
        tmp_path / "g", [900], make_config(RunOverrides(), preset="mnist/0.50/gaussian")
    )
    train, certify = commands(measure(run))
    assert train.endswith(f"--out {run}-again")
    assert f"smoothmix certify {run}-again " in certify
    assert certify.endswith(f"--out {run}-again/certificates.tsv")
    packed = run / "certificates.tsv.xz"
    packed.write_bytes(lzma.compress((run / "certificates.tsv").read_bytes()))
    (run / "certificates.tsv").unlink()
    assert commands(measure(run))[1] == certify
    replace(RunConfig.load(run / "config.toml"), notes=("imported from x.pt",)).save(
        run / "config.toml"
    )
    (certify,) = commands(measure(run))
    assert f"smoothmix certify {run} " in certify
    assert certify.endswith(f"--out {run}/certificates-again.tsv")


def test_the_command_for_ones_own_network_has_its_weights_and_engine(tmp_path: Path) -> None:
    file = our_file(
        tmp_path / "mine.tsv",
        [900],
        model="nets:mine",
        weights="mine.safetensors",
        engine="torch-cpu",
    )
    (certify,) = commands(measure(file))
    assert "certify --model nets:mine --weights mine.safetensors " in certify
    assert "--engine eager" in certify
    assert certify.endswith(f"--out {tmp_path}/mine-again.tsv")
    fused = our_file(tmp_path / "fused.tsv", [900], engine=FUSED)
    assert "--engine fused" in commands(measure(fused))[0]
