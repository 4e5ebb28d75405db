"""A run beside the published number: what it did less of, or otherwise."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from smoothmix import presets
from smoothmix.analysis import measure
from smoothmix.report import compare_runs
from smoothmix.report.published import cuts
from smoothmix.runs.options import RunOverrides
from smoothmix.runs.plan import make_config
from tests.helpers.certificates import our_file, run_folder


def test_a_full_run_of_a_preset_is_held_against_its_published_number(tmp_path: Path) -> None:
    folder = run_folder(
        tmp_path / "g",
        [100_000] * 10_000,
        make_config(RunOverrides(), preset="mnist/0.50/gaussian"),
        n=100_000,
        data="mnist",
    )
    measured = measure(folder)
    assert cuts(measured, presets.get("mnist/0.50/gaussian")).every == ()
    (run,) = compare_runs([measured], title="t").runs
    assert run.published is not None
    assert run.published.caution == ""
    assert run.published.deviations_away == pytest.approx(
        (float(f"{measured.radius[0]:.3}") - 1.5581) / 0.0016
    )


@pytest.mark.parametrize(
    ("images", "expected"),
    [
        (range(0, 50_000, 100), ()),
        (range(0, 50_000, 1000), ("50 of 500 images",)),
        (range(500), ("500 other images than the paper's 500 (every 100th, from 0 on)",)),
        (
            range(0, 50_000, 50),
            ("1,000 other images than the paper's 500 (every 100th, from 0 on)",),
        ),
    ],
)
def test_it_counts_which_images_of_imagenet_were_certified(
    tmp_path: Path, images: range, expected: tuple[str]
) -> None:
    measured = measure(our_file(tmp_path / "a.tsv", [900] * len(images)))
    found = cuts(replace(measured, idx=np.array(images)), presets.get("imagenet/0.50/gaussian"))
    assert found.images == expected


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ({"batch": 128}, ("not the schedule of {}: batch 128 instead of 256",)),
        ({"epochs_scale": 1 / 3}, ("30 of 90 epochs",)),
        (
            {"epochs": 30, "batch": 128, "precision": "bf16"},
            (
                "30 of 90 epochs",
                "not the schedule of {}: batch 128 instead of 256, precision bf16 instead of fp32",
            ),
        ),
    ],
)
@pytest.mark.parametrize("preset", ["mnist/0.50/gaussian", "mnist/0.50/smoothmix-eta5"])
def test_what_was_trained_otherwise_is_said(
    tmp_path: Path, preset: str, overrides: dict[str, Any], expected: tuple[str, ...]
) -> None:
    folder = run_folder(
        tmp_path / "g", [1000], make_config(RunOverrides(**overrides), preset=preset), n=1000
    )
    found = cuts(measure(folder), presets.get(preset))
    assert found.schedule == tuple(words.format(preset) for words in expected)
    assert not found.comparable
